/* Hooks of onnx_ops_ml.def: ensembles of decision trees. Where the specification is vague, the
 * answers are those of onnxruntime. */
#include "base/map.h"
#include "frontend/onnx_ml_int.h"
#include "frontend/onnx_trees.h"

#include <math.h>
#include <string.h>

/* -- Lists ------------------------------------------------------------------------------------ */

/* Numbers of an attribute of floats, or of tensor NAME_as_tensor. */
typedef struct reals {
    const double *at;
    uint32_t n;
    bool wide; /* a tensor of f64 */
} reals;

static void read_tensor(weft_onnx_build *k, const char *name, reals *out)
{
    weft_onnx_ctx *cx = k->c->cx;
    weft_tensor t;
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_tensor(k->c, name, &t);
    if (k->err != WEFT_ERR_OK || t.rank < 0)
        return;
    int64_t n = weft_tensor_numel(&t);
    if (!weft_dtype_is_float(t.dtype) && n > 0)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "attribute \"%s\" holds %s", name,
                        weft_dtype_name(t.dtype));
    double *x = weft_arena_array(cx->arena, (size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = weft_tensor_get_f64(&t, i);
    *out = (reals){x, (uint32_t)n, t.dtype == WEFT_DTYPE_F64};
}

static reals read_reals(weft_onnx_build *k, const char *name)
{
    reals out = {0};
    const float *f = NULL;
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_floats(k->c, name, &f, &out.n);
    double *x = weft_arena_array(k->c->cx->arena, out.n, sizeof *x);
    for (uint32_t i = 0; i < out.n; i++)
        x[i] = (double)f[i];
    out.at = x;
    read_tensor(k, weft_arena_printf(k->c->cx->arena, "%s_as_tensor", name), &out);
    return out;
}

typedef struct wholes {
    const int64_t *at;
    uint32_t n;
} wholes;

static wholes read_wholes(weft_onnx_build *k, const char *name)
{
    wholes out = {0};
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_ints(k->c, name, &out.at, &out.n);
    return out;
}

static void check_len(weft_onnx_build *k, const char *name, uint32_t n, uint32_t want)
{
    if (n != want)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "attribute \"%s\" has %u elements, expected %u", name, n,
                        want);
}

static wholes read_exactly(weft_onnx_build *k, const char *name, uint32_t n)
{
    wholes out = read_wholes(k, name);
    check_len(k, name, out.n, n);
    return out;
}

/* -- Versions 1 and 3: nodes by (tree, node) -------------------------------------------------- */

/* Key of a node; INPUT when an id is outside 32 bits. */
static uint64_t node_key(weft_onnx_build *k, int64_t tree, int64_t node)
{
    if (tree < INT32_MIN || tree > INT32_MAX || node < INT32_MIN || node > INT32_MAX)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "tree %lld, node %lld", (long long)tree,
                        (long long)node);
    return (uint64_t)(uint32_t)tree << 32 | (uint32_t)node;
}

static uint32_t find_node(weft_onnx_build *k, const weft_map *map, int64_t tree, int64_t node)
{
    uint64_t at = 0;
    if (!weft_map_get(map, node_key(k, tree, node), &at))
        weft_onnx__stop(k, WEFT_ERR_INPUT, "tree %lld has no node %lld", (long long)tree,
                        (long long)node);
    return (uint32_t)at;
}

static uint8_t read_mode(weft_onnx_build *k, const char *text)
{
    static const struct {
        const char *name;
        uint8_t mode;
    } modes[] = {{"LEAF", WEFT_TREE_END},     {"BRANCH_LEQ", WEFT_TREE_LE},
                 {"BRANCH_LT", WEFT_TREE_LT}, {"BRANCH_GTE", WEFT_TREE_GE},
                 {"BRANCH_GT", WEFT_TREE_GT}, {"BRANCH_EQ", WEFT_TREE_EQ},
                 {"BRANCH_NEQ", WEFT_TREE_NE}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(modes[i].name, text) == 0)
            return modes[i].mode;
    weft_onnx__stop(k, WEFT_ERR_INPUT, "a node of mode \"%s\"", text);
    return WEFT_TREE_END;
}

