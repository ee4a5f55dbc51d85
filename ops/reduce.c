/* Reductions over axes, positions of extremes, running sums.
 *
 * The operand is read once from front to back; every result has an accumulator (f64, or 64-bit
 * integers) whose index follows from the strides of the result, zero along the reduced axes. */
#include "ops/op_int.h"
#include "ops/packed.h"

#include <math.h>
#include <string.h>

/* -- Inference ------------------------------------------------------------------------------ */

/* Marks the axes; false when an axis is not constant, out of range, or named twice. */
static bool mark_axes(const int64_t *axes, uint32_t n, uint32_t rank, bool *over)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t axis;
        if (!weft_dim_is_const(axes[i]) || !weft_axis__fix(axes[i], rank, &axis) || over[axis])
            return false;
        over[axis] = true;
    }
    return true;
}

static bool folds(weft_infer_ctx *cx, weft_dim a, weft_dim b, weft_dim *out)
{
    switch (cx->op->id) {
    case WEFT_OP_REDUCE_SUM:
        *out = weft_dim_add(cx->pool, a, b);
        return true;
    case WEFT_OP_REDUCE_PROD:
        *out = weft_dim_mul(cx->pool, a, b);
        return true;
    case WEFT_OP_REDUCE_MAX:
        *out = weft_dim_max(cx->pool, a, b);
        return true;
    case WEFT_OP_REDUCE_MIN:
        *out = weft_dim_min(cx->pool, a, b);
        return true;
    default:
        return false;
    }
}

/* The content of a vector reduced to one number. */
static void fold_content(weft_infer_ctx *cx)
{
    const weft_dim *content;
    uint32_t n;
    const weft_ttype *x = &cx->in[0].type;
    if (x->rank != 1 || (x->dtype != WEFT_DTYPE_I64 && x->dtype != WEFT_DTYPE_I32) ||
        !weft_infer__content(cx, 0, &content, &n) || n == 0 ||
        weft_ttype_numel(cx->pool, &cx->out[0]) != 1)
        return;
    weft_dim acc = content[0];
    for (uint32_t i = 1; i < n; i++)
        if (!folds(cx, acc, content[i], &acc))
            return;
    if (n == 1 && !folds(cx, acc, acc, &(weft_dim){0}))
        return;
    weft_dim *out = weft_infer__set_content(cx, 0, 1);
    if (out != NULL)
        out[0] = acc;
}

/* Axes known only at run time: the rank of the result must still be known. */
static weft_err infer_open_axes(weft_infer_ctx *cx, bool keep)
{
    const weft_ttype *x = &cx->in[0].type, *axes = &cx->in[1].type;
    uint32_t rank = x->rank;
    if (!keep) {
        if (axes->rank != 1 || !weft_dim_is_const(axes->dim[0]) || axes->dim[0] < 1 ||
            axes->dim[0] > rank)
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP,
                             "the rank depends on the data of `axes`" WEFT_REMEDY);
        rank -= (uint32_t)axes->dim[0];
    }
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, rank);
    for (uint32_t i = 0; i < rank; i++)
        out->dim[i] = weft_dim_fresh(cx->pool);
    return WEFT_ERR_OK;
}

weft_err weft_infer_reduce(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    bool keep = weft_attrs_int(cx->attrs, WEFT_ATTR_KEEPDIMS, 1) != 0;
    bool noop = weft_attrs_int(cx->attrs, WEFT_ATTR_NOOP_WITH_EMPTY_AXES, 0) != 0;
    weft_op_id id = cx->op->id;
    WEFT_TRY(weft_infer__dtype(
        cx, 0, id == WEFT_OP_REDUCE_MAX || id == WEFT_OP_REDUCE_MIN ? WEFT_M_ANY : WEFT_M_NUM));
    const weft_dim *axes;
    uint32_t n_axes;
    bool over[WEFT_RANK_MAX] = {false};
    if (!weft_infer_param(cx, 1, WEFT_ATTR_AXES, &axes, &n_axes) && weft_infer__has(cx, 1))
        return infer_open_axes(cx, keep);
    if (!mark_axes(axes, n_axes, x->rank, over))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "`axes` does not fit rank %u", x->rank);
    for (uint32_t i = 0; i < x->rank && n_axes == 0 && !noop; i++)
        over[i] = true;
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, 0);
    for (uint32_t i = 0; i < x->rank; i++)
        if (keep || !over[i])
            out->dim[out->rank++] = over[i] ? 1 : x->dim[i];
    fold_content(cx);
    return WEFT_ERR_OK;
}

