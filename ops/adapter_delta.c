/* adapter_delta: what the adapters of a run add to a GEMM.
 *
 *     %d = adapter_delta %x {sites = ["layer.0.query", "", "layer.0.value"], widths = [64, 64, 64]}
 *
 *     d[rows of part i, columns of site s] = (x[rows of part i] a^T) b
 *
 * x [..., k]; the result [..., sum of widths] has a range of columns for each site: zeros where the
 * adapter of part i has no factors for it, and where the name is "". The run tells the adapter of
 * each part of the batch, which is the outermost axis of x. Without adapters the result is zero.
 *
 * Requests with different adapters run in one batch, with factors of different ranks: the segmented
 * GEMM of Chen et al., "Punica", 2023, and Sheng et al., "S-LoRA", 2023. A base GEMM adds the
 * result in its epilogue. */
#include "ops/adapter_rows.h"
#include "ops/gemm_int.h"
#include "ops/op_int.h"

#include <string.h>

/* -- Adapters ------------------------------------------------------------------------------- */

uint32_t weft_adapter_site(const weft_adapter_rows *rows, const char *name)
{
    for (uint32_t i = 0; i < rows->n_site; i++)
        if (strcmp(rows->site[i], name) == 0)
            return i;
    return UINT32_MAX;
}

const weft_adapter_factors *weft_adapter_factors_of(const weft_adapter_rows *rows, int64_t part,
                                                    uint32_t site, int64_t k, int64_t n)
{
    const weft_adapter *a = part < rows->n ? rows->of[part] : NULL;
    const weft_adapter_factors *f = a && site < a->n_site ? &a->factors[site] : NULL;
    return f && f->rank > 0 && f->k == k && f->n == n ? f : NULL;
}

weft_path_fit weft_path_compare(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    const char *longer = la > lb ? a : b, *shorter = la > lb ? b : a;
    size_t more = la > lb ? la - lb : lb - la;
    if (la == 0 || lb == 0 || strcmp(longer + more, shorter) != 0)
        return WEFT_PATH_APART;
    if (more == 0)
        return WEFT_PATH_SAME;
    return longer[more - 1] == '.' ? WEFT_PATH_ENDS : WEFT_PATH_APART;
}

/* -- Inference ------------------------------------------------------------------------------ */

weft_err weft_infer_adapter_delta(weft_infer_ctx *cx)
{
    const weft_attr *sites = weft_attrs_find(cx->attrs, WEFT_ATTR_SITES);
    uint32_t n;
    const int64_t *width = weft_attrs_ints(cx->attrs, WEFT_ATTR_WIDTHS, &n);
    int64_t sum = 0;
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_F32));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    if (n == 0 || sites->n != n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u sites have %u widths", sites->n, n);
    for (uint32_t i = 0; i < n; i++) {
        if (width[i] < 1 || width[i] > INT32_MAX)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "a site has %lld columns", (long long)width[i]);
        sum += width[i];
    }
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_F32, 0);
    *out = cx->in[0].type;
    out->layout = WEFT_LAYOUT_PLAIN;
    out->dim[out->rank - 1] = sum;
    return WEFT_ERR_OK;
}

/* -- Work ----------------------------------------------------------------------------------- */

/* The result is written; what adapters add depends on the run. */
weft_work weft_work_adapter_delta(const weft_work_ctx *cx)
{
    weft_work w = weft_work__bytes(cx, 0);
    w.bytes_read = 0;
    return w;
}

/* -- Evaluation ----------------------------------------------------------------------------- */

/* y[rows, n], `stride` apart, += (x a^T) b */
static void add_delta(weft_eval_ctx *cx, const weft_adapter_factors *f, const float *x,
                      int64_t rows, float *y, int64_t stride)
{
    float *xa = weft_arena_array(cx->scratch, (size_t)f->rank + 1, sizeof *xa);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < f->rank; i++) {
            double sum = 0;
            for (int64_t j = 0; j < f->k; j++)
                sum += (double)x[r * f->k + j] * f->a[i * f->k + j];
            xa[i] = (float)sum;
        }
        for (int64_t j = 0; j < f->n; j++) {
            double sum = 0;
            for (int64_t i = 0; i < f->rank; i++)
                sum += (double)xa[i] * f->b[i * f->n + j];
            y[r * stride + j] = (float)sum;
        }
    }
}

weft_err weft_eval_adapter_delta(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *y = &cx->out[0];
    const weft_attr *sites = weft_attrs_find(cx->attrs, WEFT_ATTR_SITES);
    const weft_adapter_rows *run = cx->adapters;
    uint32_t n;
    const int64_t *width = weft_attrs_ints(cx->attrs, WEFT_ATTR_WIDTHS, &n);
    int64_t k = x->dim[x->rank - 1], all = y->dim[y->rank - 1];
    int64_t rows = weft_dims__product(x->dim, 0, x->rank - 1), parts = run ? run->n : 0;
    memset(y->data, 0, weft_tensor_bytes(y));
    if (parts == 0)
        return WEFT_ERR_OK;
    if (rows % parts != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld rows for %lld parts of the batch",
                         (long long)rows, (long long)parts);
    int64_t each = rows / parts, at = 0;
    for (uint32_t s = 0; s < n; at += width[s++]) {
        uint32_t site = weft_adapter_site(run, sites->u.strs[s]);
        for (int64_t p = 0; p < parts; p++) {
            const weft_adapter_factors *f = weft_adapter_factors_of(run, p, site, k, width[s]);
            if (f)
                add_delta(cx, f, (const float *)x->data + p * each * k, each,
                          (float *)y->data + p * each * all + at, all);
        }
    }
    return WEFT_ERR_OK;
}