/* Entries of leaves, sorted by node: counts, then places. */
static void place_entries(weft_onnx_build *k, const weft_map *map, const char *who,
                          weft_tree_link *node, uint32_t n_node, weft_forest *f)
{
    weft_arena *arena = k->c->cx->arena;
    wholes tree = read_wholes(k, weft_arena_printf(arena, "%s_treeids", who));
    wholes id = read_exactly(k, weft_arena_printf(arena, "%s_nodeids", who), tree.n);
    wholes target = read_exactly(k, weft_arena_printf(arena, "%s_ids", who), tree.n);
    reals weight = read_reals(k, weft_arena_printf(arena, "%s_weights", who));
    check_len(k, "weights", weight.n, tree.n);
    uint32_t *of = weft_arena_array(arena, tree.n, sizeof *of);
    uint32_t *count = weft_arena_array(arena, (size_t)n_node + 1, sizeof *count);
    for (uint32_t i = 0; i < tree.n && k->err == WEFT_ERR_OK; i++) {
        of[i] = find_node(k, map, tree.at[i], id.at[i]);
        count[of[i] + 1]++;
    }
    if (k->err != WEFT_ERR_OK)
        return;
    for (uint32_t i = 0; i < n_node; i++) {
        count[i + 1] += count[i];
        if (node[i].mode == WEFT_TREE_END) {
            node[i].yes = count[i];
            node[i].no = count[i + 1];
        }
    }
    int64_t *targets = weft_arena_array(arena, tree.n, sizeof *targets);
    double *weights = weft_arena_array(arena, tree.n, sizeof *weights);
    for (uint32_t i = 0; i < tree.n; i++) {
        uint32_t at = count[of[i]]++;
        targets[at] = target.at[i];
        weights[at] = weight.at[i];
    }
    f->target = targets;
    f->weight = weights;
    f->n_entry = tree.n;
    f->wide |= weight.wide;
}

/* A tree begins where the tree's id changes. */
static void find_roots(weft_onnx_build *k, wholes tree, weft_forest *f)
{
    uint32_t *root = weft_arena_array(k->c->cx->arena, tree.n, sizeof *root);
    for (uint32_t i = 0; i < tree.n; i++)
        if (i == 0 || tree.at[i] != tree.at[i - 1])
            root[f->n_root++] = i;
    f->root = root;
}

/* Reads the nodes and, with names that begin with `who`, the entries of leaves. */
static void read_nodes(weft_onnx_build *k, const char *who, weft_forest *f)
{
    weft_arena *arena = k->c->cx->arena;
    wholes tree = read_wholes(k, "nodes_treeids");
    uint32_t n = tree.n, n_mode = 0;
    wholes id = read_exactly(k, "nodes_nodeids", n), yes = read_exactly(k, "nodes_truenodeids", n);
    wholes no = read_exactly(k, "nodes_falsenodeids", n);
    wholes feature = read_exactly(k, "nodes_featureids", n);
    wholes missing = read_wholes(k, "nodes_missing_value_tracks_true");
    reals value = read_reals(k, "nodes_values");
    const char *const *mode = NULL;
    check_len(k, "nodes_values", value.n, n);
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_strs(k->c, "nodes_modes", &mode, &n_mode);
    check_len(k, "nodes_modes", n_mode, n);
    weft_onnx__ignore(k->c, "nodes_hitrates");
    weft_onnx__ignore(k->c, "nodes_hitrates_as_tensor");
    weft_map *map = weft_map_create(arena);
    weft_tree_link *node = weft_arena_array(arena, n, sizeof *node);
    for (uint32_t i = 0; i < n && k->err == WEFT_ERR_OK; i++) {
        uint64_t key = node_key(k, tree.at[i], id.at[i]), before;
        if (weft_map_get(map, key, &before))
            weft_onnx__stop(k, WEFT_ERR_INPUT, "tree %lld has node %lld twice",
                            (long long)tree.at[i], (long long)id.at[i]);
        weft_map_put(map, key, i);
        node[i] = (weft_tree_link){.value = value.at[i],
                                   .feature = feature.at[i],
                                   .mode = read_mode(k, mode[i]),
                                   .missing = i < missing.n && missing.at[i] == 1};
    }
    for (uint32_t i = 0; i < n && k->err == WEFT_ERR_OK; i++) {
        if (node[i].mode == WEFT_TREE_END)
            continue;
        node[i].yes = find_node(k, map, tree.at[i], yes.at[i]);
        node[i].no = find_node(k, map, tree.at[i], no.at[i]);
    }
    f->wide |= value.wide;
    f->node = node;
    f->n_node = n;
    place_entries(k, map, who, node, n, f);
    find_roots(k, tree, f);
}

