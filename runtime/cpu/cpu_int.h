/* Private to runtime/cpu: the CPU driver.
 *
 * A row of cpu_kernels.def names a function that may prepare an operator; rows are tried in order.
 * A function that does not support a launch leaves prep->run NULL and returns OK. The last resort
 * is the reference implementation (weft_ref__prepare). */
#ifndef WEFT_RUNTIME_CPU_CPU_INT_H
#define WEFT_RUNTIME_CPU_CPU_INT_H

#include "runtime/cpu/cpu_vec.h"
#include "runtime/driver_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct weft_cpu weft_cpu;
typedef struct weft_cpu_pack weft_cpu_pack;

/* -- NaN: cpu_nan.c ------------------------------------------------------------------------- */

enum { WEFT_TAME_OPERANDS = 20 };
/* Whether the operands of a kernel may make NaN: filled when it is prepared. */
typedef struct weft_cpu_tame {
    const weft_cpu *cpu;
    bool always;       /* no look at the operands can tell that they make none */
    bool weights_tame; /* found by an earlier look */
    uint32_t n;
    struct {
        uint32_t arg;
        bool weight;
        int64_t count; /* elements in memory, f32 */
    } at[WEFT_TAME_OPERANDS];
} weft_cpu_tame;
bool weft_cpu__are_tame(const weft_cpu *cpu, const float *x, int64_t n);
void weft_cpu__tame_init(const weft_prep *p, weft_cpu_tame *out);
/* After the flag was raised: NaN is lost unless all operands are tame. */
void weft_cpu__lose_nan(weft_cpu_tame *tame, void *const *arg);
/* The run is repeated unless these numbers are tame. */
void weft_cpu__need_tame(const weft_cpu *cpu, const float *x, int64_t n);
/* Of the runs of the calling thread: whether a kernel has lost or spread NaN; a new run begins. */
bool weft_cpu__has_lost_nan(void);
void weft_cpu__forget_lost_nan(void);

/* Lanes after the last channel of a value in blocks of channels. They stay zero, because
 * convolutions multiply them by zeros. */
typedef struct weft_cpu_lanes {
    int64_t unused; /* of a block; 0: none */
    int64_t block, plane, image, all;
    size_t size; /* of an element */
} weft_cpu_lanes;
weft_cpu_lanes weft_cpu__lanes(const weft_slot *s);
void weft_cpu__clear_lanes(const weft_cpu_lanes *lanes, void *value);

struct weft_cpu {
    uint32_t threads;
    double least_ns; /* a kernel of less than this uses one thread */
    const weft_cpu_vec *vec;
    bool keep_nan; /* the flag is not known for all threads: no kernel may lose NaN */
    void *dnnl_engine, *dnnl_stream;
    weft_cpu_pack *pack; /* list of packed weights; protected by the engine's lock */
};

#define K(op, fn) weft_err weft_cpu__prepare_##fn(weft_prep *p);
#include "runtime/cpu/cpu_kernels.def"
#undef K

static inline weft_cpu *weft_cpu__of(const weft_prep *p)
{
    return p->engine->device;
}
/* Whether the kernel must keep NaN. */
static inline bool weft_cpu__keeps_nan(const weft_prep *p)
{
    return p->keep_nan || weft_cpu__of(p)->keep_nan;
}
/* Sets the kernel of p to `run` with a copy of `state`, which owns no memory. */
static inline weft_err weft_cpu__set_kernel(weft_prep *p, weft_kernel_fn run, const void *state,
                                            size_t bytes, const char *variant)
{
    p->state = malloc(bytes);
    if (!p->state)
        return WEFT_ERR_NOMEM;
    memcpy(p->state, state, bytes);
    p->run = run;
    p->variant = variant;
    return WEFT_ERR_OK;
}

/* Splits [0, n) over the threads of the slice and calls fn for each part (there may be more parts
 * than threads); one part when n * cost_ns (roughly, in nanoseconds) is too little work for a
 * second thread. */
typedef void (*weft_par_fn)(void *cx, int64_t begin, int64_t end);
void weft_par_for(uint32_t threads, int64_t n, double cost_ns, weft_par_fn fn, void *cx);
/* Index of the calling thread, below the number of threads. */
uint32_t weft_par_self(void);
/* Work below which the calling thread keeps a loop to itself, from now on. */
void weft_par_begin(double least_ns);

/* Whether oneDNN's parallel regions run on the team's threads (cpu_omp.c). */
bool weft_omp_is_ours(void);

static inline bool weft_slot_is(const weft_slot *s, weft_dtype dtype, weft_layout layout)
{
    return s->present && s->tensor.dtype == dtype && s->layout == layout;
}
static inline bool weft_slot_same_dims(const weft_slot *a, const weft_slot *b)
{
    if (a->tensor.rank != b->tensor.rank)
        return false;
    for (int32_t d = 0; d < a->tensor.rank; d++)
        if (a->tensor.dim[d] != b->tensor.dim[d])
            return false;
    return true;
}
/* Product of dims [from, to). */
static inline int64_t weft_slot_count(const weft_slot *s, int32_t from, int32_t to)
{
    int64_t n = 1;
    for (int32_t d = from; d < to; d++)
        n *= s->tensor.dim[d];
    return n;
}
static inline int64_t weft_slot_numel(const weft_slot *s)
{
    return weft_slot_count(s, 0, s->tensor.rank);
}
/* Elements in memory, padding of the layout included. */
static inline int64_t weft_cpu__slot_stored(const weft_slot *s)
{
    int64_t block = weft_layout_block(s->layout), n = weft_slot_numel(s);
    if (block == 1 || s->tensor.rank < 2 || s->tensor.dim[1] == 0)
        return n;
    return n / s->tensor.dim[1] * ((s->tensor.dim[1] + block - 1) / block * block);
}

/* -- Copies with strides: cpu_move.c -------------------------------------------------------- */

enum { WEFT_COPY_BOX_RANK = 2 * WEFT_RANK_MAX };

/* A copy of a box of dim[] elements from src + src_at to dst + dst_at; offsets and strides in
 * elements. */
typedef struct weft_copy_box {
    uint32_t src, dst; /* indices in the launch's args */
    int32_t rank;
    int64_t dim[WEFT_COPY_BOX_RANK], src_stride[WEFT_COPY_BOX_RANK], dst_stride[WEFT_COPY_BOX_RANK];
    int64_t src_at, dst_at;
} weft_copy_box;

typedef struct weft_moves weft_moves;
/* Sets the kernel of p to these copies of elements of `size` bytes. Copies `box`. */
weft_err weft_cpu__set_moves(weft_prep *p, const weft_copy_box *box, uint32_t n, size_t size,
                             const char *variant);

/* -- Element-wise programs: cpu_ew.c -------------------------------------------------------- */

typedef struct weft_cpu_ew weft_cpu_ew;

/* Prepares a program over the accumulator (`acc`: there is one) and operands in[0..n_in) with one
 * result. *out is NULL when the program is not supported. */
weft_err weft_cpu__ew_create(weft_prep *p, const weft_step *step, uint32_t n_step, bool acc,
                             weft_cpu_ew **out);
void weft_cpu__ew_destroy(weft_cpu_ew *ew);
/* `arg` as for a kernel; the accumulator is the result itself, updated in place. */
void weft_cpu__ew_run(weft_cpu_ew *ew, void *const *arg);

#endif
