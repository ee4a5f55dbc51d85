/* Operators without a family: determinants, n-gram counts, updates of optimisers. */
#include "ops/data_int.h"

#include <math.h>
#include <string.h>

/* -- det ------------------------------------------------------------------------------------ */

weft_err weft_infer_det(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__agree(cx, x->dim[x->rank - 2], x->dim[x->rank - 1], "sides"));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, x->rank - 2u);
    memcpy(out->dim, x->dim, out->rank * sizeof *out->dim);
    return WEFT_ERR_OK;
}

/* Gaussian elimination with partial pivoting; overwrites `a`. */
static double determinant(double *a, int64_t n)
{
    double det = 1;
    for (int64_t c = 0; c < n; c++) {
        int64_t pivot = c;
        for (int64_t r = c + 1; r < n; r++)
            if (fabs(a[r * n + c]) > fabs(a[pivot * n + c]))
                pivot = r;
        if (a[pivot * n + c] == 0)
            return 0;
        for (int64_t k = c; k < n && pivot != c; k++) {
            double swap = a[c * n + k];
            a[c * n + k] = a[pivot * n + k];
            a[pivot * n + k] = swap;
        }
        det *= pivot != c ? -a[c * n + c] : a[c * n + c];
        for (int64_t r = c + 1; r < n; r++) {
            double f = a[r * n + c] / a[c * n + c];
            for (int64_t k = c; k < n; k++)
                a[r * n + k] -= f * a[c * n + k];
        }
    }
    return det;
}

weft_err weft_eval_det(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    if (x->rank < 2 || x->dim[x->rank - 1] != x->dim[x->rank - 2])
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "needs square matrices");
    WEFT_TRY(weft_eval__check_dims(cx, 0, x->dim, x->rank - 2));
    int64_t n = x->dim[x->rank - 1], count = weft_dims__product(x->dim, 0, x->rank - 2);
    double *a = weft_arena_array(cx->scratch, (size_t)(n * n), sizeof *a);
    for (int64_t i = 0; i < count; i++) {
        weft_eval__load_f64(x, i * n * n, 1, n * n, a);
        weft_tensor_set_f64(out, i, determinant(a, n));
    }
    return WEFT_ERR_OK;
}

/* -- tfidf_vectorizer ----------------------------------------------------------------------- */

typedef struct weft_ngrams {
    const int64_t *pool, *starts,
        *columns; /* starts[n - 1]: first item of the n-grams of length n */
    uint32_t n_pool, n_starts, n_columns;
    int64_t shortest, longest, skips, width;
} weft_ngrams;

static bool get_ngrams(weft_attrs attrs, weft_ngrams *out)
{
    weft_ngrams g = {.width = 0};
    g.pool = weft_attrs_ints(attrs, WEFT_ATTR_POOL_INT64S, &g.n_pool);
    g.starts = weft_attrs_ints(attrs, WEFT_ATTR_NGRAM_COUNTS, &g.n_starts);
    g.columns = weft_attrs_ints(attrs, WEFT_ATTR_NGRAM_INDEXES, &g.n_columns);
    g.shortest = weft_attrs_int(attrs, WEFT_ATTR_MIN_GRAM_LENGTH, 1);
    g.longest = weft_attrs_int(attrs, WEFT_ATTR_MAX_GRAM_LENGTH, 1);
    g.skips = weft_attrs_int(attrs, WEFT_ATTR_MAX_SKIP_COUNT, 0);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < g.n_starts; i++) {
        int64_t end = i + 1 < g.n_starts ? g.starts[i + 1] : (int64_t)g.n_pool;
        if (g.starts[i] < 0 || end < g.starts[i] || end > (int64_t)g.n_pool)
            return false;
        seen += (uint64_t)(end - g.starts[i]) / (i + 1);
    }
    for (uint32_t i = 0; i < g.n_columns; i++) {
        if (g.columns[i] < 0 || g.columns[i] > INT32_MAX)
            return false;
        g.width = g.columns[i] >= g.width ? g.columns[i] + 1 : g.width;
    }
    *out = g;
    return seen <= g.n_columns && g.shortest >= 1 && g.longest >= g.shortest && g.skips >= 0;
}