/* x with the element type that the thresholds have. */
static weft_val align(weft_onnx_build *k, weft_forest *f, weft_val x)
{
    f->wide |= weft_onnx__dtype_of(k, x) == WEFT_DTYPE_F64;
    return weft_onnx__cast(k, x, f->wide ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32);
}

static weft_val add_numbers(weft_onnx_build *k, weft_val x, const double *number, uint32_t n)
{
    weft_onnx_call *c = k->c;
    int64_t dim = n;
    weft_val v = {0};
    if (k->err != WEFT_ERR_OK)
        return x;
    if (weft_onnx__dtype_of(k, x) == WEFT_DTYPE_F64) {
        v = weft_onnx__const(c, WEFT_DTYPE_F64, &dim, 1, number);
    } else {
        float *narrow = weft_arena_array(c->cx->arena, n, sizeof *narrow);
        for (uint32_t i = 0; i < n; i++)
            narrow[i] = (float)number[i];
        v = weft_onnx__const(c, WEFT_DTYPE_F32, &dim, 1, narrow);
    }
    return weft_onnx__make2(k, WEFT_OP_ADD, x, v);
}

/* -- Votes ------------------------------------------------------------------------------------ */

/* Counts of the leaves of one tree. */
typedef struct vote_count {
    uint32_t *leaves; /* by target: leaves of the tree that have a weight of it */
    uint32_t *last;   /* by target: the last such leaf + 1, in all trees */
    bool *always;     /* by target: in some tree, all leaves have one */
    WEFT_VEC(int64_t) touched;
} vote_count;

static void end_tree(vote_count *v, uint32_t n_leaf)
{
    for (uint32_t i = 0; i < v->touched.len; i++) {
        int64_t target = v->touched.at[i];
        v->always[target] |= v->leaves[target] == n_leaf;
        v->leaves[target] = 0;
    }
    v->touched.len = 0;
}

/* Whether every target gets a weight in each row, because all leaves of some tree have one: then it
 * need not be known which targets got one. */
static bool all_vote(weft_arena *arena, const weft_forest *f)
{
    vote_count v = {.leaves = weft_arena_array(arena, (size_t)f->n_target, sizeof *v.leaves),
                    .last = weft_arena_array(arena, (size_t)f->n_target, sizeof *v.last),
                    .always = weft_arena_array(arena, (size_t)f->n_target, sizeof *v.always)};
    uint32_t tree = 0, n_leaf = 0;
    for (uint32_t i = 0; i < f->n_node; i++) {
        if (tree < f->n_root && f->root[tree] == i) {
            end_tree(&v, n_leaf);
            n_leaf = 0;
            tree++;
        }
        const weft_tree_link *n = &f->node[i];
        n_leaf += n->mode == WEFT_TREE_END;
        for (uint32_t e = n->yes; n->mode == WEFT_TREE_END && e < n->no; e++) {
            int64_t target = f->target[e];
            if (target < 0 || target >= f->n_target || v.last[target] == i + 1)
                continue;
            v.last[target] = i + 1;
            if (v.leaves[target]++ == 0)
                WEFT_VEC_PUSH(arena, &v.touched, target);
        }
    }
    end_tree(&v, n_leaf);
    for (int64_t i = 0; i < f->n_target; i++)
        if (!v.always[i])
            return false;
    return true;
}

/* -- Regressor -------------------------------------------------------------------------------- */