weft_err weft_infer_arg(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    bool keep = weft_attrs_int(cx->attrs, WEFT_ATTR_KEEPDIMS, 1) != 0;
    uint32_t axis;
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_NUM));
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_I64, 0);
    for (uint32_t i = 0; i < x->rank; i++)
        if (keep || i != axis)
            out->dim[out->rank++] = i == axis ? 1 : x->dim[i];
    return WEFT_ERR_OK;
}

weft_err weft_infer_cum_sum(weft_infer_ctx *cx)
{
    const weft_dim *axis;
    uint32_t n, fixed;
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_NUM));
    if (!weft_infer__given(cx, 1, WEFT_ATTR_AXIS))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "`axis` is missing");
    weft_infer__copy(cx, 0, 0);
    if (weft_infer_param(cx, 1, WEFT_ATTR_AXIS, &axis, &n) && n == 1 && weft_dim_is_const(axis[0]))
        return weft_infer__axis(cx, axis[0], cx->in[0].type.rank, &fixed);
    return WEFT_ERR_OK;
}

/* The rows of several sequences one after the other, [1, rows, ..], and the starts of these
 * (ops/packed.h): a row for each start. */
weft_err weft_infer_reduce_sequences(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "");
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT | 1u << WEFT_DTYPE_I32 | 1u << WEFT_DTYPE_I64));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__dtype(cx, 1, 1u << WEFT_DTYPE_I64));
    WEFT_TRY(weft_infer__rank(cx, 1, 1, 1));
    WEFT_TRY(weft_infer__agree(cx, x->dim[0], 1, "packed batch"));
    if (strcmp(mode, "sum") != 0 && strcmp(mode, "mean") != 0 && strcmp(mode, "max") != 0 &&
        strcmp(mode, "min") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "mode %s is not sum, mean, max or min", mode);
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, x->rank - 1u);
    out->dim[0] = cx->in[1].type.dim[0];
    for (uint32_t i = 2; i < x->rank; i++)
        out->dim[i - 1] = x->dim[i];
    return WEFT_ERR_OK;
}

weft_work weft_work_reduce(const weft_work_ctx *cx)
{
    return weft_work__bytes(cx, weft_work__numel(&cx->in[0]));
}

/* -- Reduction ------------------------------------------------------------------------------ */

typedef enum fold { FOLD_SUM, FOLD_SQUARE, FOLD_ABS, FOLD_PROD, FOLD_MAX, FOLD_MIN, FOLD_EXP } fold;

static fold fold_of(weft_op_id id)
{
    switch (id) {
    case WEFT_OP_REDUCE_L1:
        return FOLD_ABS;
    case WEFT_OP_REDUCE_L2:
    case WEFT_OP_REDUCE_SUM_SQUARE:
        return FOLD_SQUARE;
    case WEFT_OP_REDUCE_PROD:
        return FOLD_PROD;
    case WEFT_OP_REDUCE_MAX:
        return FOLD_MAX;
    case WEFT_OP_REDUCE_MIN:
        return FOLD_MIN;
    case WEFT_OP_REDUCE_LOG_SUM_EXP:
        return FOLD_EXP;
    default:
        return FOLD_SUM;
    }
}

/* acc[i * step] accumulates x[i]; `shift` (FOLD_EXP only) is indexed like acc. */
#define LOOP(expr)                               \
    for (int64_t i = 0; i < n; i++, acc += step) \
        *acc = (expr);                           \
    break;

static void fold_f64(fold f, const double *x, int64_t n, double *acc, int64_t step,
                     const double *shift)
{
    switch (f) {
    case FOLD_SUM:
        LOOP(*acc + x[i])
    case FOLD_SQUARE:
        LOOP(*acc + x[i] * x[i])
    case FOLD_ABS:
        LOOP(*acc + fabs(x[i]))
    case FOLD_PROD:
        LOOP(*acc * x[i])
    case FOLD_MAX:
        LOOP(x[i] > *acc || x[i] != x[i] ? x[i] : *acc)
    case FOLD_MIN:
        LOOP(x[i] < *acc || x[i] != x[i] ? x[i] : *acc)
    case FOLD_EXP:
        LOOP(*acc + exp(x[i] - shift[i * step]))
    }
}

