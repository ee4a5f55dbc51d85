/* Versions of the operator set that a model, or a function of it, imports. */
#include "frontend/onnx_int.h"

#include <string.h>

weft_err weft_onnx__opset(weft_onnx_ctx *cx, Onnx__OperatorSetIdProto *const *import, size_t n,
                          const char *owner, int64_t *out)
{
    weft_where where = {.file = cx->file, .item = owner};
    int64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const char *domain = import[i]->domain ? import[i]->domain : "";
        if (*domain && strcmp(domain, "ai.onnx") != 0)
            continue; /* reported where an operator of it is used */
        int64_t version = import[i]->version;
        if (found && found != version)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "imports opsets %lld and %lld",
                                   (long long)found, (long long)version);
        if (version < 1)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "imports opset %lld",
                                   (long long)version);
        if (version < WEFT_ONNX_OPSET_FIRST || version > WEFT_ONNX_OPSET_LAST)
            return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                                   "opset %lld is not supported: %d to %d are", (long long)version,
                                   WEFT_ONNX_OPSET_FIRST, WEFT_ONNX_OPSET_LAST);
        found = version;
    }
    *out = found;
    return WEFT_ERR_OK;
}
