/* Private to codegen/: turns launches of the kernel stage into commands of a CUDA device.
 *
 * An emitter (a row of ops/cuda_kinds.def) turns one node into commands: kernels that it writes,
 * GEMMs for cuBLASLt, copies and fills. A kernel is a few lines of CUDA C++ that instantiate a
 * template of codegen/cuda/NAME.cuh with the constants of the shape; symbolic dims become `int`
 * parameters. Kernels with equal text are stored once:
 *
 *     weft_cuda_kernel *k = weft_cuda__kernel(cu, "scale", 256);
 *     weft_cuda__include(k, "prelude.cuh");
 *     weft_cuda__in(k, "x", 0);
 *     weft_cuda__out(k, "y", 0);
 *     const char *n = weft_cuda__int(k, numel);
 *     weft_buf_printf(weft_cuda__body(k), "    scale(x, y, %s);\n", n);
 *     weft_cuda__launch(k, weft_cuda__ceil_div(cu, numel, 256), 1, 1, 0);
 *
 * becomes
 *
 *     extern "C" __global__ void __launch_bounds__(256)
 *     scale_5d02c1f7(const f32 *__restrict__ x, f32 *__restrict__ y, int d0)
 *     {
 *         scale(x, y, d0);
 *     }
 *
 * Element types have the names of weft_dtype_name (prelude.cuh): f32, f16, i64, bool. Dims belong
 * to the module's pool; they are converted to the program's pool when a command is added. In the
 * text of a kernel '@' stands for the kernel's name, for example in names of structures outside the
 * function. The name contains a hash of the text, so that equal kernels of different models are
 * equal modules, and the cache of compiled kernels (nvrtc_cache.c) knows them. All memory comes
 * from an arena; only emitters can fail. */
#ifndef WEFT_CODEGEN_CUDA_CUDA_INT_H
#define WEFT_CODEGEN_CUDA_CUDA_INT_H

#include "codegen/codegen_int.h"

typedef struct weft_cuda weft_cuda;
typedef struct weft_cuda_kernel weft_cuda_kernel;

/* Returns UNSUP with a message (weft_cuda__unsup) if it cannot emit the node. */
typedef weft_err (*weft_cuda_emit_fn)(weft_cuda *cu, weft_node n);

#define K(kind, name) weft_err weft_cuda_emit_##name(weft_cuda *cu, weft_node n);
#include "ops/cuda_kinds.def"
#undef K

/* -- The launch at hand ------------------------------------------------------------------------ */

weft_module *weft_cuda__module(const weft_cuda *cu);
weft_dimpool *weft_cuda__dims(const weft_cuda *cu); /* of the module */
weft_arena *weft_cuda__arena(const weft_cuda *cu);
weft_diag *weft_cuda__diag(const weft_cuda *cu);
weft_node weft_cuda__node(const weft_cuda *cu);
weft_attrs weft_cuda__attrs(const weft_cuda *cu);
/* Type of operand or result i; NULL if the operand is omitted or the result is unused. Dims are in
 * the order of memory: in layout nhwc the channels, dim 1 of the operator, are the last dim. */
const weft_ttype *weft_cuda__in_type(const weft_cuda *cu, uint32_t i);
const weft_ttype *weft_cuda__out_type(const weft_cuda *cu, uint32_t i);
/* Whether operand `in` and result 0 have layout nhwc. */
bool weft_cuda__is_last(const weft_cuda *cu, uint32_t in);
bool weft_cuda__gives_last(const weft_cuda *cu);
/* The type of an operand that is broadcast to result 0, as an operand of the order of the result's
 * memory. A plain one is in this order, too: the layout's rule is that it has one channel, or one
 * element for each channel of an image. */
const weft_ttype *weft_cuda__spread_type(const weft_cuda *cu, uint32_t i);
/* The dim of in_type(0), of rank `rank`, that is the operator's dim `axis` (negative: from the
 * last).
 */
