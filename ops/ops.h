/* Operators: what Weft can compute, as one table.
 *
 * A row of ops.def names an operator, its operands, attributes and traits, and up to three
 * functions: infer (types of the results, on symbolic dimensions), work (flops and bytes at
 * concrete dimensions) and eval (the reference implementation on plain arrays). This folder does
 * not depend on graphs: the compiler calls infer with symbols, the runtime with numbers for dynamic
 * shapes; eval serves constant folding, tests, and the CPU driver for operators without a fast
 * kernel.
 *
 * Parameters. Many operators take small integer tensors that steer shapes (the axes of a
 * reduction, the target of a reshape). They may come as an operand or, once known, as an attribute:
 * `.params` pairs the operand with the attribute that replaces it. Functions read them only
 * through weft_infer_param / weft_eval_param, which look at both. */
#ifndef WEFT_OPS_OPS_H
#define WEFT_OPS_OPS_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/dim.h"
#include "base/tensor.h"
#include "ops/work.h"

#include <stdbool.h>
#include <stdint.h>

/* -- Types ---------------------------------------------------------------------------------- */

/* Memory layouts of a value. PLAIN is dense row-major. C16 / C8: channels (dim 1) in blocks of 16 /
 * 8 innermost, padded with zeros ("nChw16c"). NHWC: channels innermost. Dims are always given in
 * the logical order [n, c, spatial...]. */
#define WEFT_LAYOUT_MAP(X) \
    X(PLAIN, "plain", 1)   \
    X(C16, "c16", 16)      \
    X(C8, "c8", 8)         \
    X(NHWC, "nhwc", 1)

typedef enum weft_layout {
#define X(name, text, block) WEFT_LAYOUT_##name,
    WEFT_LAYOUT_MAP(X)
#undef X
        WEFT_LAYOUT_COUNT
} weft_layout;

const char *weft_layout_name(weft_layout layout);
bool weft_layout_parse(const char *text, weft_layout *out);
uint32_t weft_layout_block(weft_layout layout);

/* The type of a tensor: element type, layout, symbolic dimensions. The rank is always known. */
typedef struct weft_ttype {
    uint8_t dtype;  /* weft_dtype */
    uint8_t layout; /* weft_layout */
    uint8_t rank;
    weft_dim dim[WEFT_RANK_MAX]; /* entries from rank on are 0 */
} weft_ttype;

/* Number of elements as a dim (logical, without padding). */
weft_dim weft_ttype_numel(weft_dimpool *pool, const weft_ttype *type);
/* Bytes at concrete dims, padding of the layout included. false on overflow or negative dims. */
bool weft_layout_bytes(weft_dtype dtype, weft_layout layout, const int64_t *dim, int32_t rank,
                       uint64_t *out);

/* -- Attributes ----------------------------------------------------------------------------- */

/* Keys: attrs.def has A(ENUM, "text"). */
typedef enum weft_attr_key {
    WEFT_ATTR_NONE,
#define A(name, text) WEFT_ATTR_##name,
#include "ops/attrs.def"
#undef A
    WEFT_ATTR_COUNT
} weft_attr_key;

const char *weft_attr_key_name(weft_attr_key key);
weft_attr_key weft_attr_key_parse(const char *text); /* NONE when unknown */

typedef enum weft_attr_kind {
    WEFT_KIND_NONE,
    WEFT_KIND_INT,
    WEFT_KIND_FLOAT,
    WEFT_KIND_STR,
    WEFT_KIND_DTYPE,
    WEFT_KIND_INTS,
    WEFT_KIND_FLOATS,
    WEFT_KIND_STRS,
    WEFT_KIND_DIMS /* symbolic integers; a constant may be negative */
} weft_attr_kind;

typedef struct weft_attr {
    uint16_t key;  /* weft_attr_key */
    uint16_t kind; /* weft_attr_kind */
    uint32_t n;    /* elements of a list */
    union {
        int64_t i;
        double f;
        const char *s;
        weft_dtype dtype;
        const int64_t *ints;
        const double *floats;
        const char *const *strs;
        const weft_dim *dims;
    } u;
} weft_attr;

/* Sorted by key, each key once. */
typedef struct weft_attrs {
    const weft_attr *at;
    uint32_t n;
} weft_attrs;

