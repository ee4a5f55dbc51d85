/* Small operators of classic machine learning: tables of keys and values, distances of support
 * vector machines, probabilities of pairs of classes. */
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

/* -- lookup ----------------------------------------------------------------------------------- */

enum { LOOKUP_X, LOOKUP_KEYS, LOOKUP_VALUES, LOOKUP_DEFAULT };

weft_err weft_infer_lookup(weft_infer_ctx *cx)
{
    const weft_ttype *values = &cx->in[LOOKUP_VALUES].type;
    WEFT_TRY(weft_infer__dtype(cx, LOOKUP_X, WEFT_M_NUM));
    WEFT_TRY(weft_infer__same_dtype(cx, LOOKUP_X, LOOKUP_KEYS));
    WEFT_TRY(weft_infer__rank(cx, LOOKUP_KEYS, 1, 1));
    WEFT_TRY(weft_infer__rank(cx, LOOKUP_VALUES, 1, 1));
    WEFT_TRY(weft_infer__agree(cx, cx->in[LOOKUP_KEYS].type.dim[0], values->dim[0], "keys"));
    if (weft_infer__has(cx, LOOKUP_DEFAULT)) {
        WEFT_TRY(weft_infer__same_dtype(cx, LOOKUP_VALUES, LOOKUP_DEFAULT));
        WEFT_TRY(weft_infer__rank(cx, LOOKUP_DEFAULT, 0, 0));
    }
    weft_infer__copy(cx, 0, LOOKUP_X);
    cx->out[0].dtype = values->dtype;
    return WEFT_ERR_OK;
}

/* Index of the first key that is not less than x; NaN is greater than all numbers. */
static int64_t search_f64(const double *key, int64_t n, double x)
{
    int64_t lo = 0;
    while (n > 0) {
        int64_t half = n / 2;
        bool less = isnan(x) ? !isnan(key[lo + half]) : key[lo + half] < x;
        lo = less ? lo + half + 1 : lo;
        n = less ? n - half - 1 : half;
    }
    return lo;
}

static int64_t search_i64(const int64_t *key, int64_t n, int64_t x)
{
    int64_t lo = 0;
    while (n > 0) {
        int64_t half = n / 2;
        bool less = key[lo + half] < x;
        lo = less ? lo + half + 1 : lo;
        n = less ? n - half - 1 : half;
    }
    return lo;
}

/* Keys in ascending order without repetitions, NaN behind the numbers. */
typedef struct key_table {
    const double *f64;
    const int64_t *i64;
    int64_t n;
} key_table;

/* The index of element i of x among the keys, or -1. */
static int64_t find_key(const key_table *t, const weft_tensor *x, int64_t i)
{
    if (t->f64) {
        double v = weft_tensor_get_f64(x, i);
        int64_t at = search_f64(t->f64, t->n, v);
        bool is = at < t->n && (t->f64[at] == v || (isnan(t->f64[at]) && isnan(v)));
        return is ? at : -1;
    }
    int64_t v = weft_tensor_get_i64(x, i), at = search_i64(t->i64, t->n, v);
    return at < t->n && t->i64[at] == v ? at : -1;
}

weft_err weft_eval_lookup(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[LOOKUP_X], *keys = cx->in[LOOKUP_KEYS],
                      *values = cx->in[LOOKUP_VALUES],
                      *otherwise = weft_eval__in(cx, LOOKUP_DEFAULT);
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    key_table t = {.n = weft_tensor_numel(keys)};
    if (weft_dtype_is_float(keys->dtype))
        t.f64 = weft_eval__f64(cx, keys);
    else
        t.i64 = weft_eval__i64(cx, keys);
    size_t size = weft_dtype_size(values->dtype);
    int64_t n = weft_tensor_numel(x);
    if (weft_tensor_numel(values) != t.n || weft_tensor_numel(out) != n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the operands do not fit");
    for (int64_t i = 0; i < n; i++) {
        int64_t at = find_key(&t, x, i);
        const char *from = at >= 0 ? (const char *)values->data + (size_t)at * size
                                   : (otherwise ? otherwise->data : NULL);
        if (!from)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%g is not among the %lld keys",
                             weft_tensor_get_f64(x, i), (long long)t.n);
        memcpy((char *)out->data + (size_t)i * size, from, size);
    }
    return WEFT_ERR_OK;
}

/* -- squared_distance ------------------------------------------------------------------------- */

weft_err weft_infer_squared_distance(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *y = &cx->in[1].type;
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, 2));
    WEFT_TRY(weft_infer__rank(cx, 1, 2, 2));
    WEFT_TRY(weft_infer__agree(cx, x->dim[1], y->dim[1], "features"));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, 2);
    out->dim[0] = x->dim[0];
    out->dim[1] = y->dim[0];
    return WEFT_ERR_OK;
}

