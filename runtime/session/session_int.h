/* Private to runtime/session.
 *
 * A specialisation is a program at concrete values of its symbols: every value has a place and
 * every launch a kernel. Values whose dims depend on data (weft_dim_is_data), and values computed
 * from them, have a dynamic shape: their launches are inferred, allocated and prepared during the
 * run. */
#ifndef WEFT_RUNTIME_SESSION_SESSION_INT_H
#define WEFT_RUNTIME_SESSION_SESSION_INT_H

#include "base/pack.h"
#include "ops/place.h"
#include "runtime/driver_int.h"

#include <setjmp.h>

/* Size of a session's cache of specialisations; smaller on the host, where each kernel owns memory.
 */
enum {
    WEFT_SPECIALISATION_MAX = 64,
    WEFT_SPECIALISATION_HOST_MAX = 16,
    WEFT_LAUNCH_ARG_MAX = 4096
};

typedef struct weft_specialisation_value {
    weft_place place;
    uint32_t root;   /* the value that owns the memory; v itself if it is no alias */
    uint32_t input;  /* WEFT_PLACE_INPUT: index of the input */
    uint64_t offset; /* WEFT_PLACE_ARENA: offset in the session's memory */
    uint64_t bytes;
    uint64_t shift; /* WEFT_PLACE_ALIAS: offset from the start of the root */
    weft_slot slot; /* tensor.data: address, set by bind */
} weft_specialisation_value;

/* What a driver prepared for a launch. */
typedef struct weft_prepared_kernel {
    weft_kernel_fn run;
    void *state;
    void (*destroy)(void *state);
    const char *variant;
    uint64_t scratch_bytes;
} weft_prepared_kernel;

/* A kernel of all launches that need the same one (shared_kernel.c), and what they agree in. */
typedef struct weft_shared_kernel weft_shared_kernel;
typedef struct weft_kernel_key {
    uint64_t hash;
    const uint64_t *word;
    size_t n_word;
} weft_kernel_key;

typedef struct weft_specialisation_launch {
    weft_kernel_fn run; /* NULL: no work (a view), or a dynamic shape */
    void *state;
    void **arg;                   /* inputs, outputs, scratch memory */
    weft_shared_kernel *kernel;   /* owns the state, or */
    void (*destroy)(void *state); /* destroys a state that is the launch's own */
    const char *variant;
    uint64_t scratch_bytes, scratch_offset;
    bool dynamic;
    bool view;   /* the result shares the bytes of the operand */
    bool joined; /* a concatenation whose operands are computed in place in its result */
} weft_specialisation_launch;

/* An address that must be updated to the input at each run. */
typedef struct weft_specialisation_patch {
    void **at;
    uint32_t input;
} weft_specialisation_patch;

/* Launches of a device that are one graph, and the launch with bodies that follows them. */
typedef struct weft_specialisation_part {
    weft_bound_list bound;
    void *graph;
    uint32_t body;  /* UINT32_MAX: none */
    uint64_t *host; /* per operand and result of the body: offset in host memory */
    void **arg;     /* and their addresses there */
} weft_specialisation_part;

typedef struct weft_specialisation {
    int64_t *symbol;
    weft_arena *arena;                /* owns everything below */
    weft_specialisation_value *value; /* [v]; v counts from 1 */
    weft_specialisation_launch *launch;
    weft_specialisation_patch *patch;
    uint32_t n_patch;
    uint32_t *alias; /* values that are aliases of an input */
    uint32_t n_alias;
    uint64_t *copy; /* per output: offset + 1 of its copy in the session's memory; 0: no copy */
    /* For devices with memory of their own (session_device.c). Inputs are contiguous in the
     * session's memory and, in the same order, in host memory; outputs follow the inputs in host
     * memory, and operands and results of bodies follow the outputs. */
    uint64_t input_offset, input_bytes;
    uint64_t *input_at;              /* per input: offset from the first input */
    uint64_t *output_at;             /* per output: offset in host memory */
    uint64_t host_bytes, body_bytes; /* body_bytes: of them, for the bodies */
    weft_specialisation_part *part;
    uint32_t n_part;
    const char *graph_base; /* the memory that the graphs' addresses point into; NULL: no graph */
    uint64_t bytes;         /* of all blocks below: the arena's size */
    uint64_t arena_bytes;   /* of the values, without scratch memory */
    bool planned;           /* the bundle's offsets are used */
    bool keep_nan;          /* its kernels do */
    const char *base;       /* the memory that bound addresses point into */
    uint64_t last_use;
} weft_specialisation;

typedef struct weft_dynamic_shape_block {
    struct weft_dynamic_shape_block *next;
    uint64_t bytes;
} weft_dynamic_shape_block;