static const char *read_reduction(weft_onnx_build *k, bool *average)
{
    const char *text = "SUM";
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_str(k->c, "aggregate_function", "SUM", &text);
    *average = strcmp(text, "AVERAGE") == 0;
    if (*average || strcmp(text, "SUM") == 0)
        return "sum";
    if (strcmp(text, "MIN") == 0)
        return "min";
    if (strcmp(text, "MAX") != 0)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "attribute \"aggregate_function\" is \"%s\"", text);
    return "max";
}

static weft_val divide_by_trees(weft_onnx_build *k, const weft_forest *f, weft_val sum)
{
    return weft_onnx__make2(k, WEFT_OP_DIV, sum, weft_onnx__number(k, sum, (double)f->n_root));
}

weft_err weft_onnx_hook_ml_tree_regressor(weft_onnx_call *c)
{
    weft_onnx_build k = {.c = c};
    weft_forest f = {0};
    bool average;
    weft_val x = weft_ml__rows(&k, true), out[2] = {{0}, {0}};
    WEFT_TRY(weft_onnx__get_int(c, "n_targets", 1, &f.n_target));
    read_nodes(&k, "target", &f);
    f.reduction = read_reduction(&k, &average);
    reals base = read_reals(&k, "base_values");
    weft_ml_post post = weft_ml__read_post(&k);
    if (base.n && base.n != 1 && base.n != f.n_target)
        weft_onnx__stop(&k, WEFT_ERR_INPUT, "%u base values for %lld targets", base.n,
                        (long long)f.n_target);
    if (f.n_target < 1 || f.n_target > INT32_MAX)
        weft_onnx__stop(&k, WEFT_ERR_INPUT, "%lld targets", (long long)f.n_target);
    WEFT_TRY(k.err);
    x = align(&k, &f, x);
    bool has_base = base.n == f.n_target;
    /* onnxruntime: of several targets, one without a weight has no base value either */
    bool voted = has_base && f.n_target > 1 && !all_vote(c->cx->arena, &f);
    weft_forest__make(&k, &f, x, out, voted ? 2 : 1);
    weft_val y = average ? divide_by_trees(&k, &f, out[0]) : out[0];
    if (has_base)
        y = add_numbers(&k, y, base.at, base.n);
    if (voted)
        y = weft_onnx__make3(&k, WEFT_OP_WHERE, out[1], y, weft_onnx__number(&k, y, 0));
    y = weft_onnx__cast(&k, y, WEFT_DTYPE_F32);
    if (f.n_target > 1 || post == WEFT_ML_PROBIT) /* onnxruntime: of one target only PROBIT */
        y = weft_ml__transform(&k, y, post);
    WEFT_TRY(k.err);
    c->out[0] = y;
    return weft_onnx__no_more_attrs(c);
}

/* -- Classifier ------------------------------------------------------------------------------- */

typedef struct classifier {
    weft_onnx_build k;
    weft_forest f;
    weft_ml_labels labels;
    weft_ml_post post;
    reals base;
    bool one_class;    /* the weights of two classes are all on one of them */
    int64_t class_id;  /* that one */
    bool all_positive; /* weights */
} classifier;

static void look_at_weights(classifier *t)
{
    const weft_forest *f = &t->f;
    t->all_positive = true;
    t->one_class = f->n_entry > 0 && t->labels.n == 2;
    t->class_id = f->n_entry ? f->target[0] : 0;
    for (uint32_t i = 0; i < f->n_entry; i++) {
        t->all_positive = t->all_positive && f->weight[i] >= 0;
        t->one_class = t->one_class && f->target[i] == t->class_id;
    }
}

/* Two classes, all weights on class 0: [1 - s, s] or [-s, s]. */
static weft_val complement(classifier *t, weft_val s)
{
    weft_onnx_build *k = &t->k;
    weft_val minus = weft_onnx__make1(k, WEFT_OP_NEG, s);
    if (t->post == WEFT_ML_LOGISTIC) {
        s = weft_onnx__concat(k, (weft_val[]){minus, s}, 2, 1);
        return weft_onnx__make1(k, WEFT_OP_SIGMOID, s);
    }
    if (t->all_positive)
        minus = weft_onnx__make2(k, WEFT_OP_SUB, weft_onnx__number(k, s, 1), s);
    return weft_onnx__concat(k, (weft_val[]){minus, s}, 2, 1);
}

