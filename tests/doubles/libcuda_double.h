/* Private to the test double of libcuda.so.1.
 *
 * Work is executed not when it is enqueued but when the caller waits for it, so a program that
 * reads results too early, or changes a buffer too early, gets wrong results. Handles and addresses
 * are never reused, so that uses after destruction are found. */
#ifndef WEFT_TESTS_DOUBLES_LIBCUDA_DOUBLE_H
#define WEFT_TESTS_DOUBLES_LIBCUDA_DOUBLE_H

#include "double.h"
#include "runtime/cuda/cuda_api.h"

/* Functions that the double does not define are weak, and look-up returns NULL. */
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
    unsigned serial; /* per kind, from 1: "stream 2" */
    int device;
    struct weft_object *next;               /* list of all objects, newest first */
    void (*destroy)(struct weft_object *o); /* frees what it owns */
} weft_object;

/* Creates an object of `bytes`, whose first member is a weft_object. NULL: out of memory. */
void *weft_cuda__make(weft_kind kind, size_t bytes, void (*destroy)(weft_object *o));
/* The live object of a kind behind a handle; otherwise NULL, and a mistake of `call`. */
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
    unsigned char *arg; /* argument values, 16 bytes apart */
    void *dst;
    const void *src;
    unsigned char *staged; /* copy of a pageable source, made when enqueued */
    size_t bytes;
    unsigned char value;
    double (*run)(void *data);
    void *data;
    weft_cuda_event *event;
    weft_cuda_exec *exec;
    struct weft_cuda_ctx *ctx; /* context of a graph node; NULL: needs none */
    /* Accesses of the last execution; known in advance for copies, fills and calls. */
    weft_spans read, write;
    /* For work in a stream. */
    uint32_t call; /* number of the call; 0: in a graph */
    struct weft_work *next;
    uint64_t enqueued;
} weft_work;

void weft_work__free(weft_work *w); /* frees what it owns */
/* A deep copy; false: out of memory. */
bool weft_work__copy(weft_work *out, const weft_work *w);
/* Executes it; returns a device error. */
weft_cu_result weft_work__run(weft_work *w);

/* -- Structures ------------------------------------------------------------------------------- */

typedef struct weft_cuda_green weft_cuda_green;

typedef struct weft_cuda_ctx {
    weft_object o;
    weft_cuda_green *green; /* NULL: the primary context */
    bool taken;             /* green: current on some thread */
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
    unsigned capturing; /* number of streams captured into it */
    weft_cuda_ctx *ctx; /* context of its nodes; NULL: no node has one */
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
    weft_cuda_graph *capture; /* NULL: not captured */
    bool broken;              /* the capture was invalidated */
    weft_cuda_node **after;   /* predecessors of the next captured node */
    size_t n_after;
} weft_cuda_stream;

struct weft_cuda_event {
    weft_object o;
    bool recorded, pending;
    double at_us;
};

typedef struct weft_cuda_ptx weft_cuda_ptx;

typedef struct weft_cuda_library {
    weft_object o;
    const weft_double_kernel *kernel;
    unsigned *order; /* of the emulation: the thread that runs first */
    const char *(*fault)(void);
    weft_double_touch_fn *touch; /* called for each access; NULL: not watched */
    weft_cuda_ptx *ptx;          /* NULL: a shared object */
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
    uint64_t limit_bytes; /* limit of this process set by MPS */
    weft_cuda_ctx *primary;
    unsigned retained;
    unsigned smallest_group; /* SMs of a partition: minimum and granularity */
} weft_cuda_device;

typedef struct weft_cuda_world {
    bool init;
    weft_cu_result sticky; /* error of all further calls: the device is lost, or a kernel failed */
    int n_device;
    weft_cuda_device device[WEFT_DEVICES_MAX];
    weft_object *object;
    unsigned serial[WEFT_KINDS];
    uint64_t enqueued; /* number of works enqueued: a logical clock */
    double now_us;     /* simulated time of the devices, the same in every run */
} weft_cuda_world;

extern weft_cuda_world weft_cuda__world;

/* -- Calls ------------------------------------------------------------------------------------ */

