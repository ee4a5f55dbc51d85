/* Private to runtime/cpu: the functions of oneDNN, the same for oneDNN 2.6 and for 3.x.
 *
 * dnnl_api.c holds what both versions share; CMake adds dnnl_v2.c or dnnl_v3.c by the version of
 * the library it finds. Other files see oneDNN's types and enumerators (dnnl_types.h), but none of
 * its functions.
 *
 * Descriptors of memory and of primitives belong to a scope and are valid until it is finished.
 * Functions that make a descriptor return NULL on failure, and also if a descriptor they need is
 * NULL, so that it is enough to check the last of several. */
#ifndef WEFT_RUNTIME_CPU_DNNL_API_H
#define WEFT_RUNTIME_CPU_DNNL_API_H

#include <oneapi/dnnl/dnnl_types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- Engine --------------------------------------------------------------------------------- */

dnnl_status_t weft_dnnl__engine_open(dnnl_engine_t *engine, dnnl_stream_t *stream);
void weft_dnnl__engine_close(dnnl_engine_t engine, dnnl_stream_t stream);
/* Writes the version of the library in use, as "2.6.3". */
void weft_dnnl__version(char *out, size_t room);
/* Whether the library uses all instructions of `isa` on this CPU. */
bool weft_dnnl__has_isa(dnnl_cpu_isa_t isa);

/* -- Scopes --------------------------------------------------------------------------------- */

typedef struct weft_dnnl_item weft_dnnl_item;

typedef struct weft_dnnl_scope {
    dnnl_engine_t engine;
    weft_dnnl_item *item;
} weft_dnnl_scope;

/* Destroys all descriptors of the scope. */
void weft_dnnl__scope_finish(weft_dnnl_scope *scope);

/* -- Descriptors of memory ------------------------------------------------------------------ */

typedef struct weft_dnnl_md {
    int rank;
    dnnl_data_type_t type;
    dnnl_dims_t dim;
    /* Blocked and plain formats, but neither `any` nor those private to an implementation; `stride`
     * is set only for them: elements between the outermost blocks of a dim. */
    bool blocked;
    dnnl_dims_t stride;
    void *desc; /* the library's descriptor */
} weft_dnnl_md;

const weft_dnnl_md *weft_dnnl__md_by_tag(weft_dnnl_scope *scope, int rank, const int64_t *dim,
                                         dnnl_data_type_t type, dnnl_format_tag_t tag);
const weft_dnnl_md *weft_dnnl__md_by_strides(weft_dnnl_scope *scope, int rank, const int64_t *dim,
                                             dnnl_data_type_t type, const int64_t *stride);
/* The box of dims `dim` at `offset` of `whole`. */
const weft_dnnl_md *weft_dnnl__md_part(weft_dnnl_scope *scope, const weft_dnnl_md *whole,
                                       const int64_t *dim, const int64_t *offset);
const weft_dnnl_md *weft_dnnl__md_copy(weft_dnnl_scope *scope, const weft_dnnl_md *md);
/* The layout counts, with the compensation that weights for s8 sources contain. */
bool weft_dnnl__md_equal(const weft_dnnl_md *a, const weft_dnnl_md *b);
/* Where transformed weights of a Winograd convolution are, in elements: oc and ic are padded
 * channels in blocks, and blocks in chunks of oc_blocks and ic_blocks of them. Element (u, v) of
 * the filter from channel i of a block to channel o of a block is at u * u_step + v * v_step +
 * (chunk of o) * oc_chunk_step + (block in it) * oc_step
 *     + (chunk of i) * ic_chunk_step + (block in it) * ic_step + i * i_step + o */
typedef struct weft_dnnl_winograd {
    int tile; /* results of a tile, in each dim: 2 or 4; u and v are below tile + 2 */
    int64_t oc, ic, oc_block, ic_block, oc_blocks, ic_blocks;
    int64_t u_step, v_step, oc_chunk_step, oc_step, ic_chunk_step, ic_step, i_step;
} weft_dnnl_winograd;