static weft_val is_over(weft_onnx_build *k, weft_val column, double limit)
{
    weft_val flat = weft_onnx__squeeze(k, column, 1);
    return weft_onnx__make2(k, WEFT_OP_GREATER, flat, weft_onnx__number(k, flat, limit));
}

/* Scores of two classes with all weights on one. */
static weft_val two_of_one(classifier *t, weft_val sum)
{
    weft_onnx_build *k = &t->k;
    weft_val s = weft_onnx__slice(k, sum, 1, t->class_id, t->class_id + 1);
    double limit = t->all_positive ? 0.5 : 0;
    if (t->base.n == 1 && t->class_id == 0) {
        s = add_numbers(k, s, t->base.at, 1);
    } else if (t->base.n) {
        weft_onnx__stop(k, WEFT_ERR_UNSUP,
                        "%u base values with all weights on class %lld: "
                        "their meaning is not specified",
                        t->base.n, (long long)t->class_id);
        return s;
    }
    weft_ml__put_label_of(k, &t->labels, is_over(k, s, limit));
    s = weft_onnx__cast(k, s, WEFT_DTYPE_F32);
    if (t->class_id == 0)
        return complement(t, s);
    weft_val zero = weft_onnx__make2(k, WEFT_OP_MUL, s, weft_onnx__number(k, s, 0));
    s = weft_onnx__concat(k, (weft_val[]){zero, s}, 2, 1);
    return weft_ml__transform(k, s, t->post);
}

/* Two classes with weights on both: the label is 1 if the score of class 1 is above 0, else 0,
 * whatever the labels are. */
static weft_val two_of_two(classifier *t, weft_val sum)
{
    static const int64_t zero_one[2] = {0, 1};
    weft_onnx_build *k = &t->k;
    weft_ml_labels labels = {.value = t->labels.value ? zero_one : NULL, .n = 2};
    weft_val s = sum;
    if (t->base.n) {
        weft_onnx__stop(k, WEFT_ERR_UNSUP,
                        "base values with weights on both of two classes: "
                        "their meaning is not specified");
        return s;
    }
    weft_ml__put_label_of(k, &labels, is_over(k, weft_onnx__slice(k, s, 1, 1, 2), 0));
    return weft_ml__transform(k, weft_onnx__cast(k, s, WEFT_DTYPE_F32), t->post);
}

/* More classes: the first maximum among the classes that got a weight or a base value. */
static weft_val many(classifier *t, weft_val sum, weft_val voted)
{
    weft_onnx_build *k = &t->k;
    if (t->base.n)
        sum = add_numbers(k, sum, t->base.at, t->base.n);
    weft_val ranked = sum;
    if (voted.i)
        ranked = weft_onnx__make3(k, WEFT_OP_WHERE, voted, sum,
                                  weft_onnx__number(k, sum, (double)-INFINITY));
    weft_ml__put_labels(k, &t->labels, weft_ml__first_maximum(k, ranked));
    return weft_ml__transform(k, weft_onnx__cast(k, sum, WEFT_DTYPE_F32), t->post);
}

weft_err weft_onnx_hook_ml_tree_classifier(weft_onnx_call *c)
{
    classifier t = {.k = {.c = c}, .f = {.reduction = "sum"}};
    weft_onnx_build *k = &t.k;
    weft_val x = weft_ml__rows(k, true), out[2] = {{0}, {0}};
    t.labels = weft_ml__read_labels(k, "classlabels_int64s");
    t.f.n_target = t.labels.n;
    if (k->err == WEFT_ERR_OK && t.labels.n < 2)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%u class labels, at least 2 are supported",
                               t.labels.n);
    read_nodes(k, "class", &t.f);
    t.base = read_reals(k, "base_values");
    t.post = weft_ml__read_post(k);
    WEFT_TRY(k->err);
    if (t.base.n > t.labels.n || (t.labels.n > 2 && t.base.n && t.base.n != t.labels.n))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u base values for %u classes", t.base.n,
                               t.labels.n);
    if (t.post == WEFT_ML_PROBIT && t.labels.n == 2)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "PROBIT of two classes is not supported");
    look_at_weights(&t);
    bool voted = t.labels.n > 2 && !t.base.n && !all_vote(c->cx->arena, &t.f);
    x = align(k, &t.f, x);
    weft_forest__make(k, &t.f, x, out, voted ? 2 : 1);
    weft_val s = t.labels.n > 2 ? many(&t, out[0], out[1])
                 : t.one_class  ? two_of_one(&t, out[0])
                                : two_of_two(&t, out[0]);
    WEFT_TRY(k->err);
    if (c->n_out > 1)
        c->out[1] = s;
    return weft_onnx__no_more_attrs(c);
}

