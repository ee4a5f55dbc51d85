/* tree_ensemble: the sum, minimum or maximum over decision trees (ops/trees.h). */
#include "ops/trees.h"

#include "ops/op_int.h"

#include <string.h>

enum { OPERAND_TREES = 1 };

/* -- Trees ------------------------------------------------------------------------------------ */

bool weft_ensemble_read(const weft_tensor *const operand[4], int64_t n_target, weft_ensemble *out)
{
    const weft_tensor *tree = operand[0], *node = operand[1], *target = operand[2],
                      *weight = operand[3];
    *out = (weft_ensemble){.wide = node->dtype == WEFT_DTYPE_I64,
                           .tree = tree->data,
                           .node = node->data,
                           .target = target->data,
                           .weight = weight->data,
                           .n_target = n_target};
    weft_dtype dtype = out->wide ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32;
    if (tree->dtype != WEFT_DTYPE_I32 || tree->rank != 1 || tree->dim[0] < 1 ||
        (!out->wide && node->dtype != WEFT_DTYPE_I32) || node->rank != 2 || node->dim[1] != 4 ||
        target->dtype != WEFT_DTYPE_I32 || target->rank != 1 || weight->dtype != dtype ||
        weight->rank != 1 || weight->dim[0] != target->dim[0] || n_target < 1)
        return false;
    out->n_tree = tree->dim[0] - 1;
    out->n_node = node->dim[0];
    out->n_leaf = target->dim[0];
    return true;
}

static weft_tree_node64 node_at(const weft_ensemble *t, int64_t i)
{
    if (t->wide)
        return ((const weft_tree_node64 *)t->node)[i];
    const weft_tree_node32 *n = &((const weft_tree_node32 *)t->node)[i];
    return (weft_tree_node64){n->what, (double)n->value, n->yes, n->no};
}

bool weft_ensemble_is_sound(const weft_ensemble *t, weft_ensemble_use *out)
{
    int64_t entry = 0;
    *out = (weft_ensemble_use){0, 0};
    if (t->n_node > INT32_MAX || t->tree[0] != 0 || t->tree[t->n_tree] != t->n_node)
        return false;
    for (int64_t k = 0; k < t->n_tree; k++) {
        int64_t end = t->tree[k + 1];
        if (end <= t->tree[k] || end > t->n_node)
            return false;
        for (int64_t i = t->tree[k]; i < end; i++) {
            weft_tree_node64 n = node_at(t, i);
            if (n.what == WEFT_TREE_LEAF) {
                if (n.yes != entry || n.no < n.yes || n.no > t->n_leaf)
                    return false;
                entry = n.no;
                continue;
            }
            int64_t feature = n.what >> WEFT_TREE_SHIFT;
            if (n.what < 0 || n.yes <= i || n.yes >= end || n.no <= i || n.no >= end ||
                feature > INT32_MAX)
                return false;
            out->bits |= (int)(n.what & (WEFT_TREE_EQUAL | WEFT_TREE_MISSING));
            if (feature >= out->features)
                out->features = feature + 1;
        }
    }
    for (int64_t i = 0; i < t->n_leaf; i++)
        if (t->target[i] < 0 || t->target[i] >= t->n_target)
            return false;
    return true;
}

/* -- Inference and work ----------------------------------------------------------------------- */