weft_err weft_infer_tfidf_vectorizer(weft_infer_ctx *cx)
{
    weft_ngrams g;
    WEFT_TRY(weft_infer__rank(cx, 0, 1, 2));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_INDEX));
    if (!get_ngrams(cx->attrs, &g))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the pool of n-grams is inconsistent");
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_F32, cx->in[0].type.rank);
    out->dim[0] = cx->in[0].type.dim[0];
    out->dim[out->rank - 1] = g.width;
    return WEFT_ERR_OK;
}

/* Counts n-grams of length n whose items are `step` apart. */
static void count_ngrams(const weft_ngrams *g, int64_t n, int64_t step, const int64_t *x,
                         int64_t len, double *count)
{
    int64_t id = 0;
    if (n > g->n_starts)
        return;
    for (int64_t i = 0; i + 1 < n; i++)
        id += (g->starts[i + 1] - g->starts[i]) / (i + 1);
    int64_t end = n < g->n_starts ? g->starts[n] : (int64_t)g->n_pool;
    for (int64_t at = g->starts[n - 1]; at + n <= end; at += n, id++)
        for (int64_t first = 0; first + (n - 1) * step < len; first++) {
            int64_t k = 0;
            while (k < n && x[first + k * step] == g->pool[at + k])
                k++;
            if (k == n)
                count[g->columns[id]]++;
        }
}

weft_err weft_eval_tfidf_vectorizer(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    const weft_attr *weights = weft_attrs_find(cx->attrs, WEFT_ATTR_WEIGHTS);
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "TF");
    weft_ngrams g;
    if (!out)
        return WEFT_ERR_OK;
    int64_t rows = x->rank == 2 ? x->dim[0] : 1, len = x->rank > 0 ? x->dim[x->rank - 1] : 0;
    if (!get_ngrams(cx->attrs, &g) || weft_tensor_numel(out) != rows * g.width ||
        (weights && (weights->kind != WEFT_KIND_FLOATS || weights->n < g.width)))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the pool of n-grams is inconsistent");
    const int64_t *items = weft_eval__i64(cx, x);
    double *count = weft_arena_array(cx->scratch, (size_t)g.width, sizeof *count);
    for (int64_t r = 0; r < rows; r++) {
        memset(count, 0, (size_t)g.width * sizeof *count);
        for (int64_t n = g.shortest; n <= g.longest && n <= len; n++)
            for (int64_t skip = 0; skip <= (n > 1 ? g.skips : 0) && skip < len; skip++)
                count_ngrams(&g, n, skip + 1, items + r * len, len, count);
        for (int64_t i = 0; i < g.width; i++) {
            double weight = weights ? weights->u.floats[i] : 1;
            if (strcmp(mode, "IDF") == 0)
                count[i] = count[i] > 0 ? weight : 0;
            else if (strcmp(mode, "TFIDF") == 0)
                count[i] *= weight;
            weft_tensor_set_f64(out, r * g.width + i, count[i]);
        }
    }
    return WEFT_ERR_OK;
}

/* -- Optimisers ----------------------------------------------------------------------------- */

/* Operands: learning rate, number of the update, then n tensors, n gradients and n of each kind of
 * state. Results: the tensors and the states. */
static uint32_t n_states(const weft_op *op)
{
    return op->id == WEFT_OP_ADAM ? 2 : 1;
}

weft_err weft_infer_optimizer(weft_infer_ctx *cx)
{
    uint32_t states = n_states(cx->op), n = (cx->n_in - 2) / (2 + states);
    if (n == 0 || cx->n_in != 2 + n * (2 + states) || cx->n_out != n * (1 + states))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands and %u results", cx->n_in, cx->n_out);
    for (uint32_t i = 2; i < cx->n_in; i++)
        if (!cx->in[i].present)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
    for (uint32_t o = 0; o < cx->n_out; o++) {
        uint32_t from = o < n ? 2 + o : 2 + n + o;
        WEFT_TRY(weft_infer__dtype(cx, from, WEFT_M_FLOAT));
        weft_infer__copy(cx, o, from);
    }
    return WEFT_ERR_OK;
}