/* -- TreeEnsemble, version 5 ------------------------------------------------------------------ */

/* Numbers of the sets of MEMBER nodes: sets are separated by NaN. */
typedef struct set_reader {
    reals value;
    uint32_t at;
} set_reader;

static weft_tree_link node_v5(weft_onnx_build *k, uint32_t n, int64_t yes, int64_t no)
{
    if (yes < 0 || yes >= n || no < 0 || no >= n)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "a node has children %lld and %lld of %u",
                        (long long)yes, (long long)no, n);
    return (weft_tree_link){.yes = (uint32_t)yes, .no = (uint32_t)no};
}

typedef struct links {
    WEFT_VEC(weft_tree_link) node;
    uint32_t n_inner; /* nodes of the model; leaves follow, then members of sets */
} links;

/* x in {a, b} ==> x == a, else x == b, both with the same true child */
static void expand_members(weft_onnx_build *k, links *l, uint32_t i, set_reader *sets)
{
    weft_arena *arena = k->c->cx->arena;
    uint32_t at = i, no = l->node.at[i].no;
    bool any = false;
    l->node.at[i].mode = WEFT_TREE_EQ;
    l->node.at[i].value = (double)NAN; /* of an empty set */
    for (; sets->at < sets->value.n && !isnan(sets->value.at[sets->at]); sets->at++) {
        if (any) {
            weft_tree_link next = l->node.at[at];
            l->node.at[at].no = l->node.len;
            at = l->node.len;
            WEFT_VEC_PUSH(arena, &l->node, next);
        }
        l->node.at[at].value = sets->value.at[sets->at];
        any = true;
    }
    l->node.at[at].no = no;
    sets->at++; /* behind the NaN */
}

static void read_nodes_v5(weft_onnx_build *k, weft_forest *f, links *l)
{
    weft_arena *arena = k->c->cx->arena;
    weft_tensor mode = {.rank = -1};
    reals split = {0};
    set_reader sets = {{0}, 0};
    wholes feature = read_wholes(k, "nodes_featureids");
    uint32_t n = feature.n;
    wholes yes = read_exactly(k, "nodes_truenodeids", n),
           no = read_exactly(k, "nodes_falsenodeids", n);
    wholes yes_leaf = read_exactly(k, "nodes_trueleafs", n);
    wholes no_leaf = read_exactly(k, "nodes_falseleafs", n);
    wholes missing = read_wholes(k, "nodes_missing_value_tracks_true");
    read_tensor(k, "nodes_splits", &split);
    read_tensor(k, "membership_values", &sets.value);
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__get_tensor(k->c, "nodes_modes", &mode);
    weft_onnx__ignore(k->c, "nodes_hitrates");
    if (mode.rank < 0 || mode.dtype != WEFT_DTYPE_U8 || weft_tensor_numel(&mode) != n)
        weft_onnx__stop(k, WEFT_ERR_INPUT, "attribute \"nodes_modes\" is no tensor of %u bytes", n);
    check_len(k, "nodes_splits", split.n, n);
    l->n_inner = n;
    for (uint32_t i = 0; i < n && k->err == WEFT_ERR_OK; i++) {
        bool y = yes_leaf.at[i] != 0, o = no_leaf.at[i] != 0;
        weft_tree_link node = node_v5(k, y ? f->n_entry : n, yes.at[i], 0);
        weft_tree_link other = node_v5(k, o ? f->n_entry : n, no.at[i], 0);
        node.no = other.yes + (o ? n : 0);
        node.yes += y ? n : 0;
        node.mode = ((const uint8_t *)mode.data)[i];
        node.feature = feature.at[i];
        node.value = split.at[i];
        node.missing = i < missing.n && missing.at[i] == 1;
        if (node.mode > WEFT_TREE_MEMBER)
            weft_onnx__stop(k, WEFT_ERR_INPUT, "node %u has mode %u", i, node.mode);
        WEFT_VEC_PUSH(arena, &l->node, node);
    }
    for (uint32_t i = 0; i < f->n_entry; i++) {
        weft_tree_link leaf = {.mode = WEFT_TREE_END, .yes = i, .no = i + 1};
        WEFT_VEC_PUSH(arena, &l->node, leaf);
    }
    for (uint32_t i = 0; i < n && k->err == WEFT_ERR_OK; i++)
        if (l->node.at[i].mode == WEFT_TREE_MEMBER)
            expand_members(k, l, i, &sets);
    f->wide |= split.wide;
}