enum { WEFT_ANY_TIME = 0, WEFT_AFTER_INIT = 1, WEFT_IN_CONTEXT = 2 };

/* Takes the lock. Returns the error that the call must return in any case, or 0. */
weft_cu_result weft_cuda__enter(const char *call, int needs);
/* Writes the log and releases the lock. Returns `r`. */
weft_cu_result weft_cuda__leave(weft_cu_result r, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The current context of this thread; NULL: none. */
weft_cuda_ctx *weft_cuda__current(void);
weft_cuda_device *weft_cuda__device(void); /* its device */
int weft_cuda__ordinal(void);

/* -- Memory ----------------------------------------------------------------------------------- */

/* Size of the address range for device memory, and of that for pinned memory. */
#define WEFT_MEMORY_ROOM ((size_t)1 << 40)

/* Reports a mistake unless `bytes` at `at` are in one live allocation of a device. */
bool weft_memory__check(const char *what, uintptr_t at, size_t bytes);
/* As weft_memory__check for host memory, if the range touches pinned memory. */
bool weft_memory__check_host(const char *what, uintptr_t at, size_t bytes);
/* The live device allocation that contains an address; false: none. */
bool weft_memory__block(uintptr_t at, uintptr_t *from, uintptr_t *to);
bool weft_memory__is_device(uintptr_t at);
bool weft_memory__is_pinned(uintptr_t at);
/* Address range of all device memory allocated so far. */
void weft_memory__bounds(uintptr_t *from, uintptr_t *to);
/* The live allocations of the devices, at most `room`; returns how many. */
size_t weft_memory__live(weft_double_span *out, size_t room);
/* Reports and frees all remaining allocations of a device. */
void weft_memory__end(int device);
void weft_memory__reset(void);

/* -- Accesses --------------------------------------------------------------------------------- */

void weft_spans__add(weft_spans *s, uintptr_t at, size_t bytes);
/* Sorts by address and merges spans that meet. */
void weft_spans__sort(weft_spans *s);
/* The first common byte of two sorted lists; 0: none. */
uintptr_t weft_spans__meet(const weft_spans *a, const weft_spans *b);
/* Called before and after a watched kernel, and for each of its accesses. */
void weft_watch__start(const weft_work *w);
void weft_watch__end(weft_work *w);
void weft_watch__touch(const void *at, size_t bytes, int write);
void weft_watch__reset(void);

/* -- Streams ---------------------------------------------------------------------------------- */

/* Enqueues work, or adds it to the graph while the stream is captured. Takes ownership of what `w`
 * owns. */
weft_cu_result weft_stream__enqueue(weft_cuda_stream *s, weft_work *w);
weft_cu_result weft_stream__finish(weft_cuda_stream *s); /* executes all its work */
weft_cu_result weft_stream__finish_all(void);
bool weft_stream__uses(const weft_object *o); /* pending work uses the object */
void weft_stream__reset(void);
/* true, with a mistake, while a stream is captured: waiting is not allowed. */
bool weft_stream__is_captured(weft_cuda_stream *s, const char *call);

weft_cu_result weft_graph__add(weft_cuda_graph *g, weft_cuda_node *const *after, size_t n_after,
                               weft_work *w, weft_cuda_node **out);
weft_cu_result weft_exec__run(weft_cuda_exec *exec, weft_spans *read, weft_spans *write);

/* Checks a launch and creates its work. */
weft_cu_result weft_kernel__work(weft_work *out, const char *call, void *kernel,
                                 const unsigned grid[3], const unsigned block[3],
                                 unsigned shared_bytes, void **param, void **extra);
weft_cu_result weft_kernel__run(weft_work *w);

/* -- PTX -------------------------------------------------------------------------------------- */

bool weft_ptx__is(const void *image);
/* Refuses PTX for a higher capability (90). */
weft_cu_result weft_ptx__load(const char *text, int capability, weft_cuda_ptx **out);
void weft_ptx__unload(weft_cuda_ptx *p);
const weft_double_kernel *weft_ptx__kernels(const weft_cuda_ptx *p); /* ends with name NULL */
/* The interpreter's fault; NULL: none. */
const char *weft_ptx__run(weft_cuda_ptx *p, const weft_work *w, void **param);

#endif