static void fold_u64(fold f, const int64_t *x, int64_t n, uint64_t *acc, int64_t step)
{
    switch (f) {
    case FOLD_SQUARE:
        LOOP(*acc + (uint64_t)x[i] * (uint64_t)x[i])
    case FOLD_ABS:
        LOOP(*acc + (x[i] < 0 ? 0 - (uint64_t)x[i] : (uint64_t)x[i]))
    case FOLD_PROD:
        LOOP(*acc * (uint64_t)x[i])
    case FOLD_MAX:
        LOOP((int64_t)*acc > x[i] ? *acc : (uint64_t)x[i])
    case FOLD_MIN:
        LOOP((int64_t)*acc < x[i] ? *acc : (uint64_t)x[i])
    default:
        LOOP(*acc + (uint64_t)x[i])
    }
}

#define SIGN_BIT ((uint64_t)1 << 63)

typedef struct plan {
    bool over[WEFT_RANK_MAX];
    int64_t stride[WEFT_RANK_MAX]; /* of the accumulators along the dims of the operand */
    int64_t n_out, count;          /* accumulators; elements for each */
} plan;

static weft_err fill_plan(weft_eval_ctx *cx, plan *p)
{
    const weft_tensor *x = cx->in[0];
    const int64_t *axes;
    uint32_t n_axes;
    memset(p, 0, sizeof *p);
    (void)weft_eval_param(cx, 1, WEFT_ATTR_AXES, &axes, &n_axes);
    if (!mark_axes(axes, n_axes, (uint32_t)x->rank, p->over))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "`axes` does not fit rank %d", x->rank);
    bool noop = weft_attrs_int(cx->attrs, WEFT_ATTR_NOOP_WITH_EMPTY_AXES, 0) != 0;
    p->n_out = p->count = 1;
    for (int32_t i = x->rank - 1; i >= 0; i--) {
        if (n_axes == 0 && !noop)
            p->over[i] = true;
        p->stride[i] = p->over[i] ? 0 : p->n_out;
        *(p->over[i] ? &p->count : &p->n_out) *= x->dim[i];
    }
    if (weft_tensor_numel(&cx->out[0]) != p->n_out)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result does not fit `axes`");
    return WEFT_ERR_OK;
}

static void sweep_f64(weft_eval_ctx *cx, const plan *p, fold f, double *acc, const double *shift)
{
    const weft_tensor *x = cx->in[0];
    double buf[WEFT_MAP_BLOCK];
    weft_iter it;
    weft_iter__strided(&it, x->dim, x->rank, &p->stride, 1);
    for (int64_t at = 0; !it.done; weft_iter__next(&it)) {
        for (int64_t i = 0; i < it.inner; i += WEFT_MAP_BLOCK) {
            int64_t n = it.inner - i < WEFT_MAP_BLOCK ? it.inner - i : WEFT_MAP_BLOCK;
            int64_t to = it.at[0] + i * it.inner_stride[0];
            weft_eval__load_f64(x, at, 1, n, buf);
            fold_f64(f, buf, n, acc + to, it.inner_stride[0], shift != NULL ? shift + to : NULL);
            at += n;
        }
    }
}

static void sweep_i64(weft_eval_ctx *cx, const plan *p, fold f, uint64_t flip, uint64_t *acc)
{
    const weft_tensor *x = cx->in[0];
    int64_t buf[WEFT_MAP_BLOCK];
    weft_iter it;
    weft_iter__strided(&it, x->dim, x->rank, &p->stride, 1);
    for (int64_t at = 0; !it.done; weft_iter__next(&it)) {
        for (int64_t i = 0; i < it.inner; i += WEFT_MAP_BLOCK) {
            int64_t n = it.inner - i < WEFT_MAP_BLOCK ? it.inner - i : WEFT_MAP_BLOCK;
            weft_eval__load_i64(x, at, 1, n, buf);
            for (int64_t j = 0; flip != 0 && j < n; j++)
                buf[j] = (int64_t)((uint64_t)buf[j] ^ flip);
            fold_u64(f, buf, n, acc + it.at[0] + i * it.inner_stride[0], it.inner_stride[0]);
            at += n;
        }
    }
}