/* The same key, kind and value: numbers by their bits, dims as handles. */
bool weft_attr_equal(const weft_attr *a, const weft_attr *b);
bool weft_attrs_equal(weft_attrs a, weft_attrs b);                     /* in this order */
const weft_attr *weft_attrs_find(weft_attrs attrs, weft_attr_key key); /* NULL when absent */
int64_t weft_attrs_int(weft_attrs attrs, weft_attr_key key, int64_t otherwise);
double weft_attrs_float(weft_attrs attrs, weft_attr_key key, double otherwise);
const char *weft_attrs_str(weft_attrs attrs, weft_attr_key key, const char *otherwise);
weft_dtype weft_attrs_dtype(weft_attrs attrs, weft_attr_key key, weft_dtype otherwise);
/* INTS, or DIMS that are all constant; NULL with *out_n = 0 when absent. */
const int64_t *weft_attrs_ints(weft_attrs attrs, weft_attr_key key, uint32_t *out_n);

/* A copy in `arena` with values in place of dims. Returns NULL, or the first attribute with a dim
 * that has no value. */
const weft_attr *weft_attrs_bind(weft_attrs attrs, const weft_dimpool *dims, const int64_t *symbol,
                                 uint32_t n_symbol, weft_arena *arena, weft_attrs *out);
/* A copy of bound attributes in `arena`. */
weft_attrs weft_attrs_copy(weft_attrs attrs, weft_arena *arena);

/* -- The table ------------------------------------------------------------------------------ */

typedef enum weft_trait {
    WEFT_T_EW = 1u << 0,       /* element-wise with NumPy broadcasting, all operands */
    WEFT_T_COMMUTES = 1u << 1, /* operands 0 and 1 may be swapped */
    WEFT_T_GEMM = 1u << 2,     /* computes GEMMs, which dominate its time */
    WEFT_T_REDUCE = 1u << 3,
    WEFT_T_MOVE = 1u << 4,        /* copies elements, computes none */
    WEFT_T_VIEW = 1u << 5,        /* result has the bytes of operand 0: no work */
    WEFT_T_DATA = 1u << 6,        /* result shape depends on operand data (beyond .params) */
    WEFT_T_EPILOGUE = 1u << 7,    /* accepts the `epilogue` attribute and its operands */
    WEFT_T_KERNEL_ONLY = 1u << 8, /* made by lowering; no ONNX counterpart */
    WEFT_T_GRAPH_ONLY = 1u << 9,  /* must be gone at the kernel stage */
    WEFT_T_RANDOM = 1u << 10,     /* excluded from constant folding and dedup */
    WEFT_T_RUNS = 1u << 11,       /* WEFT_T_EW: has a step in `ew` kernels (ops/steps.def) */
    WEFT_T_NARROW = 1u << 14,     /* result depends on the float type of the operands, not only on
                                     their values */
    WEFT_T_FILL = 1u << 13,       /* repeats elements to a shape that the operator is given */
    WEFT_T_BODY = 1u << 15,       /* runs other graphs: ops/flow.h */
    WEFT_T_PER_RUN = 1u << 16,    /* depends on what a run brings: no constant, even of constants */
    WEFT_T_LAYOUT = 1u << 12      /* supports all layouts: results have that of operand 0, or the
                                     one that attribute `layout` names; the others: PLAIN only */
} weft_trait;

enum { WEFT_OP_ATTR_MAX = 20, WEFT_OP_PARAM_MAX = 6, WEFT_VARIADIC = 255 };

typedef struct weft_attr_def {
    uint16_t key, kind;
    bool required;
} weft_attr_def;

/* Operand `in` may be replaced by attribute `key` (DIMS or, for floats, FLOATS / FLOAT). */
typedef struct weft_param_def {
    uint8_t in;
    uint16_t key;
} weft_param_def;

/* How the batch passes through an operator: rows of batch_rules.def. */
typedef enum weft_batch_rule {
    WEFT_BATCH_NONE, /* not known: requests may mix */
#define R(rule, name) WEFT_BATCH_##rule,
#include "ops/batch_rules.def"
#undef R
    WEFT_BATCH_COUNT
} weft_batch_rule;

