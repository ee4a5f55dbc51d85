/* Private to ops/: what the families share. Three parts: errors, inference on symbolic dimensions,
 * evaluation on arrays.
 *
 * A family file defines weft_infer_X, weft_work_X and weft_eval_X for the suffixes X that its rows
 * of ops.def name; they are declared here from the table itself, so that a missing one is a link
 * error with its name. */
#ifndef WEFT_OPS_OP_INT_H
#define WEFT_OPS_OP_INT_H

#include "base/num.h"
#include "ops/ops.h"

/* `none` in a row means NULL: weft_eval_none and the like are declared, but never defined or
 * called.
 */
#define OP(id, infer, work, eval, ...)                   \
    weft_err weft_infer_##infer(weft_infer_ctx *cx);     \
    weft_work weft_work_##work(const weft_work_ctx *cx); \
    weft_err weft_eval_##eval(weft_eval_ctx *cx);
#include "ops/ops.def"
#undef OP

/* -- Table and errors ----------------------------------------------------------------------- */

/* "name: message" to `diag`; returns err. */
weft_err weft_op__fail(const weft_op *op, weft_diag *diag, weft_where where, weft_err err,
                       const char *fmt, ...) WEFT_PRINTF(5, 6);
/* For a context `cx` of inference or evaluation. */
#define WEFT_FAIL(cx, err, ...) weft_op__fail((cx)->op, (cx)->diag, (cx)->where, (err), __VA_ARGS__)

/* What a user can do where sizes, or data that steer shapes, are not known. */
#define WEFT_REMEDY "; fix what it depends on with `dims:` or `values:` of a set file"

/* axis in [-rank, rank) to [0, rank). */
static inline bool weft_axis__fix(int64_t axis, uint32_t rank, uint32_t *out)
{
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return false;
    *out = (uint32_t)(axis < 0 ? axis + rank : axis);
    return true;
}

/* -- Inference ------------------------------------------------------------------------------ */

/* Contents longer than this are not propagated. */
enum { WEFT_CONTENT_MAX = 64 };

static inline bool weft_infer__has(const weft_infer_ctx *cx, uint32_t in)
{
    return in < cx->n_in && cx->in[in].present;
}
/* Parameter given as an attribute or as an operand (whose value may be unknown). */
bool weft_infer__given(const weft_infer_ctx *cx, uint32_t in, weft_attr_key key);
/* Text of a dimension for messages; lives in cx->arena. */
const char *weft_infer__text(weft_infer_ctx *cx, weft_dim d);
/* As weft_axis__fix, with a message. */
weft_err weft_infer__axis(weft_infer_ctx *cx, int64_t axis, uint32_t rank, uint32_t *out);
/* Sets result `out` to dtype and rank with zero dims, PLAIN; returns it (a dummy when the caller
 * does not want that result). */
weft_ttype *weft_infer__out(weft_infer_ctx *cx, uint32_t out, weft_dtype dtype, uint32_t rank);
/* Result `out` gets the type of operand `in`. */
void weft_infer__copy(weft_infer_ctx *cx, uint32_t out, uint32_t in);
/* INPUT when the rank is outside [lo, hi]. */
weft_err weft_infer__rank(weft_infer_ctx *cx, uint32_t in, uint32_t lo, uint32_t hi);
/* INPUT when the dtypes of two operands differ. */
weft_err weft_infer__same_dtype(weft_infer_ctx *cx, uint32_t a, uint32_t b);
/* INPUT when the dtype of the operand is not in `mask` (1u << dtype, or'ed). */
weft_err weft_infer__dtype(weft_infer_ctx *cx, uint32_t in, uint32_t mask);
/* Notes that the dims have to agree once they are known; `what` is a static string. */
void weft_infer__require(weft_infer_ctx *cx, weft_require_kind kind, weft_dim a, weft_dim b,
                         const char *what);
/* The dims are equal, or have to be once they are known. INPUT when both are constant and differ;
 * `what` names the thing in the message. */
weft_err weft_infer__agree(weft_infer_ctx *cx, weft_dim a, weft_dim b, const char *what);
/* One dim of NumPy broadcasting. If symbols leave the result open, a dim known to be over 1 is the
 * result; otherwise both are assumed to be equal, and the one that does not depend on data is it.
 */
weft_err weft_infer__broadcast_dim(weft_infer_ctx *cx, weft_dim a, weft_dim b, weft_dim *out);
/* Dims and rank of `a` broadcast with `b`; dtype and layout of *out are left alone. out may be a.
 */
weft_err weft_infer__broadcast(weft_infer_ctx *cx, const weft_ttype *a, const weft_ttype *b,
                               weft_ttype *out);
