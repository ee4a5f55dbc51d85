/* merge-models: models that share weights get a joint graph in which one pass over a weight serves
 * all of them.
 *
 *   graph @a (%x : f32[?b,768])            graph @a+b (%x "a/x", %y "b/x") {
 *     %1 = matmul %x, $w                     part @a 1 1
 *     %2 = matmul %1, $head_a                part @b 1 1
 *                                            %1 : f32[?b + ?c,768] = concat %x, %y {axis = 0}
 *   graph @b (%x : f32[?c,768])      ==>     %2 = matmul %1, $w
 *     %1 = matmul %x, $w                     %3 = slice %2 {0 .. ?b};  %4 = matmul %3, $head_a
 *     %2 = matmul %1, $head_b                %5 = slice %2 {?b .. };   %6 = matmul %5, $head_b
 *
 * The models' own graphs stay as they are; the joint graph is one more program of the bundle, for
 * when several of them have requests. Any part may be empty (its batch 0), so no request waits for
 * another model.
 *
 * Steps. Models that share the weight of a product form a group (transitively). align.c finds which
 * nodes correspond, in an order that suits all models. merge_cost.c says at which level a column of
 * nodes may become one and what that would gain; a product by a weight is joined when it gains
 * MARGIN at some size and loses nowhere more than LOSS. What is between joined products - element-
 * wise chains, normalisation, pooling - is joined when its operands lie together already, so that
 * activations stay together from one product to the next. What is not joined takes its part of a
 * joined value as a slice. Slices along the outermost dim and the views around them need no copy,
 * and the planner computes what is joined next to each other (ops/place.h), so that mostly nothing
 * is copied at all.
 *
 * With `merge` = "exact" nothing is joined: corresponding nodes run one after the other
 * (interleaved), so that a weight that the first has read is still in the cache for the next, and
 * every bit of the results is that of the models alone. O(nodes^2) for aligning, O(nodes) else. */
#include "passes/merge.h"

#include "base/map.h"

#include <string.h>

static const double margin = 1.05, loss = 0.98;

/* -- Joined values ---------------------------------------------------------------------------- */

/* Results of one column's nodes, in one value of the joint graph: rows of the models that have the
 * node, one model after the other. */
typedef struct joined {
    weft_val val;
    weft_joint_level level;
    const weft_column *column;
    const weft_dim *start; /* by model: first row; [n_model]: all rows */
} joined;

/* Where a value of a model is in the joint graph. */
typedef struct place {
    weft_val val; /* on its own; none: in `in`, not taken out yet */
    uint32_t in;  /* 1 + index of what it is joined in, 0: nothing */
} place;

typedef struct merger {
    weft_passctx *cx;
    weft_module *m;
    weft_dimpool *dims;
    weft_graph *joint;
    weft_columns columns;
    weft_merge_log *log; /* may be NULL */
    place *place;        /* by value of the models */
    uint32_t n_place;
    WEFT_VEC(joined) joined;
    uint32_t *decided;    /* by column: weft_joint_level, NONE: not joined */
    uint32_t *decided_of; /* by value: 1 + column that it is joined in */
} merger;

static bool is_weight(const merger *g, weft_val v)
{
    return weft_val_get_kind(g->m, v) == WEFT_VAL_WEIGHT;
}

/* -- Decisions -------------------------------------------------------------------------------- */

static weft_node first_node(const merger *g, const weft_column *c)
{
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i)
            return c->node[i];
    return (weft_node){0};
}

static bool same_models(const merger *g, const weft_column *a, const weft_column *b)
{
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if ((a->node[i].i != 0) != (b->node[i].i != 0))
            return false;
    return true;
}

/* Whether operand `k` of all nodes lies together already: results of one joined column with the
 * same models. */
static bool lies_together(const merger *g, const weft_column *c, uint32_t k)
{
    uint32_t in = 0, result = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!c->node[i].i)
            continue;
        weft_val v = weft_node_in(g->m, c->node[i], k);
        uint32_t found = v.i && v.i < g->n_place ? g->decided_of[v.i] : 0;
        if (!found || (in && (found != in || weft_val_index(g->m, v) != result)))
            return false;
        in = found;
        result = weft_val_index(g->m, v);
    }
    return in && same_models(g, c, &g->columns.at[in - 1]);
}