/* How an operator runs on NVIDIA GPUs: rows of cuda_kinds.def. */
typedef enum weft_cuda_kind {
    WEFT_CUDA_KIND_NONE, /* not at all, or nothing to do (WEFT_T_VIEW) */
#define K(kind, name) WEFT_CUDA_KIND_##kind,
#include "ops/cuda_kinds.def"
#undef K
    WEFT_CUDA_KIND_COUNT
} weft_cuda_kind;

/* How one node computes the rows of several models that are concatenated along the outer dims. */
typedef enum weft_join_rule {
    WEFT_JOIN_NONE, /* not by rows */
    WEFT_JOIN_GEMM, /* a row of the result depends on the same row of operand 0, and on weights */
    WEFT_JOIN_EW,   /* element by element; weights are broadcast along rows */
    WEFT_JOIN_NORM  /* like GEMM, if the axis is the last one */
} weft_join_rule;

/* Rows of ops.def. */
typedef enum weft_op_id {
    WEFT_OP_NONE,
#define OP(id, infer, work, eval, ...) WEFT_OP_##id,
#include "ops/ops.def"
#undef OP
    WEFT_OP_COUNT
} weft_op_id;

struct weft_infer_ctx;
struct weft_work_ctx;
struct weft_eval_ctx;

typedef struct weft_op {
    weft_op_id id;
    const char *name;
    uint8_t in_min,
        in_max; /* operands; WEFT_VARIADIC: any number. Missing optional ones are none */
    uint8_t out_min, out_max; /* results */
    weft_batch_rule batch;
    weft_cuda_kind cuda;
    weft_join_rule join;
    uint32_t traits;
    uint8_t form; /* weft_form; OTHER: as weft_op_form finds from the traits */
    uint8_t row;  /* weft_row of forms NORM and SOFTMAX */
    weft_attr_def attrs[WEFT_OP_ATTR_MAX];    /* ends at key NONE */
    weft_param_def params[WEFT_OP_PARAM_MAX]; /* ends at key NONE */
    weft_err (*infer)(struct weft_infer_ctx *cx);
    weft_work (*work)(const struct weft_work_ctx *cx);
    weft_err (*eval)(struct weft_eval_ctx *cx); /* NULL: cannot be evaluated */
} weft_op;

/* Never NULL for id in 1 .. WEFT_OP_COUNT - 1. */
const weft_op *weft_op_get(weft_op_id id);
weft_op_id weft_op_find(const char *name); /* NONE when unknown */
/* Number of the first operand that belongs to the epilogue of a node with WEFT_T_EPILOGUE. */
uint32_t weft_epilogue_first(weft_op_id op, weft_attrs attrs);
/* Keys and kinds of the attributes against the row; weft_op_infer and weft_op_eval do it too. */
WEFT_MUST_USE weft_err weft_op_check_attrs(const weft_op *op, weft_attrs attrs, weft_diag *diag,
                                           weft_where where);

/* -- Inference ------------------------------------------------------------------------------ */

typedef struct weft_operand {
    bool present;
    weft_ttype type;
    const weft_dim *content; /* elements of a small integer tensor, if known (maybe symbolic) */
    uint32_t n_content;
    const void *data; /* elements as bytes, PLAIN layout, if known */
} weft_operand;

/* Sizes that inference could not prove to agree: they have to be compared once the sizes of the
 * inputs are known. FITS: b is a or 1, as in broadcasting to a. DIFFER: a is not b. */
typedef enum weft_require_kind {
    WEFT_REQUIRE_EQUAL,
    WEFT_REQUIRE_FITS,
    WEFT_REQUIRE_DIFFER,
    WEFT_REQUIRE_COUNT
} weft_require_kind;

typedef struct weft_require {
    weft_require_kind kind;
    weft_dim a, b;
    const char *what; /* static: "number of elements" */
} weft_require;

typedef struct weft_require_list {
    WEFT_VEC(weft_require) list; /* in the arena of the inference context */
} weft_require_list;

static inline bool weft_require_holds(weft_require_kind kind, int64_t a, int64_t b)
{
    return (a == b) != (kind == WEFT_REQUIRE_DIFFER) || (kind == WEFT_REQUIRE_FITS && b == 1);
}