typedef struct weft_optimizer {
    weft_op_id id;
    double rate, step, alpha, beta, epsilon, norm, norm_after;
    bool nesterov;
} weft_optimizer;

/* One element: x and its state, in place. */
static void optimize(const weft_optimizer *o, double *x, double g, double *v, double *h)
{
    g += o->norm * *x;
    if (o->id == WEFT_OP_ADAGRAD) {
        *v += g * g;
        *x -= o->rate * g / (sqrt(*v) + o->epsilon);
    } else if (o->id == WEFT_OP_MOMENTUM) {
        *v = o->alpha * *v + (o->step > 0 ? o->beta : 1) * g;
        *x -= o->rate * (o->nesterov ? g + o->alpha * *v : *v);
    } else {
        *v = o->alpha * *v + (1 - o->alpha) * g;
        *h = o->beta * *h + (1 - o->beta) * g * g;
        *x -= o->rate * *v / (sqrt(*h) + o->epsilon);
        *x *= 1 - o->norm_after;
    }
}

static weft_err get_optimizer(weft_eval_ctx *cx, weft_optimizer *out)
{
    weft_optimizer o = {.id = cx->op->id};
    for (int i = 0; i < 2; i++)
        if (weft_tensor_numel(cx->in[i]) != 1)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %d is no scalar", i);
    o.rate = weft_tensor_get_f64(cx->in[0], 0);
    o.step = weft_tensor_get_f64(cx->in[1], 0);
    o.alpha = weft_attrs_float(cx->attrs, WEFT_ATTR_ALPHA, 0.9);
    o.beta = weft_attrs_float(cx->attrs, WEFT_ATTR_BETA, 0.999);
    o.epsilon = weft_attrs_float(cx->attrs, WEFT_ATTR_EPSILON, 1e-6);
    o.norm = weft_attrs_float(cx->attrs, WEFT_ATTR_NORM_COEFFICIENT, 0);
    o.norm_after = weft_attrs_float(cx->attrs, WEFT_ATTR_NORM_COEFFICIENT_POST, 0);
    o.nesterov = strcmp(weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "standard"), "nesterov") == 0;
    if (o.id == WEFT_OP_ADAGRAD)
        o.rate /= 1 + o.step * weft_attrs_float(cx->attrs, WEFT_ATTR_DECAY_FACTOR, 0);
    else if (o.id == WEFT_OP_ADAM && o.step > 0)
        o.rate *= sqrt(1 - pow(o.beta, o.step)) / (1 - pow(o.alpha, o.step));
    *out = o;
    return WEFT_ERR_OK;
}

weft_err weft_eval_optimizer(weft_eval_ctx *cx)
{
    uint32_t states = n_states(cx->op), n = (cx->n_in - 2) / (2 + states);
    weft_optimizer opt = {0};
    WEFT_TRY(get_optimizer(cx, &opt));
    for (uint32_t i = 0; i < n; i++) {
        int64_t numel = weft_tensor_numel(cx->in[2 + i]);
        const double *in[4] = {NULL};
        double *out[3];
        for (uint32_t k = 0; k < 2 + states; k++) {
            const weft_tensor *t = weft_eval__in(cx, 2 + k * n + i);
            if (!t || weft_tensor_numel(t) != numel)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operands of tensor %u differ in size", i);
            in[k] = weft_eval__f64(cx, t);
        }
        for (uint32_t k = 0; k < 3; k++)
            out[k] = weft_arena_array(cx->scratch, (size_t)numel, sizeof(double));
        for (int64_t e = 0; e < numel; e++) {
            out[0][e] = in[0][e];
            out[1][e] = in[2][e];
            out[2][e] = in[3] ? in[3][e] : 0;
            optimize(&opt, &out[0][e], in[1][e], &out[1][e], &out[2][e]);
        }
        for (uint32_t k = 0; k < 1 + states; k++) {
            weft_tensor *t = weft_eval__out(cx, k * n + i);
            if (t && weft_tensor_numel(t) == numel)
                weft_eval__store_f64(t, 0, 1, numel, out[k]);
        }
    }
    return WEFT_ERR_OK;
}