/* Elements of an integer or bool operand, symbolic or from data; at most WEFT_CONTENT_MAX. */
bool weft_infer__content(weft_infer_ctx *cx, uint32_t in, const weft_dim **out, uint32_t *out_n);
/* n elements in cx->arena as content of result `out`; NULL when that result is not wanted. */
weft_dim *weft_infer__set_content(weft_infer_ctx *cx, uint32_t out, uint32_t n);
/* Content of result 0 of an element-wise operator, if it follows from the operands' contents. */
void weft_content__fold(weft_infer_ctx *cx);
/* A view of the operand's data as a tensor; false when the data or a dim is not known. */
bool weft_infer__tensor(weft_infer_ctx *cx, uint32_t in, weft_tensor *out);

enum {
    WEFT_M_BOOL = 1u << WEFT_DTYPE_BOOL,
    WEFT_M_F32 = 1u << WEFT_DTYPE_F32,
    WEFT_M_F16 = 1u << WEFT_DTYPE_F16,
    WEFT_M_FLOAT =
        1u << WEFT_DTYPE_F32 | 1u << WEFT_DTYPE_F64 | 1u << WEFT_DTYPE_F16 | 1u << WEFT_DTYPE_BF16,
    WEFT_M_SIGNED =
        1u << WEFT_DTYPE_I8 | 1u << WEFT_DTYPE_I16 | 1u << WEFT_DTYPE_I32 | 1u << WEFT_DTYPE_I64,
    WEFT_M_UNSIGNED =
        1u << WEFT_DTYPE_U8 | 1u << WEFT_DTYPE_U16 | 1u << WEFT_DTYPE_U32 | 1u << WEFT_DTYPE_U64,
    WEFT_M_INT = WEFT_M_SIGNED | WEFT_M_UNSIGNED,
    WEFT_M_NUM = WEFT_M_FLOAT | WEFT_M_INT,
    WEFT_M_BYTE = 1u << WEFT_DTYPE_I8 | 1u << WEFT_DTYPE_U8,
    WEFT_M_NARROW_INT =
        1u << WEFT_DTYPE_I4 | 1u << WEFT_DTYPE_U4 | 1u << WEFT_DTYPE_I2 | 1u << WEFT_DTYPE_U2,
    WEFT_M_SCALE_ONLY = 1u << WEFT_DTYPE_F8E8M0,
    WEFT_M_NARROW_FLOAT = 1u << WEFT_DTYPE_F8E4M3FN | 1u << WEFT_DTYPE_F8E4M3FNUZ |
                          1u << WEFT_DTYPE_F8E5M2 | 1u << WEFT_DTYPE_F8E5M2FNUZ |
                          1u << WEFT_DTYPE_F6E2M3 | 1u << WEFT_DTYPE_F6E3M2 |
                          1u << WEFT_DTYPE_F4E2M1, /* without F8E8M0 */
    WEFT_M_QUANTISED = WEFT_M_BYTE | 1u << WEFT_DTYPE_I16 | 1u << WEFT_DTYPE_U16 |
                       WEFT_M_NARROW_INT | WEFT_M_NARROW_FLOAT,
    WEFT_M_INDEX = 1u << WEFT_DTYPE_I32 | 1u << WEFT_DTYPE_I64,
    WEFT_M_ANY = WEFT_M_NUM | WEFT_M_BOOL
};

/* -- Work ----------------------------------------------------------------------------------- */

/* Elements of an operand or result at concrete dims, 0 when absent. */
double weft_work__numel(const weft_work_operand *t);
/* weft_nest.delta of a low_rank_matmul and of a patched_matmul. */
weft_delta weft_low_rank__delta(const weft_work_ctx *cx);
weft_delta weft_routed__delta(const weft_work_ctx *cx);
weft_delta weft_patched__delta(const weft_work_ctx *cx);
/* The sizes of weft_op_nest for an einsum. */
void weft_einsum__nest(const weft_work_ctx *cx, weft_nest *out);
/* Bytes of all operands and results, with `flops`. */
weft_work weft_work__bytes(const weft_work_ctx *cx, double flops);

/* -- Evaluation ----------------------------------------------------------------------------- */

static inline const weft_tensor *weft_eval__in(const weft_eval_ctx *cx, uint32_t in)
{
    return in < cx->n_in ? cx->in[in] : NULL;
}
/* Result that the caller wants, or NULL. */
static inline weft_tensor *weft_eval__out(const weft_eval_ctx *cx, uint32_t out)
{
    return out < cx->n_out && cx->out[out].data != NULL ? &cx->out[out] : NULL;
}
weft_err weft_eval__axis(weft_eval_ctx *cx, int64_t axis, int32_t rank, uint32_t *out);

/* n elements first, first + stride, ... converted to dst and back. Integers are kept exactly by the
 * i64 pair (u64 as its bits); stores to narrower integers keep the low bits, stores to bool test
 * for non-zero. The f32 and f64 stores saturate to integers. */