/* false: md is no such format of f32, or one that is not known. Always false with oneDNN 3. */
bool weft_dnnl__md_winograd(const weft_dnnl_md *md, weft_dnnl_winograd *out);
/* Bytes of memory, padding and compensation included; 0 for NULL. */
uint64_t weft_dnnl__md_bytes(const weft_dnnl_md *md);

/* -- Attributes ----------------------------------------------------------------------------- */

enum { WEFT_DNNL_POST_MAX = 24, WEFT_DNNL_QUANT_ARGS = 5 };

typedef struct weft_dnnl_post {
    dnnl_primitive_kind_t kind; /* dnnl_eltwise, dnnl_binary, dnnl_sum, dnnl_prelu */
    dnnl_alg_kind_t alg;        /* element-wise, binary */
    float alpha, beta;          /* element-wise: as in oneDNN 2; sum: alpha is the scale */
    int32_t zero_point;         /* sum: of the previous contents */
    dnnl_data_type_t type;  /* sum: of the previous contents; dnnl_data_type_undef: the result's */
    const weft_dnnl_md *md; /* binary: second operand */
    int mask;               /* prelu: dims along which the slope varies */
} weft_dnnl_post;

/* Quantisation of a product or convolution of integers, c a channel of the result:
 *   y = saturate(round(post_ops(sx * sw[c] * sum((x - zx) * w) + bias[c]) / sy) + zy)
 * Zeroed: none. The weights must be s8 with zero point 0. The arrays are borrowed until the kernel
 * is bound. */
typedef struct weft_dnnl_quant {
    float sx;
    const float *sw;
    uint32_t n_sw; /* 0: no scale; 1: one for all channels; otherwise one per channel */
    float sy;      /* 0: none */
    int32_t zx, zy;
    /* The values sx * sw[c] (n_sw of them, in f32), or zx (in s32), are arguments of the run:
     * weft_dnnl__arg_scale, weft_dnnl__arg_zero_point. oneDNN 2 supports scales of the run for
     * matmuls only. */
    bool scale_at_run, zx_at_run;
} weft_dnnl_quant;

typedef struct weft_dnnl_attr {
    uint32_t n_post;
    weft_dnnl_post post[WEFT_DNNL_POST_MAX];
    weft_dnnl_quant quant;
} weft_dnnl_attr;

/* Appends a post-op; false when there are too many. */
bool weft_dnnl__append(weft_dnnl_attr *a, weft_dnnl_post post);
/* false: two element-wise post-ops have the same algorithm and different parameters, and oneDNN 2.6
 * would compute the second with the parameters of the first (its code generators are found by
 * algorithm). Always true with oneDNN 3. Primitive descriptors are refused for such attributes. */
bool weft_dnnl__post_ops_are_sound(const weft_dnnl_attr *a);

/* Arguments of a run. */
extern const int weft_dnnl__arg_scale, weft_dnnl__arg_zero_point;

/* A constant argument of a quantised primitive. */
typedef struct weft_dnnl_const {
    int arg;
    dnnl_data_type_t type; /* f32 or s32 */
    uint32_t n;
    const void *values; /* borrowed from the quantisation */
} weft_dnnl_const;

/* The arguments that a primitive with quantisation q needs at every run, and that are known before:
 * oneDNN 3 takes all scales and zero points as arguments, oneDNN 2 none. Returns their number. */
uint32_t weft_dnnl__quant_args(const weft_dnnl_quant *q, weft_dnnl_const *out);
/* Converts n values of a bias (1 or one per channel of sw) to what the primitive expects: the bias
 * itself, or divided by sx * sw[c]. false: not possible (scales unknown before the run, or a scale
 * for which the quotient is not finite); the bias must then be added by a binary post-op. */
bool weft_dnnl__quant_bias(const weft_dnnl_quant *q, uint32_t n, const float *bias, float *out);

