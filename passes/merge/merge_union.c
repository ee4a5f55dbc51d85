/* Strategies for weights with output features (columns of [taps, features]) in common.
 *
 * union_stack: one super-GEMM by the distinct features of all models for the rows of all models;
 * each model takes its rows and its features. One launch, but the features of all models are
 * computed for the rows of every model.
 *
 * classes: features are divided into classes by the set of models that have them, with one GEMM for
 * each class and the rows of its models. Every feature is read once and nothing is computed in
 * vain, but there are more launches, and each model concatenates its features again.
 *
 *     w = [a b c]   union_stack: [x; y] [a b c d], x takes a b c, y takes b d
 *     v = [b d]     classes:     [x; y] [b], x [a c], y [d]
 *
 * The features of a convolution are its output channels; its rows are images.
 *
 * Features are equal if all their bits are: they are found by hash and then compared. O(bytes of
 * the weights). */
#include "passes/merge/merge_int.h"

#include "base/hash.h"

#include <string.h>

enum { CLASSES_MAX = 8 };

static const char nothing_shared[] = "no output feature in common";

typedef struct feature {
    uint32_t model, at; /* feature `at` of that model's weight */
    uint32_t users;     /* bit i: model i has it */
} feature;

typedef struct plan {
    feature *distinct;
    uint32_t n_distinct;
    uint32_t **of;                 /* by model, by feature: index in `distinct` */
    uint32_t class[CLASSES_MAX];   /* sets of models */
    uint32_t members[CLASSES_MAX]; /* features in them */
    uint32_t n_class;
} plan;

/* -- Features --------------------------------------------------------------------------------- */

static const uint8_t *element(const weft_merge_form *f, const uint8_t *at, uint32_t tap,
                              uint32_t column)
{
    size_t i = f->by_feature ? (size_t)column * f->taps + tap : (size_t)tap * f->features + column;
    return at + i * sizeof(float);
}

/* Computed once for each weight and storage order. */
static const uint64_t *hash_features(weft_merger *g, const weft_merge_form *f)
{
    const uint8_t *at = weft_merge__bytes(g, f);
    uint64_t *hash, key = (uint64_t)7 << 61 ^ (uint64_t)f->w.i << 1 ^ f->by_feature, found = 0;
    if (weft_map_get(g->memo, key, &found))
        return (const uint64_t *)(uintptr_t)found;
    hash = weft_arena_array(g->cx->scratch, f->features, sizeof *hash);
    weft_map_put(g->memo, key, (uint64_t)(uintptr_t)hash);
    if (f->by_feature)
        weft_hash_rows(at, f->features, f->taps, sizeof(float), hash);
    else
        weft_hash_cols(at, f->taps, f->features, sizeof(float), hash);
    return hash;
}

static bool same_feature(const weft_merger *g, const weft_merge_form *a, uint32_t i,
                         const weft_merge_form *b, uint32_t k)
{
    const uint8_t *x = weft_merge__bytes(g, a), *y = weft_merge__bytes(g, b);
    for (uint32_t t = 0; t < a->taps; t++)
        if (memcmp(element(a, x, t, i), element(b, y, t, k), sizeof(float)) != 0)
            return false;
    return true;
}

/* The index of a feature in p->distinct; the feature is added if it is not there. */
static uint32_t number_of(weft_merger *g, const weft_column *c, plan *p, weft_map *known,
                          const weft_merge_form *f, const feature *own, uint64_t hash)
{
    uint64_t found = 0;
    while (weft_map_get(known, hash, &found)) {
        feature *there = &p->distinct[found];
        weft_merge_form other = weft_merge__form(g, c->node[there->model]);
        if (same_feature(g, &other, there->at, f, own->at)) {
            there->users |= own->users;
            return (uint32_t)found;
        }
        hash = weft_hash_mix(hash, 1);
    }
    weft_map_put(known, hash, p->n_distinct);
    p->distinct[p->n_distinct] = *own;
    return p->n_distinct++;
}

/* Finds the distinct features of model i. A weight that an earlier model has is not compared again.
 */
