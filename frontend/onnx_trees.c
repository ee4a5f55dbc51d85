/* Decision trees: sorts the nodes of each tree topologically, breadth first, and expresses all
 * comparisons by two:
 *
 *   x <  v  ==>  x <= the number below v
 *   x >= v  ==>  x <  v, children exchanged
 *   x >  v  ==>  x <= v, children exchanged
 *   x != v  ==>  x == v, children exchanged
 *
 * Every comparison of NaN is false, and all but != then continue at the false child unless the node
 * says otherwise: after an exchange NaN continues at the other one. No number is below -infinity;
 * a threshold NaN takes its place, with which every comparison is false. */
#include "frontend/onnx_trees.h"

#include "ops/trees.h"

#include <math.h>
#include <string.h>

typedef struct sorter {
    weft_onnx_build *k;
    const weft_forest *f;
    uint32_t *owner;  /* of a node: number of the last tree that reached it, from 1 */
    uint32_t *degree; /* parents within the tree that are not in `order` yet */
    uint32_t *place;  /* index in `order` */
    uint32_t *stack;
    WEFT_VEC(uint32_t) order;
    WEFT_VEC(weft_tree_node64) node; /* in the same order */
    WEFT_VEC(int32_t) tree;          /* first node of each */
    WEFT_VEC(int32_t) target;
    WEFT_VEC(double) weight;
} sorter;

/* -- Order ------------------------------------------------------------------------------------ */

/* A leaf with one entry may be in several trees. */
static bool may_share(const weft_tree_link *n)
{
    return n->mode == WEFT_TREE_END && n->no - n->yes <= 1;
}

/* Counts the parents of the nodes that the root reaches, and these nodes. */
static uint32_t reach(sorter *s, uint32_t tree, uint32_t root)
{
    const weft_tree_link *node = s->f->node;
    uint32_t depth = 0, n = 0;
    s->stack[depth++] = root;
    if (s->owner[root])
        weft_onnx__stop(s->k, WEFT_ERR_INPUT, "tree %u shares a node with another tree", tree - 1);
    s->owner[root] = tree;
    s->degree[root] = 0;
    while (depth > 0 && s->k->err == WEFT_ERR_OK) {
        const weft_tree_link *at = &node[s->stack[--depth]];
        n++;
        for (int i = 0; i < 2 && at->mode != WEFT_TREE_END; i++) {
            uint32_t child = i ? at->no : at->yes;
            if (s->owner[child] == tree) {
                s->degree[child]++;
                continue;
            }
            if (s->owner[child] && !may_share(&node[child]))
                weft_onnx__stop(s->k, WEFT_ERR_INPUT, "tree %u shares a node with another tree",
                                tree - 1);
            s->owner[child] = tree;
            s->degree[child] = 1;
            s->stack[depth++] = child;
        }
    }
    return n;
}

/* Appends the nodes of a tree, each behind its parents (Kahn's algorithm). */
static void sort_tree(sorter *s, uint32_t tree, uint32_t root)
{
    const weft_tree_link *node = s->f->node;
    weft_arena *arena = s->k->c->cx->arena;
    uint32_t begin = s->order.len, n = reach(s, tree, root);
    if (s->k->err != WEFT_ERR_OK)
        return;
    if (s->degree[root] == 0)
        WEFT_VEC_PUSH(arena, &s->order, root);
    for (uint32_t i = begin; i < s->order.len; i++) {
        const weft_tree_link *at = &node[s->order.at[i]];
        s->place[s->order.at[i]] = i;
        for (int c = 0; c < 2 && at->mode != WEFT_TREE_END; c++) {
            uint32_t child = c ? at->no : at->yes;
            if (--s->degree[child] == 0)
                WEFT_VEC_PUSH(arena, &s->order, child);
        }
    }
    if (s->order.len - begin != n)
        weft_onnx__stop(s->k, WEFT_ERR_INPUT, "the nodes of tree %u are on a cycle", tree - 1);
}

