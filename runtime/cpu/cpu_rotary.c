/* Rotary embedding of f32, by positions. */
#include "runtime/cpu/cpu_int.h"

#include <string.h>

typedef struct rotary_kernel {
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    int64_t batch, heads, length, size, half, table; /* table: rows of the angles */
    bool flat, interleaved, wide;                    /* wide: positions are i64 */
    void *const *arg;
} rotary_kernel;

static int64_t row_of(const rotary_kernel *k, int64_t i)
{
    if (k->n_in < 4)
        return i;
    return k->wide ? ((const int64_t *)k->arg[3])[i] : ((const int32_t *)k->arg[3])[i];
}

static void rotate_head(const rotary_kernel *k, float *y, const float *x, const float *c,
                        const float *s)
{
    if (k->interleaved) {
        for (int64_t i = 0; i < k->half; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            y[2 * i] = c[i] * a - s[i] * b;
            y[2 * i + 1] = s[i] * a + c[i] * b;
        }
    } else {
        k->vec->rotate(y, x, c, s, (size_t)k->half);
    }
    int64_t done = 2 * k->half;
    if (done < k->size)
        memcpy(y + done, x + done, (size_t)(k->size - done) * sizeof *y);
}

static void rotate_positions(void *cx, int64_t begin, int64_t end)
{
    const rotary_kernel *k = cx;
    const float *x = k->arg[0];
    float *y = k->arg[k->n_in];
    for (int64_t i = begin; i < end; i++) {
        int64_t row = row_of(k, i) * k->half;
        const float *c = (const float *)k->arg[1] + row, *s = (const float *)k->arg[2] + row;
        for (int64_t h = 0; h < k->heads; h++) {
            int64_t at = k->flat ? i * k->heads + h
                                 : (i / k->length * k->heads + h) * k->length + i % k->length;
            rotate_head(k, y + at * k->size, x + at * k->size, c, s);
        }
    }
}

static weft_err run_rotary(void *state, void *const *arg)
{
    rotary_kernel *k = state;
    int64_t n = k->batch * k->length;
    k->arg = arg;
    /* Positions are data: a wrong one must not be read through. */
    for (int64_t i = 0; i < n; i++)
        if (row_of(k, i) < 0 || row_of(k, i) >= k->table)
            return WEFT_ERR_INPUT;
    weft_par_for(k->threads, n, (double)(k->heads * k->size) * 0.3, rotate_positions, k);
    return WEFT_ERR_OK;
}

static bool all_plain_f32(const weft_prep *p)
{
    bool fits = weft_slot_is(&p->out[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN);
    for (uint32_t i = 0; i < 3; i++)
        fits = fits && weft_slot_is(&p->in[i], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN);
    return fits && weft_slot_same_dims(&p->in[0], &p->out[0]);
}

weft_err weft_cpu__prepare_rotary(weft_prep *p)
{
    const weft_tensor *x = &p->in[0].tensor, *c = &p->in[1].tensor, *s = &p->in[2].tensor;
    bool has_positions = p->n_in > 3 && p->in[3].present;
    if (!all_plain_f32(p) || x->rank < 3 || x->rank > 4 || c->rank < 1 || p->n_in > 4 ||
        (p->n_in == 4 && !has_positions))
        return WEFT_ERR_OK;
    rotary_kernel k = {.vec = weft_cpu__of(p)->vec,
                       .threads = weft_cpu__of(p)->threads,
                       .n_in = p->n_in,
                       .batch = x->dim[0],
                       .flat = x->rank == 3,
                       .interleaved = weft_attrs_int(p->attrs, WEFT_ATTR_INTERLEAVED, 0) != 0};
    int64_t heads = weft_attrs_int(p->attrs, WEFT_ATTR_NUM_HEADS, 0);
    int64_t rotated = weft_attrs_int(p->attrs, WEFT_ATTR_ROTARY_EMBEDDING_DIM, 0);
    k.heads = k.flat ? heads : x->dim[1];
    if (k.heads < 1 || (k.flat && x->dim[2] % k.heads != 0))
        return WEFT_ERR_OK;
    k.length = x->dim[k.flat ? 1 : 2];
    k.size = k.flat ? x->dim[2] / k.heads : x->dim[3];
    k.half = (rotated ? rotated : k.size) / 2;
    if (k.half < 1 || 2 * k.half > k.size || c->dim[c->rank - 1] != k.half ||
        !weft_slot_same_dims(&p->in[1], &p->in[2]) || s->rank != c->rank)
        return WEFT_ERR_OK;
    k.table = weft_slot_numel(&p->in[1]) / k.half;
    if (has_positions) {
        weft_dtype dtype = p->in[3].tensor.dtype;
        k.wide = dtype == WEFT_DTYPE_I64;
        if ((!k.wide && dtype != WEFT_DTYPE_I32) || p->in[3].layout ||
            weft_slot_numel(&p->in[3]) != k.batch * k.length)
            return WEFT_ERR_OK;
    } else if (k.table != k.batch * k.length) {
        return WEFT_ERR_OK;
    }
    return weft_cpu__set_kernel(p, run_rotary, &k, sizeof k, "rotary");
}
