/* lower-kernels: from graph operators to kernels.
 *
 *     relu %x                     ==>  ew %x {steps = ["relu i0"]}
 *     add %x, $two                ==>  ew %x {steps = ["add i0 #2.0"]}
 *     reshape %x {shape}          ==>  view %x {shape}          (no launch, no memory)
 *
 * Element-wise operators on f32 become `ew`, which fuse-ew then fuses; reshapes with known dims and
 * other operators that keep the bytes become views. All other operators are kernels already; the
 * backend chooses their variants. O(nodes). */
#include "passes/match.h"

static const char *operand_text(weft_passctx *cx, const weft_module *m, weft_val v, uint32_t idx)
{
    double x = 0;
    if (weft_val_ttype(m, v)->dtype != WEFT_DTYPE_F32 || !weft_rewrite__scalar(m, v, &x))
        return weft_arena_printf(cx->scratch, "i%u", idx);
    return weft_rewrite__number_text((float)x, cx->scratch);
}

/* The largest rank among operands that are not single numbers: a number of higher rank, which would
 * broadcast the result, stays an operand. */
static uint8_t rank_beside_numbers(weft_passctx *cx, const weft_module *m, weft_node n)
{
    uint8_t rank = 0;
    uint32_t n_in = weft_node_in_count(m, n);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(m, n, i);
        bool number = v.i && operand_text(cx, m, v, 0)[0] == '#';
        if (v.i && !number && weft_val_ttype(m, v)->rank > rank)
            rank = weft_val_ttype(m, v)->rank;
    }
    return rank;
}

/* Operands that are single numbers become numbers in the text of the step. */
static weft_err lower_ew(weft_passctx *cx, weft_graph *g, weft_node n, bool *changed)
{
    weft_module *m = weft_graph_module(g);
    const char *arg[WEFT_STEP_ARGS_MAX];
    weft_val in[WEFT_STEP_ARGS_MAX];
    uint32_t n_in = weft_node_in_count(m, n), kept = 0;
    uint8_t rank = rank_beside_numbers(cx, m, n);
    bool has_float = false;
    if (n_in > WEFT_STEP_ARGS_MAX)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i)
            return WEFT_ERR_OK;
        arg[i] = operand_text(cx, m, v, kept);
        /* At least one operand must remain, which determines the shape. */
        if (arg[i][0] == '#' && weft_val_ttype(m, v)->rank <= rank && (kept > 0 || i + 1 < n_in))
            continue;
        arg[i] = weft_arena_printf(cx->scratch, "i%u", kept);
        in[kept++] = v;
        has_float = has_float || weft_match__is_f32(m, v);
    }
    /* `where` between two numbers stays: no operand would have the element type of the result. */
    if (!has_float)
        return WEFT_ERR_OK;
    const char *step = weft_rewrite__step_text(m, n, arg, cx->scratch);
    if (!step || !weft_rewrite__allow(cx))
        return WEFT_ERR_OK;
    weft_type type = weft_val_type(m, weft_node_out(m, n, 0));
    weft_attr attr = WEFT_ATTR_OF_STRS(STEPS, &step, 1);
    weft_node_spec spec = {.op = WEFT_OP_EW,
                           .in = in,
                           .n_in = kept,
                           .out = &type,
                           .n_out = 1,
                           .attr = &attr,
                           .n_attr = 1,
                           .loc = weft_node_loc(m, n)};
    weft_node ew = weft_node_insert_before(g, n, &spec);
    weft_rewrite__replace_result(g, n, 0, weft_node_out(m, ew, 0));
    weft_node_remove(g, n);
    *changed = true;
    return WEFT_ERR_OK;
}

static void lower_view(weft_passctx *cx, weft_graph *g, weft_node n, bool *changed)
{
    weft_module *m = weft_graph_module(g);
    weft_val x = weft_node_in(m, n, 0), y = weft_node_out(m, n, 0);
    const weft_ttype *from = weft_val_ttype(m, x), *to = weft_val_ttype(m, y);
    if (from->layout != WEFT_LAYOUT_PLAIN || to->layout != WEFT_LAYOUT_PLAIN)
        return;
    for (uint32_t i = 0; i < to->rank; i++)
        if (weft_dim_is_data(weft_module_dims(m), to->dim[i]))
            return;
    if (!weft_rewrite__allow(cx))
        return;
    weft_type type = weft_val_type(m, y);
    weft_attr attr = WEFT_ATTR_OF_DIMS(SHAPE, to->dim, to->rank);
    weft_node_spec spec = {.op = WEFT_OP_VIEW,
                           .in = &x,
                           .n_in = 1,
                           .out = &type,
                           .n_out = 1,
                           .attr = &attr,
                           .n_attr = 1,
                           .loc = weft_node_loc(m, n)};
    weft_node view = weft_node_insert_before(g, n, &spec);
    weft_rewrite__replace_result(g, n, 0, weft_node_out(m, view, 0));
    weft_node_remove(g, n);
    *changed = true;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            uint32_t traits = weft_node_opdef(m, n)->traits;
            if (traits & WEFT_T_VIEW)
                lower_view(cx, g, n, changed);
            else if (traits & WEFT_T_RUNS)
                WEFT_TRY(lower_ew(cx, g, n, changed));
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_lower_kernels = {
    .name = "lower-kernels",
    .brief = "operators to kernels: element-wise steps and views",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_KERNEL,
    .run = run,
};
