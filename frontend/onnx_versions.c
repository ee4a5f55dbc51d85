/* Versions of ONNX's operators: which one an opset means, and whether it has been read. */
#include "frontend/onnx_int.h"

#include <string.h>

enum { VERSIONS_MAX = 12 };

static const struct versions {
    const char *name;
    uint8_t read, version[VERSIONS_MAX]; /* ascending, ends with 0 */
} operators[] = {
#define V(operator_name, newest_read, ...) \
    {.name = #operator_name, .read = (newest_read), .version = {__VA_ARGS__, 0}},
#include "frontend/onnx_versions.def"
#undef V
};

enum { N_OPERATORS = sizeof operators / sizeof operators[0] };

static const struct versions *find_operator(const char *name)
{
    size_t lo = 0, hi = N_OPERATORS;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(operators[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < N_OPERATORS && strcmp(operators[lo].name, name) == 0 ? &operators[lo] : NULL;
}

int weft_onnx__since(const char *op_type, int64_t opset)
{
    const struct versions *o = find_operator(op_type);
    int since = 0;
    for (size_t i = 0; o && o->version[i] && o->version[i] <= opset; i++)
        since = o->version[i];
    return since;
}

bool weft_onnx__is_read(const char *op_type, int64_t opset)
{
    const struct versions *o = find_operator(op_type);
    return !o || weft_onnx__since(op_type, opset) <= o->read;
}
