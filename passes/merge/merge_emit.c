/* Builds the joint graph: its inputs, the nodes of each merge group in order, its outputs. Keeps
 * track of where each value of the models is found in the joint graph: as a value of its own, in a
 * joint value, or both. A part of a joint value is sliced out when a node first needs it alone. */
#include "passes/merge/merge_int.h"

#include <string.h>

/* -- Nodes ------------------------------------------------------------------------------------ */

weft_val weft_merge__append(weft_merger *g, weft_op_id op, const weft_val *in, uint32_t n_in,
                            const weft_attr *attr, uint32_t n_attr, const weft_ttype *type,
                            weft_loc loc)
{
    return weft_rewrite__append(g->joint, op, in, n_in, attr, n_attr, type, loc);
}

weft_val weft_merge__view(weft_merger *g, weft_val v, const weft_ttype *type, weft_loc loc)
{
    if (memcmp(weft_val_ttype(g->m, v), type, sizeof *type) == 0)
        return v;
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, type->dim, type->rank);
    return weft_merge__append(g, WEFT_OP_VIEW, &v, 1, &shape, 1, type, loc);
}

weft_val weft_merge__cut(weft_merger *g, weft_val v, weft_dim start, weft_dim rows, weft_loc loc)
{
    weft_dim end = weft_dim_add(g->dims, start, rows), axis = 0, step = 1;
    weft_attr attr[] = {WEFT_ATTR_OF_DIMS(AXES, &axis, 1), WEFT_ATTR_OF_DIMS(ENDS, &end, 1),
                        WEFT_ATTR_OF_DIMS(STARTS, &start, 1), WEFT_ATTR_OF_DIMS(STEPS, &step, 1)};
    weft_ttype part = *weft_val_ttype(g->m, v);
    part.dim[0] = rows;
    return weft_merge__append(g, WEFT_OP_SLICE, &v, 1, attr, 4, &part, loc);
}

/* -- Rows ------------------------------------------------------------------------------------- */

weft_dim weft_merge__rows(weft_merger *g, const weft_ttype *t, weft_joint_level level)
{
    weft_dim rows = t->dim[0];
    for (uint32_t k = 1; level == WEFT_JOINT_ROWS && k + 1 < t->rank; k++)
        rows = weft_dim_mul(g->dims, rows, t->dim[k]);
    return rows;
}

weft_ttype weft_merge__with_rows(const weft_ttype *t, weft_joint_level level, weft_dim rows)
{
    weft_ttype out = *t;
    if (level == WEFT_JOINT_ROWS) {
        memset(out.dim, 0, sizeof out.dim);
        out.rank = 2;
        out.dim[1] = t->dim[t->rank - 1];
    }
    out.dim[0] = rows;
    return out;
}

const weft_dim *weft_merge__starts(weft_merger *g, const weft_merge_group *p)
{
    uint32_t n = g->columns.n_model;
    weft_dim *start = weft_arena_array(g->cx->scratch, (size_t)n + 1, sizeof *start);
    weft_dim rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        start[i] = rows;
        if (!p->column.node[i].i)
            continue;
        const weft_ttype *t = weft_val_ttype(g->m, weft_node_out(g->m, p->column.node[i], 0));
        rows = weft_dim_add(g->dims, rows, weft_merge__rows(g, t, p->level));
    }
    start[n] = rows;
    return start;
}

/* -- Places ----------------------------------------------------------------------------------- */

weft_val weft_merge__own(weft_merger *g, uint32_t i, weft_val v, weft_loc loc)
{
    if (!v.i || weft_merge__is_weight(g->m, v))
        return v;
    weft_joint_place *p = &g->place[v.i];
    if (!p->val.i) {
        const weft_joined *j = &g->joined.at[p->in - 1];
        const weft_ttype *type = weft_val_ttype(g->m, v);
        weft_dim rows = weft_merge__rows(g, type, j->level);
        weft_val part = weft_merge__cut(g, j->val, j->start[i], rows, loc);
        g->place[v.i].val = weft_merge__view(g, part, type, loc);
    }
    return g->place[v.i].val;
}

static void add_joined(weft_merger *g, const weft_merge_group *p, weft_val val,
                       const weft_dim *start)
{
    weft_joined j = {val, p->level, weft_merge__models(g, &p->column), start};
    WEFT_VEC_PUSH(g->cx->scratch, &g->joined, j);
}

