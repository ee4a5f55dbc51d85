/* Private to codegen/: launches of the kernel stage as commands of a CUDA device.
 *
 * An emitter (a row of ops/cuda_kinds.def) turns one node into commands: kernels that it writes,
 * products for cuBLASLt, copies and fills. A kernel is a few lines of CUDA C++ that instantiate a
 * template of codegen/cuda/NAME.cuh with the constants of the shape; what is symbolic becomes an
 * `int` parameter. Kernels with equal text are one kernel:
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
 *     scale_0(const f32 *__restrict__ x, f32 *__restrict__ y, int d0)
 *     {
 *         scale(x, y, d0);
 *     }
 *
 * Element types are called in CUDA what weft_dtype_name calls them (prelude.cuh): f32, f16, i64,
 * bool. Dims are of the module's pool; the program's get their own when a command is added. In
 * text,
 * '@' stands for the kernel's name: for structures outside the function. All of it lives in an
 * arena; nothing fails but emitters. */
#ifndef WEFT_CODEGEN_CUDA_CUDA_INT_H
#define WEFT_CODEGEN_CUDA_CUDA_INT_H

#include "codegen/codegen_int.h"

typedef struct weft_cuda weft_cuda;
typedef struct weft_cuda_kernel weft_cuda_kernel;