weft_work weft_work_squared_distance(const weft_work_ctx *cx)
{
    double features = cx->in[1].rank == 2 ? (double)cx->in[1].dim[1] : 1;
    return weft_work__bytes(cx, 3 * features * weft_work__numel(&cx->out[0]));
}

weft_err weft_eval_squared_distance(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *y = cx->in[1], *out = &cx->out[0];
    int64_t rows = x->dim[0], cols = y->dim[0], n = x->dim[1];
    if (y->dim[1] != n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld and %lld features", (long long)n,
                         (long long)y->dim[1]);
    const double *a = weft_eval__f64(cx, x), *b = weft_eval__f64(cx, y);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += (a[r * n + k] - b[c * n + k]) * (a[r * n + k] - b[c * n + k]);
            weft_tensor_set_f64(out, r * cols + c, sum);
        }
    return WEFT_ERR_OK;
}

/* -- pairwise_coupling ------------------------------------------------------------------------ */

enum { CLASSES_MAX = 4096 };

weft_err weft_infer_pairwise_coupling(weft_infer_ctx *cx)
{
    int64_t classes = weft_attrs_int(cx->attrs, WEFT_ATTR_CLASSES, 0);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_F32));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, 2));
    if (classes < 2 || classes > CLASSES_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld classes, expected 2 to %d", (long long)classes,
                         CLASSES_MAX);
    WEFT_TRY(weft_infer__agree(cx, cx->in[0].type.dim[1], classes * (classes - 1) / 2, "pairs"));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dim[1] = classes;
    return WEFT_ERR_OK;
}

/* Scratch of one row: r and q are matrices [n, n]. */
typedef struct coupling {
    int64_t n;
    float *r, *q, *qp;
} coupling;

/* r[i][j]: probability of class i if it is i or j; q as in equation 41 of the paper. */
static void fill_coupling(coupling *c, const float *pair)
{
    int64_t n = c->n;
    for (int64_t i = 0, k = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++, k++) {
            c->r[i * n + j] = pair[k];
            c->r[j * n + i] = 1 - pair[k];
        }
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int64_t j = 0; j < n; j++) {
            if (j == i)
                continue;
            sum += c->r[j * n + i] * c->r[j * n + i];
            c->q[i * n + j] = -c->r[j * n + i] * c->r[i * n + j];
        }
        c->q[i * n + i] = sum;
    }
}

/* One round of algorithm 2: improves p, class after class; false when p is good enough. */
static bool improve(const coupling *c, float *p)
{
    int64_t n = c->n;
    float pqp = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        c->qp[i] = 0;
        for (int64_t j = 0; j < n; j++)
            c->qp[i] += c->q[i * n + j] * p[j];
        pqp += p[i] * c->qp[i];
    }
    for (int64_t i = 0; i < n; i++)
        error = fmaxf(error, fabsf(c->qp[i] - pqp));
    if (error < 0.005F / (float)n)
        return false;
    for (int64_t i = 0; i < n; i++) {
        float by = (pqp - c->qp[i]) / c->q[i * n + i];
        p[i] += by;
        pqp = (pqp + by * (by * c->q[i * n + i] + 2 * c->qp[i])) / (1 + by) / (1 + by);
        for (int64_t j = 0; j < n; j++) {
            c->qp[j] = (c->qp[j] + by * c->q[i * n + j]) / (1 + by);
            p[j] /= 1 + by;
        }
    }
    return true;
}

/* T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability estimates for multi-class classification by
 * pairwise coupling", JMLR 5 (2004), second method; rounds and precision as in libsvm. */
weft_err weft_eval_pairwise_coupling(weft_eval_ctx *cx)
{
    enum { ROUNDS = 100 };
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    int64_t n = out->dim[1], pairs = n * (n - 1) / 2;
    if (x->dim[1] != pairs || out->dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld pairs for %lld classes", (long long)x->dim[1],
                         (long long)n);
    coupling c = {.n = n,
                  .r = weft_arena_array(cx->scratch, (size_t)(n * n), sizeof(float)),
                  .q = weft_arena_array(cx->scratch, (size_t)(n * n), sizeof(float)),
                  .qp = weft_arena_array(cx->scratch, (size_t)n, sizeof(float))};
    for (int64_t row = 0; row < x->dim[0]; row++) {
        float *p = (float *)out->data + row * n;
        fill_coupling(&c, (const float *)x->data + row * pairs);
        for (int64_t i = 0; i < n; i++)
            p[i] = 1.0F / (float)n;
        for (int i = 0; i < ROUNDS && improve(&c, p); i++)
            ;
    }
    return WEFT_ERR_OK;
}