weft_err weft_infer_tree_ensemble(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *nodes = &cx->in[OPERAND_TREES + 1].type;
    int64_t targets = weft_attrs_int(cx->attrs, WEFT_ATTR_TARGETS, 0);
    WEFT_TRY(weft_infer__rank(cx, 0, 2, 2));
    if (targets < 1 || targets > INT32_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld targets", (long long)targets);
    weft_dtype dtype = nodes->dtype == WEFT_DTYPE_I64 ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32;
    WEFT_TRY(weft_infer__dtype(cx, 0, 1u << dtype));
    for (uint32_t i = 0; i < cx->n_out; i++) {
        weft_ttype *out = weft_infer__out(cx, i, i ? WEFT_DTYPE_BOOL : dtype, 2);
        out->dim[0] = x->dim[0];
        out->dim[1] = targets;
    }
    return WEFT_ERR_OK;
}

/* A comparison on each level of each tree, if trees are balanced. */
weft_work weft_work_tree_ensemble(const weft_work_ctx *cx)
{
    double trees = (double)cx->in[OPERAND_TREES].dim[0];
    double nodes = (double)cx->in[OPERAND_TREES + 1].dim[0];
    double depth = log2(nodes / (trees > 1 ? trees : 1) + 1);
    double rows = cx->in[0].rank ? (double)cx->in[0].dim[0] : 1;
    return weft_work__bytes(cx, rows * trees * depth * 4);
}

/* -- Evaluation ------------------------------------------------------------------------------- */

/* The leaf that row x reaches in the tree whose root is `i`. */
static weft_tree_node64 find_leaf(const weft_ensemble *t, int64_t i, const void *x)
{
    weft_tree_node64 n = node_at(t, i);
    while (n.what != WEFT_TREE_LEAF) {
        bool yes = t->wide ? weft_tree_test64(&((const weft_tree_node64 *)t->node)[i], x)
                           : weft_tree_test32(&((const weft_tree_node32 *)t->node)[i], x);
        i = yes ? n.yes : n.no;
        n = node_at(t, i);
    }
    return n;
}

typedef enum tree_fold { FOLD_SUM, FOLD_MIN, FOLD_MAX } tree_fold;

static weft_err read_fold(weft_eval_ctx *cx, tree_fold *out)
{
    const char *text = weft_attrs_str(cx->attrs, WEFT_ATTR_REDUCTION, "sum");
    *out = strcmp(text, "min") == 0 ? FOLD_MIN : strcmp(text, "max") == 0 ? FOLD_MAX : FOLD_SUM;
    if (*out == FOLD_SUM && strcmp(text, "sum") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "reduction \"%s\"", text);
    return WEFT_ERR_OK;
}

/* One entry of a leaf into a target's element; `seen`: the target has one already. The sum is
 * rounded to the element type after each tree. */
static void fold_entry(const weft_tensor *out, int64_t at, double w, bool seen, tree_fold fold)
{
    double old = weft_tensor_get_f64(out, at);
    if (fold == FOLD_SUM)
        w = out->dtype == WEFT_DTYPE_F32 ? (double)((float)old + (float)w) : old + w;
    else if (seen)
        w = fold == FOLD_MIN ? (w < old ? w : old) : (w > old ? w : old);
    weft_tensor_set_f64(out, at, w);
}

static void eval_row(const weft_ensemble *t, const void *x, int64_t row, const weft_tensor *out,
                     bool *seen, tree_fold fold)
{
    memset(seen, 0, (size_t)t->n_target);
    for (int64_t k = 0; k < t->n_target; k++)
        weft_tensor_set_f64(out, row * t->n_target + k, 0);
    for (int64_t k = 0; k < t->n_tree; k++) {
        weft_tree_node64 leaf = find_leaf(t, t->tree[k], x);
        for (int64_t e = leaf.yes; e < leaf.no; e++) {
            int32_t target = t->target[e];
            double w =
                t->wide ? ((const double *)t->weight)[e] : (double)((const float *)t->weight)[e];
            fold_entry(out, row * t->n_target + target, w, seen[target], fold);
            seen[target] = true;
        }
    }
}

weft_err weft_eval_tree_ensemble(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *voted = weft_eval__out(cx, 1);
    weft_tensor sum = cx->out[0];
    weft_ensemble t;
    weft_ensemble_use use;
    tree_fold fold;
    WEFT_TRY(read_fold(cx, &fold));
    if (!weft_ensemble_read(&cx->in[OPERAND_TREES], weft_attrs_int(cx->attrs, WEFT_ATTR_TARGETS, 0),
                            &t) ||
        !weft_ensemble_is_sound(&t, &use))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the nodes are no trees");
    if (use.features > x->dim[1])
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "a node tests feature %lld of %lld",
                         (long long)use.features - 1, (long long)x->dim[1]);
    if (!sum.data)
        sum.data = weft_arena_alloc(cx->scratch, weft_tensor_bytes(&sum));
    bool *seen = weft_arena_array(cx->scratch, (size_t)t.n_target, sizeof *seen);
    size_t row_bytes = (size_t)x->dim[1] * weft_dtype_size(x->dtype);
    for (int64_t r = 0; r < x->dim[0]; r++) {
        eval_row(&t, (const char *)x->data + (size_t)r * row_bytes, r, &sum, seen, fold);
        if (voted)
            memcpy((char *)voted->data + r * t.n_target, seen, (size_t)t.n_target);
    }
    return WEFT_ERR_OK;
}
