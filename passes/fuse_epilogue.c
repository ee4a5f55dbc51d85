/* fuse-epilogue: fuses element-wise operators into the convolution or GEMM before them.
 *
 *     %c = conv %x, $w, $b
 *     %a = add %c, %r                 ==>  %y = conv %x, $w, $b, %r
 *     %y = relu %a                             {epilogue = ["add acc i3", "relu acc"]}
 *
 * Fused: element-wise operators with one f32 operand, and binary ones whose other operand has the
 * shape of the result or is a weight with one element or one per channel. The operator must be the
 * sole user of the convolution or GEMM. A product of bytes (qlinear_conv, qlinear_matmul) also gets
 * the quantisation of its result. If both operands of an addition come from convolutions, the later
 * one is fused with it. The fused node moves to the place of the last operator, so that all
 * operands are defined before it. O(nodes). */
#include "passes/match.h"

#include <string.h>

enum { EPILOGUE_MAX = 8 };

/* A weight with one element, or one per channel (dim 1 of a convolution, the last dim of a GEMM).
 */
static bool is_channel_weight(const weft_module *m, weft_node n, weft_val v)
{
    if (weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
        return false;
    const weft_ttype *w = weft_val_ttype(m, v), *y = weft_val_ttype(m, weft_node_out(m, n, 0));
    weft_op_id op = weft_node_op(m, n);
    bool is_conv = op == WEFT_OP_CONV || op == WEFT_OP_QLINEAR_CONV;
    uint32_t channel = is_conv ? 1 : (uint32_t)y->rank - 1;
    if (w->rank > y->rank)
        return false;
    for (uint32_t i = 0; i < w->rank; i++) {
        uint32_t axis = y->rank - w->rank + i;
        if (w->dim[i] != 1 && (axis != channel || w->dim[i] != y->dim[axis]))
            return false;
    }
    return true;
}

/* Number of the next operand that the epilogue gets. */
static uint32_t next_operand(const weft_module *m, weft_node n)
{
    uint32_t n_in = weft_node_in_count(m, n);
    uint32_t first = weft_epilogue_first(weft_node_op(m, n), weft_node_attrs(m, n));
    return n_in < first ? first : n_in;
}

/* Position of `v` among the operands of `user`, which uses it once; UINT32_MAX otherwise. */
static uint32_t operand_index(const weft_module *m, weft_node user, weft_val v)
{
    uint32_t idx = UINT32_MAX;
    for (uint32_t i = 0; i < weft_node_in_count(m, user); i++) {
        if (weft_node_in(m, user, i).i != v.i)
            continue;
        if (idx != UINT32_MAX)
            return UINT32_MAX;
        idx = i;
    }
    return idx;
}

static bool other_fits(const weft_module *m, weft_node n, weft_val other)
{
    return weft_val_type(m, other).i == weft_val_type(m, weft_node_out(m, n, 0)).i ||
           is_channel_weight(m, n, other);
}

/* The step that `user` adds to the epilogue of `n`; NULL if it cannot be fused. *out_other: its
 * other operand, if any. */
static const char *step_of(weft_passctx *cx, const weft_module *m, weft_node n, weft_node user,
                           weft_val *out_other)
{
    weft_val y = weft_node_out(m, n, 0);
    uint32_t n_in = weft_node_in_count(m, user);
    uint32_t at = n_in <= 2 ? operand_index(m, user, y) : UINT32_MAX;
    const char *arg[2] = {"acc", "acc"};
    *out_other = (weft_val){0};
    if (at == UINT32_MAX || !(weft_node_opdef(m, user)->traits & WEFT_T_EW) ||
        weft_val_type(m, weft_node_out(m, user, 0)).i != weft_val_type(m, y).i)
        return NULL;
    if (n_in == 2) {
        double x = 0;
        weft_val other = weft_node_in(m, user, 1 - at);
        if (!other.i || !other_fits(m, n, other))
            return NULL;
        if (weft_rewrite__scalar(m, other, &x)) {
            arg[1 - at] = weft_rewrite__number_text((float)x, cx->scratch);
        } else {
            arg[1 - at] = weft_arena_printf(cx->scratch, "i%u", next_operand(m, n));
            *out_other = other;
        }
    }
    return weft_rewrite__step_text(m, user, arg, cx->scratch);
}

/* Whether the other operand comes from a later convolution or GEMM that can fuse the addition. */
static bool later_taker(const weft_graph *g, const uint32_t *place, weft_node n, weft_val other)
{
    const weft_module *m = weft_graph_module(g);
    weft_node maker = other.i ? weft_val_node(m, other) : (weft_node){0};
    return maker.i && (weft_node_opdef(m, maker)->traits & WEFT_T_EPILOGUE) &&
           weft_rewrite__sole_user(g, other).i && place[maker.i] > place[n.i];
}

static void add_step(weft_passctx *cx, weft_module *m, weft_node n, const char *step)
{
    const weft_attr *old = weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_EPILOGUE);
    uint32_t count = old ? old->n : 0;
    const char **steps = weft_arena_array(cx->scratch, count + 1, sizeof *steps);
    for (uint32_t i = 0; i < count; i++)
        steps[i] = old->u.strs[i];
    steps[count] = step;
    weft_node_set_attr(m, n, &WEFT_ATTR_OF_STRS(EPILOGUE, steps, count + 1));
}