static void fill_f64(double *acc, int64_t n, double x)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] = x;
}

static double start_of(fold f)
{
    return f == FOLD_PROD ? 1 : f == FOLD_MAX ? -INFINITY : f == FOLD_MIN ? INFINITY : 0;
}

static void reduce_f64(weft_eval_ctx *cx, const plan *p)
{
    weft_op_id id = cx->op->id;
    fold f = fold_of(id);
    double *acc = weft_arena_array(cx->scratch, (size_t)p->n_out + 1, sizeof *acc);
    double *top = NULL;
    if (f == FOLD_EXP) {
        top = weft_arena_array(cx->scratch, (size_t)p->n_out + 1, sizeof *top);
        fill_f64(top, p->n_out, -INFINITY);
        sweep_f64(cx, p, FOLD_MAX, top, NULL);
        /* An infinite maximum would make NaN of inf - inf. */
        for (int64_t i = 0; i < p->n_out; i++)
            top[i] = isinf(top[i]) ? 0 : top[i];
    }
    fill_f64(acc, p->n_out, start_of(f));
    sweep_f64(cx, p, f, acc, top);
    for (int64_t i = 0; i < p->n_out; i++) {
        if (id == WEFT_OP_REDUCE_MEAN)
            acc[i] /= p->count > 0 ? (double)p->count : 1; /* no elements: 0, as in onnxruntime */
        else if (id == WEFT_OP_REDUCE_L2)
            acc[i] = sqrt(acc[i]);
        else if (id == WEFT_OP_REDUCE_LOG_SUM)
            acc[i] = log(acc[i]);
        else if (f == FOLD_EXP)
            acc[i] = log(acc[i]) + top[i];
    }
    weft_eval__store_f64(&cx->out[0], 0, 1, p->n_out, acc);
}

/* u64 compares as i64 with the sign bit flipped. */
static void reduce_i64(weft_eval_ctx *cx, const plan *p)
{
    fold f = fold_of(cx->op->id);
    bool extreme = f == FOLD_MAX || f == FOLD_MIN;
    uint64_t flip = extreme && cx->in[0]->dtype == WEFT_DTYPE_U64 ? SIGN_BIT : 0;
    uint64_t *acc = weft_arena_array(cx->scratch, (size_t)p->n_out + 1, sizeof *acc);
    uint64_t start = f == FOLD_PROD ? 1 : 0;
    if (extreme)
        start = cx->in[0]->dtype == WEFT_DTYPE_BOOL ? f == FOLD_MIN
                : f == FOLD_MAX                     ? SIGN_BIT
                                                    : SIGN_BIT - 1;
    for (int64_t i = 0; i < p->n_out; i++)
        acc[i] = start;
    sweep_i64(cx, p, f, flip, acc);
    for (int64_t i = 0; i < p->n_out; i++) {
        acc[i] ^= flip;
        if (cx->op->id == WEFT_OP_REDUCE_MEAN && p->count > 0)
            acc[i] = cx->in[0]->dtype == WEFT_DTYPE_U64 ? acc[i] / (uint64_t)p->count
                                                        : (uint64_t)((int64_t)acc[i] / p->count);
    }
    weft_eval__store_i64(&cx->out[0], 0, 1, p->n_out, (const int64_t *)acc);
}

weft_err weft_eval_reduce(weft_eval_ctx *cx)
{
    plan p;
    WEFT_TRY(fill_plan(cx, &p));
    weft_op_id id = cx->op->id;
    bool real =
        id == WEFT_OP_REDUCE_L2 || id == WEFT_OP_REDUCE_LOG_SUM || id == WEFT_OP_REDUCE_LOG_SUM_EXP;
    /* Nothing to reduce: the f64 path saturates +-inf to the limits of an integer type. */
    bool none = p.count == 0 && cx->in[0]->dtype != WEFT_DTYPE_BOOL;
    if (weft_dtype_is_float(cx->in[0]->dtype) || real || none)
        reduce_f64(cx, &p);
    else
        reduce_i64(cx, &p);
    return WEFT_ERR_OK;
}