/* -- Nodes ------------------------------------------------------------------------------------ */

/* The node with comparison <= or ==, and children exchanged where needed. */
static weft_tree_node64 express(const weft_tree_link *n, bool wide)
{
    weft_tree_node64 out = {.value = wide ? n->value : (double)(float)n->value};
    int64_t bits = 0;
    bool strict = n->mode == WEFT_TREE_LT || n->mode == WEFT_TREE_GE, missing = n->missing;
    bool swap = n->mode == WEFT_TREE_GE || n->mode == WEFT_TREE_GT || n->mode == WEFT_TREE_NE;
    if (n->mode == WEFT_TREE_EQ || n->mode == WEFT_TREE_NE) {
        bits |= WEFT_TREE_EQUAL;
        missing = missing && !swap;
    } else if (isnan(out.value)) {
        swap = false; /* false for each x, before and after an exchange */
    } else {
        missing = missing != swap;
        if (strict && out.value == (double)-INFINITY)
            out.value = (double)NAN;
        else if (strict)
            out.value = wide ? nextafter(out.value, (double)-INFINITY)
                             : (double)nextafterf((float)out.value, -INFINITY);
    }
    out.what = n->feature * (1 << WEFT_TREE_SHIFT) | bits | (missing ? WEFT_TREE_MISSING : 0);
    out.yes = swap ? n->no : n->yes;
    out.no = swap ? n->yes : n->no;
    return out;
}

static weft_tree_node64 place_leaf(sorter *s, const weft_tree_link *n)
{
    weft_arena *arena = s->k->c->cx->arena;
    weft_tree_node64 out = {.what = WEFT_TREE_LEAF, .yes = s->target.len};
    for (uint32_t e = n->yes; e < n->no; e++) {
        WEFT_VEC_PUSH(arena, &s->target, (int32_t)s->f->target[e]);
        WEFT_VEC_PUSH(arena, &s->weight, s->f->weight[e]);
    }
    out.no = s->target.len;
    return out;
}

/* Nodes of the tree that begins at `begin` of `order`. */
static void place_nodes(sorter *s, uint32_t begin)
{
    for (uint32_t i = begin; i < s->order.len; i++) {
        const weft_tree_link *n = &s->f->node[s->order.at[i]];
        weft_tree_node64 node =
            n->mode == WEFT_TREE_END ? place_leaf(s, n) : express(n, s->f->wide);
        if (n->mode != WEFT_TREE_END) {
            node.yes = s->place[node.yes];
            node.no = s->place[node.no];
        }
        WEFT_VEC_PUSH(s->k->c->cx->arena, &s->node, node);
    }
}

/* -- The operator ----------------------------------------------------------------------------- */

static void check_nodes(weft_onnx_build *k, const weft_forest *f, weft_val x)
{
    weft_dim features = weft_onnx__of(k, x)->dim[1];
    for (uint32_t i = 0; i < f->n_node; i++) {
        const weft_tree_link *n = &f->node[i];
        uint32_t limit = n->mode == WEFT_TREE_END ? f->n_entry + 1 : f->n_node;
        if (n->yes >= limit || n->no >= limit)
            weft_onnx__stop(k, WEFT_ERR_INPUT, "node %u has children %u and %u of %u", i, n->yes,
                            n->no, limit);
        if (n->mode == WEFT_TREE_END)
            continue;
        bool outside = weft_dim_is_const(features) && n->feature >= features;
        if (n->feature < 0 || n->feature >= INT32_MAX >> WEFT_TREE_SHIFT || outside)
            weft_onnx__stop(k, WEFT_ERR_INPUT, "node %u tests feature %lld%s", i,
                            (long long)n->feature,
                            outside ? ", which the input does not have" : "");
    }
    for (uint32_t i = 0; i < f->n_entry; i++)
        if (f->target[i] < 0 || f->target[i] >= f->n_target)
            weft_onnx__stop(k, WEFT_ERR_INPUT, "a leaf adds to target %lld of %lld",
                            (long long)f->target[i], (long long)f->n_target);
}

