/* Private to the double of libcuda.so.1.
 *
 * Work is not done when it is enqueued but when someone waits for it: a program that reads results
 * too early, or changes what it gave away, gets wrong numbers. Handles and addresses are never used
 * again, so that late users of dead ones are found. */
#ifndef WEFT_TESTS_DOUBLES_LIBCUDA_DOUBLE_H
#define WEFT_TESTS_DOUBLES_LIBCUDA_DOUBLE_H

#include "double.h"
#include "runtime/cuda/cuda_api.h"

/* Functions that the double does not have are not found: NULL. */
#define CUDA_SYM(name, version, need, args) \
    weft_cu_result name args __attribute__((weak, visibility("default")));
#include "runtime/cuda/cuda_syms.def"
#undef CUDA_SYM

/* -- Objects ---------------------------------------------------------------------------------- */

typedef enum weft_kind {
    WEFT_CONTEXT,
    WEFT_STREAM,
    WEFT_EVENT,
    WEFT_LIBRARY,
    WEFT_KERNEL,
    WEFT_GRAPH,
    WEFT_NODE,
    WEFT_EXEC,
    WEFT_DESC,
    WEFT_GREEN,
    WEFT_KINDS
} weft_kind;

typedef struct weft_object {
    weft_kind kind;
    bool dead;
    unsigned serial; /* by kind, from 1: "stream 2" */
    int device;
    struct weft_object *next;               /* of all, newest first */
    void (*destroy)(struct weft_object *o); /* what it owns */
} weft_object;

/* NULL: no memory. `bytes` of a structure that starts with an object. */
void *weft_cuda__make(weft_kind kind, size_t bytes, void (*destroy)(weft_object *o));
/* Live object of a kind. When it is not: a mistake of `call` is told, and NULL. */
void *weft_cuda__get(const void *handle, weft_kind kind, const char *call);
void weft_cuda__kill(weft_object *o);

/* -- Work ------------------------------------------------------------------------------------- */

typedef struct weft_spans {
    weft_double_span *at;
    size_t n, room;
} weft_spans;

typedef enum weft_work_kind {
    WEFT_WORK_EMPTY,
    WEFT_WORK_KERNEL,
    WEFT_WORK_COPY,
    WEFT_WORK_SET,
    WEFT_WORK_CALL,
    WEFT_WORK_EVENT,
    WEFT_WORK_GRAPH
} weft_work_kind;

typedef struct weft_cuda_kernel weft_cuda_kernel;
typedef struct weft_cuda_event weft_cuda_event;
typedef struct weft_cuda_exec weft_cuda_exec;

typedef struct weft_work {
    weft_work_kind kind;
    char what[64]; /* "kernel scale_0", for messages */
    weft_cuda_kernel *kernel;
    unsigned grid[3], threads, shared_bytes;
    unsigned char *arg; /* values one behind the other, 16 bytes apart */
    void *dst;
    const void *src;
    unsigned char *staged; /* pageable source, copied when it was enqueued */
    size_t bytes;
    unsigned char value;
    double (*run)(void *data);
    void *data;
    weft_cuda_event *event;
    weft_cuda_exec *exec;
    struct weft_cuda_ctx *ctx; /* of a graph's node; NULL: it needs none */
    /* Of the last time it ran; known before for copies, sets and calls. */
    weft_spans read, write;
    /* In a stream */
    uint32_t call; /* its number; 0: in a graph */
    struct weft_work *next;
    uint64_t enqueued;
} weft_work;

void weft_work__free(weft_work *w); /* what it owns */
/* A copy that owns its own; false: no memory. */
bool weft_work__copy(weft_work *out, const weft_work *w);
/* Does it. A device error. */
weft_cu_result weft_work__run(weft_work *w);

/* -- Structures ------------------------------------------------------------------------------- */

typedef struct weft_cuda_green weft_cuda_green;

typedef struct weft_cuda_ctx {
    weft_object o;
    weft_cuda_green *green; /* NULL: primary */
    bool taken;             /* green: current to some thread */
} weft_cuda_ctx;

struct weft_cuda_green {
    weft_object o;
    unsigned sms;
    weft_cuda_ctx *ctx;
};

typedef struct weft_cuda_desc {
    weft_object o;
    unsigned sms;
} weft_cuda_desc;

typedef struct weft_cuda_graph {
    weft_object o;
    struct weft_cuda_node **node;
    size_t n, room;
    unsigned capturing; /* streams */
    weft_cuda_ctx *ctx; /* of the nodes so far; NULL: none has one */
} weft_cuda_graph;

typedef struct weft_cuda_node {
    weft_object o;
    weft_cuda_graph *graph;
    size_t number;
    weft_work work;
    struct weft_cuda_node **after;
    size_t n_after;
} weft_cuda_node;

typedef struct weft_cuda_stream {
    weft_object o;
    weft_cuda_green *green;
    weft_work *first, **last;
    weft_cuda_graph *capture; /* NULL: none */
    bool broken;              /* the capture is */
    weft_cuda_node **after;   /* what the next node of the capture follows */
    size_t n_after;
} weft_cuda_stream;

