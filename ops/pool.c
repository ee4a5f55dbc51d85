/* Pooling: a reduction over sliding windows, over whole planes, and the inverse of max pooling.
 *
 * Planes are converted to f64 one at a time, which holds all element types of the operators
 * exactly. */
#include "ops/window_int.h"

#include <math.h>
#include <string.h>

/* -- Inference and work --------------------------------------------------------------------- */

weft_err weft_infer_pool(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    weft_window win;
    WEFT_TRY(weft_infer__rank(cx, 0, 3, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT | WEFT_M_BYTE));
    const char *wrong = weft_window__read(cx->attrs, x->rank - 2u, NULL, &win);
    if (wrong != NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong);
    for (uint32_t i = 0; i < win.n; i++) {
        int64_t reach = (win.kernel[i] - 1) * win.dilation[i] + 1;
        if (win.pad_lo[i] >= reach || win.pad_hi[i] >= reach)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "padding of %lld and %lld for a window of %lld",
                             (long long)win.pad_lo[i], (long long)win.pad_hi[i], (long long)reach);
    }
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, x->rank);
    out->dim[0] = x->dim[0];
    out->dim[1] = x->dim[1];
    WEFT_TRY(weft_window__sizes(cx, &win, x, out));
    if (cx->n_out > 1) {
        cx->out[1] = *out;
        cx->out[1].dtype = WEFT_DTYPE_I64;
    }
    return WEFT_ERR_OK;
}

weft_err weft_infer_global_pool(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, x->rank);
    for (uint32_t i = 0; i < x->rank; i++)
        out->dim[i] = i < 2 ? x->dim[i] : 1;
    return WEFT_ERR_OK;
}

/* Size of the operand of the max_pool that this operator inverts. */
static weft_dim unpooled_size(weft_infer_ctx *cx, const weft_window *win, uint32_t i, weft_dim in)
{
    weft_dim grown = weft_dim_mul(cx->pool, weft_dim_sub(cx->pool, in, 1), win->stride[i]);
    return weft_dim_add(cx->pool, grown, win->kernel[i] - win->pad_lo[i] - win->pad_hi[i]);
}

weft_err weft_infer_max_unpool(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *shape;
    uint32_t n_shape;
    weft_window win;
    WEFT_TRY(weft_infer__rank(cx, 0, 3, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__dtype(cx, 1, 1u << WEFT_DTYPE_I64));
    const char *wrong = weft_window__read(cx->attrs, x->rank - 2u, NULL, &win);
    if (wrong != NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong);
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, x->rank);
    if (weft_infer_param(cx, 2, WEFT_ATTR_OUTPUT_SHAPE, &shape, &n_shape)) {
        if (n_shape != x->rank)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "`output_shape` does not fit");
        memcpy(out->dim, shape, n_shape * sizeof *shape);
        return WEFT_ERR_OK;
    }
    bool open = weft_infer__has(cx, 2);
    for (uint32_t i = 0; i < x->rank; i++) {
        if (open)
            out->dim[i] = weft_dim_fresh(cx->pool);
        else
            out->dim[i] = i < 2 ? x->dim[i] : unpooled_size(cx, &win, i - 2, x->dim[i]);
    }
    return WEFT_ERR_OK;
}

weft_work weft_work_pool(const weft_work_ctx *cx)
{
    double per = 1;
    uint32_t n;
    const int64_t *kernel = weft_attrs_ints(cx->attrs, WEFT_ATTR_KERNEL_SHAPE, &n);
    for (uint32_t i = 0; i < n; i++)
        per *= (double)kernel[i];
    return weft_work__bytes(cx, per * weft_work__numel(&cx->out[0]));
}

/* -- Windows -------------------------------------------------------------------------------- */

typedef enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP } pool_kind;

typedef struct plan {
    pool_kind kind;
    weft_window win;
    int64_t planes, n_in, n_out, p;
    int64_t in[WEFT_SPATIAL_MAX], out[WEFT_SPATIAL_MAX];
    int64_t lo[WEFT_SPATIAL_MAX], hi[WEFT_SPATIAL_MAX]; /* paddings */
    bool count_pad, by_column;
} plan;

/* The part of one window inside the input: kernel positions [first, end) of each dim. */
typedef struct view {
    int64_t first[WEFT_SPATIAL_MAX], end[WEFT_SPATIAL_MAX], start[WEFT_SPATIAL_MAX];
    double counted; /* elements of the window with padding, a double because the count may exceed 64
                       bits */
    bool empty;
} view;