/* UNSUP with a message (weft_cuda__unsup) when it cannot. */
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
/* Type of operand or result i; NULL when it is omitted or not wanted. */
const weft_ttype *weft_cuda__in_type(const weft_cuda *cu, uint32_t i);
const weft_ttype *weft_cuda__out_type(const weft_cuda *cu, uint32_t i);
/* Whether products of f32 may be rounded to TF32 on their way (--precision tf32). */
bool weft_cuda__tf32(const weft_cuda *cu);
/* Whether operand i is a weight, known when the bundle is made. */
bool weft_cuda__in_is_weight(const weft_cuda *cu, uint32_t i);
/* Its elements; false: it is none. */
bool weft_cuda__in_tensor(const weft_cuda *cu, uint32_t i, weft_tensor *out);
/* Adds a message "OP: TEXT" at the node; returns UNSUP. */
weft_err weft_cuda__unsup(weft_cuda *cu, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* A parameter of the operator (ops.h) that is an attribute, or an operand that is a weight of
 * integers. *out NULL and *out_n 0 when it is absent; false when only running tells it. */
bool weft_cuda__param(weft_cuda *cu, uint32_t in, weft_attr_key key, const weft_dim **out,
                      uint32_t *out_n);

/* -- Dims -------------------------------------------------------------------------------------- */

weft_dim weft_cuda__mul(weft_cuda *cu, weft_dim a, weft_dim b);
weft_dim weft_cuda__add(weft_cuda *cu, weft_dim a, weft_dim b);
weft_dim weft_cuda__ceil_div(weft_cuda *cu, weft_dim a, int64_t b);
/* Product of dims from .. to - 1 of a type. */
weft_dim weft_cuda__product(weft_cuda *cu, const weft_ttype *t, uint32_t from, uint32_t to);
weft_dim weft_cuda__numel(weft_cuda *cu, const weft_ttype *t);
/* Elements from one index of each dim to the next. */
void weft_cuda__strides(weft_cuda *cu, const weft_ttype *t, weft_dim stride[WEFT_RANK_MAX]);
/* Blocks of `threads` that take `pack` of n elements each. */
weft_dim weft_cuda__packs(weft_cuda *cu, weft_dim n, int64_t pack, uint32_t threads);

/* -- Kernels ----------------------------------------------------------------------------------- */

/* `threads` of a block; blocks are one-dimensional. */
weft_cuda_kernel *weft_cuda__kernel(weft_cuda *cu, const char *stem, uint32_t threads);
weft_cuda *weft_cuda__of(const weft_cuda_kernel *k);
/* At most so many registers that `blocks` blocks fit a multiprocessor: __launch_bounds__. */
void weft_cuda__min_blocks(weft_cuda_kernel *k, uint32_t blocks);
/* Needs the file codegen/cuda/NAME ("conv.cuh"); once or more. Order of inclusion is that of the
 * calls; files may include each other too. */
void weft_cuda__include(weft_cuda_kernel *k, const char *name);

/* Parameters, in order of declaration. Pointers are `const T *` and `T *` of the value's type. */
void weft_cuda__in(weft_cuda_kernel *k, const char *name, uint32_t operand);
void weft_cuda__out(weft_cuda_kernel *k, const char *name, uint32_t result);
/* Scratch memory of the launch from weft_cuda__scratch_bytes; `constant`: only read. */
void weft_cuda__scratch(weft_cuda_kernel *k, const char *name, weft_dtype dtype, weft_dim at,
                        bool constant);
/* Any address, as `dtype`. */
void weft_cuda__pointer(weft_cuda_kernel *k, const char *name, weft_dtype dtype, bool constant,
                        weft_bundle_arg arg);
/* Decimal text when `d` is constant, else the name of an `int` parameter, the same for equal dims.
 * At run time a value over 2^31 - 1 is an error of the driver's. */
const char *weft_cuda__int(weft_cuda_kernel *k, weft_dim d);
/* The name of a parameter for constants too: kernels that differ in it only are one. */
const char *weft_cuda__number(weft_cuda_kernel *k, weft_dim d);
/* Those parameters so far: "d0" to "d<n-1>". */
uint32_t weft_cuda__int_count(const weft_cuda_kernel *k);
/* Product of dims from .. to - 1 as text of type size_t. */
const char *weft_cuda__long(weft_cuda_kernel *k, const weft_ttype *t, uint32_t from, uint32_t to);
const char *weft_cuda__long_of(weft_cuda_kernel *k, const weft_dim *dim, uint32_t n);
/* Sum over dims of coordinate * stride as text of type size_t; `at` (text) counts through all dims.
 */
const char *weft_cuda__offset(weft_cuda_kernel *k, const char *at, const weft_dim *extent,
                              const weft_dim *stride, uint32_t n);
/* The name of a `float` parameter. */
const char *weft_cuda__float(weft_cuda_kernel *k, float f);

weft_buf *weft_cuda__top(weft_cuda_kernel *k);  /* text before the function */
weft_buf *weft_cuda__body(weft_cuda_kernel *k); /* statements of the function */

/* Adds the command, and the kernel unless there is one of the same text. Grid: x at most 2^31 - 1,
 * y and z at most 65535. Ends `k`. */
void weft_cuda__launch(weft_cuda_kernel *k, weft_dim gx, weft_dim gy, weft_dim gz,
                       uint32_t dynamic_shared_bytes);

/* Attribute `axis` of an operand of that rank, counted from the front. */
uint32_t weft_cuda__axis(const weft_cuda *cu, int64_t otherwise, uint32_t rank);
/* Opens a body in which a thread has one of dim[0] * ... * dim[n - 1] elements: "at" is its number,
 * and threads beyond return. To be launched with weft_cuda__packs(cu, elements, 1, threads). */
void weft_cuda__each(weft_cuda_kernel *k, const weft_dim *dim, uint32_t n);
/* The type that elements are computed in (math.cuh): "f32", "f64", "i64" or "u64". */
const char *weft_cuda__arith(weft_dtype dtype);
/* A float as C text that reads back as the same ("0.5f", "__int_as_float(0x7f800000)"). */
const char *weft_cuda__f32_text(weft_cuda *cu, float x);

/* -- Steps as C++ ------------------------------------------------------------------------------ */

/* Operators of steps are functions of prelude.cuh: step_gelu(x).
 *
 * Writes to the top of the kernel a structure `@_epilogue` that applies the node's steps of `key`
 * (EPILOGUE) to one element of result 0, and gives the text that makes one, for the body. Adds the
 * operands that the steps read to the kernel's parameters as "e0", "e1"...
 *
 *     float y = epilogue(acc, at, c);
 *
 * `at`, size_t: index of the element in the result, PLAIN; `c`, int: its coordinate along dim
 * `axis` of the result (channels of a convolution, columns of a product; negative: from the last).
 * Without steps it is the identity. */
WEFT_MUST_USE weft_err weft_cuda__epilogue(weft_cuda_kernel *k, weft_attr_key key, int32_t axis,
                                           const char **out);
/* Of acc * alpha + beta * x, x the element of operand `addend` that broadcasting puts there;
 * UINT32_MAX: none. */
WEFT_MUST_USE weft_err weft_cuda__sum_epilogue(weft_cuda_kernel *k, weft_attr_key key, int32_t axis,
                                               float alpha, float beta, uint32_t addend,
                                               const char **out);

/* Writes to the top of the kernel a structure `@_chain` that computes the node's steps of `key`
 * (STEPS) for some elements of result 0 that follow each other, and gives the text that makes one.
 * Operands are added to the parameters as "x0", "x1"...
 *
 *     float y[N]; chain(y, at, left);
 *
 * `at`, size_t: index of the first, a multiple of `pack`, which N divides; `left`, int: elements
 * from there on to the end. */
WEFT_MUST_USE weft_err weft_cuda__chain(weft_cuda_kernel *k, weft_attr_key key, int64_t pack,
                                        const char **out);

/* Index, as text, of the element of `operand` that broadcasting puts beside element `at` (text,
 * size_t) of result 0. */
WEFT_MUST_USE weft_err weft_cuda__index(weft_cuda_kernel *k, uint32_t operand, const char *at,
                                        const char **out);

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

/* Reserves scratch memory of this launch; returns its offset, a multiple of 256. */
weft_dim weft_cuda__scratch_bytes(weft_cuda *cu, weft_dim bytes);
void weft_cuda__gemm(weft_cuda *cu, const weft_bundle_gemm *gemm);
/* The kernel that was launched last is for where the library has no algorithm for the product
 * before it with c, bias and act: it does these. */
void weft_cuda__finishes(weft_cuda *cu);
void weft_cuda__copy(weft_cuda *cu, weft_bundle_arg to, weft_bundle_arg from, weft_dim bytes);
void weft_cuda__fill(weft_cuda *cu, weft_bundle_arg to, weft_dim bytes); /* zeros */

/* -- Sources and compilers --------------------------------------------------------------------- */

/* Files codegen/cuda/NAME as text in the library; ends at name NULL. */
typedef struct weft_cuda_header {
    const char *name;
    const char *text;
} weft_cuda_header;

extern const weft_cuda_header weft_cuda__headers[];

/* A module of kernels on its way to images. */
typedef struct weft_cuda_source {
    const char *text;
    const char *const *kernel; /* names; the compiler's errors name them as files */
    const char *const *origin; /* what each was made for: "conv Conv_12" */
    uint32_t n_kernel;
} weft_cuda_source;

/* Compiles every module for every architecture ("sm_90"), and as PTX of the newest; as many at once
 * and where the options say. Images: by module, then architecture, PTX last. Resources: by kernel
 * over all modules, then architecture. NODEV: no NVRTC here, or it does not know an architecture;
 * INPUT never; BUG with the compiler's first error. */
WEFT_MUST_USE weft_err weft_cuda__compile(const weft_cuda_source *source, uint32_t n_source,
                                          const char *const *arch, uint32_t n_arch,
                                          const weft_codegen_options *options, weft_arena *arena,
                                          weft_diag *diag, weft_bundle_image **out_image,
                                          uint32_t *out_n_image,
                                          weft_bundle_resource **out_resource);

#endif
