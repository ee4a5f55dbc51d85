/* Private to cpu_dnnl*.c: kernels made of oneDNN primitives.
 *
 * A kernel calls up to four primitives in order (the one that computes, and reorders before and
 * after it) and, where oneDNN cannot fuse the epilogue, runs an element-wise program over the
 * result. Arguments are bound to addresses of the launch; a memory object is updated only when an
 * address changed. */
#ifndef WEFT_RUNTIME_CPU_CPU_DNNL_INT_H
#define WEFT_RUNTIME_CPU_CPU_DNNL_INT_H

#include "runtime/cpu/cpu_dnnl.h"

#include <oneapi/dnnl/dnnl.h>

enum { DNNL_CALL_MAX = 4, DNNL_BIND_MAX = 14, DNNL_PACK_MAX = 4, DNNL_EPILOGUE_MAX = 8 };

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
    dnnl_call call[DNNL_CALL_MAX];
    weft_cpu_pack *pack[DNNL_PACK_MAX];
    weft_cpu_ew *ew; /* element-wise epilogue, or NULL */
    char variant[56];
} dnnl_kernel;

/* -- Kernels: cpu_dnnl.c -------------------------------------------------------------------- */

dnnl_kernel *weft_dnnl__create(weft_prep *p);
void weft_dnnl__destroy(void *kernel);
/* Sets the kernel of p to k; the variant is named after the implementation of pd. */
void weft_dnnl__set(weft_prep *p, dnnl_kernel *k, const_dnnl_primitive_desc_t pd);
/* Adds a call of a primitive; NULL when it cannot be created or its post-ops are unsafe
 * (weft_dnnl__post_ops_are_sound). */
dnnl_call *weft_dnnl__add(dnnl_kernel *k, const_dnnl_primitive_desc_t pd);
/* Binds argument `dnnl_arg` to args[arg] + offset. */
bool weft_dnnl__bind(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const dnnl_memory_desc_t *md,
                     uint32_t arg, uint64_t offset);
bool weft_dnnl__bind_const(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const dnnl_memory_desc_t *md,
                           const void *at);
/* Binds the primitive's scratch memory to `offset` in the launch's scratch memory and adds its
 * size. */
bool weft_dnnl__bind_scratch(weft_prep *p, dnnl_kernel *k, dnnl_call *s,
                             const_dnnl_primitive_desc_t pd, uint64_t offset);
/* Adds a reorder from one argument to another. */
bool weft_dnnl__add_reorder(dnnl_kernel *k, const dnnl_memory_desc_t *from, uint32_t from_arg,
                            uint64_t from_offset, const dnnl_memory_desc_t *to, uint32_t to_arg,
                            uint64_t to_offset);
/* Binds a weight, packed from `from` to `to` once per engine (used in place when they are equal).
 * An operand that is not a weight is reordered into scratch memory at *scratch before every run. */
weft_err weft_dnnl__bind_weight(weft_prep *p, dnnl_kernel *k, dnnl_call *s, int dnnl_arg,
                                uint32_t in, const dnnl_memory_desc_t *from,
                                const dnnl_memory_desc_t *to);
bool weft_dnnl__is_slow(const_dnnl_primitive_desc_t pd);
static inline dnnl_engine_t weft_dnnl__engine(const weft_prep *p)
{
    return weft_cpu__of(p)->dnnl_engine;
}

/* -- Descriptors ---------------------------------------------------------------------------- */

/* The format tag of a layout at a rank; dnnl_format_tag_undef: none. */
dnnl_format_tag_t weft_dnnl__tag(weft_layout layout, int32_t rank);
bool weft_dnnl__md(const weft_slot *s, dnnl_memory_desc_t *out);

/* -- Post-ops: cpu_dnnl_postops.c ----------------------------------------------------------- */

/* false: two element-wise post-ops have the same algorithm and different parameters, and oneDNN 2.6
 * would compute the second with the parameters of the first. */
bool weft_dnnl__post_ops_are_sound(const_dnnl_post_ops_t ops);
/* Appends entry `i` of `from` to `to`: a sum, an element-wise or a binary one. */
bool weft_dnnl__copy_post_op(const_dnnl_post_ops_t from, int i, dnnl_post_ops_t to);

/* -- Epilogues: cpu_dnnl_epilogue.c --------------------------------------------------------- */

typedef struct dnnl_epilogue {
    uint32_t n_step;
    weft_step step[WEFT_STEPS_MAX];
    bool onto;  /* set by the caller: add the previous contents of the result before the steps */
    bool fused; /* the steps are in `ops`; otherwise an element-wise pass follows */
    dnnl_post_ops_t ops;
    dnnl_primitive_attr_t attr;
    /* Operands of binary steps. */
    uint32_t n_operand;
    uint32_t operand[DNNL_EPILOGUE_MAX];  /* index in the launch's args */
    uint32_t position[DNNL_EPILOGUE_MAX]; /* index in ops */
    dnnl_memory_desc_t md[DNNL_EPILOGUE_MAX];
} dnnl_epilogue;

/* Reads the epilogue of p, prepends `n_front` steps, and fuses it if possible. `collapsed`: for the
 * primitive, all dims of the result but the last are one dim. */
weft_err weft_dnnl__epilogue(weft_prep *p, dnnl_epilogue *e, bool collapsed, const weft_step *front,
                             uint32_t n_front);
/* Removes the fused steps, for implementations that do not support them. */
void weft_dnnl__unfuse(dnnl_epilogue *e);
void weft_dnnl__epilogue_finish(dnnl_epilogue *e);
bool weft_dnnl__bind_epilogue(weft_prep *p, dnnl_kernel *k, dnnl_call *s, const dnnl_epilogue *e);

#endif
