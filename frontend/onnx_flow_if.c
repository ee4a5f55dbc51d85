/* If. One whose condition is known becomes the nodes of its branch, in the graph around it; the
 * other branch is not read, so it may hold what is not supported. Otherwise both branches become
 * bodies. */
#include "frontend/onnx_flow_int.h"

#include <string.h>

/* if (known) ==> the nodes of the branch */
static weft_err inline_branch(weft_onnx_call *c, const char *attr)
{
    weft_val *out = weft_arena_array(c->cx->arena, c->n_listed, sizeof *out);
    WEFT_TRY(weft_onnx__flow_inline(c, attr, attr, NULL, 0, out, c->n_listed));
    memcpy(c->out, out, c->n_out * sizeof *out);
    return WEFT_ERR_OK;
}

/* One element of rank 0 in one branch and of rank 1 in the other. */
static weft_err join_ranks(weft_onnx_call *c, weft_onnx_flow_body *const *b, bool *out_loose)
{
    weft_onnx_ctx *cx = c->cx;
    weft_graph *around = cx->g;
    weft_err err = WEFT_ERR_OK;
    for (uint32_t i = 0; i < c->n_listed; i++) {
        weft_val v[2] = {weft_graph_output(b[0]->nest.g, i), weft_graph_output(b[1]->nest.g, i)};
        bool any = weft_onnx__is_loose(cx, v[0]) || weft_onnx__is_loose(cx, v[1]) ||
                   weft_onnx__type(c, v[0])->rank != weft_onnx__type(c, v[1])->rank;
        out_loose[i] = any && weft_onnx__is_single(cx, v[0]) && weft_onnx__is_single(cx, v[1]);
        for (int k = 0; k < 2 && out_loose[i] && err == WEFT_ERR_OK; k++) {
            cx->g = b[k]->nest.g;
            err = weft_onnx__make_loose(c, &v[k]);
            if (err == WEFT_ERR_OK)
                weft_graph_set_output(cx->g, i, v[k]);
        }
    }
    cx->g = around;
    return err;
}

static weft_err import_branches(weft_onnx_call *c)
{
    weft_onnx_flow_body yes = {.attr = "then_branch", .is_branch = true};
    weft_onnx_flow_body no = {.attr = "else_branch", .is_branch = true};
    weft_onnx_flow_body *const both[] = {&yes, &no};
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft_onnx__flow_graph(c, both[i]->attr, &both[i]->graph));
        if (both[i]->graph->n_output != c->n_listed)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "%s has %zu outputs, expected %u",
                                   both[i]->attr, both[i]->graph->n_output, c->n_listed);
        WEFT_TRY(weft_onnx__flow_import(c, both[i]));
    }
    bool *loose = weft_arena_array(c->cx->arena, c->n_listed, sizeof *loose);
    if (yes.whole && no.whole)
        WEFT_TRY(join_ranks(c, both, loose));
    WEFT_TRY(weft_onnx__flow_put_plain(c, both, 2, 1, c->n_listed));
    for (uint32_t i = 0; i < c->n_out; i++)
        if (loose[i] && c->out[i].i)
            weft_onnx__set_loose(c->cx, c->out[i]);
    return WEFT_ERR_OK;
}

/* The condition is `a == b`, or with *out_not `a != b`, of two sizes that inputs determine. */
static bool compares_sizes(weft_onnx_ctx *cx, weft_val v, weft_dim *out_a, weft_dim *out_b,
                           bool *out_not)
{
    enum { STEPS = 16 };
    weft_dimpool *pool = weft_module_dims(cx->m);
    for (int i = 0; i < STEPS; i++) {
        weft_node n = weft_val_node(cx->m, v);
        weft_op_id op = n.i ? weft_node_op(cx->m, n) : WEFT_OP_NONE;
        if (op == WEFT_OP_EQUAL) {
            uint32_t n_a = 0, n_b = 0;
            const weft_dim *a = weft_contents_get(cx->contents, weft_node_in(cx->m, n, 0), &n_a);
            const weft_dim *b = weft_contents_get(cx->contents, weft_node_in(cx->m, n, 1), &n_b);
            if (!a || !b || n_a != 1 || n_b != 1 || weft_dim_is_data(pool, *a) ||
                weft_dim_is_data(pool, *b))
                return false;
            *out_a = *a;
            *out_b = *b;
            return true;
        }
        bool passes = op == WEFT_OP_NOT || op == WEFT_OP_IDENTITY || op == WEFT_OP_CAST ||
                      op == WEFT_OP_SQUEEZE || op == WEFT_OP_RESHAPE || op == WEFT_OP_UNSQUEEZE;
        if (!passes)
            return false;
        *out_not ^= op == WEFT_OP_NOT;
        v = weft_node_in(cx->m, n, 0);
    }
    return false;
}

/* if (size == 1) squeeze(x) else x, as exporters write a squeeze of a size that they do not know:
 * the rank of the result would depend on the size. The model is compiled for the size that the
 * condition asks for; others are refused when the sizes are known. */
static weft_err require_sizes(weft_onnx_call *c, weft_dim a, weft_dim b, bool is_not)
{
    const weft_graph_require r = {.kind = WEFT_REQUIRE_EQUAL,
                                  .a = a,
                                  .b = b,
                                  .guard = 1,
                                  .item = c->where.item,
                                  .what =
                                      "If: compiled for sizes that are equal here (`dims:` of a "
                                      "set file compiles it for others)"};
    if (weft_graph_require_count(c->cx->g) == WEFT_MODEL_REQUIRES_MAX ||
        !weft_graph_add_require(c->cx->g, &r))
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "over %d sizes have to be compared at run time",
                               WEFT_MODEL_REQUIRES_MAX);
    return inline_branch(c, is_not ? "else_branch" : "then_branch");
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
    uint32_t n_graph = weft_graph_count(c->cx->m);
    weft_dim a, b;
    bool is_not = false;
    if (!compares_sizes(c->cx, c->in[0], &a, &b, &is_not))
        return weft_onnx__flow_or_drop(c, n_graph, import_branches(c));
    uint32_t n_unrolled = c->cx->n_unrolled;
    weft_onnx_quiet before = weft_onnx__quiet_start(c->cx);
    weft_err err = weft_onnx__flow_or_drop(c, n_graph, import_branches(c));
    if (weft_onnx__quiet_end(c->cx, before) && err == WEFT_ERR_OK)
        return err;
    c->cx->n_unrolled = n_unrolled;
    return require_sizes(c, a, b, is_not);
}
