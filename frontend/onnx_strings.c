/* Tensors of strings: class labels of classifiers. They are not computed; the numbers beside them,
 * the scores of the classes, are. */
#include "frontend/onnx_int.h"

#include <string.h>

static const char *text(const char *s)
{
    return s ? s : "";
}

weft_err weft_onnx__move_strings(weft_onnx_ctx *cx, const Onnx__NodeProto *node, weft_where where)
{
    static const char *const moves[] = {"Identity", "Reshape",   "Squeeze", "Unsqueeze",
                                        "Flatten",  "Transpose", "Gather",  "Cast"};
    weft_onnx_domain domain = weft_onnx__domain(text(node->domain));
    const char *op = text(node->op_type);
    bool known = domain == WEFT_ONNX_ML && strcmp(op, "ArrayFeatureExtractor") == 0;
    for (size_t i = 0; i < sizeof moves / sizeof moves[0] && domain == WEFT_ONNX_DEFAULT; i++)
        known |= strcmp(op, moves[i]) == 0;
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *a = node->attribute[i];
        if (strcmp(op, "Cast") == 0 && strcmp(text(a->name), "to") == 0)
            known &= a->i == ONNX__TENSOR_PROTO__DATA_TYPE__STRING;
    }
    if (known)
        return WEFT_ERR_OK;
    return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                           "operator %s on a tensor of strings is not supported: convert the model "
                           "with labels and categories of integers",
                           op);
}