/* -- Primitive descriptors ------------------------------------------------------------------ */

typedef struct weft_dnnl_pd weft_dnnl_pd;

typedef struct weft_dnnl_window {
    int64_t stride[DNNL_MAX_NDIMS], kernel[DNNL_MAX_NDIMS]; /* kernel: pooling only */
    int64_t dilation[DNNL_MAX_NDIMS];                       /* 0: none */
    int64_t before[DNNL_MAX_NDIMS], after[DNNL_MAX_NDIMS];  /* padding */
} weft_dnnl_window;

/* `bias` may be NULL: none. A NULL `attr` stands for no post-ops and no quantisation. Scratch
 * memory is always an argument (DNNL_ARG_SCRATCHPAD). `tile` 4: Winograd with results in tiles of
 * 4 x 4 only; 0: any implementation of `alg`. */
weft_dnnl_pd *weft_dnnl__conv(weft_dnnl_scope *scope, const weft_dnnl_attr *attr,
                              dnnl_alg_kind_t alg, int tile, const weft_dnnl_window *window,
                              const weft_dnnl_md *x, const weft_dnnl_md *w,
                              const weft_dnnl_md *bias, const weft_dnnl_md *y);
weft_dnnl_pd *weft_dnnl__deconv(weft_dnnl_scope *scope, const weft_dnnl_attr *attr,
                                const weft_dnnl_window *window, const weft_dnnl_md *x,
                                const weft_dnnl_md *w, const weft_dnnl_md *bias,
                                const weft_dnnl_md *y);
weft_dnnl_pd *weft_dnnl__matmul(weft_dnnl_scope *scope, const weft_dnnl_attr *attr,
                                const weft_dnnl_md *a, const weft_dnnl_md *b,
                                const weft_dnnl_md *bias, const weft_dnnl_md *y);
weft_dnnl_pd *weft_dnnl__pool(weft_dnnl_scope *scope, dnnl_alg_kind_t alg,
                              const weft_dnnl_window *window, const weft_dnnl_md *x,
                              const weft_dnnl_md *y);
weft_dnnl_pd *weft_dnnl__reorder(weft_dnnl_scope *scope, const weft_dnnl_md *from,
                                 const weft_dnnl_md *to);
/* y = x >= 0 ? x : x * slope. */
weft_dnnl_pd *weft_dnnl__prelu(weft_dnnl_scope *scope, const weft_dnnl_md *x,
                               const weft_dnnl_md *slope);

/* A descriptor of an operand (dnnl_query_src_md, dnnl_query_weights_md ...); NULL: has none. */
const weft_dnnl_md *weft_dnnl__pd_md(weft_dnnl_scope *scope, const weft_dnnl_pd *pd,
                                     dnnl_query_t what, int index);
/* Name of the implementation, as "brg:avx512_core"; valid as long as pd. */
const char *weft_dnnl__pd_name(const weft_dnnl_pd *pd);
/* Whether the implementation is one of oneDNN's references. */
bool weft_dnnl__is_slow(const weft_dnnl_pd *pd);

/* -- Execution ------------------------------------------------------------------------------ */

/* NULL: failed. */
dnnl_primitive_t weft_dnnl__primitive_create(const weft_dnnl_pd *pd);
void weft_dnnl__primitive_destroy(dnnl_primitive_t prim);
/* NULL: failed. The memory at `at` is borrowed; NULL: set later. */
dnnl_memory_t weft_dnnl__memory_create(dnnl_engine_t engine, const weft_dnnl_md *md, void *at);
bool weft_dnnl__memory_move(dnnl_memory_t memory, void *at);
void weft_dnnl__memory_destroy(dnnl_memory_t memory);
bool weft_dnnl__execute(dnnl_primitive_t prim, dnnl_stream_t stream, uint32_t n,
                        const dnnl_exec_arg_t *arg);

#endif