/* Whether bringing operand 0 together takes copies: a node that makes it can do so in place. */
static bool needs_copies(const merger *g, const weft_column *c)
{
    if (lies_together(g, c, 0))
        return false;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_val v = c->node[i].i ? weft_node_in(g->m, c->node[i], 0) : (weft_val){0};
        if (v.i && (weft_val_get_kind(g->m, v) != WEFT_VAL_NODE || g->decided_of[v.i]))
            return true;
    }
    return false;
}

static bool all_together(const merger *g, const weft_column *c)
{
    weft_node n = first_node(g, c);
    for (uint32_t k = 0; k < weft_node_in_count(g->m, n); k++) {
        weft_val v = weft_node_in(g->m, n, k);
        if (v.i && !is_weight(g, v) && !lies_together(g, c, k))
            return false;
    }
    return true;
}

static void note(merger *g, const weft_column *c, const weft_merge_gain *gain, bool joins,
                 const char *reason)
{
    weft_node n = first_node(g, c);
    const weft_weight_info *w =
        weft_weight_get(g->m, weft_val_weight(g->m, weft_node_in(g->m, n, 1)));
    if (!g->log)
        return;
    const char *item = weft_node_loc(g->m, n).item;
    weft_merge_row row = {.item = weft_arena_strdup(g->log->arena, item ? item : ""),
                          .op = weft_node_opdef(g->m, n)->name,
                          .weight_bytes = w->bytes,
                          .gain_small = gain->small,
                          .gain_large = gain->large,
                          .joined = joins,
                          .strategy = joins                                       ? "concatenated"
                                      : g->cx->options->merge == WEFT_MERGE_EXACT ? "interleaved"
                                                                                  : "none",
                          .reason = reason};
    const char **model = weft_arena_array(g->log->arena, c->n, sizeof *model);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i)
            model[row.n_model++] =
                weft_arena_strdup(g->log->arena, weft_graph_name(g->columns.model[i]));
    row.model = model;
    WEFT_VEC_PUSH(g->log->arena, &g->log->rows, row);
}

static bool is_worth_it(merger *g, const weft_column *c, weft_joint_level level)
{
    weft_merge_gain gain = {1, 1};
    bool exact = g->cx->options->merge == WEFT_MERGE_EXACT;
    const char *reason = "gains at small sizes, loses at none";
    bool joins = false;
    if (level == WEFT_JOINT_NONE)
        reason = "its rows depend on each other";
    else if (exact)
        reason = "interleaved: a joint product need not have the same bits";
    else if (!weft_merge__gain(g->cx, &g->columns, c, needs_copies(g, c), &gain))
        reason = "the estimator does not know this product";
    else if (gain.small < margin && gain.large < margin)
        reason = "no gain: arithmetic decides, not reading the weight";
    else if (gain.small < loss || gain.large < loss)
        reason = "loses at some sizes";
    else
        joins = true;
    note(g, c, &gain, joins, reason);
    return joins;
}

/* Levels for all columns; returns how many products are joined. */
static uint32_t decide(merger *g, uint32_t *out_heavy)
{
    uint32_t products = 0;
    *out_heavy = 0;
    for (uint32_t i = 0; i < g->columns.n; i++) {
        const weft_column *c = &g->columns.at[i];
        if (c->n < 2)
            continue;
        weft_joint_level level = weft_merge__level(&g->columns, c);
        bool heavy = weft_merge__is_heavy(g->m, first_node(g, c)), joins;
        if (heavy)
            joins = is_worth_it(g, c, level);
        else
            joins = level != WEFT_JOINT_NONE && all_together(g, c);
        *out_heavy += heavy;
        products += heavy && joins;
        if (!joins)
            continue;
        g->decided[i] = level;
        for (uint32_t k = 0; k < g->columns.n_model; k++)
            for (uint32_t r = 0; c->node[k].i && r < weft_node_out_count(g->m, c->node[k]); r++)
                g->decided_of[weft_node_out(g->m, c->node[k], r).i] = i + 1;
    }
    return products;
}

/* -- Emission --------------------------------------------------------------------------------- */

static weft_val append(merger *g, weft_op_id op, const weft_val *in, uint32_t n_in,
                       const weft_attr *attr, uint32_t n_attr, const weft_ttype *type, weft_loc loc)
{
    weft_type out = weft_type_intern(g->m, type);
    weft_node_spec spec = {.op = op,
                           .in = in,
                           .n_in = n_in,
                           .out = &out,
                           .n_out = 1,
                           .attr = attr,
                           .n_attr = n_attr,
                           .loc = loc};
    return weft_node_out(g->m, weft_node_append(g->joint, &spec), 0);
}

