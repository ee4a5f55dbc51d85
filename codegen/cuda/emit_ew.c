/* Emits element-wise kernels: chains of steps, and casts. */
#include "codegen/cuda/cuda_int.h"

enum { THREADS = 256, BYTES = 16 };

weft_err weft_cuda_emit_ew(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    int64_t pack = weft_dtype_size((weft_dtype)y->dtype) >= 4 ? 4 : 8;
    const char *chain = NULL;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "ew", THREADS);
    weft_cuda__include(k, "ew.cuh");
    WEFT_TRY(weft_cuda__chain(k, WEFT_ATTR_STEPS, pack, &chain));
    weft_cuda__out(k, "y", 0);
    weft_buf_printf(weft_cuda__body(k), "    ew<%lld>(%s, y, %s);\n", (long long)pack, chain,
                    weft_cuda__long(k, y, 0, y->rank));
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), pack, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_cast(weft_cuda *cu, weft_node n)
{
    (void)n;
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    size_t from = weft_dtype_size((weft_dtype)x->dtype), to = weft_dtype_size((weft_dtype)y->dtype);
    int64_t pack = BYTES / (int64_t)(from > to ? from : to);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "cast", THREADS);
    weft_cuda__share_sizes(k);
    weft_cuda__include(k, "ew.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__out(k, "y", 0);
    weft_buf_printf(weft_cuda__body(k), "    cast<%lld>(x, y, %s);\n", (long long)pack,
                    weft_cuda__long(k, y, 0, y->rank));
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), pack, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
