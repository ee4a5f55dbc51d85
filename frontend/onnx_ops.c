/* The table of ONNX operators. */
#include "frontend/onnx_int.h"

#include <string.h>

static const weft_onnx_row rows[] = {
#define ROW(onnx_name, first_opset, last_opset, id, hook_name) \
    {.name = (onnx_name),                                      \
     .first = (first_opset),                                   \
     .last = (last_opset),                                     \
     .op = WEFT_OP_##id,                                       \
     .hook = weft_onnx_hook_##hook_name},
#define ONNX(name, first, last, op, hook) ROW(#name, first, last, op, hook)
#define ONNX_TRAINING(name, first, last, op, hook) \
    ROW("ai.onnx.preview.training:" #name, first, last, op, hook)
#include "frontend/onnx_ops.def"
#undef ONNX
#undef ONNX_TRAINING
#undef ROW
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

const weft_onnx_row *weft_onnx__row(const char *op_type, int64_t opset)
{
    size_t lo = 0, hi = N_ROWS;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(rows[mid].name, op_type) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    const weft_onnx_row *found = NULL;
    for (; lo < N_ROWS && strcmp(rows[lo].name, op_type) == 0; lo++) {
        found = &rows[lo];
        if (opset >= found->first && (!found->last || opset <= found->last))
            break;
    }
    return found;
}

const char *weft_import_op_at(size_t i, int *out_first_opset, int *out_last_opset)
{
    if (i >= N_ROWS)
        return NULL;
    *out_first_opset = rows[i].first;
    *out_last_opset = rows[i].last ? rows[i].last : WEFT_ONNX_OPSET_LAST;
    return rows[i].name;
}
