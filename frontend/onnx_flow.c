/* Control flow: hooks of If, Loop and Scan, whose attributes hold graphs.
 *
 * An If whose condition is known becomes the nodes of its branch, in the graph around it; the other
 * branch is not read, so it may hold what is not supported. */
#include "frontend/onnx_int.h"

#include <string.h>

static weft_err get_graph(weft_onnx_call *c, const char *name, const Onnx__GraphProto **out)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, name);
    if (!a || !a->g)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "attribute \"%s\" holds no graph", name);
    *out = a->g;
    return WEFT_ERR_OK;
}

/* The scope of a graph in an attribute of the node. */
static void open_scope(weft_onnx_call *c, const char *attr, weft_onnx_scope *out)
{
    weft_onnx__scope_init(c->cx, out);
    out->parent = c->scope;
    out->opsets = c->scope->opsets;
    out->prefix = weft_arena_printf(c->cx->arena, "%s/%s", c->where.item, attr);
    out->depth = c->scope->depth + 1;
    out->fn = c->scope->fn;
    out->binding = c->scope->binding;
    out->n_binding = c->scope->n_binding;
}

/* Initialisers, nodes and outputs; the inputs have been bound. A value of `out` is none if its node
 * was refused. */
static weft_err import_nodes(weft_onnx_call *c, const char *attr, const Onnx__GraphProto *graph,
                             weft_onnx_scope *scope, weft_val *out, size_t n_out)
{
    if (graph->n_output != n_out)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has %zu outputs, expected %zu", attr,
                               graph->n_output, n_out);
    if (scope->depth > WEFT_ONNX_CALLS_MAX)
        return weft_onnx__fail(c, WEFT_ERR_INPUT,
                               "functions and graphs are nested more than %d deep",
                               WEFT_ONNX_CALLS_MAX);
    WEFT_TRY(c->cx->nested(c->cx, scope, graph));
    for (size_t i = 0; i < n_out; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        if (!weft_onnx__is_defined(c->cx, scope, name))
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s: output \"%s\" is the result of no node",
                                   attr, name);
        const weft_onnx_name *e = weft_onnx__read(c->cx, scope, name);
        out[i] = e->bind == WEFT_ONNX_BOUND ? e->val : (weft_val){0};
    }
    return WEFT_ERR_OK;
}

/* -- If --------------------------------------------------------------------------------------- */

/* if (known) ==> the nodes of the branch */
static weft_err inline_branch(weft_onnx_call *c, const char *attr)
{
    weft_onnx_scope scope;
    const Onnx__GraphProto *graph;
    WEFT_TRY(get_graph(c, attr, &graph));
    if (graph->n_input > 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has inputs", attr);
    open_scope(c, attr, &scope);
    weft_val *out = weft_arena_array(c->cx->arena, c->n_listed, sizeof *out);
    WEFT_TRY(import_nodes(c, attr, graph, &scope, out, c->n_listed));
    memcpy(c->out, out, c->n_out * sizeof *out);
    return WEFT_ERR_OK;
}

weft_err weft_onnx_hook_if(weft_onnx_call *c)
{
    double condition;
    if (c->n_in != 1 || !c->in[0].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 1", c->n_in);
    if (weft_onnx__type(c, c->in[0])->dtype != WEFT_DTYPE_BOOL)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "the condition is not of type bool");
    if (weft_onnx__known(c->cx, c->in[0], &condition))
        return inline_branch(c, condition != 0.0 ? "then_branch" : "else_branch");
    return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                           "the condition depends on data: fix the sizes or inputs that it depends "
                           "on with `dims:` or `values:` of a set file");
}