/* The caller sets everything but `out` and `out_content`. */
typedef struct weft_infer_ctx {
    const weft_op *op;
    weft_attrs attrs;
    weft_dimpool *pool;
    weft_arena *arena; /* for contents; lives as long as the caller needs them */
    const weft_operand *in;
    uint32_t n_in;
    weft_ttype *out; /* n_out, zeroed */
    /* Contents of results that are small integer tensors computed from shapes, or NULL entries. */
    const weft_dim **out_content;
    uint32_t n_out;
    weft_require_list *require; /* receives what is assumed; NULL: not wanted */
    weft_diag *diag;
    weft_where where;
} weft_infer_ctx;

/* Types of the results. Dimensions that depend on data not given become fresh symbols; with `data`
 * of all operands given and constant dims, all results are constant. INPUT: the operands do not
 * fit; UNSUP: valid but not supported, e.g. a rank that only data tells. */
WEFT_MUST_USE weft_err weft_op_infer(weft_infer_ctx *cx);

/* The parameter that `in` / `key` hold: from the attribute, the operand's content or its data
 * (integers only). false: not known (or absent: *out_n is then 0 and *out NULL). */
bool weft_infer_param(weft_infer_ctx *cx, uint32_t in, weft_attr_key key, const weft_dim **out,
                      uint32_t *out_n);

/* What `start:end:step` of a slice means for a dim of d: the first index, the number of elements.
 */
void weft_op_slice_range(int64_t d, int64_t start, int64_t end, int64_t step, int64_t *out_first,
                         int64_t *out_count);

/* -- Work ----------------------------------------------------------------------------------- */

typedef struct weft_work_operand {
    bool present, is_weight;
    uint8_t dtype;
    uint8_t rank;
    int64_t dim[WEFT_RANK_MAX];
} weft_work_operand;

typedef struct weft_work_ctx {
    const weft_op *op;
    weft_attrs attrs;
    const weft_work_operand *in, *out;
    uint32_t n_in, n_out;
} weft_work_ctx;

weft_work weft_op_work(const weft_work_ctx *cx);
weft_form weft_op_form(const weft_op *op);
weft_nest weft_op_nest(const weft_work_ctx *cx);

/* -- Evaluation ----------------------------------------------------------------------------- */

typedef struct weft_eval_ctx {
    const weft_op *op;
    weft_attrs attrs;
    const weft_tensor *const *in; /* NULL entries: omitted operands */
    uint32_t n_in;
    weft_tensor *out; /* types set and data allocated by the caller; data NULL: not wanted */
    uint32_t n_out;
    weft_arena *scratch;                      /* reset by the caller */
    const struct weft_adapter_rows *adapters; /* of the run; NULL: none (ops/adapter_rows.h) */
    weft_diag *diag;
    weft_where where;
} weft_eval_ctx;

/* Computes the results in PLAIN layout. Operands and results do not overlap. Index data out of
 * range (gather and the like): INPUT. Integer division by zero gives 0. */
WEFT_MUST_USE weft_err weft_op_eval(weft_eval_ctx *cx);

/* As weft_infer_param, on concrete data; the list is allocated from scratch. */
bool weft_eval_param(weft_eval_ctx *cx, uint32_t in, weft_attr_key key, const int64_t **out,
                     uint32_t *out_n);

/* Numbers that are attributes of an element-wise operator of one operand, with ONNX's defaults;
 * returns how many it has. */
uint32_t weft_unary_params(weft_op_id id, weft_attrs attrs, double param[2]);

/* The upper bound of a clip without one, the largest finite number of a float type; the lower bound
 * is its negative. So an infinity is clipped, as the standard says. */
double weft_clip_limit(weft_dtype dtype);

/* Whether operand `in` is a factor of a GEMM or convolution, which matrix units may round to TF32.
 */
bool weft_op_is_factor(weft_op_id op, weft_attrs attrs, uint32_t in);

/* -- qlinear_matmul, qlinear_conv: qlinear.c -------------------------------------------------
 *
 * Products of bytes, with their scales and zero points as operands. The result is that of the
 * product of the dequantised operands, plus the bias (f32, or i32 in units of a_scale * b_scale),
 * then the steps of the epilogue, then quantised, unless the result's scale and zero point are
 * omitted: then it is f32. Sums of products are exact. */