/* -- Sequences ------------------------------------------------------------------------------ */

/* Reduces `n` rows of `width` elements of x from row `at`, into row `to` of the result. `scratch`
 * holds two rows. */
static void reduce_rows_f64(weft_eval_ctx *cx, fold f, int64_t at, int64_t n, int64_t width,
                            int64_t to, double *scratch)
{
    double *acc = scratch, *row = scratch + width;
    fill_f64(acc, width, start_of(f));
    for (int64_t i = at; i < at + n; i++) {
        weft_eval__load_f64(cx->in[0], i * width, 1, width, row);
        fold_f64(f, row, width, acc, 1, NULL);
    }
    bool mean = strcmp(weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, ""), "mean") == 0;
    for (int64_t i = 0; mean && n > 0 && i < width; i++)
        acc[i] /= (double)n;
    weft_eval__store_f64(&cx->out[0], to * width, 1, width, acc);
}

static void reduce_rows_i64(weft_eval_ctx *cx, fold f, int64_t at, int64_t n, int64_t width,
                            int64_t to, int64_t *scratch)
{
    int64_t *row = scratch + width;
    uint64_t *acc = (uint64_t *)scratch;
    for (int64_t i = 0; i < width; i++)
        acc[i] = f == FOLD_MAX ? SIGN_BIT : f == FOLD_MIN ? SIGN_BIT - 1 : 0;
    for (int64_t i = at; i < at + n; i++) {
        weft_eval__load_i64(cx->in[0], i * width, 1, width, row);
        fold_u64(f, row, width, acc, 1);
    }
    bool mean = strcmp(weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, ""), "mean") == 0;
    for (int64_t i = 0; mean && n > 0 && i < width; i++)
        acc[i] = (uint64_t)((int64_t)acc[i] / n);
    weft_eval__store_i64(&cx->out[0], to * width, 1, width, (const int64_t *)acc);
}

weft_err weft_eval_reduce_sequences(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "");
    fold f = strcmp(mode, "max") == 0 ? FOLD_MAX : strcmp(mode, "min") == 0 ? FOLD_MIN : FOLD_SUM;
    int64_t rows = x->dim[1], width = weft_dims__product(x->dim, 2, x->rank);
    size_t bytes = (size_t)width * weft_dtype_size((weft_dtype)out->dtype);
    void *scratch = weft_arena_array(cx->scratch, (size_t)width * 2 + 1, sizeof(int64_t));
    weft_packed packed;
    if (x->dim[0] != 1 || !weft_packed_read(cx->in[1], rows, rows, &packed) ||
        weft_tensor_numel(out) != packed.n * width)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, WEFT_PACKED_WRONG);
    for (int64_t i = 0; i < packed.n; i++) {
        int64_t from = packed.start[i], n = weft_packed_end(&packed, i) - from;
        uint8_t *to = (uint8_t *)out->data + (size_t)i * bytes;
        if (i > 0 && from == packed.start[i - 1])
            memcpy(to, to - bytes, bytes);
        else if (weft_dtype_is_float(x->dtype))
            reduce_rows_f64(cx, f, from, n, width, i, scratch);
        else
            reduce_rows_i64(cx, f, from, n, width, i, scratch);
    }
    return WEFT_ERR_OK;
}

/* -- Positions and running sums ------------------------------------------------------------- */

/* Lanes along one axis. */
typedef struct lanes {
    int64_t n, len, step;
} lanes;

static weft_err find_lanes(weft_eval_ctx *cx, int64_t axis, lanes *out)
{
    const weft_tensor *x = cx->in[0];
    uint32_t fixed;
    WEFT_TRY(weft_eval__axis(cx, axis, x->rank, &fixed));
    out->len = x->dim[fixed];
    out->step = weft_dims__product(x->dim, (int32_t)fixed + 1, x->rank);
    out->n = weft_dims__product(x->dim, 0, (int32_t)fixed) * out->step;
    return WEFT_ERR_OK;
}

