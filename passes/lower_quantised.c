/* lower-quantised: quantisation by one scale becomes element-wise steps.
 *
 *     dequantize_linear %x, $s, $z
 *   ==>
 *     ew %x {steps = ["dequantize i0 #0.02 #128.0"], dtype = f32}
 *
 *     quantize_linear %x, $s, $z
 *   ==>
 *     ew %x {steps = ["quantize_u8 i0 #0.02 #128.0"], dtype = u8}
 *
 * fuse-ew then joins them with the steps between them. Scales and zero points that are not constant
 * become operands. O(nodes). */
#include "passes/match.h"

#include <math.h>

typedef struct lowering {
    weft_val in[3];
    uint32_t n_in;
    const char *arg[3];
} lowering;

/* Adds operand `i` of n as an argument: a number if it is constant. false: not one element. */
static bool add_param(weft_passctx *cx, const weft_module *m, weft_node n, uint32_t i, lowering *l)
{
    weft_val v = weft_node_in(m, n, i);
    double x = 0;
    if (!v.i || weft_rewrite__scalar(m, v, &x)) {
        l->arg[i] = weft_rewrite__number_text((float)x, cx->scratch);
        return isfinite(x);
    }
    const weft_ttype *t = weft_val_ttype(m, v);
    if (weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT || t->rank > 1 ||
        (t->rank == 1 && t->dim[0] != 1))
        return false;
    l->arg[i] = weft_arena_printf(cx->scratch, "i%u", l->n_in);
    l->in[l->n_in++] = v;
    return true;
}

static bool is_byte(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_U8 || dtype == WEFT_DTYPE_I8;
}

static void lower(weft_passctx *cx, weft_graph *g, weft_node n, bool *changed)
{
    weft_module *m = weft_graph_module(g);
    bool to_bytes = weft_node_op(m, n) == WEFT_OP_QUANTIZE_LINEAR;
    weft_val x = weft_node_in(m, n, 0), y = weft_node_out(m, n, 0);
    weft_dtype from = (weft_dtype)weft_val_ttype(m, x)->dtype;
    weft_dtype to = (weft_dtype)weft_val_ttype(m, y)->dtype;
    bool early = weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_ZERO_FIRST, 0) != 0;
    lowering l = {.in = {x}, .n_in = 1, .arg = {"i0"}};
    if (to_bytes ? from != WEFT_DTYPE_F32 || !is_byte(to) : to != WEFT_DTYPE_F32 || !is_byte(from))
        return;
    if (weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_PRECISION))
        return;
    if (!add_param(cx, m, n, 1, &l) || !add_param(cx, m, n, 2, &l) || !weft_rewrite__allow(cx))
        return;
    const char *name = !to_bytes             ? "dequantize"
                       : to == WEFT_DTYPE_U8 ? "quantize_u8"
                                             : "quantize_i8";
    const char *step[3] = {weft_arena_printf(cx->scratch, "%s i0 %s %s", name, l.arg[1], l.arg[2])};
    uint32_t n_step = 1;
    if (to_bytes && early) {
        step[0] = weft_arena_printf(cx->scratch, "div i0 %s", l.arg[1]);
        step[1] = weft_arena_printf(cx->scratch, "add s0 %s", l.arg[2]);
        step[2] = weft_arena_printf(cx->scratch, "%s s1 #1.0 #0.0", name);
        n_step = 3;
    }
    weft_type type = weft_val_type(m, y);
    const weft_attr attr[2] = {WEFT_ATTR_OF_STRS(STEPS, step, n_step),
                               WEFT_ATTR_OF_DTYPE(DTYPE, to)};
    weft_node_spec spec = {.op = WEFT_OP_EW,
                           .in = l.in,
                           .n_in = l.n_in,
                           .out = &type,
                           .n_out = 1,
                           .attr = attr,
                           .n_attr = 2,
                           .loc = weft_node_loc(m, n)};
    weft_node ew = weft_node_insert_before(g, n, &spec);
    weft_rewrite__replace_result(g, n, 0, weft_node_out(m, ew, 0));
    weft_node_remove(g, n);
    *changed = true;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n)
            if (weft_node_op(m, n) == WEFT_OP_QUANTIZE_LINEAR ||
                weft_node_op(m, n) == WEFT_OP_DEQUANTIZE_LINEAR)
                lower(cx, g, n, changed);
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_lower_quantised = {
    .name = "lower-quantised",
    .brief = "quantisation by one scale becomes element-wise steps",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .run = run,
};