/* The run of models from i on whose operands k are adjacent in one joint value. */
static uint32_t find_run(const weft_merger *g, const weft_merge_group *p, uint32_t k, uint32_t i)
{
    uint32_t set = weft_merge__models(g, &p->column), same = 0;
    uint32_t in = g->place[weft_node_in(g->m, p->column.node[i], k).i].in;
    for (uint32_t j = i; j < g->columns.n_model; j++)
        if (set >> j & 1 && g->place[weft_node_in(g->m, p->column.node[j], k).i].in == in)
            same |= 1u << j;
    return in ? weft_merge__run(set, same, g->joined.at[in - 1].models, i) : 1u << i;
}

/* The operands k of a run of models as one value of this type: a whole joint value, a slice of one,
 * or the value of one model. */
static weft_val take_run(weft_merger *g, const weft_merge_group *p, uint32_t k, uint32_t run,
                         weft_ttype *type, weft_loc loc)
{
    uint32_t first = weft_merge__lowest(run);
    weft_val v = weft_node_in(g->m, p->column.node[first], k);
    const weft_joint_place *place = &g->place[v.i];
    const weft_joined *j = place->in ? &g->joined.at[place->in - 1] : NULL;
    weft_dim rows = 0;
    if (j && run == j->models)
        return weft_merge__view(g, j->val, type, loc);
    if (!(run & (run - 1)))
        return weft_merge__view(g, weft_merge__own(g, first, v, loc), type, loc);
    for (uint32_t i = first; i < g->columns.n_model; i++)
        if (run >> i & 1) {
            v = weft_node_in(g->m, p->column.node[i], k);
            weft_dim own = weft_merge__rows(g, weft_val_ttype(g->m, v), j->level);
            rows = rows ? weft_dim_add(g->dims, rows, own) : own;
        }
    weft_val part = weft_merge__cut(g, j->val, j->start[first], rows, loc);
    return weft_merge__view(g, part, type, loc);
}

/* By model: the first row of its part when the operands k of the group are concatenated; [n_model]:
 * all rows. */
static const weft_dim *find_starts(weft_merger *g, const weft_merge_group *p, uint32_t k)
{
    uint32_t n = g->columns.n_model;
    weft_dim *start = weft_arena_array(g->cx->scratch, (size_t)n + 1, sizeof *start);
    weft_dim rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        weft_node node = p->column.node[i];
        start[i] = rows;
        if (node.i)
            rows = weft_dim_add(
                g->dims, rows,
                weft_merge__rows(g, weft_val_ttype(g->m, weft_node_in(g->m, node, k)), p->level));
    }
    start[n] = rows;
    return start;
}

weft_val weft_merge__operand(weft_merger *g, const weft_merge_group *p, uint32_t k, weft_loc loc)
{
    const weft_dim *start = find_starts(g, p, k);
    uint32_t models = weft_merge__models(g, &p->column), n = 0;
    weft_val some = weft_node_in(g->m, weft_merge__first(g, &p->column), k);
    weft_ttype type = weft_merge__with_rows(weft_val_ttype(g->m, some), p->level, 0);
    weft_val part[WEFT_MERGE_MODELS_MAX];
    for (uint32_t left = models; left;) {
        uint32_t first = weft_merge__lowest(left), run = find_run(g, p, k, first);
        left &= ~run;
        type.dim[0] = weft_dim_sub(
            g->dims, start[left ? weft_merge__lowest(left) : g->columns.n_model], start[first]);
        part[n++] = take_run(g, p, k, run, &type, loc);
    }
    if (n == 1)
        return part[0];
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
    type.dim[0] = start[g->columns.n_model];
    weft_val all = weft_merge__append(g, WEFT_OP_CONCAT, part, n, &axis, 1, &type, loc);
    add_joined(g, p, all, start);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (models >> i & 1)
            g->place[weft_node_in(g->m, p->column.node[i], k).i].in = g->joined.len;
    return all;
}

void weft_merge__set_joined(weft_merger *g, const weft_merge_group *p, uint32_t k, weft_val val,
                            const weft_dim *start)
{
    add_joined(g, p, val, start);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i)
            g->place[weft_node_out(g->m, p->column.node[i], k).i] =
                (weft_joint_place){.in = g->joined.len};
}

