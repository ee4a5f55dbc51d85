/* Sparse tensors (SparseTensorProto): initialisers and values of Constant. They become dense
 * weights; what they take in memory is bounded for a whole model, since a few bytes describe any
 * size. */
#include "frontend/onnx_int.h"

#include <string.h>

typedef struct dense {
    weft_onnx_data values, indices;
    int64_t dim[WEFT_RANK_MAX];
    int32_t rank;
    int64_t numel;
} dense;

static weft_err read_parts(weft_onnx_ctx *cx, const Onnx__SparseTensorProto *sparse,
                           weft_where where, dense *out)
{
    if (!sparse->values || sparse->n_dims > WEFT_RANK_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "sparse tensor without values, or rank %zu over %d", sparse->n_dims,
                               WEFT_RANK_MAX);
    WEFT_TRY(weft_onnx__tensor(cx, sparse->values, cx->arena, where, &out->values));
    out->rank = (int32_t)sparse->n_dims;
    for (int32_t i = 0; i < out->rank; i++) {
        out->dim[i] = sparse->dims[i];
        if (out->dim[i] < 0)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "dimension %d is %lld", i,
                                   (long long)out->dim[i]);
    }
    out->numel = weft_numel(out->dim, out->rank);
    bool whole = out->values.rank == 1 && out->values.dim[0] <= out->numel;
    if (out->numel < 0 || !whole)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "sparse tensor: too many elements, or values of rank %d",
                               out->values.rank);
    if (out->values.dim[0] == 0)
        return WEFT_ERR_OK; /* the indices may be absent */
    if (!sparse->indices)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "sparse tensor without indices");
    WEFT_TRY(weft_onnx__tensor(cx, sparse->indices, cx->arena, where, &out->indices));
    const weft_onnx_data *at = &out->indices;
    if (at->dtype != WEFT_DTYPE_I64 || at->rank < 1 || at->rank > 2 ||
        at->dim[0] != out->values.dim[0] || (at->rank == 2 && at->dim[1] != out->rank))
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "sparse tensor: indices that do not fit the %lld values",
                               (long long)out->values.dim[0]);
    return WEFT_ERR_OK;
}

/* Number of the element that index i means; -1: outside of the tensor. */
static int64_t element_of(const dense *d, int64_t i)
{
    int64_t index = 0, x;
    int32_t n = d->indices.rank == 2 ? d->rank : 1;
    for (int32_t k = 0; k < n; k++) {
        memcpy(&x, d->indices.at + (i * n + k) * (int64_t)sizeof x, sizeof x);
        int64_t end = d->indices.rank == 2 ? d->dim[k] : d->numel;
        if (x < 0 || x >= end)
            return -1;
        index = d->indices.rank == 2 ? index * d->dim[k] + x : x;
    }
    return index;
}

weft_err weft_onnx__sparse(weft_onnx_ctx *cx, const Onnx__SparseTensorProto *sparse,
                           const char *name, weft_where where, weft_val *out)
{
    dense d = {.rank = 0};
    WEFT_TRY(read_parts(cx, sparse, where, &d));
    uint64_t size = weft_dtype_size(d.values.dtype), bytes = (uint64_t)d.numel * size;
    if (bytes > WEFT_ONNX_SPARSE_MAX - cx->sparse_bytes)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                               "sparse tensors of over %d MiB in all are not supported: store them "
                               "as dense ones",
                               WEFT_ONNX_SPARSE_MAX >> 20);
    cx->sparse_bytes += bytes;
    uint8_t *data = weft_arena_alloc(weft_module_arena(cx->m), bytes);
    int64_t last = -1;
    for (int64_t i = 0; i < d.values.dim[0]; i++) {
        int64_t at = element_of(&d, i);
        if (at <= last)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "sparse tensor: index %lld is out of range or order",
                                   (long long)i);
        memcpy(data + (uint64_t)at * size, d.values.at + (uint64_t)i * size, size);
        last = at;
    }
    weft_weight_info info = {.type = weft_type_make(cx->m, d.values.dtype, d.dim, (uint32_t)d.rank),
                             .name = name,
                             .data = data,
                             .bytes = bytes};
    *out = weft_weight_val(cx->m, weft_weight_add(cx->m, &info));
    return WEFT_ERR_OK;
}