enum {
    WEFT_QLINEAR_A,
    WEFT_QLINEAR_A_SCALE,
    WEFT_QLINEAR_A_ZERO,
    WEFT_QLINEAR_B,
    WEFT_QLINEAR_B_SCALE, /* one, or one a column (matmul) or output channel (conv) */
    WEFT_QLINEAR_B_ZERO,
    WEFT_QLINEAR_Y_SCALE,
    WEFT_QLINEAR_Y_ZERO,
    WEFT_QLINEAR_BIAS, /* one a column or output channel */
    WEFT_QLINEAR_OPERANDS
};

/* -- dynamic_quantize_linear: quant.c --------------------------------------------------------- */

/* Scale and zero point of u8 for numbers from lo to hi, a range that contains 0. With an infinity
 * the scale is infinite; the zero point is 255 if lo is one: NaN then, clamped from above first. */
void weft_quantize_by_range(float lo, float hi, float *out_scale, float *out_zero);

/* -- low_rank_matmul, patched_matmul, routed_matmul: segments.c ------------------------------- */

enum { WEFT_LOW_RANK_SEGMENTS = 24, WEFT_PATCH_OPERANDS = 3 };

enum { WEFT_ROUTED_MODEL = 3, WEFT_ROUTED_U, WEFT_ROUTED_V, WEFT_ROUTED_OPERANDS };

/* Operand u of segment i; its v is the next one. */
static inline uint32_t weft_low_rank_u(uint32_t i)
{
    return 3 + 2 * i;
}
/* Operand `value` of segment i; its `tap` and `first` are the next ones. */
static inline uint32_t weft_patch_value(uint32_t i)
{
    return 3 + WEFT_PATCH_OPERANDS * i;
}
/* Whether `tap` and `first` are valid indices of `elements` elements of a matrix [taps, features].
 */
bool weft_patch_is_sound(const int32_t *tap, const int32_t *first, int64_t elements, int64_t taps,
                         int64_t features);
/* First row of each segment, checked against `rows`. false: not constant, or out of range. */
bool weft_low_rank_starts(weft_attrs attrs, int64_t rows, const int64_t **out, uint32_t *out_n);

/* -- Steps: the little language of `ew` kernels and epilogues ------------------------------------
 *
 * A step is text: an element-wise operator and its arguments. `iN` is operand N of the node, `sN`
 * the result of step N, `acc` the value the step before (or the kernel itself) produced, `#1.5` a
 * number:
 *
 *     ew %x, %y {steps = ["add i0 i1", "mul s0 #0.5", "gelu s1"]}
 *     conv %x, $w, $b, %r {epilogue = ["add acc i3", "relu acc"]}
 *
 * The result of the last step is the node's. Computed in f32; operands broadcast as in NumPy. */

enum { WEFT_STEP_ARGS_MAX = 3, WEFT_STEPS_MAX = 64 };

/* Element-wise functions that steps may use: rows of steps.def, S(ENUM, "text", n_args). A step
 * with the name of an operator means that operator with default attributes, except that attributes
 * that matter are arguments: `leaky_relu x #alpha`, `clip x #lo #hi`, `elu x #alpha`, `hard_sigmoid
 * x #alpha #beta`, `gelu x` (erf), `gelu_tanh x`. */
typedef enum weft_step_op {
#define S(id, text, n_args) WEFT_STEP_##id,
#include "ops/steps.def"
#undef S
    WEFT_STEP_COUNT
} weft_step_op;

typedef enum weft_arg_kind {
    WEFT_ARG_INPUT,
    WEFT_ARG_STEP,
    WEFT_ARG_ACC,
    WEFT_ARG_NUMBER
} weft_arg_kind;

typedef struct weft_step {
    weft_step_op op;
    uint32_t n_args;
    struct {
        weft_arg_kind kind;
        uint32_t idx;
        float number;
    } arg[WEFT_STEP_ARGS_MAX];
} weft_step;

/* Parses `n` step texts; out has room for n <= WEFT_STEPS_MAX. `n_in` bounds operand numbers. */
WEFT_MUST_USE weft_err weft_steps_parse(const char *const *text, uint32_t n, uint32_t n_in,
                                        weft_diag *diag, weft_where where, weft_step *out);
/* One step on scalars (the meaning of each; used by eval and tests). */
float weft_step_apply(weft_step_op op, const float *arg);
const char *weft_step_name(weft_step_op op);
uint32_t weft_step_n_args(weft_step_op op);

#endif