static void number_model(weft_merger *g, const weft_column *c, plan *p, weft_map *known, uint32_t i)
{
    weft_merge_form f = weft_merge__form(g, c->node[i]);
    for (uint32_t k = 0; k < i; k++)
        if (c->node[k].i && weft_node_in(g->m, c->node[k], 1).i == f.w.i) {
            p->of[i] = p->of[k];
            for (uint32_t j = 0; j < f.features; j++)
                p->distinct[p->of[i][j]].users |= 1u << i;
            return;
        }
    const uint64_t *hash = hash_features(g, &f);
    p->of[i] = weft_arena_array(g->cx->scratch, f.features, sizeof *p->of[i]);
    for (uint32_t j = 0; j < f.features; j++) {
        feature own = {i, j, 1u << i};
        p->of[i][j] = number_of(g, c, p, known, &f, &own, hash[j]);
    }
}

/* Finds the distinct features of all weights of the group. */
static const char *find_features(weft_merger *g, weft_merge_group *group, plan **out)
{
    const char *reason = weft_merge__refuse(g, group);
    weft_column *c = &group->column;
    uint64_t total = 0;
    uint32_t taps = 0;
    if (reason)
        return reason;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_merge_form f = {0};
        if (c->node[i].i)
            f = weft_merge__form(g, c->node[i]);
        total += f.features;
        if (taps && f.taps && f.taps != taps)
            return "the weights differ in their number of inputs";
        taps = f.taps ? f.taps : taps;
    }
    if (total > INT32_MAX)
        return "too many features";
    plan *p = weft_arena_alloc(g->cx->scratch, sizeof *p);
    weft_map *known = weft_map_create(g->cx->scratch);
    p->distinct = weft_arena_array(g->cx->scratch, total, sizeof *p->distinct);
    p->of = weft_arena_array(g->cx->scratch, g->columns.n_model, sizeof *p->of);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i)
            number_model(g, c, p, known, i);
    *out = p;
    return NULL;
}

/* A weight of the distinct features `pick`. */
static weft_val stack(weft_merger *g, const weft_merge_group *group, const uint32_t *pick,
                      uint32_t n)
{
    const plan *p = group->plan;
    weft_merge_form first = weft_merge__form(g, weft_merge__first(g, &group->column));
    float *all = weft_arena_array(g->cx->scratch, (size_t)first.taps * n, sizeof *all);
    for (uint32_t i = 0; i < n; i++) {
        const feature *from = &p->distinct[pick[i]];
        weft_merge_form f = weft_merge__form(g, group->column.node[from->model]);
        const uint8_t *at = weft_merge__bytes(g, &f);
        for (uint32_t t = 0; t < f.taps; t++)
            memcpy(&all[(size_t)t * n + i], element(&f, at, t, from->at), sizeof *all);
    }
    return weft_merge__make_weight(g, &first, first.taps, n, all, "merge.features");
}

/* Adds the time of n_copies copies of a model's result and of its finish. */
static bool time_finish(weft_merger *g, weft_node n, const weft_merge_sizes *at, double rows,
                        uint32_t n_copies, double *us)
{
    double elements = rows * weft_merge__form(g, n).features;
    weft_val y = weft_node_out(g->m, n, 0);
    for (uint32_t k = 0; k < n_copies; k++)
        if (!weft_merge__chain_us(at, g->m, y, elements, 1, us))
            return false;
    return !weft_merge__finishes(g, n, false) || weft_merge__chain_us(at, g->m, y, elements, 2, us);
}

static bool is_shared(uint32_t set)
{
    return set & (set - 1);
}

/* -- Union stack ------------------------------------------------------------------------------ */

static const char *fit_union(weft_merger *g, weft_merge_group *group)
{
    plan *p = NULL;
    const char *reason = find_features(g, group, &p);
    bool shared = false;
    if (reason)
        return reason;
    for (uint32_t i = 0; i < p->n_distinct; i++)
        shared = shared || is_shared(p->distinct[i].users);
    if (!shared)
        return nothing_shared;
    group->plan = p;
    group->together = weft_merge__parts_align(g, group);
    return NULL;
}