static weft_val nodes_of(const sorter *s)
{
    weft_onnx_call *c = s->k->c;
    int64_t dim[2] = {s->node.len, 4};
    if (s->f->wide)
        return weft_onnx__const(c, WEFT_DTYPE_I64, dim, 2, s->node.at);
    weft_tree_node32 *narrow = weft_arena_array(c->cx->arena, s->node.len, sizeof *narrow);
    for (uint32_t i = 0; i < s->node.len; i++) {
        const weft_tree_node64 *n = &s->node.at[i];
        narrow[i] =
            (weft_tree_node32){(int32_t)n->what, (float)n->value, (int32_t)n->yes, (int32_t)n->no};
    }
    return weft_onnx__const(c, WEFT_DTYPE_I32, dim, 2, narrow);
}

static void emit(const sorter *s, weft_val x, weft_val *out, uint32_t n_out)
{
    weft_onnx_build *k = s->k;
    const weft_forest *f = s->f;
    weft_arena *arena = k->c->cx->arena;
    int64_t n_tree = s->tree.len, n_entry = s->target.len;
    weft_val in[5] = {x};
    in[1] = weft_onnx__const(k->c, WEFT_DTYPE_I32, &n_tree, 1, s->tree.at);
    in[2] = nodes_of(s);
    in[3] = weft_onnx__const(k->c, WEFT_DTYPE_I32, &n_entry, 1, s->target.at);
    if (f->wide) {
        in[4] = weft_onnx__const(k->c, WEFT_DTYPE_F64, &n_entry, 1, s->weight.at);
    } else {
        float *narrow = weft_arena_array(arena, (size_t)n_entry, sizeof *narrow);
        for (int64_t i = 0; i < n_entry; i++)
            narrow[i] = (float)s->weight.at[i];
        in[4] = weft_onnx__const(k->c, WEFT_DTYPE_F32, &n_entry, 1, narrow);
    }
    weft_attr attr[2] = {WEFT_ATTR_OF_INT(TARGETS, f->n_target),
                         WEFT_ATTR_OF_STR(REDUCTION, f->reduction)};
    weft_onnx__make_many(k, WEFT_OP_TREE_ENSEMBLE, in, 5, attr, 2, out, n_out);
}

void weft_forest__make(weft_onnx_build *k, const weft_forest *f, weft_val x, weft_val *out,
                       uint32_t n_out)
{
    weft_arena *arena = k->c->cx->arena;
    sorter s = {.k = k, .f = f};
    memset(out, 0, n_out * sizeof *out);
    if (k->err != WEFT_ERR_OK)
        return;
    check_nodes(k, f, x);
    s.owner = weft_arena_array(arena, f->n_node, sizeof *s.owner);
    s.degree = weft_arena_array(arena, f->n_node, sizeof *s.degree);
    s.place = weft_arena_array(arena, f->n_node, sizeof *s.place);
    s.stack = weft_arena_array(arena, f->n_node, sizeof *s.stack);
    for (uint32_t t = 0; t < f->n_root && k->err == WEFT_ERR_OK; t++) {
        WEFT_VEC_PUSH(arena, &s.tree, (int32_t)s.node.len);
        sort_tree(&s, t + 1, f->root[t]);
        place_nodes(&s, (uint32_t)s.tree.at[t]);
        if (s.node.len > INT32_MAX)
            weft_onnx__stop(k, WEFT_ERR_UNSUP, "more than %d nodes", INT32_MAX);
    }
    if (k->err != WEFT_ERR_OK)
        return;
    WEFT_VEC_PUSH(arena, &s.tree, (int32_t)s.node.len);
    emit(&s, x, out, n_out);
}