uint32_t weft_cuda__memory_axis(const weft_cuda *cu, int64_t axis, uint32_t rank);
/* Whether GEMMs of f32 may round their operands to TF32 (--precision tf32). */
bool weft_cuda__tf32(const weft_cuda *cu);
/* Whether operand i is a weight, so that its elements are known at compile time. */
bool weft_cuda__in_is_weight(const weft_cuda *cu, uint32_t i);
/* The elements of operand i; false if the operand is not a weight. */
bool weft_cuda__in_tensor(const weft_cuda *cu, uint32_t i, weft_tensor *out);
/* Reports "OP: TEXT" at the current node; returns UNSUP. */
weft_err weft_cuda__unsup(weft_cuda *cu, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* A parameter of the operator (ops.h) that is an attribute, or an operand that is a weight of
 * integers. *out is NULL and *out_n 0 if it is absent. Returns false if it depends on data. */
bool weft_cuda__param(weft_cuda *cu, uint32_t in, weft_attr_key key, const weft_dim **out,
                      uint32_t *out_n);

/* -- Dims -------------------------------------------------------------------------------------- */

weft_dim weft_cuda__mul(weft_cuda *cu, weft_dim a, weft_dim b);
weft_dim weft_cuda__add(weft_cuda *cu, weft_dim a, weft_dim b);
weft_dim weft_cuda__ceil_div(weft_cuda *cu, weft_dim a, int64_t b);
/* Product of dims `from` to `to - 1` of a type. */
weft_dim weft_cuda__product(weft_cuda *cu, const weft_ttype *t, uint32_t from, uint32_t to);
weft_dim weft_cuda__numel(weft_cuda *cu, const weft_ttype *t);
/* Strides of a dense tensor, in elements. */
void weft_cuda__strides(weft_cuda *cu, const weft_ttype *t, weft_dim stride[WEFT_RANK_MAX]);
/* Number of blocks for n elements: each of a block's `threads` threads processes `pack`. */
weft_dim weft_cuda__packs(weft_cuda *cu, weft_dim n, int64_t pack, uint32_t threads);

/* -- Kernels ----------------------------------------------------------------------------------- */

/* Begins a kernel whose one-dimensional blocks have `threads` threads. */
weft_cuda_kernel *weft_cuda__kernel(weft_cuda *cu, const char *stem, uint32_t threads);
weft_cuda *weft_cuda__of(const weft_cuda_kernel *k);
/* Limits registers so that `blocks` blocks fit a multiprocessor (second argument of
 * __launch_bounds__). */
void weft_cuda__min_blocks(weft_cuda_kernel *k, uint32_t blocks);
/* Includes the file codegen/cuda/NAME ("conv.cuh") in front of the kernel, once for any number of
 * calls, in the order of the first calls. These files may include each other. */
void weft_cuda__include(weft_cuda_kernel *k, const char *name);

/* Parameters, in order of declaration. Pointers are `const T *` and `T *` of the value's type. */
void weft_cuda__in(weft_cuda_kernel *k, const char *name, uint32_t operand);
void weft_cuda__out(weft_cuda_kernel *k, const char *name, uint32_t result);
/* A parameter for scratch memory reserved by weft_cuda__scratch_bytes; `constant`: read only. */
void weft_cuda__scratch(weft_cuda_kernel *k, const char *name, weft_dtype dtype, weft_dim at,
                        bool constant);
/* A pointer parameter of type `dtype` to any address. */
void weft_cuda__pointer(weft_cuda_kernel *k, const char *name, weft_dtype dtype, bool constant,
                        weft_bundle_arg arg);
/* Returns a decimal number if `d` is constant, else the name of an `int` parameter; equal dims
 * share a parameter. At run time the driver refuses values over 2^31 - 1. */
const char *weft_cuda__int(weft_cuda_kernel *k, weft_dim d);
/* Returns the name of an `int` parameter even if `d` is constant, so that kernels which differ only
 * in this number are stored once. */
const char *weft_cuda__number(weft_cuda_kernel *k, weft_dim d);
/* As weft_cuda__number, but a constant has a parameter of its own: kernels in which two sizes are
 * equal by chance have the text of all others. */
const char *weft_cuda__own_number(weft_cuda_kernel *k, weft_dim d);
/* From here on weft_cuda__int and weft_cuda__long name parameters for constants, too, but for 0 and
 * 1, so that one kernel serves all shapes: for kernels that divide by sizes once for each vector of
 * 16 bytes or seldomer, which memory bandwidth hides. */
void weft_cuda__share_sizes(weft_cuda_kernel *k);
/* Whether constants may still become parameters: a bundle's kernels have a limited number of them,
 * of which operands need some. */
bool weft_cuda__has_room(const weft_cuda_kernel *k);
/* The number n of `int` parameters so far; their names are "d0" to "d<n-1>". */
uint32_t weft_cuda__int_count(const weft_cuda_kernel *k);
/* Product of dims `from` to `to - 1` as an expression of type size_t. */
const char *weft_cuda__long(weft_cuda_kernel *k, const weft_ttype *t, uint32_t from, uint32_t to);
const char *weft_cuda__long_of(weft_cuda_kernel *k, const weft_dim *dim, uint32_t n);
/* Sum over dims of coordinate * stride as an expression of type size_t; `at` is an expression for
 * the linear index over all dims. */
const char *weft_cuda__offset(weft_cuda_kernel *k, const char *at, const weft_dim *extent,
                              const weft_dim *stride, uint32_t n);
/* The name of a `float` parameter. */
const char *weft_cuda__float(weft_cuda_kernel *k, float f);

weft_buf *weft_cuda__top(weft_cuda_kernel *k);  /* text in front of the function */
weft_buf *weft_cuda__body(weft_cuda_kernel *k); /* statements of the function */

/* Adds the command, and the kernel if no kernel has the same text. Grid: x at most 2^31 - 1, y and
 * z at most 65535. `k` must not be used afterwards. */
void weft_cuda__launch(weft_cuda_kernel *k, weft_dim gx, weft_dim gy, weft_dim gz,
                       uint32_t dynamic_shared_bytes);

/* Attribute `axis` of an operand of rank `rank`, as a dim of its memory. */
uint32_t weft_cuda__axis(const weft_cuda *cu, int64_t otherwise, uint32_t rank);
/* Begins a body in which each thread computes one of dim[0] * ... * dim[n - 1] elements: "at" is
 * the linear index of the element; threads without an element return. Launch the kernel with
 * weft_cuda__packs(cu, elements, 1, threads) blocks. */
void weft_cuda__each(weft_cuda_kernel *k, const weft_dim *dim, uint32_t n);
/* The type in which elements of `dtype` are computed (math.cuh): "f32", "f64", "i64" or "u64". */
const char *weft_cuda__arith(weft_dtype dtype);
/* A C expression with exactly this value ("0.5f", "__int_as_float(0x7f800000)"). */
const char *weft_cuda__f32_text(weft_cuda *cu, float x);

/* -- Steps as C++ ------------------------------------------------------------------------------ */

/* Writes a structure `@_epilogue` in front of the kernel. It applies the node's steps of `key`
 * (EPILOGUE) to one element of result 0. Returns the expression that constructs one, for the body.
 * Operands of steps become parameters "e0", "e1"... of the kernel. Functions of steps are in
 * prelude.cuh: step_gelu(x).
 *
 *     float y = epilogue(acc, at, c);
 *
 * `at`, size_t: index of the element in the result in layout PLAIN; `c`, int: the element's
 * coordinate along dim `axis` of the result (channel of a convolution, column of a GEMM; a negative
 * axis counts from the last). Without steps the structure is the identity. */
WEFT_MUST_USE weft_err weft_cuda__epilogue(weft_cuda_kernel *k, weft_attr_key key, int32_t axis,
                                           const char **out);
/* The same for acc * alpha + beta * x, where x is the broadcast element of operand `addend`;
 * UINT32_MAX: no addend. */
WEFT_MUST_USE weft_err weft_cuda__sum_epilogue(weft_cuda_kernel *k, weft_attr_key key, int32_t axis,
                                               float alpha, float beta, uint32_t addend,
                                               const char **out);

/* Writes a structure `@_chain` in front of the kernel. It computes the node's steps of `key`
 * (STEPS) for consecutive elements of result 0. Returns the expression that constructs one.
 * Operands become parameters "x0", "x1"... of the kernel.
 *
 *     float y[N]; chain(y, at, left);
 *
 * `at`, size_t: index of the first element, a multiple of `pack`, which N divides; `left`, int:
 * number of elements from `at` to the end. */
WEFT_MUST_USE weft_err weft_cuda__chain(weft_cuda_kernel *k, weft_attr_key key, int64_t pack,
                                        const char **out);

/* An expression for the index of the element of `operand` that broadcasting pairs with element `at`
 * (an expression of type size_t) of result 0. */
const char *weft_cuda__index(weft_cuda_kernel *k, uint32_t operand, const char *at);

/* -- Other commands ---------------------------------------------------------------------------- */

static inline weft_bundle_arg weft_cuda__at_in(uint32_t operand, weft_dim byte_offset)
{
    return (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_IN, .index = operand, .dim = byte_offset};
}
static inline weft_bundle_arg weft_cuda__at_out(uint32_t result, weft_dim byte_offset)
{
    return (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_OUT, .index = result, .dim = byte_offset};
}
static inline weft_bundle_arg weft_cuda__at_scratch(weft_dim byte_offset)
{
    return (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_SCRATCH, .dim = byte_offset};
}

/* Reserves scratch memory of the current launch; returns the offset, a multiple of 256. */
weft_dim weft_cuda__scratch_bytes(weft_cuda *cu, weft_dim bytes);
void weft_cuda__gemm(weft_cuda *cu, const weft_bundle_gemm *gemm);
/* Marks the last kernel as the fallback of the GEMM before it: the kernel applies c, bias and
 * activation if the library has no algorithm for the GEMM with them. */
void weft_cuda__finishes(weft_cuda *cu);
/* A convolution, pooling or attention for cuDNN; TF32 as the precision allows. Kernels that
 * weft_cuda__depends marks follow. */
void weft_cuda__conv(weft_cuda *cu, const weft_bundle_conv *conv);
uint32_t weft_cuda__command_count(const weft_cuda *cu);
/* Marks the commands from `first` on, all kernels: WEFT_COMMAND_AFTER or WEFT_COMMAND_INSTEAD. */
void weft_cuda__depends(weft_cuda *cu, uint32_t first, weft_command_kind kind);
void weft_cuda__copy(weft_cuda *cu, weft_bundle_arg to, weft_bundle_arg from, weft_dim bytes);
void weft_cuda__fill(weft_cuda *cu, weft_bundle_arg to, weft_dim bytes); /* zeros */

/* Quantises operand 0 by its range: bytes, scale (f32) and zero point go to `to`; of kind NONE: not
 * stored. `lens`: the operand with the lengths of sequences if operand 0 is [steps, batch, in] and
 * the range is that of the steps up to the end of the longest; 0: of all elements. */
void weft_cuda__quantize_by_range(weft_cuda *cu, const weft_bundle_arg to[3], uint32_t lens);

/* -- Sources and compilers --------------------------------------------------------------------- */

/* The files codegen/cuda/NAME as text; the list ends with name NULL. */
typedef struct weft_cuda_header {
    const char *name;
    const char *text;
} weft_cuda_header;

extern const weft_cuda_header weft_cuda__headers[];

/* A kernel as source text: a module of its own. */
typedef struct weft_cuda_source {
    const char *text;
    const char *kernel; /* name */
    const char *origin; /* operator and node: "conv Conv_12" */
} weft_cuda_source;

/* Compiles every module for every architecture ("sm_90") and to PTX of the newest architecture,
 * with the number of threads, the worker and the cache of the options. Images are ordered by
 * module, then architecture, PTX last; resources by module, then architecture. NODEV: NVRTC is
 * absent or does not support an architecture; BUG: an error of the compiler, reported. */
WEFT_MUST_USE weft_err weft_cuda__compile(const weft_cuda_source *source, uint32_t n_source,
                                          const char *const *arch, uint32_t n_arch,
                                          const weft_codegen_options *options, weft_arena *arena,
                                          weft_diag *diag, weft_bundle_image **out_image,
                                          uint32_t *out_n_image,
                                          weft_bundle_resource **out_resource);

#endif