static void place_window(const plan *p, const int64_t *idx, view *v)
{
    v->counted = 1;
    v->empty = false;
    for (uint32_t i = 0; i < p->win.n; i++) {
        int64_t d = p->win.dilation[i], start = idx[i] * p->win.stride[i] - p->lo[i];
        int64_t first = start >= 0 ? 0 : (-start + d - 1) / d;
        int64_t end = p->in[i] - start <= 0 ? 0 : (p->in[i] - start + d - 1) / d;
        int64_t padded = (p->in[i] + p->hi[i] - start + d - 1) / d;
        v->start[i] = start;
        v->first[i] = first;
        v->end[i] = end < p->win.kernel[i] ? end : p->win.kernel[i];
        v->counted *= (double)(padded < p->win.kernel[i] ? padded : p->win.kernel[i]);
        v->empty = v->empty || v->first[i] >= v->end[i];
    }
}

/* Index of an element by the order of `storage_order`. */
static int64_t element_index(const plan *p, const view *v, const int64_t *k)
{
    int64_t at = 0;
    for (uint32_t j = 0; j < p->win.n; j++) {
        uint32_t i = p->by_column ? p->win.n - 1 - j : j;
        at = at * p->in[i] + v->start[i] + k[i] * p->win.dilation[i];
    }
    return at;
}

static double power(double x, int64_t p)
{
    return p == 1 ? fabs(x) : p == 2 ? x * x : pow(fabs(x), (double)p);
}

/* One result; *where gets the index of a maximum. NaN is greater than any number. */
static double reduce_window(const plan *p, const double *x, const view *v, int64_t *where)
{
    double acc = p->kind == POOL_MAX ? -INFINITY : 0;
    int64_t k[WEFT_SPATIAL_MAX], count = 0, best = 0;
    bool found = false;
    uint32_t last = p->win.n - 1;
    memcpy(k, v->first, sizeof k);
    for (; !v->empty;) {
        int64_t at = 0;
        for (uint32_t i = 0; i < last; i++)
            at = (at + v->start[i] + k[i] * p->win.dilation[i]) * p->in[i + 1];
        at += v->start[last];
        for (k[last] = v->first[last]; k[last] < v->end[last]; k[last]++) {
            double y = x[at + k[last] * p->win.dilation[last]];
            if (p->kind != POOL_MAX) {
                acc += p->kind == POOL_LP ? power(y, p->p) : y;
            } else if (!found || y > acc || (y != y && acc == acc)) {
                acc = y;
                found = true;
                if (where != NULL)
                    best = element_index(p, v, k);
            }
            count++;
        }
        int32_t i = (int32_t)last - 1;
        for (; i >= 0 && ++k[i] >= v->end[i]; i--)
            k[i] = v->first[i];
        if (i < 0)
            break;
    }
    if (where != NULL)
        *where = best;
    if (p->kind == POOL_LP)
        return p->p == 1 ? acc : p->p == 2 ? sqrt(acc) : pow(acc, 1.0 / (double)p->p);
    if (p->kind == POOL_AVERAGE) {
        double n = p->count_pad ? v->counted : (double)count;
        return n > 0 ? acc / n : 0;
    }
    return acc;
}

static weft_err fill_plan(weft_eval_ctx *cx, pool_kind kind, plan *p)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    memset(p, 0, sizeof *p);
    p->kind = kind;
    const char *wrong = x->rank < 3
                            ? "rank under 3"
                            : weft_window__read(cx->attrs, (uint32_t)x->rank - 2, NULL, &p->win);
    if (wrong != NULL || out->rank != x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong != NULL ? wrong : "ranks do not fit");
    p->planes = x->dim[0] * x->dim[1];
    p->n_in = p->n_out = 1;
    for (uint32_t i = 0; i < p->win.n; i++) {
        p->in[i] = x->dim[2 + i];
        p->out[i] = out->dim[2 + i];
        p->n_in *= p->in[i];
        p->n_out *= p->out[i];
        p->lo[i] = weft_window__pad_lo(&p->win, i, p->in[i], p->out[i]);
        p->hi[i] = p->win.pad_hi[i];
        if (p->win.auto_pad >= WEFT_PAD_SAME_UPPER) {
            int64_t reach = (p->win.kernel[i] - 1) * p->win.dilation[i] + 1;
            p->hi[i] = (p->out[i] - 1) * p->win.stride[i] + reach - p->in[i] - p->lo[i];
            p->hi[i] = p->hi[i] < 0 ? 0 : p->hi[i];
        }
    }
    p->count_pad = weft_attrs_int(cx->attrs, WEFT_ATTR_COUNT_INCLUDE_PAD, 0) != 0;
    p->by_column = weft_attrs_int(cx->attrs, WEFT_ATTR_STORAGE_ORDER, 0) != 0;
    p->p = weft_attrs_int(cx->attrs, WEFT_ATTR_P, 2);
    return WEFT_ERR_OK;
}