static int64_t lane_start(const lanes *l, int64_t i)
{
    return i / l->step * l->len * l->step + i % l->step;
}

#define DEFINE_BEST(name, T)                                          \
    static int64_t name(const T *x, int64_t n, bool least, bool last) \
    {                                                                 \
        int64_t best = 0;                                             \
        for (int64_t i = 1; i < n; i++) {                             \
            bool better = least ? x[i] < x[best] : x[i] > x[best];    \
            if (better || (last && x[i] == x[best]))                  \
                best = i;                                             \
        }                                                             \
        return best;                                                  \
    }
DEFINE_BEST(best_f64, double)
DEFINE_BEST(best_i64, int64_t)

weft_err weft_eval_arg(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    bool least = cx->op->id == WEFT_OP_ARG_MIN;
    bool last = weft_attrs_int(cx->attrs, WEFT_ATTR_SELECT_LAST_INDEX, 0) != 0;
    bool real = weft_dtype_is_float(x->dtype);
    lanes l;
    WEFT_TRY(find_lanes(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), &l));
    if (weft_tensor_numel(out) != l.n || (l.len == 0 && l.n > 0))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "an axis without elements");
    union {
        void *any;
        double *d;
        int64_t *i;
    } buf = {.any = weft_arena_array(cx->scratch, (size_t)l.len + 1, 8)};
    for (int64_t i = 0; i < l.n; i++) {
        int64_t at = lane_start(&l, i), best;
        if (real) {
            weft_eval__load_f64(x, at, l.step, l.len, buf.d);
            best = best_f64(buf.d, l.len, least, last);
        } else {
            weft_eval__load_i64(x, at, l.step, l.len, buf.i);
            for (int64_t k = 0; x->dtype == WEFT_DTYPE_U64 && k < l.len; k++)
                buf.i[k] = (int64_t)((uint64_t)buf.i[k] ^ SIGN_BIT);
            best = best_i64(buf.i, l.len, least, last);
        }
        weft_tensor_set_i64(out, i, best);
    }
    return WEFT_ERR_OK;
}

/* Running sums, or products, in place. */
#define DEFINE_RUN(name, T)                                                       \
    static void name(T *x, int64_t n, bool product, bool exclusive, bool reverse) \
    {                                                                             \
        T acc = product ? 1 : 0;                                                  \
        for (int64_t k = 0; k < n; k++) {                                         \
            int64_t i = reverse ? n - 1 - k : k;                                  \
            T before = acc;                                                       \
            acc = product ? acc * x[i] : acc + x[i];                              \
            x[i] = exclusive ? before : acc;                                      \
        }                                                                         \
    }
DEFINE_RUN(run_f64, double)
DEFINE_RUN(run_u64, uint64_t)

weft_err weft_eval_cum_sum(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    bool product = cx->op->id == WEFT_OP_CUM_PROD;
    bool exclusive = weft_attrs_int(cx->attrs, WEFT_ATTR_EXCLUSIVE, 0) != 0;
    bool reverse = weft_attrs_int(cx->attrs, WEFT_ATTR_REVERSE, 0) != 0;
    const int64_t *axis;
    uint32_t n;
    lanes l;
    if (!weft_eval_param(cx, 1, WEFT_ATTR_AXIS, &axis, &n) || n != 1)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "`axis` is missing");
    WEFT_TRY(find_lanes(cx, axis[0], &l));
    union {
        void *any;
        double *d;
        int64_t *i;
        uint64_t *u;
    } buf = {.any = weft_arena_array(cx->scratch, (size_t)l.len + 1, 8)};
    for (int64_t i = 0; i < l.n; i++) {
        int64_t at = lane_start(&l, i);
        if (weft_dtype_is_float(x->dtype)) {
            weft_eval__load_f64(x, at, l.step, l.len, buf.d);
            run_f64(buf.d, l.len, product, exclusive, reverse);
            weft_eval__store_f64(out, at, l.step, l.len, buf.d);
        } else {
            weft_eval__load_i64(x, at, l.step, l.len, buf.i);
            run_u64(buf.u, l.len, product, exclusive, reverse);
            weft_eval__store_i64(out, at, l.step, l.len, buf.i);
        }
    }
    return WEFT_ERR_OK;
}
