/* The backend for CPUs. The CPU driver has fast kernels for common operators and runs every other
 * operator by its reference implementation, so each operator that can be evaluated is supported. */
#include "codegen/codegen_int.h"

static bool supports(const weft_module *m, weft_node n, const char **why)
{
    const weft_op *op = weft_node_opdef(m, n);
    if (op->traits & WEFT_T_GRAPH_ONLY) {
        *why = "the operator should have been lowered before this stage";
        return false;
    }
    if (!op->eval && !(op->traits & WEFT_T_BODY)) {
        *why = "the CPU has no kernel for the operator";
        return false;
    }
    return true;
}

const weft_backend weft_backend_cpu = {
    .name = "cpu",
    .brief = "x86-64 CPUs",
    .supports = supports,
};
