/* dce: dead-code elimination. Removes nodes whose results are unused. One backward sweep over each
 * graph visits a node after all its users, so whole chains of dead nodes are removed. Bodies whose
 * node is gone go with it. O(nodes). */
#include "passes/passes_int.h"

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        weft_node before;
        for (weft_node n = weft_graph_last(g); n.i; n = before) {
            before = weft_node_prev(m, n);
            if (weft_rewrite__is_live(g, n) || !weft_rewrite__allow(cx))
                continue;
            weft_node_remove(g, n);
            *changed = true;
        }
    }
    weft_body_collect(m);
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_dce = {
    .name = "dce",
    .brief = "remove nodes whose results are unused",
    .any_stage = true,
    .run = run,
};
