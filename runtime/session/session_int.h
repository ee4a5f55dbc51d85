/* Private to runtime/: sessions and specialisations.
 *
 * A specialisation is a program at concrete values of its symbols: every value has a place, every
 * launch a kernel. Values whose dims depend on data (weft_dim_is_data), and what is computed from
 * them, have a dynamic shape: their launches are inferred, placed on the heap and prepared during
 * the run. */
#ifndef WEFT_RUNTIME_SESSION_SESSION_INT_H
#define WEFT_RUNTIME_SESSION_SESSION_INT_H

#include "ops/place.h"
#include "runtime/driver_int.h"

#include <setjmp.h>

/* Specialisations that a session keeps: on the host fewer, whose kernels have memory of their own.
 */
enum {
    WEFT_SPECIALISATION_MAX = 64,
    WEFT_SPECIALISATION_HOST_MAX = 16,
    WEFT_LAUNCH_ARG_MAX = 4096
};

typedef struct weft_specialisation_value {
    weft_place place;
    uint32_t root;   /* value with the memory; itself when it is no alias */
    uint32_t input;  /* WEFT_PLACE_INPUT: index */
    uint64_t offset; /* WEFT_PLACE_ARENA */
    uint64_t bytes;
    uint64_t shift; /* WEFT_PLACE_ALIAS: bytes behind the root's start */
    weft_slot slot; /* tensor.data: address, once bound */
} weft_specialisation_value;

typedef struct weft_specialisation_launch {
    weft_kernel_fn run; /* NULL: nothing to do (a view), or a dynamic shape */
    void *state;
    void **arg; /* n_in + n_out + 1 */
    void (*destroy)(void *state);
    const char *variant;
    uint64_t scratch_bytes, scratch_offset;
    weft_attrs attrs; /* concrete unless dynamic */
    bool dynamic;
    bool view;   /* the result has the bytes of the operand */
    bool joined; /* a concatenation whose operands lie in its result */
} weft_specialisation_launch;

/* An address that follows an input. */
typedef struct weft_specialisation_patch {
    void **at;
    uint32_t input;
} weft_specialisation_patch;

typedef struct weft_specialisation {
    int64_t *symbol;
    weft_arena *arena;                /* holds all below */
    weft_specialisation_value *value; /* [v], v from 1 */
    weft_specialisation_launch *launch;
    weft_specialisation_patch *patch;
    uint32_t n_patch;
    uint32_t *alias; /* values that lie in an input */
    uint32_t n_alias;
    uint64_t *copy; /* per output: offset + 1 of the memory to copy it to, 0: none */
    /* On devices with memory of their own (session_device.c). Inputs lie behind each other in the
     * session's memory, as on their way there in the host's; outputs in the host's behind them. */
    uint64_t input_offset, input_bytes;
    uint64_t *input_at;  /* per input: behind the first */
    uint64_t *output_at; /* per output: behind the inputs in the host's memory */
    uint64_t host_bytes;
    weft_bound_list bound;
    void *graph;
    const char *graph_base; /* memory that it points into */
    uint64_t bytes;         /* of the session's memory */
    uint64_t arena_bytes;   /* of the values alone, without scratch memory */
    bool planned;           /* values lie where the bundle says */
    const char *base;       /* memory that addresses point into */
    uint64_t last_use;
} weft_specialisation;

typedef struct weft_dynamic_shape_block {
    struct weft_dynamic_shape_block *next;
    uint64_t bytes;
} weft_dynamic_shape_block;

struct weft_session {
    weft_engine *engine;
    const weft_bundle_program *program;
    weft_specialisation *spec[WEFT_SPECIALISATION_MAX];
    const weft_specialisation *now; /* that of the last run */
    uint64_t clock;
    weft_memory *memory, own_memory; /* arena of activations and results: its own or the engine's */
    /* Of devices with memory of their own. */
    void *queue;
    char *host;
    uint64_t host_bytes;
    /* Launches of dynamic shape. */
    int64_t *symbol; /* value of every symbol of the pool in this run, -1 unknown */
    uint32_t n_symbol;
    weft_slot *dynamic; /* [v]: the value of dynamic shape in this run */
    weft_dynamic_shape_block *block;
    const void **input; /* per input: where its bytes are in this run */
    weft_arena *scratch;
    /* Profile. */
    bool profile;
    uint64_t n_profiled;
    double *sum_us; /* per launch */
    weft_launch_time *time;
};

/* Finds or makes the specialisation for these values of the program's symbols. */
WEFT_MUST_USE weft_err weft_specialisation__get(weft_session *s, const int64_t *symbol,
                                                weft_diag *diag, weft_specialisation **out);
/* Kernels and offsets of a specialisation, which the caller destroys; nothing is allocated for it.
 */
WEFT_MUST_USE weft_err weft_specialisation__make(weft_session *s, const int64_t *symbol,
                                                 weft_diag *diag, weft_specialisation **out);
/* Points everything at the session's memory. */
weft_err weft_specialisation__bind(weft_session *s, weft_specialisation *spec, weft_diag *diag);
void weft_specialisation__destroy(weft_session *s, weft_specialisation *spec);
/* Attributes with DIMS evaluated. INPUT when a symbol is missing. */
WEFT_MUST_USE weft_err weft_launch__bind_attrs(const weft_bundle_program *program,
                                               const weft_bundle_launch *launch,
                                               const int64_t *symbol, uint32_t n_symbol,
                                               weft_arena *arena, weft_diag *diag, weft_attrs *out);
/* INPUT when the results are not what inference makes of the operands. */
WEFT_MUST_USE weft_err weft_launch__check_types(const weft_prep *prep, weft_arena *scratch);
/* The parts of a session, a specialisation and a run where the device has memory of its own. */
WEFT_MUST_USE weft_err weft_session__open_device(weft_session *s, weft_diag *diag);
void weft_session__close_device(weft_session *s);
void weft_specialisation__place_device(weft_session *s, weft_specialisation *spec);
WEFT_MUST_USE weft_err weft_specialisation__record_graph(weft_session *s, weft_specialisation *spec,
                                                         weft_diag *diag);
WEFT_MUST_USE weft_err weft_session__run_device(weft_session *s, weft_specialisation *spec,
                                                const weft_tensor *in, weft_diag *diag,
                                                weft_tensor *out);
void weft_launch__to_operand(const weft_slot *slot, weft_operand *out);
WEFT_MUST_USE weft_err weft_dynamic_shape__run(weft_session *s, weft_specialisation *spec,
                                               uint32_t launch, weft_diag *diag);
/* Memory until the next run, 64-byte aligned. */
/* The message of a kernel that failed; `err`. */
weft_err weft_launch__fail(weft_op_id op, weft_where where, weft_err err, weft_diag *diag);
WEFT_MUST_USE weft_err weft_dynamic_shape__alloc(weft_session *s, uint64_t bytes, weft_diag *diag,
                                                 void **out);
/* Frees the memory of the run before. */
void weft_dynamic_shape__reset(weft_session *s);

#endif