static bool time_union(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                       double *us)
{
    const plan *p = group->plan;
    weft_merge_form first = weft_merge__form(g, weft_merge__first(g, &group->column));
    double all = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        double rows = 0;
        if (n.i &&
            (!weft_merge__node_rows(at, g->m, n, &rows) || !time_finish(g, n, at, rows, 1, us)))
            return false;
        all += rows;
    }
    weft_merge_gemm one = weft_merge__numbers(&first, all, first.taps, p->n_distinct);
    return weft_merge__gemm_us(at, g->m, first.node, &one, us);
}

static void union_bytes(weft_merger *g, const weft_merge_group *group, uint64_t *read,
                        uint64_t *made)
{
    const plan *p = group->plan;
    uint32_t taps = weft_merge__form(g, weft_merge__first(g, &group->column)).taps;
    *read = *made = (uint64_t)taps * p->n_distinct * sizeof(float);
}

static void emit_union(weft_merger *g, const weft_merge_group *group)
{
    const plan *p = group->plan;
    uint32_t *every = weft_arena_array(g->cx->scratch, p->n_distinct, sizeof *every);
    weft_val part[WEFT_MERGE_MODELS_MAX] = {{0}};
    const weft_dim *start = weft_merge__starts(g, group);
    for (uint32_t i = 0; i < p->n_distinct; i++)
        every[i] = i;
    weft_val all = weft_merge__multiply_all(g, group, stack(g, group, every, p->n_distinct));
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        if (!n.i)
            continue;
        weft_val own = weft_merge__part(g, group, i, all, start);
        weft_merge_form f = weft_merge__form(g, n);
        own = weft_merge__take_features(g, &f, own, p->of[i], f.features);
        part[i] = weft_merge__finish(g, i, n, own, false);
    }
    weft_merge__set_parts(g, group, part);
}

const weft_merge_strategy weft_merge_strategy_union_stack = {
    .name = "union_stack",
    .brief = "one super-GEMM by the distinct output features of all models",
    .fit = fit_union,
    .time = time_union,
    .bytes = union_bytes,
    .emit = emit_union,
};

/* -- Classes ---------------------------------------------------------------------------------- */

static const char *find_classes(plan *p)
{
    bool shared = false;
    for (uint32_t i = 0; i < p->n_distinct; i++) {
        uint32_t k = 0;
        while (k < p->n_class && p->class[k] != p->distinct[i].users)
            k++;
        if (k == CLASSES_MAX)
            return "too many sets of models have features in common";
        p->n_class += k == p->n_class;
        p->class[k] = p->distinct[i].users;
        p->members[k]++;
        shared = shared || is_shared(p->class[k]);
    }
    return shared ? NULL : nothing_shared;
}

static const char *fit_classes(weft_merger *g, weft_merge_group *group)
{
    plan *p = NULL;
    const char *reason = find_features(g, group, &p);
    if (!reason)
        reason = find_classes(p);
    if (reason)
        return reason;
    group->plan = p;
    group->together = weft_merge__parts_align(g, group);
    return NULL;
}

static bool time_classes(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                         double *us)
{
    const plan *p = group->plan;
    weft_merge_form first = weft_merge__form(g, weft_merge__first(g, &group->column));
    double all[CLASSES_MAX] = {0};
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        uint32_t parts = 0;
        double rows = 0;
        if (!n.i)
            continue;
        if (!weft_merge__node_rows(at, g->m, n, &rows))
            return false;
        for (uint32_t k = 0; k < p->n_class; k++) {
            all[k] += p->class[k] >> i & 1 ? rows : 0;
            parts += p->class[k] >> i & 1;
        }
        if (!time_finish(g, n, at, rows, parts > 1 ? 2 : 1, us))
            return false;
    }
    for (uint32_t k = 0; k < p->n_class; k++) {
        weft_merge_gemm one = weft_merge__numbers(&first, all[k], first.taps, p->members[k]);
        /* The rows of some of the models must be concatenated for this GEMM alone. */
        bool copied = is_shared(p->class[k]) && p->n_class > 1;
        if (!weft_merge__gemm_us(at, g->m, first.node, &one, us) ||
            (copied && !weft_merge__copy_us(at, g->m, first.x, one.x, us)))
            return false;
    }
    return true;
}

