/* Generated inputs and differences of tensors; see sample_tensors.h. */
#include "tools/common/sample_tensors.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

/* -- Made-up inputs ------------------------------------------------------------------------- */

/* Chooses values of the symbols: those of the bucket with this batch size, or those of the first
 * bucket with its batch replaced. */
static void choose_symbols(const weft_bundle_program *p, int64_t batch, int64_t *out)
{
    const weft_bundle_bucket *best = NULL;
    for (uint32_t i = 0; i < p->n_bucket; i++)
        if (!best ||
            (p->batch_symbol < p->n_symbol && p->bucket[i].symbol[p->batch_symbol] == batch &&
             best->symbol[p->batch_symbol] != batch))
            best = &p->bucket[i];
    for (uint32_t i = 0; i < p->n_symbol; i++)
        out[i] = best ? best->symbol[i] : p->symbol[i].lo > 0 ? p->symbol[i].lo : 1;
    if (p->batch_symbol < p->n_symbol)
        out[p->batch_symbol] = batch;
}

void weft_tool_fill_tensor(weft_tensor *t)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    int64_t n = weft_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        double u = (double)(weft_rand_lcg(&state) >> 11) * 0x1p-53;
        if (weft_dtype_is_float(t->dtype))
            weft_tensor_set_f64(t, i, 2 * u - 1);
        else
            weft_tensor_set_i64(t, i, u < 0.5);
    }
}

weft_err weft_tool_make_inputs(const weft_bundle_program *p, int64_t batch,
                               const weft_tool_dim *dim, size_t n_dim, weft_arena *arena,
                               weft_diag *diag, weft_tensor *in)
{
    int64_t *symbol = weft_arena_array(arena, (size_t)p->n_symbol + 1, sizeof *symbol);
    choose_symbols(p, batch, symbol);
    for (size_t i = 0; i < n_dim; i++)
        for (uint32_t k = 0; k < p->n_symbol; k++)
            if (k != p->batch_symbol && strcmp(p->symbol[k].name, dim[i].name) == 0)
                symbol[k] = dim[i].value;
    for (uint32_t i = 0; i < p->n_input; i++) {
        const weft_ttype *type = &p->value[p->input[i].value - 1].type;
        in[i] = (weft_tensor){.dtype = (weft_dtype)type->dtype, .rank = type->rank};
        for (uint32_t k = 0; k < type->rank; k++)
            if (!weft_dim_eval(p->dims, type->dim[k], symbol, p->n_symbol, &in[i].dim[k]))
                return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                       "input '%s' has no size at batch %lld", p->input[i].name,
                                       (long long)batch);
        if (weft_numel(in[i].dim, in[i].rank) < 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "input '%s' is too large", p->input[i].name);
        in[i].data = weft_arena_alloc(arena, weft_tensor_bytes(&in[i]));
        weft_tool_fill_tensor(&in[i]);
    }
    return WEFT_ERR_OK;
}

/* -- Differences ------------------------------------------------------------------------------ */

static double element(const weft_tensor *t, int64_t i)
{
    if (t->dtype == WEFT_DTYPE_F32)
        return ((const float *)t->data)[i];
    return weft_dtype_is_float(t->dtype) ? weft_tensor_get_f64(t, i)
                                         : (double)weft_tensor_get_i64(t, i);
}

bool weft_tool_same_shape(const weft_tensor *a, const weft_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0);
}

double weft_tool_difference(const weft_tensor *want, const weft_tensor *got)
{
    double most = 0, scale = 1e-6;
    int64_t n = weft_tensor_numel(want);
    if (!weft_tool_same_shape(want, got))
        return INFINITY;
    if (n == 0 || memcmp(want->data, got->data, weft_tensor_bytes(want)) == 0)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        double x = element(want, i), y = element(got, i);
        if (isfinite(x))
            scale = fmax(scale, fabs(x));
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        most = fmax(most, fabs(x - y));
    }
    return most / scale;
}
