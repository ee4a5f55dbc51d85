/* The template for new backends: supports every node. Its bundles test codegen, the file format and
 * placement; no driver runs them. */
#include "codegen/codegen_int.h"

static bool supports(const weft_module *m, weft_node n, const char **why)
{
    (void)m;
    (void)n;
    (void)why;
    return true;
}

const weft_backend weft_backend_null = {
    .name = "null",
    .brief = "bundles that nothing runs",
    .supports = supports,
};