struct weft_cuda_event {
    weft_object o;
    bool recorded, pending;
    double at_us;
};

typedef struct weft_cuda_library {
    weft_object o;
    const weft_double_kernel *kernel;
    unsigned *order; /* of the emulation: which thread runs first */
    const char *(*fault)(void);
    weft_double_touch_fn *touch; /* who is told of accesses; NULL: it does not tell */
} weft_cuda_library;

struct weft_cuda_kernel {
    weft_object o;
    weft_cuda_library *library;
    const weft_double_kernel *of;
    unsigned dynamic_max;
};

/* -- Devices ---------------------------------------------------------------------------------- */

enum { WEFT_DEVICES_MAX = 16 };

typedef struct weft_cuda_device {
    char name[64];
    unsigned char uuid[16];
    int major, minor, sms;
    uint64_t mem_bytes, used_bytes;
    uint64_t limit_bytes; /* of this process, by MPS */
    weft_cuda_ctx *primary;
    unsigned retained;
    unsigned smallest_group; /* SMs of a partition: the least, and its multiples */
} weft_cuda_device;

typedef struct weft_cuda_world {
    bool init;
    weft_cu_result sticky; /* the device is lost, or a kernel failed: all calls say so */
    int n_device;
    weft_cuda_device device[WEFT_DEVICES_MAX];
    weft_object *object;
    unsigned serial[WEFT_KINDS];
    uint64_t enqueued; /* work so far: a clock */
    double now_us;     /* of the devices: made up, the same in every run */
} weft_cuda_world;

extern weft_cuda_world weft_cuda__world;

/* -- Calls ------------------------------------------------------------------------------------ */

enum { WEFT_ANY_TIME = 0, WEFT_AFTER_INIT = 1, WEFT_IN_CONTEXT = 2 };

/* Takes the lock. The error that the call has to return whatever it does, or 0. */
weft_cu_result weft_cuda__enter(const char *call, int needs);
/* Writes the record and gives the lock back. Returns `r`. */
weft_cu_result weft_cuda__leave(weft_cu_result r, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The context of this thread; NULL: none. */
weft_cuda_ctx *weft_cuda__current(void);
weft_cuda_device *weft_cuda__device(void); /* its device */
int weft_cuda__ordinal(void);

/* -- Memory ----------------------------------------------------------------------------------- */

/* Addresses of all devices' memory, and of all pinned memory. */
#define WEFT_MEMORY_ROOM ((size_t)1 << 40)

/* Tells a mistake unless `bytes` at `at` lie in one live allocation of a device. */
bool weft_memory__check(const char *what, uintptr_t at, size_t bytes);
/* Likewise of the host, where the range touches memory of ours at all. */
bool weft_memory__check_host(const char *what, uintptr_t at, size_t bytes);
/* The live allocation of a device that an address lies in; false: none. */
bool weft_memory__block(uintptr_t at, uintptr_t *from, uintptr_t *to);
bool weft_memory__is_device(uintptr_t at);
bool weft_memory__is_pinned(uintptr_t at);
/* Address range of all device memory so far. */
void weft_memory__bounds(uintptr_t *from, uintptr_t *to);
/* Tells of what is left on a device and frees it. */
void weft_memory__end(int device);
void weft_memory__reset(void);

/* -- Accesses --------------------------------------------------------------------------------- */

void weft_spans__add(weft_spans *s, uintptr_t at, size_t bytes);
/* By address, none meets another. */
void weft_spans__sort(weft_spans *s);
/* The first byte that both have; 0: none. Both are sorted. */
uintptr_t weft_spans__meet(const weft_spans *a, const weft_spans *b);
/* Around a kernel that tells its accesses. */
void weft_watch__start(const weft_work *w);
void weft_watch__end(weft_work *w);
void weft_watch__touch(const void *at, size_t bytes, int write);
void weft_watch__reset(void);

/* -- Streams ---------------------------------------------------------------------------------- */

/* Takes what `w` owns; into the graph when the stream is captured. */
weft_cu_result weft_stream__enqueue(weft_cuda_stream *s, weft_work *w);
weft_cu_result weft_stream__finish(weft_cuda_stream *s); /* runs all its work */
weft_cu_result weft_stream__finish_all(void);
bool weft_stream__uses(const weft_object *o); /* work that waits uses it */
void weft_stream__reset(void);
/* A mistake and true when a stream is captured, where nothing may wait. */
bool weft_stream__is_captured(weft_cuda_stream *s, const char *call);

weft_cu_result weft_graph__add(weft_cuda_graph *g, weft_cuda_node *const *after, size_t n_after,
                               weft_work *w, weft_cuda_node **out);
weft_cu_result weft_exec__run(weft_cuda_exec *exec, weft_spans *read, weft_spans *write);

/* Checks a launch and makes it work. */
weft_cu_result weft_kernel__work(weft_work *out, const char *call, void *kernel,
                                 const unsigned grid[3], const unsigned block[3],
                                 unsigned shared_bytes, void **param, void **extra);
weft_cu_result weft_kernel__run(weft_work *w);

#endif
