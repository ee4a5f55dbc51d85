/* Strategies for nodes with the same weights: none and interleaved run each model's own node;
 * concatenated makes one super-GEMM for the rows of all models.
 *
 *     %1 = matmul %x, $w         %x = concat %x, %y {axis = 0}
 *     %2 = matmul %y, $w    =>   %z = matmul %x, $w          reads the weight once
 */
#include "passes/merge/merge_int.h"

#include <string.h>

/* -- None, interleaved ------------------------------------------------------------------------ */

static bool time_apart(weft_merger *g, const weft_merge_group *p, const weft_merge_sizes *at,
                       double *us)
{
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i && !weft_merge__node_us(at, g->m, p->column.node[i], us))
            return false;
    return true;
}

const weft_merge_strategy weft_merge_strategy_none = {
    .name = "none",
    .brief = "every model by itself",
    .time = time_apart,
    .emit = weft_merge__emit_copies,
};

/* Nodes with the same weight run in turn, so that the weight may still be in the cache. How much
 * that gains is not known, so the predicted time is that of `none`. */
const weft_merge_strategy weft_merge_strategy_interleaved = {
    .name = "interleaved",
    .brief = "corresponding GEMMs in turn; every bit of the results as before",
    .equal_only = true,
    .time = time_apart,
    .emit = weft_merge__emit_copies,
};

/* -- Concatenated ----------------------------------------------------------------------------- */

static const char *fit_concatenated(weft_merger *g, weft_merge_group *p)
{
    (void)g;
    p->together = p->gathers = true;
    return p->level == WEFT_JOINT_NONE ? "its rows depend on each other" : NULL;
}

static bool time_concatenated(weft_merger *g, const weft_merge_group *p, const weft_merge_sizes *at,
                              double *us)
{
    double x = 0, y = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        if (n.i && (!weft_merge__count(at, g->m, weft_node_in(g->m, n, 0), &x) ||
                    !weft_merge__count(at, g->m, weft_node_out(g->m, n, 0), &y)))
            return false;
    }
    *us = 0;
    return weft_merge__elements_us(at, g->m, weft_merge__first(g, &p->column), x, y, us);
}

/* The attributes of the joint node: an axis at the level of rows becomes -1, since the rank
 * changes, and the shape of a view gets the rows of all models. */
static uint32_t joint_attrs(weft_merger *g, weft_node n, weft_joint_level level, weft_dim rows,
                            weft_attr *out)
{
    weft_attrs attrs = weft_node_attrs(g->m, n);
    for (uint32_t i = 0; i < attrs.n; i++) {
        out[i] = attrs.at[i];
        if (level == WEFT_JOINT_ROWS && out[i].key == WEFT_ATTR_AXIS)
            out[i].u.i = -1;
        if (weft_node_op(g->m, n) != WEFT_OP_VIEW || out[i].key != WEFT_ATTR_SHAPE)
            continue;
        weft_dim *shape = weft_arena_array(g->cx->scratch, out[i].n, sizeof *shape);
        memcpy(shape, out[i].u.dims, out[i].n * sizeof *shape);
        shape[0] = rows;
        out[i].u.dims = shape;
    }
    return attrs.n;
}

static void emit_concatenated(weft_merger *g, const weft_merge_group *p)
{
    weft_node some = weft_merge__first(g, &p->column);
    weft_loc loc = weft_node_loc(g->m, some);
    uint32_t n_in = weft_node_in_count(g->m, some), n_out = weft_node_out_count(g->m, some);
    weft_arena *scratch = g->cx->scratch;
    weft_val *in = weft_arena_array(scratch, (size_t)n_in + 1, sizeof *in);
    weft_type *out = weft_arena_array(scratch, (size_t)n_out + 1, sizeof *out);
    weft_attr attr[WEFT_OP_ATTR_MAX];
    const weft_dim *start = weft_merge__starts(g, p);
    weft_dim rows = start[g->columns.n_model];
    for (uint32_t k = 0; k < n_in; k++) {
        weft_val v = weft_node_in(g->m, some, k);
        in[k] = !v.i || weft_merge__is_weight(g->m, v) ? v : weft_merge__operand(g, p, k, loc);
    }
    for (uint32_t k = 0; k < n_out; k++) {
        weft_type type = weft_val_type(g->m, weft_node_out(g->m, some, k));
        weft_ttype joint = *weft_type_get(g->m, type);
        if (joint.dtype != WEFT_DTYPE_NONE)
            joint = weft_merge__with_rows(&joint, p->level, rows);
        out[k] = joint.dtype == WEFT_DTYPE_NONE ? type : weft_type_intern(g->m, &joint);
    }
    weft_node_spec spec = {.op = weft_node_op(g->m, some),
                           .in = in,
                           .n_in = n_in,
                           .out = out,
                           .n_out = n_out,
                           .attr = attr,
                           .n_attr = joint_attrs(g, some, p->level, rows, attr),
                           .loc = loc};
    weft_node made = weft_node_append(g->joint, &spec);
    for (uint32_t k = 0; k < n_out; k++)
        weft_merge__set_joined(g, p, k, weft_node_out(g->m, made, k), start);
}

const weft_merge_strategy weft_merge_strategy_concatenated = {
    .name = "concatenated",
    .brief = "one super-GEMM by the same weight for the rows of all models",
    .equal_only = true,
    .fit = fit_concatenated,
    .time = time_concatenated,
    .emit = emit_concatenated,
};