/* The place of each node in the order of the graph, by node. */
static uint32_t *number_nodes(weft_passctx *cx, const weft_graph *g)
{
    const weft_module *m = weft_graph_module(g);
    uint32_t last = 0, n_places = 0;
    WEFT_FOREACH_NODE (m, g, n)
        last = n.i > last ? n.i : last;
    uint32_t *place = weft_arena_array(cx->scratch, (size_t)last + 1, sizeof *place);
    WEFT_FOREACH_NODE (m, g, n)
        place[n.i] = n_places++;
    return place;
}

/* Fuses the sole user of `n` into it; false if that is not possible. */
static bool absorb(weft_passctx *cx, weft_graph *g, uint32_t *place, weft_node n)
{
    weft_module *m = weft_graph_module(g);
    weft_node user = weft_rewrite__sole_user(g, weft_node_out(m, n, 0));
    const weft_attr *epilogue = weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_EPILOGUE);
    weft_val other;
    if (!user.i || (epilogue && epilogue->n >= EPILOGUE_MAX))
        return false;
    const char *step = step_of(cx, m, n, user, &other);
    if (!step || later_taker(g, place, n, other) || !weft_rewrite__allow(cx))
        return false;
    if (other.i)
        weft_node_grow_in(m, n, next_operand(m, n), other);
    add_step(cx, m, n, step);
    weft_node_move_before(g, n, user);
    place[n.i] = place[user.i];
    weft_rewrite__replace_result(g, user, 0, weft_node_out(m, n, 0));
    weft_node_remove(g, user);
    return true;
}

/* One element that is a weight. */
static bool is_number(const weft_module *m, weft_val v)
{
    double x;
    return v.i && weft_rewrite__scalar(m, v, &x);
}

/* Whether the steps may stand before the quantisation of a product's result: they do not change
 * when all their numbers are multiplied. */
static bool steps_scale(const weft_module *m, weft_node n)
{
    const weft_attr *a = weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    if (!a)
        return true;
    if (weft_steps_parse(a->u.strs, a->n, UINT32_MAX, NULL, (weft_where){0}, step) != WEFT_ERR_OK)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        if (step[i].op != WEFT_STEP_RELU && step[i].op != WEFT_STEP_CLIP &&
            step[i].op != WEFT_STEP_LEAKY_RELU)
            return false;
        for (uint32_t k = 0; k < step[i].n_args; k++)
            if (step[i].arg[k].kind != (k == 0 ? WEFT_ARG_ACC : WEFT_ARG_NUMBER))
                return false;
    }
    return true;
}

/* quantize_linear(product of bytes) ==> the product with the scale and zero point of its result */
static bool absorb_quantize(weft_passctx *cx, weft_graph *g, weft_node n)
{
    weft_module *m = weft_graph_module(g);
    weft_op_id op = weft_node_op(m, n);
    weft_node user = weft_rewrite__sole_user(g, weft_node_out(m, n, 0));
    if ((op != WEFT_OP_QLINEAR_CONV && op != WEFT_OP_QLINEAR_MATMUL) || !user.i ||
        weft_node_op(m, user) != WEFT_OP_QUANTIZE_LINEAR)
        return false;
    weft_val scale = weft_node_in(m, user, 1), zero = weft_node_in(m, user, 2);
    weft_attrs attrs = weft_node_attrs(m, user);
    weft_val y = weft_node_out(m, user, 0);
    uint8_t dtype = weft_val_ttype(m, y)->dtype;
    if (!steps_scale(m, n) || !is_number(m, scale) || !is_number(m, zero) ||
        !weft_match__is_f32(m, scale) || (dtype != WEFT_DTYPE_U8 && dtype != WEFT_DTYPE_I8) ||
        weft_attrs_int(attrs, WEFT_ATTR_ZERO_FIRST, 0) ||
        weft_attrs_find(attrs, WEFT_ATTR_PRECISION) ||
        weft_attrs_int(attrs, WEFT_ATTR_BLOCK_SIZE, 0) || !weft_rewrite__allow(cx))
        return false;
    const weft_val param[2] = {scale, zero};
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t at = WEFT_QLINEAR_Y_SCALE + i;
        if (at < weft_node_in_count(m, n))
            weft_node_set_in(m, n, at, param[i]);
        else
            weft_node_grow_in(m, n, at, param[i]);
    }
    weft_type type = weft_val_type(m, y);
    weft_node_move_before(g, n, user);
    weft_rewrite__replace_result(g, user, 0, weft_node_out(m, n, 0));
    weft_node_remove(g, user);
    weft_val_set_type(m, weft_node_out(m, n, 0), type);
    return true;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        /* Backward sweep: a fused node moves behind the nodes already visited, and the later of two
         * candidates comes first. */
        uint32_t *place = number_nodes(cx, g);
        weft_node before;
        for (weft_node n = weft_graph_last(g); n.i; n = before) {
            before = weft_node_prev(m, n);
            if (!(weft_node_opdef(m, n)->traits & WEFT_T_EPILOGUE) ||
                !weft_match__is_f32(m, weft_node_out(m, n, 0)))
                continue;
            while (absorb(cx, g, place, n))
                *changed = true;
            if (absorb_quantize(cx, g, n))
                *changed = true;
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fuse_epilogue = {
    .name = "fuse-epilogue",
    .brief = "activations, residuals and scales into convolutions and GEMMs",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .run = run,
};
