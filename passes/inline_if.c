/* inline-if: an `if` with a constant condition becomes the nodes of its branch.
 *
 *     %1 = if $true, %x {then_branch = "t", else_branch = "e"}   ==>   nodes of @t, %x for its
 * input
 *
 * The importer has done this for conditions that it knows; the others become constant by folding. A
 * branch whose results have other dims than the node's, which are then known at run time only,
 * stays: attributes of later nodes may have these dims. O(nodes), and O(values) if a branch is
 * taken. */
#include "passes/passes_int.h"

/* The branch of a node; false: not known. */
static bool known_branch(weft_passctx *cx, const weft_module *m, weft_node n, uint32_t *out)
{
    uint32_t count = 0;
    weft_val condition = weft_node_in(m, n, 0);
    const weft_dim *content = weft_contents_get(cx->contents, condition, &count);
    double x = 0;
    if (content && count == 1 && weft_dim_is_const(content[0]))
        x = (double)content[0];
    else if (!weft_rewrite__scalar(m, condition, &x))
        return false;
    *out = x != 0 ? 0 : 1;
    return true;
}

static bool has_types(const weft_module *m, weft_node n, const weft_graph *body)
{
    bool same = body != NULL;
    for (uint32_t i = 0; same && i < weft_node_out_count(m, n); i++)
        same = weft_val_type(m, weft_node_out(m, n, i)).i ==
               weft_val_type(m, weft_graph_output(body, i)).i;
    return same;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        weft_node next;
        for (weft_node n = weft_graph_first(g); n.i; n = next) {
            uint32_t branch;
            next = weft_node_next(m, n);
            weft_flow_layout l;
            if (weft_node_op(m, n) != WEFT_OP_IF || !weft_node_flow(m, n, &l) ||
                !known_branch(cx, m, n, &branch) ||
                !has_types(m, n, weft_node_body(m, n, branch)) || !weft_rewrite__allow(cx))
                continue;
            weft_node before = weft_node_prev(m, n);
            weft_body_inline(g, n, branch);
            *changed = true;
            /* The nodes of the branch are visited too. */
            next = before.i ? weft_node_next(m, before) : weft_graph_first(g);
        }
    }
    if (*changed)
        weft_body_collect(m);
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_inline_if = {
    .name = "inline-if",
    .brief = "an if with a constant condition becomes its branch",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