static weft_err eval_pool(weft_eval_ctx *cx, pool_kind kind)
{
    plan p;
    WEFT_TRY(fill_plan(cx, kind, &p));
    const weft_tensor *out = &cx->out[0], *indices = weft_eval__out(cx, 1);
    double *x = weft_arena_array(cx->scratch, (size_t)p.n_in + 1, sizeof *x);
    double *y = weft_arena_array(cx->scratch, (size_t)p.n_out + 1, sizeof *y);
    for (int64_t plane = 0; plane < p.planes && p.n_out > 0; plane++) {
        int64_t idx[WEFT_SPATIAL_MAX] = {0}, i = 0, where;
        weft_eval__load_f64(cx->in[0], plane * p.n_in, 1, p.n_in, x);
        do {
            view v;
            place_window(&p, idx, &v);
            y[i] = reduce_window(&p, x, &v, indices != NULL ? &where : NULL);
            if (indices != NULL)
                weft_tensor_set_i64(indices, plane * p.n_out + i, plane * p.n_in + where);
            i++;
        } while (weft_index__next(idx, p.out, (int32_t)p.win.n));
        weft_eval__store_f64(out, plane * p.n_out, 1, p.n_out, y);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_max_pool(weft_eval_ctx *cx)
{
    return eval_pool(cx, POOL_MAX);
}

weft_err weft_eval_average_pool(weft_eval_ctx *cx)
{
    return eval_pool(cx, POOL_AVERAGE);
}

weft_err weft_eval_lp_pool(weft_eval_ctx *cx)
{
    return eval_pool(cx, POOL_LP);
}

/* -- Whole planes --------------------------------------------------------------------------- */

weft_err weft_eval_global_pool(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    weft_op_id id = cx->op->id;
    int64_t p = weft_attrs_int(cx->attrs, WEFT_ATTR_P, 2);
    int64_t planes = weft_tensor_numel(out), n = weft_dims__product(x->dim, 2, x->rank);
    double *plane = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *plane);
    if (x->rank < 2 || planes != x->dim[0] * x->dim[1])
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "shapes do not fit");
    for (int64_t i = 0; i < planes; i++) {
        double acc = id == WEFT_OP_GLOBAL_MAX_POOL ? -INFINITY : 0;
        weft_eval__load_f64(x, i * n, 1, n, plane);
        for (int64_t j = 0; j < n; j++) {
            if (id == WEFT_OP_GLOBAL_MAX_POOL)
                acc = plane[j] > acc || plane[j] != plane[j] ? plane[j] : acc;
            else
                acc += id == WEFT_OP_GLOBAL_LP_POOL ? power(plane[j], p) : plane[j];
        }
        if (id == WEFT_OP_GLOBAL_AVERAGE_POOL)
            acc /= (double)n;
        else if (id == WEFT_OP_GLOBAL_LP_POOL)
            acc = pow(acc, 1.0 / (double)p);
        weft_eval__store_f64(out, i, 1, 1, &acc);
    }
    return WEFT_ERR_OK;
}

/* -- Unpooling ------------------------------------------------------------------------------ */

/* Indices refer to the size that the windows imply; the result may be larger. */
weft_err weft_eval_max_unpool(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *indices = cx->in[1], *out = &cx->out[0];
    weft_window win;
    int64_t dim[WEFT_RANK_MAX];
    const char *wrong = x->rank < 3
                            ? "rank under 3"
                            : weft_window__read(cx->attrs, (uint32_t)x->rank - 2, NULL, &win);
    if (wrong != NULL || out->rank != x->rank || weft_tensor_numel(indices) != weft_tensor_numel(x))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong != NULL ? wrong : "shapes do not fit");
    for (int32_t i = 0; i < x->rank; i++) {
        dim[i] = x->dim[i];
        if (i >= 2)
            dim[i] = (x->dim[i] - 1) * win.stride[i - 2] + win.kernel[i - 2] - win.pad_lo[i - 2] -
                     win.pad_hi[i - 2];
    }
    int64_t size = weft_numel(dim, x->rank), n = weft_tensor_numel(x);
    if (weft_tensor_bytes(out) > 0)
        memset(out->data, 0, weft_tensor_bytes(out));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = weft_tensor_get_i64(indices, i), to = 0, scale = 1;
        if (at < 0 || at >= size)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "index %lld of %lld elements", (long long)at,
                             (long long)size);
        for (int32_t d = x->rank - 1; d >= 0; d--) {
            if (at % dim[d] >= out->dim[d])
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "an index outside `output_shape`");
            to += at % dim[d] * scale;
            scale *= out->dim[d];
            at /= dim[d];
        }
        double value;
        weft_eval__load_f64(x, i, 1, 1, &value);
        weft_eval__store_f64(out, to, 1, 1, &value);
    }
    return WEFT_ERR_OK;
}