static void read_roots_v5(weft_onnx_build *k, weft_forest *f, uint32_t n)
{
    wholes roots = read_wholes(k, "tree_roots");
    uint32_t *root = weft_arena_array(k->c->cx->arena, roots.n, sizeof *root);
    for (uint32_t i = 0; i < roots.n; i++) {
        if (roots.at[i] < 0 || roots.at[i] >= n)
            weft_onnx__stop(k, WEFT_ERR_INPUT, "tree %u begins at node %lld of %u", i,
                            (long long)roots.at[i], n);
        root[i] = (uint32_t)roots.at[i];
    }
    f->root = root;
    f->n_root = roots.n;
}

weft_err weft_onnx_hook_ml_tree_ensemble(weft_onnx_call *c)
{
    static const char *const reductions[] = {"sum", "sum", "min", "max"};
    weft_onnx_build k = {.c = c};
    weft_forest f = {0};
    links l = {0};
    reals weight = {0};
    int64_t aggregate, post;
    weft_val x = weft_ml__rows(&k, true), y;
    WEFT_TRY(weft_onnx__get_int(c, "n_targets", 0, &f.n_target));
    WEFT_TRY(weft_onnx__get_int(c, "aggregate_function", 1, &aggregate));
    WEFT_TRY(weft_onnx__get_int(c, "post_transform", 0, &post));
    if (aggregate < 0 || aggregate > 3 || post < 0 || post > WEFT_ML_PROBIT || f.n_target < 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT,
                               "aggregate_function %lld, post_transform %lld, %lld targets",
                               (long long)aggregate, (long long)post, (long long)f.n_target);
    if (f.n_target > 1 && (post == WEFT_ML_SOFTMAX || post == WEFT_ML_LOGISTIC))
        weft_diag_warn(c->cx->diag, c->where,
                       "%s: post_transform %lld is %s, as specified; onnxruntime exchanges it with "
                       "%s",
                       c->op_type, (long long)post,
                       post == WEFT_ML_SOFTMAX ? "SOFTMAX" : "LOGISTIC",
                       post == WEFT_ML_SOFTMAX ? "LOGISTIC" : "SOFTMAX");
    wholes target = read_wholes(&k, "leaf_targetids");
    read_tensor(&k, "leaf_weights", &weight);
    check_len(&k, "leaf_weights", weight.n, target.n);
    f.target = target.at;
    f.weight = weight.at;
    f.n_entry = target.n;
    f.wide = weight.wide;
    f.reduction = reductions[aggregate];
    read_nodes_v5(&k, &f, &l);
    read_roots_v5(&k, &f, l.n_inner);
    WEFT_TRY(k.err);
    f.node = l.node.at;
    f.n_node = l.node.len;
    weft_dtype dtype = weft_onnx__dtype_of(&k, c->in[0]);
    x = align(&k, &f, x);
    weft_forest__make(&k, &f, x, &y, 1);
    if (aggregate == 0)
        y = divide_by_trees(&k, &f, y);
    if (f.n_target > 1 || post == WEFT_ML_PROBIT)
        y = weft_ml__transform(&k, y, (weft_ml_post)post);
    c->out[0] = weft_onnx__cast(&k, y, dtype);
    WEFT_TRY(k.err);
    return weft_onnx__no_more_attrs(c);
}