static weft_val append_view(merger *g, weft_val v, const weft_ttype *type, weft_loc loc)
{
    if (memcmp(weft_val_ttype(g->m, v), type, sizeof *type) == 0)
        return v;
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, type->dim, type->rank);
    return append(g, WEFT_OP_VIEW, &v, 1, &shape, 1, type, loc);
}

static weft_dim count_rows(merger *g, const weft_ttype *t, weft_joint_level level)
{
    weft_dim rows = t->dim[0];
    for (uint32_t k = 1; level == WEFT_JOINT_ROWS && k + 1 < t->rank; k++)
        rows = weft_dim_mul(g->dims, rows, t->dim[k]);
    return rows;
}

/* The type with `rows` rows in the place of its own. */
static weft_ttype with_rows(const weft_ttype *t, weft_joint_level level, weft_dim rows)
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

/* The part of model i, taken out of what it is joined in. */
static weft_val take_out(merger *g, const joined *j, uint32_t i, const weft_ttype *type,
                         weft_loc loc)
{
    weft_dim start = j->start[i], rows = count_rows(g, type, j->level);
    weft_dim end = weft_dim_add(g->dims, start, rows), axis = 0, step = 1;
    weft_attr attr[] = {WEFT_ATTR_OF_DIMS(AXES, &axis, 1), WEFT_ATTR_OF_DIMS(ENDS, &end, 1),
                        WEFT_ATTR_OF_DIMS(STARTS, &start, 1), WEFT_ATTR_OF_DIMS(STEPS, &step, 1)};
    weft_ttype part = with_rows(type, j->level, rows);
    weft_val v = append(g, WEFT_OP_SLICE, &j->val, 1, attr, 4, &part, loc);
    return append_view(g, v, type, loc);
}

/* Value `v` of model i, on its own. */
static weft_val own_val(merger *g, uint32_t i, weft_val v, weft_loc loc)
{
    if (!v.i || is_weight(g, v))
        return v;
    place *p = &g->place[v.i];
    if (!p->val.i)
        p->val = take_out(g, &g->joined.at[p->in - 1], i, weft_val_ttype(g->m, v), loc);
    return p->val;
}

/* The one joined value that operand k of the column's nodes is, NULL when there is none. */
static const joined *find_joined(const merger *g, const weft_column *c, uint32_t k)
{
    uint32_t in = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!c->node[i].i)
            continue;
        uint32_t found = g->place[weft_node_in(g->m, c->node[i], k).i].in;
        if (!found || (in && found != in))
            return NULL;
        in = found;
    }
    return in && same_models(g, c, g->joined.at[in - 1].column) ? &g->joined.at[in - 1] : NULL;
}

/* Operand k of all nodes of the column together, with its rows at `level`. */
static weft_val joint_operand(merger *g, const weft_column *c, uint32_t k, weft_joint_level level,
                              weft_loc loc)
{
    const joined *have = find_joined(g, c, k);
    weft_val part[WEFT_MERGE_MODELS_MAX];
    weft_ttype type = {0};
    weft_dim rows = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!c->node[i].i)
            continue;
        weft_val v = weft_node_in(g->m, c->node[i], k);
        const weft_ttype *t = weft_val_ttype(g->m, v);
        weft_dim own = count_rows(g, t, level);
        type = with_rows(t, level, own);
        rows = n == 0 ? own : weft_dim_add(g->dims, rows, own);
        if (!have)
            part[n] = append_view(g, own_val(g, i, v, loc), &type, loc);
        n++;
    }
    type.dim[0] = rows;
    if (have)
        return append_view(g, have->val, &type, loc);
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
    return append(g, WEFT_OP_CONCAT, part, n, &axis, 1, &type, loc);
}

/* Attributes of the joint node: what counts from the front is changed to fit. */
static uint32_t joint_attrs(merger *g, weft_node n, weft_joint_level level, weft_dim rows,
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

static const weft_dim *list_starts(merger *g, const weft_column *c, weft_joint_level level)
{
    weft_dim *start =
        weft_arena_array(g->cx->scratch, (size_t)g->columns.n_model + 1, sizeof *start);
    weft_dim rows = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        start[i] = rows;
        if (!c->node[i].i)
            continue;
        const weft_ttype *t = weft_val_ttype(g->m, weft_node_out(g->m, c->node[i], 0));
        rows = weft_dim_add(g->dims, rows, count_rows(g, t, level));
    }
    start[g->columns.n_model] = rows;
    return start;
}