/* The part of the group whose models have a class of features. */
static weft_merge_group take_class(weft_merger *g, const weft_merge_group *group, uint32_t set)
{
    weft_merge_group sub = *group;
    sub.column.n = 0;
    sub.column.node = weft_arena_array(g->cx->scratch, g->columns.n_model, sizeof *sub.column.node);
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (set >> i & 1) {
            sub.column.node[i] = group->column.node[i];
            sub.column.n++;
        }
    return sub;
}

/* Emits the GEMM of class k; value[i][k] is its part for model i, place[f] the position of feature
 * f in the class. */
static void emit_class(weft_merger *g, const weft_merge_group *group, uint32_t k, uint32_t *place,
                       weft_val (*value)[CLASSES_MAX])
{
    const plan *p = group->plan;
    uint32_t *pick = weft_arena_array(g->cx->scratch, p->members[k], sizeof *pick), n = 0;
    weft_merge_group sub = take_class(g, group, p->class[k]);
    const weft_dim *start = weft_merge__starts(g, &sub);
    for (uint32_t f = 0; f < p->n_distinct; f++)
        if (p->distinct[f].users == p->class[k]) {
            place[f] = n;
            pick[n++] = f;
        }
    weft_val w = stack(g, group, pick, n);
    if (sub.column.n > 1) {
        weft_val all = weft_merge__multiply_all(g, &sub, w);
        for (uint32_t i = 0; i < g->columns.n_model; i++)
            if (sub.column.node[i].i)
                value[i][k] = weft_merge__part(g, &sub, i, all, start);
        return;
    }
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (sub.column.node[i].i) {
            weft_merge_form f = weft_merge__form(g, sub.column.node[i]);
            weft_val x = weft_merge__own(g, i, f.x, weft_node_loc(g->m, f.node));
            value[i][k] = weft_merge__make_gemm(g, &f, x, w);
        }
}

/* Concatenates the features of model i from all classes in the order of its weight. */
static weft_val put_together(weft_merger *g, const plan *p, uint32_t i, weft_node n,
                             const uint32_t *place, const weft_val *value)
{
    weft_merge_form form = weft_merge__form(g, n);
    uint32_t first[CLASSES_MAX], n_part = 0, at = 0;
    uint32_t *pick = weft_arena_array(g->cx->scratch, form.features, sizeof *pick);
    weft_val part[CLASSES_MAX];
    for (uint32_t k = 0; k < p->n_class; k++) {
        first[k] = at;
        if (!(p->class[k] >> i & 1))
            continue;
        at += p->members[k];
        part[n_part++] = value[k];
    }
    for (uint32_t j = 0; j < form.features; j++) {
        uint32_t f = p->of[i][j], k = 0;
        while (p->class[k] != p->distinct[f].users)
            k++;
        pick[j] = first[k] + place[f];
    }
    return weft_merge__take_features(g, &form, weft_merge__concat_features(g, &form, part, n_part),
                                     pick, form.features);
}

static void emit_classes(weft_merger *g, const weft_merge_group *group)
{
    const plan *p = group->plan;
    weft_val value[WEFT_MERGE_MODELS_MAX][CLASSES_MAX] = {{{0}}};
    weft_val part[WEFT_MERGE_MODELS_MAX] = {{0}};
    uint32_t *place = weft_arena_array(g->cx->scratch, p->n_distinct, sizeof *place);
    for (uint32_t k = 0; k < p->n_class; k++)
        emit_class(g, group, k, place, value);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        if (n.i)
            part[i] = weft_merge__finish(g, i, n, put_together(g, p, i, n, place, value[i]), false);
    }
    weft_merge__set_parts(g, group, part);
}

const weft_merge_strategy weft_merge_strategy_classes = {
    .name = "classes",
    .brief = "one GEMM for each set of models that have output features in common",
    .fit = fit_classes,
    .time = time_classes,
    .bytes = union_bytes,
    .emit = emit_classes,
};