/* Sessions of bodies; functions of session.c, which is above the files that call them. */
typedef struct weft_body_ops {
    weft_err (*open)(weft_engine *engine, const weft_bundle_program *program, weft_diag *diag,
                     weft_session **out);
    /* body->known: values of symbols that the program around it knows. */
    weft_err (*run)(weft_session *body, const weft_tensor *in, weft_diag *diag, weft_tensor *out);
    /* Prepares the sizes that body->symbol gives. */
    weft_err (*ready)(weft_session *body);
} weft_body_ops;

/* Of a batch that runs in slices (batch_slices.c). */
enum { WEFT_SLICING_MAX = 8 };
typedef struct weft_slicing {
    int64_t *symbol[WEFT_SLICING_MAX]; /* sizes decided lately, and the rows of a slice */
    int64_t rows[WEFT_SLICING_MAX];    /* 0: not divided */
    uint32_t next;
    int64_t last;          /* rows of a slice of the last run; 0: it was not divided */
    weft_tensor *in, *out; /* of the slice */
    weft_memory memory;    /* outputs of the whole batch */
} weft_slicing;

struct weft_session {
    weft_engine *engine;
    const weft_bundle_program *program;
    weft_specialisation *spec[WEFT_SPECIALISATION_MAX];
    const weft_specialisation *now; /* the one last run or warmed */
    uint64_t clock;
    weft_memory *memory,
        own_memory; /* arena of activations and results: own_memory or the engine's */
    weft_kernel_table *kernels, own_kernels; /* as `memory` */
    /* For devices with memory of their own. */
    void *queue;
    char *host;
    uint64_t host_bytes;
    /* Launches of dynamic shape. */
    int64_t *symbol; /* value of every symbol of the pool in this run; -1: unknown */
    uint32_t n_symbol;
    weft_slot *dynamic; /* [v]: a value of dynamic shape in this run */
    weft_dynamic_shape_block *block;
    const void **input; /* per input: address of its data in this run */
    weft_arena *scratch;
    /* Launches with bodies. */
    const weft_body_ops *bodies;
    weft_session **nested; /* [launch][body], opened when first run; NULL: none yet */
    int64_t *known;        /* of a body: per symbol, its value in the program around it, or -1 */
    weft_diag *diag;       /* of the run in progress */
    double stop_us; /* the run in progress ends at this time of weft_session__now_us; 0: none */
    uint64_t skip;  /* outputs that are not wanted: weft_session_skip */
    bool *idle;     /* per launch: not to be run; NULL: all are */
    weft_slicing slices;
    /* Adapters (session_adapter.c). */
    struct weft_session_adapters *adapters;
    weft_adapter_rows adapter_rows;
    /* Profile. */
    bool keep_nan; /* the run is repeated because its kernels lost NaN */
    bool profile;
    uint64_t n_profiled;
    double *sum_us; /* per launch */
    weft_launch_time *time;
};

/* Returns the specialisation for these values of the program's symbols, from the cache or newly
 * made. The session owns it. */
WEFT_MUST_USE weft_err weft_specialisation__get(weft_session *s, const int64_t *symbol,
                                                weft_diag *diag, weft_specialisation **out);
/* Makes a specialisation: kernels and offsets, without memory for its values. The caller destroys
 * it. */
WEFT_MUST_USE weft_err weft_specialisation__make(weft_session *s, const int64_t *symbol,
                                                 weft_diag *diag, weft_specialisation **out);
/* The key of launch `i` with these attributes, which are bound; in `arena`. */
weft_kernel_key weft_shared_kernel__key(const weft_session *s, const weft_specialisation *spec,
                                        uint32_t i, weft_attrs attrs, weft_arena *arena);
/* The kernel with this key among those that the session may use, with a reference more; NULL if
 * there is none. */
weft_shared_kernel *weft_shared_kernel__find(const weft_session *s, const weft_kernel_key *key);
/* A kernel from what the driver prepared, with one reference. NULL when out of memory: the state is
 * destroyed. */
weft_shared_kernel *weft_shared_kernel__make(const weft_session *s, const weft_kernel_key *key,
                                             const weft_prep *prep);
const weft_prepared_kernel *weft_shared_kernel__get(const weft_shared_kernel *kernel);
void weft_shared_kernel__drop(weft_shared_kernel *kernel);
/* Alignment of the value's address in the session's memory. */
static inline uint32_t weft_specialisation__align(const weft_specialisation_value *v)
{
    uint64_t shift = v->shift | WEFT_ARENA_ALIGN;
    return (uint32_t)(shift & (~shift + 1));
}
/* Makes memory of at least so many bytes; its contents are lost. */
weft_err weft_session__grow(weft_session *s, weft_memory *memory, uint64_t bytes, weft_diag *diag);
/* Sets all addresses of the specialisation to the session's memory, which grows if necessary. */
weft_err weft_specialisation__bind(weft_session *s, weft_specialisation *spec, weft_diag *diag);
void weft_specialisation__destroy(weft_session *s, weft_specialisation *spec);
/* Evaluates the dims in attributes. INPUT when a symbol has no value. */
WEFT_MUST_USE weft_err weft_launch__bind_attrs(const weft_bundle_program *program,
                                               const weft_bundle_launch *launch,
                                               const int64_t *symbol, uint32_t n_symbol,
                                               weft_arena *arena, weft_diag *diag, weft_attrs *out);