static void append_joint(merger *g, const weft_column *c, weft_joint_level level)
{
    weft_node some = first_node(g, c);
    weft_loc loc = weft_node_loc(g->m, some);
    uint32_t n_in = weft_node_in_count(g->m, some), n_out = weft_node_out_count(g->m, some);
    weft_arena *scratch = g->cx->scratch;
    weft_val *in = weft_arena_array(scratch, (size_t)n_in + 1, sizeof *in);
    weft_type *out = weft_arena_array(scratch, (size_t)n_out + 1, sizeof *out);
    weft_attr attr[WEFT_OP_ATTR_MAX];
    const weft_dim *start = list_starts(g, c, level);
    weft_dim rows = start[g->columns.n_model];
    for (uint32_t k = 0; k < n_in; k++) {
        weft_val v = weft_node_in(g->m, some, k);
        in[k] = !v.i || is_weight(g, v) ? v : joint_operand(g, c, k, level, loc);
    }
    for (uint32_t k = 0; k < n_out; k++) {
        weft_type type = weft_val_type(g->m, weft_node_out(g->m, some, k));
        weft_ttype joint = *weft_type_get(g->m, type);
        if (joint.dtype != WEFT_DTYPE_NONE)
            joint = with_rows(&joint, level, rows);
        out[k] = joint.dtype == WEFT_DTYPE_NONE ? type : weft_type_intern(g->m, &joint);
    }
    weft_node_spec spec = {.op = weft_node_op(g->m, some),
                           .in = in,
                           .n_in = n_in,
                           .out = out,
                           .n_out = n_out,
                           .attr = attr,
                           .n_attr = joint_attrs(g, some, level, rows, attr),
                           .loc = loc};
    weft_node made = weft_node_append(g->joint, &spec);
    for (uint32_t k = 0; k < n_out; k++) {
        joined j = {weft_node_out(g->m, made, k), level, c, start};
        WEFT_VEC_PUSH(scratch, &g->joined, j);
        for (uint32_t i = 0; i < g->columns.n_model; i++)
            if (c->node[i].i)
                g->place[weft_node_out(g->m, c->node[i], k).i] = (place){.in = g->joined.len};
    }
}

static void append_copy(merger *g, uint32_t model, weft_node n)
{
    uint32_t n_in = weft_node_in_count(g->m, n), n_out = weft_node_out_count(g->m, n);
    weft_val *in = weft_arena_array(g->cx->scratch, (size_t)n_in + 1, sizeof *in);
    weft_type *out = weft_arena_array(g->cx->scratch, (size_t)n_out + 1, sizeof *out);
    weft_attrs attrs = weft_node_attrs(g->m, n);
    weft_loc loc = weft_node_loc(g->m, n);
    for (uint32_t k = 0; k < n_in; k++)
        in[k] = own_val(g, model, weft_node_in(g->m, n, k), loc);
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
        g->place[weft_node_out(g->m, n, k).i] = (place){.val = weft_node_out(g->m, made, k)};
}

/* -- The joint graph -------------------------------------------------------------------------- */

static const char *joint_name(const merger *g)
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

static void add_ports(merger *g, weft_graph *model)
{
    const char *name = weft_graph_name(model);
    weft_arena *arena = g->cx->scratch;
    for (uint32_t i = 0; i < weft_graph_symbol_count(model); i++)
        weft_graph_share_symbol(
            g->joint, weft_arena_printf(arena, "%s/%s", name, weft_graph_symbol_name(model, i)),
            weft_graph_symbol_dim(model, i));
    for (uint32_t i = 0; i < weft_graph_input_count(model); i++) {
        weft_val v = weft_graph_input(model, i);
        const char *port = weft_arena_printf(arena, "%s/%s", name, weft_graph_input_name(model, i));
        g->place[v.i].val = weft_graph_add_input(g->joint, port, weft_val_type(g->m, v));
    }
    weft_part part = {name, weft_graph_input_count(model), weft_graph_output_count(model)};
    weft_graph_add_part(g->joint, &part);
}