void weft_eval__load_f32(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                         float *dst);
void weft_eval__load_f64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                         double *dst);
void weft_eval__load_i64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                         int64_t *dst);
void weft_eval__store_f32(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                          const float *src);
void weft_eval__store_f64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                          const double *src);
void weft_eval__store_i64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                          const int64_t *src);

/* All elements in the type named: the tensor's own data if it has that type, else a copy in
 * scratch.
 */
const float *weft_eval__f32(weft_eval_ctx *cx, const weft_tensor *t);
const double *weft_eval__f64(weft_eval_ctx *cx, const weft_tensor *t);
const int64_t *weft_eval__i64(weft_eval_ctx *cx, const weft_tensor *t);

/* Row-major strides, in elements. */
void weft_dims__strides(const int64_t *dim, int32_t rank, int64_t *stride);
/* Product of dim[from .. to - 1]; dims are those of a valid tensor. */
int64_t weft_dims__product(const int64_t *dim, int32_t from, int32_t to);
/* Next index in row-major order; false after the last (idx is then all zero again). */
bool weft_index__next(int64_t *idx, const int64_t *dim, int32_t rank);

/* Iteration over a shape with several strided operands: dims that are contiguous for all of them
 * are fused, so that the innermost loop (`inner`) is as long as possible. */
enum { WEFT_ITER_MAX = 40 };
typedef struct weft_iter {
    int32_t rank, n;
    int64_t dim[WEFT_RANK_MAX + 1];
    int64_t stride[WEFT_ITER_MAX][WEFT_RANK_MAX + 1];
    int64_t inner, inner_stride[WEFT_ITER_MAX]; /* the innermost loop */
    int64_t idx[WEFT_RANK_MAX + 1];
    int64_t at[WEFT_ITER_MAX]; /* element offsets of the current innermost loop */
    bool done;                 /* true at once when there are no elements */
} weft_iter;

/* Operands broadcast to `out` as in NumPy; false when one does not fit or n > WEFT_ITER_MAX. */
bool weft_iter__broadcast(weft_iter *it, const weft_tensor *out, const weft_tensor *const *in,
                          int32_t n);
/* Explicit strides, [n][rank]. */
void weft_iter__strided(weft_iter *it, const int64_t *dim, int32_t rank,
                        const int64_t (*stride)[WEFT_RANK_MAX], int32_t n);
void weft_iter__next(weft_iter *it);

/* Kinds of arithmetic: f16 and bf16 compute in f32, integers and bool in 64 bits. */
typedef enum weft_arith {
    WEFT_ARITH_F32,
    WEFT_ARITH_F64,
    WEFT_ARITH_I64,
    WEFT_ARITH_U64
} weft_arith;
weft_arith weft_eval__arith(weft_dtype dtype);

/* out = fn(in...) element by element with broadcasting, in blocks of at most WEFT_MAP_BLOCK
 * elements: `fn` sees the n operands converted to the type named, contiguous. INPUT when the shapes
 * do not broadcast to `out`. */
enum { WEFT_MAP_BLOCK = 1024 };
typedef void (*weft_eval_map_f32)(const void *state, const float *const *in, float *out, int64_t n);
typedef void (*weft_eval_map_f64)(const void *state, const double *const *in, double *out,
                                  int64_t n);
typedef void (*weft_eval_map_i64)(const void *state, const int64_t *const *in, int64_t *out,
                                  int64_t n);
weft_err weft_eval__map_f32(weft_eval_ctx *cx, const weft_tensor *out, const weft_tensor *const *in,
                            int32_t n, weft_eval_map_f32 fn, const void *state);
weft_err weft_eval__map_f64(weft_eval_ctx *cx, const weft_tensor *out, const weft_tensor *const *in,
                            int32_t n, weft_eval_map_f64 fn, const void *state);
weft_err weft_eval__map_i64(weft_eval_ctx *cx, const weft_tensor *out, const weft_tensor *const *in,
                            int32_t n, weft_eval_map_i64 fn, const void *state);

/* -- Steps ---------------------------------------------------------------------------------- */

/* Runs the steps of attribute `key` (STEPS or EPILOGUE): `acc` is the value before them, or NULL;
 * iN is operand N of the node. `out` may be `acc`'s data. */
weft_err weft_steps__eval(weft_eval_ctx *cx, weft_attr_key key, const weft_tensor *acc,
                          const weft_tensor *out);
/* Checks the steps, and that operands from `first_in` on broadcast to `out` (when acc) or gives the
 * dims they broadcast to (when not). */
weft_err weft_steps__infer(weft_infer_ctx *cx, weft_attr_key key, bool has_acc, weft_ttype *out);
/* Floating-point operations of one element. */
double weft_steps__flops(weft_attrs attrs, weft_attr_key key);

#endif