/* INPUT when the types of the results differ from what inference derives from the operands. */
WEFT_MUST_USE weft_err weft_launch__check_types(const weft_prep *prep, weft_arena *scratch);
/* Sessions on devices with memory of their own (session_device.c). */
WEFT_MUST_USE weft_err weft_session__open_device(weft_session *s, weft_diag *diag);
void weft_session__close_device(weft_session *s);
void weft_specialisation__place_device(weft_session *s, weft_specialisation *spec);
/* Frees the graphs, or gives them to `heir`, a specialisation of the same program, which updates
 * them. */
void weft_specialisation__free_graphs(weft_session *s, weft_specialisation *spec);
void weft_specialisation__give_graphs(weft_specialisation *spec, weft_specialisation *heir);
WEFT_MUST_USE weft_err weft_specialisation__record_graph(weft_session *s, weft_specialisation *spec,
                                                         weft_diag *diag);
WEFT_MUST_USE weft_err weft_session__run_device(weft_session *s, weft_specialisation *spec,
                                                const weft_tensor *in, weft_diag *diag,
                                                weft_tensor *out);
/* Rows of the batch that should run at a time at these values of the symbols, fewer than it has; 0:
 * it should not be divided. `symbol` is unchanged afterwards. */
int64_t weft_slicing__rows(weft_session *s, int64_t *symbol);
/* Allocates what the following two need. */
WEFT_MUST_USE weft_err weft_slicing__start(weft_session *s);
/* s->slices.in: rows [begin, begin + rows) of the inputs. */
void weft_slicing__cut(weft_session *s, const weft_tensor *in, int64_t begin, int64_t rows);
/* Adds s->slices.out, these rows of `all`, to the outputs `out`, whose memory the session owns. */
WEFT_MUST_USE weft_err weft_slicing__gather(weft_session *s, int64_t begin, int64_t rows,
                                            int64_t all, weft_diag *diag, weft_tensor *out);
void weft_slicing__free(weft_session *s);
/* Adapters of a session (session_adapter.c). */
WEFT_MUST_USE weft_err weft_session__open_adapters(weft_session *s);
void weft_session__close_adapters(weft_session *s);
/* INPUT if s->symbol has another number of rows than adapters are given for. */
WEFT_MUST_USE weft_err weft_session__check_adapters(const weft_session *s, weft_diag *diag);
/* The run that follows has rows [begin, begin + rows) of the batch. */
void weft_session__cut_adapters(weft_session *s, int64_t begin, int64_t rows);
void weft_launch__to_operand(const weft_slot *slot, weft_operand *out);
WEFT_MUST_USE weft_err weft_dynamic_shape__run(weft_session *s, weft_specialisation *spec,
                                               uint32_t launch, weft_diag *diag);
/* Adds the message for a kernel that failed; returns `err`. */
weft_err weft_launch__fail(weft_op_id op, weft_where where, weft_err err, weft_diag *diag);
/* Allocates memory that lives until the next run, 64-byte aligned. */
WEFT_MUST_USE weft_err weft_dynamic_shape__alloc(weft_session *s, uint64_t bytes, weft_diag *diag,
                                                 void **out);
/* Microseconds since an unspecified start. */
double weft_session__now_us(void);
/* Launches with bodies (nested.c). `slot`: operands, then results; copied. */
WEFT_MUST_USE weft_err weft_nested__prepare(weft_session *s, uint32_t launch, weft_attrs attrs,
                                            const weft_slot *slot, weft_specialisation_launch *out);
/* A launch of dynamic shape; `place` sets the dims of a result, value v, and gives it memory. */
typedef weft_err (*weft_place_fn)(weft_session *s, uint32_t v, const weft_tensor *type, void **data,
                                  weft_diag *diag);
WEFT_MUST_USE weft_err weft_nested__run(weft_session *s, uint32_t launch, weft_attrs attrs,
                                        const weft_slot *in, weft_place_fn place);
/* Prepares the bodies of launches whose sizes are known, for their first round; s->symbol has the
 * values of the program's symbols. */
WEFT_MUST_USE weft_err weft_nested__ready(weft_session *s, const weft_specialisation *spec);
/* Memory of the bodies that launches of a session run, at their last sizes. */
uint64_t weft_nested__bytes(const weft_session *s);
/* Frees the memory allocated during the last run. */
void weft_dynamic_shape__reset(weft_session *s);

#endif
