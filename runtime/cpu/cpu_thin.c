/* matmul of a few rows by matrices that are no weights, as in attention to the past of a decoder:
 * one query against all keys, then one row of probabilities against all values. A step of a decoder
 * has other sizes than the step before; these loops are prepared in no time, while oneDNN generates
 * code for each size. Reading the matrices bounds the speed of both. */
#include "runtime/cpu/cpu_int.h"

enum {
    ROWS_MAX = 4,
    BATCH_RANK_MAX = WEFT_RANK_MAX - 2,
    /* Multiplications of one matrix: larger ones are divided among threads by oneDNN. */
    PRODUCT_MAX = 1 << 20
};

typedef struct thin {
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    bool trans_b;
    float scale;
    int64_t m, n, k, batch;
    int32_t rank; /* of the batch dims */
    int64_t dim[BATCH_RANK_MAX], a_stride[BATCH_RANK_MAX], b_stride[BATCH_RANK_MAX];
    weft_cpu_ew *ew; /* the epilogue, unless it is a product with a number; NULL: none */
    void *const *arg;
} thin;

static void run_batches(void *cx, int64_t begin, int64_t end)
{
    const thin *t = cx;
    size_t m = (size_t)t->m, n = (size_t)t->n, k = (size_t)t->k;
    const float factor[ROWS_MAX] = {t->scale, t->scale, t->scale, t->scale};
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, a_at = 0, b_at = 0;
        for (int32_t d = t->rank; d-- > 0; rest /= t->dim[d]) {
            a_at += rest % t->dim[d] * t->a_stride[d];
            b_at += rest % t->dim[d] * t->b_stride[d];
        }
        const float *a = (const float *)t->arg[0] + a_at, *b = (const float *)t->arg[1] + b_at;
        float *y = (float *)t->arg[t->n_in] + i * t->m * t->n;
        if (!t->trans_b) {
            t->vec->pv(y, n, a, k, m, b, n, k, n, factor);
            continue;
        }
        t->vec->dots(y, n, a, k, m, b, k, n, k);
        if (t->scale != 1.0f)
            t->vec->affine(y, y, t->scale, 0.0f, m * n);
    }
}

static weft_err run_thin(void *state, void *const *arg)
{
    thin *t = state;
    t->arg = arg;
    weft_par_for(t->threads, t->batch, (double)(t->m * t->n * t->k) * 0.1, run_batches, t);
    if (t->ew)
        weft_cpu__ew_run(t->ew, arg);
    return WEFT_ERR_OK;
}

static void destroy_thin(void *state)
{
    thin *t = state;
    if (t->ew)
        weft_cpu__ew_destroy(t->ew);
    free(t);
}

static bool is_scale(const weft_step *step)
{
    return step->op == WEFT_STEP_MUL && step->arg[0].kind == WEFT_ARG_ACC &&
           step->arg[1].kind == WEFT_ARG_NUMBER;
}

/* Sets the scale or the element-wise program. *out_done: false if there is no such program. */
static weft_err read_epilogue(weft_prep *p, thin *t, bool *out_done)
{
    const weft_attr *steps = weft_attrs_find(p->attrs, WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    t->scale = (float)weft_attrs_float(p->attrs, WEFT_ATTR_ALPHA, 1);
    *out_done = !steps || steps->n == 0;
    if (*out_done || steps->kind != WEFT_KIND_STRS || steps->n > WEFT_STEPS_MAX)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_steps_parse(steps->u.strs, steps->n, p->n_in, p->diag, p->where, step));
    if (steps->n == 1 && is_scale(&step[0])) {
        t->scale *= step[0].arg[1].number;
        *out_done = true;
        return WEFT_ERR_OK;
    }
    WEFT_TRY(weft_cpu__ew_create(p, step, steps->n, true, &t->ew));
    *out_done = t->ew != NULL;
    return WEFT_ERR_OK;
}

/* Dims of the batch, and the strides of an operand along them; 0 where it is broadcast. */
static bool read_batch(const weft_tensor *y, const weft_tensor *x, int64_t *stride)
{
    int64_t at = x->dim[x->rank - 1] * x->dim[x->rank - 2];
    for (int32_t d = y->rank - 2; d-- > 0;) {
        int32_t from = d - (y->rank - x->rank);
        int64_t dim = from >= 0 ? x->dim[from] : 1;
        if (dim != 1 && dim != y->dim[d])
            return false;
        stride[d] = dim == 1 ? 0 : at;
        at *= dim;
    }
    return true;
}

static bool is_plain(const weft_slot *s)
{
    return weft_slot_is(s, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) && s->tensor.rank >= 2;
}

weft_err weft_cpu__prepare_thin(weft_prep *p)
{
    const weft_tensor *a = &p->in[0].tensor, *b = &p->in[1].tensor, *y = &p->out[0].tensor;
    weft_cpu *cpu = weft_cpu__of(p);
    if (!is_plain(&p->in[0]) || !is_plain(&p->in[1]) || !is_plain(&p->out[0]) || p->in[0].weight ||
        p->in[1].weight || (p->n_in > 2 && p->in[2].present) || y->rank < 3 || y->rank < a->rank ||
        y->rank < b->rank || weft_attrs_int(p->attrs, WEFT_ATTR_TRANS_A, 0))
        return WEFT_ERR_OK;
    thin t = {.vec = cpu->vec,
              .threads = cpu->threads,
              .n_in = p->n_in,
              .trans_b = weft_attrs_int(p->attrs, WEFT_ATTR_TRANS_B, 0) != 0,
              .m = y->dim[y->rank - 2],
              .n = y->dim[y->rank - 1],
              .k = a->dim[a->rank - 1],
              .batch = weft_slot_count(&p->out[0], 0, y->rank - 2),
              .rank = y->rank - 2};
    bool fits = a->dim[a->rank - 2] == t.m && b->dim[b->rank - 2] == (t.trans_b ? t.n : t.k) &&
                b->dim[b->rank - 1] == (t.trans_b ? t.k : t.n) && t.m <= ROWS_MAX && t.k > 0 &&
                t.n <= PRODUCT_MAX / t.k && read_batch(y, a, t.a_stride) &&
                read_batch(y, b, t.b_stride);
    if (!fits)
        return WEFT_ERR_OK;
    memcpy(t.dim, y->dim, (size_t)t.rank * sizeof *t.dim);
    WEFT_TRY(read_epilogue(p, &t, &fits));
    if (!fits)
        return WEFT_ERR_OK;
    weft_err err = weft_cpu__set_kernel(p, run_thin, &t, sizeof t, t.ew ? "rows+ew" : "rows");
    p->destroy = destroy_thin;
    if (err != WEFT_ERR_OK && t.ew)
        weft_cpu__ew_destroy(t.ew);
    return err;
}