static void build(merger *g)
{
    g->joint = weft_graph_create(g->m, joint_name(g));
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        add_ports(g, g->columns.model[i]);
    for (uint32_t i = 0; i < g->columns.n; i++) {
        const weft_column *c = &g->columns.at[i];
        if (g->decided[i] != WEFT_JOINT_NONE) {
            append_joint(g, c, (weft_joint_level)g->decided[i]);
            continue;
        }
        for (uint32_t k = 0; k < g->columns.n_model; k++)
            if (c->node[k].i)
                append_copy(g, k, c->node[k]);
    }
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_graph *model = g->columns.model[i];
        for (uint32_t k = 0; k < weft_graph_output_count(model); k++)
            weft_graph_add_output(g->joint,
                                  weft_arena_printf(g->cx->scratch, "%s/%s", weft_graph_name(model),
                                                    weft_graph_output_name(model, k)),
                                  own_val(g, i, weft_graph_output(model, k), (weft_loc){0}));
    }
}

/* -- Groups ----------------------------------------------------------------------------------- */

/* 1 + index of the first model of the group that each belongs to. */
static uint32_t find_root(uint32_t *root, uint32_t i)
{
    while (root[i] != i)
        i = root[i] = root[root[i]];
    return i;
}

/* Models with the weight of a product in common, transitively. */
static void group_models(merger *g, weft_graph *const *model, uint32_t n, uint32_t *root)
{
    weft_map *user = weft_map_create(g->cx->scratch); /* weight to 1 + model */
    for (uint32_t i = 0; i < n; i++) {
        root[i] = i;
        WEFT_FOREACH_NODE (g->m, model[i], node) {
            uint64_t other = 0;
            if (!weft_merge__is_heavy(g->m, node))
                continue;
            weft_val w = weft_node_in(g->m, node, 1);
            if (weft_map_get(user, w.i, &other))
                root[find_root(root, i)] = find_root(root, (uint32_t)other - 1);
            else
                weft_map_put(user, w.i, i + 1);
        }
    }
}

static bool merge_group(weft_passctx *cx, weft_module *m, weft_graph *const *model, uint32_t n)
{
    merger g = {.cx = cx, .m = m, .dims = weft_module_dims(m), .log = cx->options->merge_log};
    weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
    uint32_t heavy = 0;
    g.columns = weft_merge__align(cx, model, n);
    g.n_place = weft_val_count(m) + 1;
    g.place = weft_arena_array(cx->scratch, g.n_place, sizeof *g.place);
    g.decided = weft_arena_array(cx->scratch, (size_t)g.columns.n + 1, sizeof *g.decided);
    g.decided_of = weft_arena_array(cx->scratch, g.n_place, sizeof *g.decided_of);
    memset(g.place, 0, g.n_place * sizeof *g.place);
    memset(g.decided, 0, ((size_t)g.columns.n + 1) * sizeof *g.decided);
    memset(g.decided_of, 0, g.n_place * sizeof *g.decided_of);
    uint32_t joins = decide(&g, &heavy);
    bool wanted = joins > 0 || (cx->options->merge == WEFT_MERGE_EXACT && heavy > 0);
    if (wanted && weft_rewrite__allow(cx))
        build(&g);
    else
        wanted = false;
    weft_arena_reset(cx->scratch, mark);
    return wanted;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    uint32_t n = weft_graph_count(m), kept = 0;
    if (cx->options->merge == WEFT_MERGE_OFF)
        return WEFT_ERR_OK;
    merger g = {.cx = cx, .m = m};
    weft_graph **model = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *model);
    weft_graph **group = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *group);
    uint32_t *root = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *root);
    for (uint32_t i = 0; i < n; i++) {
        weft_graph *one = weft_graph_at(m, i);
        if (weft_graph_part_count(one) == 0 && weft_merge__batch(one) != 0)
            model[kept++] = one;
    }
    group_models(&g, model, kept, root);
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t members = 0;
        for (uint32_t k = i; root[i] != UINT32_MAX && find_root(root, i) == i && k < kept; k++)
            if (find_root(root, k) == i && members < WEFT_MERGE_MODELS_MAX)
                group[members++] = model[k];
        if (members > 1)
            *changed = merge_group(cx, m, group, members) || *changed;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_merge_models = {
    .name = "merge-models",
    .brief = "run products by shared weights once for several models",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .breaks = WEFT_FACT_ALL,
    .run = run,
};
