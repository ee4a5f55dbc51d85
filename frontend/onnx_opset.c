/* Versions of the operator sets that a model, or a function of it, imports. */
#include "frontend/onnx_int.h"

#include <string.h>

/* The default domain's version is checked here, because old files lack it at every node; a version
 * of another domain is reported where an operator of it is used. */
static weft_err check_default(weft_onnx_ctx *cx, int64_t version, weft_where where)
{
    if (version >= WEFT_ONNX_OPSET_FIRST && version <= WEFT_ONNX_OPSET_LAST)
        return WEFT_ERR_OK;
    return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                           "opset %lld is not supported: %d to %d are (export with opset %d)",
                           (long long)version, WEFT_ONNX_OPSET_FIRST, WEFT_ONNX_OPSET_LAST,
                           WEFT_ONNX_OPSET_LAST);
}

weft_err weft_onnx__opsets(weft_onnx_ctx *cx, Onnx__OperatorSetIdProto *const *import, size_t n,
                           const char *owner, weft_onnx_opsets *out)
{
    weft_where where = {.file = cx->file, .item = owner};
    weft_onnx_opsets found = {{0}};
    for (size_t i = 0; i < n; i++) {
        weft_onnx_domain domain = weft_onnx__domain(import[i]->domain ? import[i]->domain : "");
        if (domain == WEFT_ONNX_DOMAINS)
            continue; /* reported where an operator of it is used */
        int64_t version = import[i]->version, before = found.of[domain];
        if (before && before != version)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "imports opsets %lld and %lld",
                                   (long long)before, (long long)version);
        if (version < 1)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "imports opset %lld",
                                   (long long)version);
        if (domain == WEFT_ONNX_DEFAULT)
            WEFT_TRY(check_default(cx, version, where));
        found.of[domain] = version;
    }
    *out = found;
    return WEFT_ERR_OK;
}
