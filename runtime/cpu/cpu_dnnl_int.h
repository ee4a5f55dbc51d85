/* Private to cpu_dnnl*.c: kernels made of oneDNN primitives.
 *
 * A kernel calls up to four primitives in order (the one that computes, and reorders before and
 * after it) and, where oneDNN cannot fuse the epilogue, runs an element-wise program over the
 * result. Arguments are bound to addresses of the launch; a memory object is updated only when an
 * address changed. */
#ifndef WEFT_RUNTIME_CPU_CPU_DNNL_INT_H
#define WEFT_RUNTIME_CPU_CPU_DNNL_INT_H

#include "runtime/cpu/cpu_dnnl.h"
#include "runtime/cpu/dnnl_api.h"

enum { DNNL_CALL_MAX = 4, DNNL_BIND_MAX = 18, DNNL_PACK_MAX = 4, DNNL_EPILOGUE_MAX = 8 };
enum { DNNL_VALUE_MAX = DNNL_CALL_MAX * WEFT_DNNL_QUANT_ARGS };

typedef struct dnnl_bind {
    int32_t arg;     /* index in the launch's args; -1: constant */
    uint64_t offset; /* from the address of the argument */
    void *at;        /* current address of the memory object */
} dnnl_bind;

typedef struct dnnl_call {
    dnnl_primitive_t prim;
    uint32_t n;
    dnnl_exec_arg_t arg[DNNL_BIND_MAX];
    dnnl_bind bind[DNNL_BIND_MAX];
} dnnl_call;

typedef struct dnnl_kernel {
    weft_engine *engine;
    dnnl_stream_t stream;
    uint32_t n_call, n_pack;
    uint32_t threads;               /* that the primitives were created for */
    dnnl_call *call[DNNL_CALL_MAX]; /* owned */
    weft_cpu_pack *pack[DNNL_PACK_MAX];
    weft_cpu_ew *ew; /* element-wise epilogue, or NULL */
    bool loses_nan;  /* cpu_nan.c */
    weft_cpu_tame tame;
    /* Elements of operand 0 before a run, and of the result args[out] after it, that must be tame.
     */
    int64_t tame_in, tame_out;
    uint32_t out;
    weft_cpu_lanes lanes; /* of the result, cleared after a run */
    uint32_t n_value;
    void *value[DNNL_VALUE_MAX]; /* constant arguments; owned */
    char variant[56];
} dnnl_kernel;

/* -- Kernels: cpu_dnnl.c -------------------------------------------------------------------- */

dnnl_kernel *weft_dnnl__create(weft_prep *p);
void weft_dnnl__destroy(void *kernel);
/* Sets the kernel of p to k; the variant is named after the implementation of pd. */
void weft_dnnl__set(weft_prep *p, dnnl_kernel *k, const weft_dnnl_pd *pd);
/* Adds a call of a primitive; NULL: failed. */
dnnl_call *weft_dnnl__add(dnnl_kernel *k, const weft_dnnl_pd *pd);
/* Binds argument `dnnl_arg` to args[arg] + offset. */
bool weft_dnnl__bind(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const weft_dnnl_md *md,
                     uint32_t arg, uint64_t offset);
bool weft_dnnl__bind_const(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const weft_dnnl_md *md,
                           const void *at);
/* Binds the arguments that are known before the run (weft_dnnl__quant_args) to copies of them. */
bool weft_dnnl__bind_quant(dnnl_kernel *k, dnnl_call *s, const weft_dnnl_quant *q);
/* Binds the primitive's scratch memory to `offset` in the launch's scratch memory and adds its
 * size. */
bool weft_dnnl__bind_scratch(weft_prep *p, dnnl_kernel *k, dnnl_call *s, const weft_dnnl_pd *pd,
                             uint64_t offset);
/* Adds a reorder from one argument to another. */
bool weft_dnnl__add_reorder(dnnl_kernel *k, const weft_dnnl_md *from, uint32_t from_arg,
                            uint64_t from_offset, const weft_dnnl_md *to, uint32_t to_arg,
                            uint64_t to_offset);
/* Binds a weight, packed from `from` to `to` once per engine (used in place when they are equal).
 * UNSUP: an operand that is not a weight has another layout. */
weft_err weft_dnnl__bind_weight(weft_prep *p, dnnl_kernel *k, dnnl_call *s, int dnnl_arg,
                                uint32_t in, const weft_dnnl_md *from, const weft_dnnl_md *to);
/* Whether the numbers of a packed weight are known to be tame: Winograd's only. */
bool weft_dnnl__pack_is_tame(const weft_cpu_pack *pack);

/* -- Descriptors ---------------------------------------------------------------------------- */

static inline weft_dnnl_scope weft_dnnl__scope(const weft_engine *e)
{
    const weft_cpu *cpu = e->device;
    return (weft_dnnl_scope){.engine = cpu->dnnl_engine};
}
/* The format tag of a layout at a rank; dnnl_format_tag_undef: none. */
dnnl_format_tag_t weft_dnnl__tag(weft_layout layout, int32_t rank);
/* f32, u8 or s8; dnnl_data_type_undef: another one. */
dnnl_data_type_t weft_dnnl__type(const weft_slot *s);
/* NULL: another element type, or a layout without a tag. */
const weft_dnnl_md *weft_dnnl__md(weft_dnnl_scope *scope, const weft_slot *s);
/* f32 in plain layout, and f32 in a layout that the primitive chooses. */
const weft_dnnl_md *weft_dnnl__md_plain(weft_dnnl_scope *scope, int rank, const int64_t *dim);
const weft_dnnl_md *weft_dnnl__md_any(weft_dnnl_scope *scope, int rank, const int64_t *dim);

/* -- Epilogues: cpu_dnnl_epilogue.c --------------------------------------------------------- */

typedef struct dnnl_epilogue {
    uint32_t n_step;
    weft_step step[WEFT_STEPS_MAX];
    bool onto;  /* set by the caller: add the previous contents of the result before the steps */
    bool fused; /* the steps are in `attr`; otherwise an element-wise pass follows */
    weft_dnnl_attr attr;
    /* Operands of binary steps. */
    uint32_t n_operand;
    uint32_t operand[DNNL_EPILOGUE_MAX];  /* index in the launch's args */
    uint32_t position[DNNL_EPILOGUE_MAX]; /* index in the post-ops */
} dnnl_epilogue;

/* Reads the epilogue of p, prepends `n_front` steps, and fuses it if possible. `collapsed`: for the
 * primitive, all dims of the result but the last are one dim. */
weft_err weft_dnnl__epilogue(weft_prep *p, weft_dnnl_scope *scope, dnnl_epilogue *e, bool collapsed,
                             const weft_step *front, uint32_t n_front);
/* Removes the fused steps, for implementations that do not support them. */
void weft_dnnl__unfuse(dnnl_epilogue *e);
/* Whether a fused epilogue is faster as a pass of its own over a result of n elements. */
bool weft_dnnl__is_costly(const dnnl_epilogue *e, int64_t n);
bool weft_dnnl__bind_epilogue(weft_prep *p, dnnl_kernel *k, dnnl_call *s, const dnnl_epilogue *e);

#endif