void weft_merge__set_own(weft_merger *g, weft_val of, weft_val val)
{
    g->place[of.i] = (weft_joint_place){.val = val};
}

/* -- Copies ----------------------------------------------------------------------------------- */

static void append_copy(weft_merger *g, uint32_t model, weft_node n)
{
    uint32_t n_in = weft_node_in_count(g->m, n), n_out = weft_node_out_count(g->m, n);
    weft_val *in = weft_arena_array(g->cx->scratch, (size_t)n_in + 1, sizeof *in);
    weft_type *out = weft_arena_array(g->cx->scratch, (size_t)n_out + 1, sizeof *out);
    weft_attrs attrs = weft_node_attrs(g->m, n);
    weft_loc loc = weft_node_loc(g->m, n);
    for (uint32_t k = 0; k < n_in; k++)
        in[k] = weft_merge__own(g, model, weft_node_in(g->m, n, k), loc);
    for (uint32_t k = 0; k < n_out; k++)
        out[k] = weft_val_type(g->m, weft_node_out(g->m, n, k));
    weft_node_spec spec = {.op = weft_node_op(g->m, n),
                           .in = in,
                           .n_in = n_in,
                           .out = out,
                           .n_out = n_out,
                           .attr = attrs.at,
                           .n_attr = attrs.n,
                           .loc = loc};
    weft_node made = weft_node_append(g->joint, &spec);
    for (uint32_t k = 0; k < n_out; k++)
        weft_merge__set_own(g, weft_node_out(g->m, n, k), weft_node_out(g->m, made, k));
}

void weft_merge__emit_copies(weft_merger *g, const weft_merge_group *p)
{
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i)
            append_copy(g, i, p->column.node[i]);
}

/* -- The graph -------------------------------------------------------------------------------- */

static const char *joint_name(const weft_merger *g)
{
    weft_arena *arena = g->cx->scratch;
    const char *name = weft_graph_name(g->columns.model[0]);
    if (g->columns.n_model == 2)
        name = weft_arena_printf(arena, "%s+%s", name, weft_graph_name(g->columns.model[1]));
    else
        name = weft_arena_printf(arena, "%s+%u", name, g->columns.n_model - 1);
    const char *unique = name;
    for (uint32_t k = 2; weft_graph_find(g->m, unique); k++)
        unique = weft_arena_printf(arena, "%s.%u", name, k);
    return unique;
}

static void add_ports(weft_merger *g, weft_graph *model)
{
    const char *name = weft_graph_name(model);
    weft_arena *arena = g->cx->scratch;
    for (uint32_t i = 0; i < weft_graph_symbol_count(model); i++)
        weft_graph_share_symbol(
            g->joint, weft_arena_printf(arena, "%s/%s", name, weft_graph_symbol_name(model, i)),
            weft_graph_symbol_dim(model, i));
    for (uint32_t i = 0; i < weft_graph_require_count(model); i++) {
        weft_graph_require r = *weft_graph_require_at(model, i);
        r.guard = weft_merge__batch(model); /* the model may have no requests */
        if (r.item)
            r.item = weft_arena_printf(arena, "%s/%s", name, r.item);
        (void)weft_graph_add_require(g->joint, &r);
    }
    for (uint32_t i = 0; i < weft_graph_input_count(model); i++) {
        weft_val v = weft_graph_input(model, i);
        const char *port = weft_arena_printf(arena, "%s/%s", name, weft_graph_input_name(model, i));
        weft_merge__set_own(g, v, weft_graph_add_input(g->joint, port, weft_val_type(g->m, v)));
    }
    weft_part part = {name, weft_graph_input_count(model), weft_graph_output_count(model)};
    weft_graph_add_part(g->joint, &part);
}

void weft_merge__build(weft_merger *g)
{
    g->joint = weft_graph_create(g->m, joint_name(g));
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        add_ports(g, g->columns.model[i]);
    for (uint32_t i = 0; i < g->groups.len; i++)
        g->groups.at[i].strategy->emit(g, &g->groups.at[i]);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_graph *model = g->columns.model[i];
        for (uint32_t k = 0; k < weft_graph_output_count(model); k++)
            weft_graph_add_output(
                g->joint,
                weft_arena_printf(g->cx->scratch, "%s/%s", weft_graph_name(model),
                                  weft_graph_output_name(model, k)),
                weft_merge__own(g, i, weft_graph_output(model, k), (weft_loc){0}));
    }
}
