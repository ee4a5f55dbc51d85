/* Divides models into groups that are merged with each other: models with similar architectures and
 * related weights, and models that share the weight of a GEMM, whatever their architectures.
 *
 * Architecture. First by a canonical hash, after Weisfeiler and Lehman (1968): the label of a node
 * is its class (node_class.c, without weights) hashed with the labels of its operands; computed in
 * topological order, so one round covers all depths. The hash of a model is that of its labels as a
 * multiset. Models with equal hashes differ at most in weights and in numbers of output features.
 * If the hashes differ, the graph edit distance decides, relative to the size of both graphs. It is
 * NP-hard, but it is only compared with `near`: the labels give a lower bound, the alignment
 * (align.c) is an edit path and so an upper bound, and if `near` is between them distance.c
 * searches, with a budget of BUDGET_MAX branches for all pairs. USHER (OSDI'24, section 4.3)
 * clusters models by this distance with DBSCAN (Ester et al., 1996). With a minimum of 2 points
 * every model that has a neighbour is a core point, so the clusters are the components connected by
 * distances up to `near`.
 *
 * Weights. Neighbours are merged only if some corresponding GEMMs have the same weight or weights
 * as similar as a fine-tuned model's are to its origin: models that were trained independently have
 * nothing to gain. If a strategy is asked for by name, neighbours are merged in any case.
 *
 * A cluster of more than WEFT_MERGE_MODELS_MAX models is divided into groups of about equal size,
 * each grown greedily by the model that shares most bytes of weights with it. O(nodes) for hashes;
 * at most CELLS_MAX cells of alignments.
 *
 * Clusters are kept by union-find (Tarjan, 1975) rather than as components computed by igraph,
 * because they are asked for while they grow: a pair within one cluster is not compared, and
 * comparisons are what takes the time. */
#include "passes/merge/align.h"
#include "passes/merge/distance.h"

#include "base/hash.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = 1 << 28, BUDGET_MAX = 1 << 18 };

static const double near = 0.25, related = 0.5;

/* A GEMM with its position in the architecture. */
typedef struct gemm_node {
    uint64_t label;
    uint32_t number; /* of the model's GEMMs, in the order of the graph */
    weft_weight weight;
} gemm_node;

typedef struct member {
    weft_graph *graph;
    uint64_t hash;
    gemm_node *gemm; /* sorted by label */
    uint32_t n_gemm;
    weft_plain_graph plain;
    uint32_t root; /* union-find: parent of this model */
} member;

typedef struct grouping {
    weft_passctx *cx;
    const weft_module *m;
    weft_node_classes *classes;
    weft_sketches *sketches;
    member *at;
    uint32_t n;
    uint32_t *number; /* by value: index + 1 of the node that makes it, in its model; 0: none */
    uint32_t budget;  /* of branches of the edit distance, for all pairs */
} grouping;

/* -- Clusters --------------------------------------------------------------------------------- */

static uint32_t find_root(grouping *g, uint32_t i)
{
    while (g->at[i].root != i)
        i = g->at[i].root = g->at[g->at[i].root].root;
    return i;
}

/* The smaller of the two roots becomes the root of both clusters. */
static void join(grouping *g, uint32_t i, uint32_t k)
{
    i = find_root(g, i);
    k = find_root(g, k);
    g->at[i > k ? i : k].root = i > k ? k : i;
}

/* -- Canonical hash --------------------------------------------------------------------------- */

static int by_label(const void *a, const void *b)
{
    const gemm_node *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* The label of a value: of its node with the index of the result, or its kind if no node makes it.
 */
static uint64_t label_of(const grouping *g, const uint64_t *label, weft_val v)
{
    if (!v.i)
        return 1;
    if (weft_val_get_kind(g->m, v) == WEFT_VAL_WEIGHT)
        return 2;
    if (weft_val_get_kind(g->m, v) == WEFT_VAL_INPUT)
        return weft_hash_mix(3, weft_val_index(g->m, v));
    return weft_hash_mix(label[v.i], weft_val_index(g->m, v));
}

/* The graph with classes as labels, for the edit distance. */
static weft_plain_graph make_plain(grouping *g, const weft_graph *graph, const uint32_t *class)
{
    weft_arena *arena = g->cx->scratch;
    uint32_t n = 0;
    uint32_t *first = weft_arena_array(arena, weft_graph_node_count(graph) + 1u, sizeof *first);
    WEFT_VEC(uint32_t) from = {0};
    WEFT_FOREACH_NODE (g->m, graph, node) {
        for (uint32_t k = 0; k < weft_node_in_count(g->m, node); k++)
            WEFT_VEC_PUSH(arena, &from, g->number[weft_node_in(g->m, node, k).i]);
        first[++n] = from.len;
        for (uint32_t k = 0; k < weft_node_out_count(g->m, node); k++)
            g->number[weft_node_out(g->m, node, k).i] = n;
    }
    return (weft_plain_graph){n, class, first, from.at};
}

/* Fills in all but root. `label`: scratch, indexed by value. */
static void read_model(grouping *g, member *one, uint64_t *label)
{
    weft_dim batch = weft_merge__batch(one->graph);
    size_t n = (size_t)weft_graph_node_count(one->graph) + 1;
    uint32_t *class = weft_arena_array(g->cx->scratch, n, sizeof *class), number = 0;
    one->gemm = weft_arena_array(g->cx->scratch, n, sizeof *one->gemm);
    WEFT_FOREACH_NODE (g->m, one->graph, node) {
        weft_item item = weft_align__make_item(g->classes, node, batch);
        class[number++] = item.class[WEFT_COLUMN_SIZE];
        uint64_t h = weft_hash_mix(4, item.class[WEFT_COLUMN_SIZE]);
        for (uint32_t k = 0; k < weft_node_in_count(g->m, node); k++)
            h = weft_hash_mix(h, label_of(g, label, weft_node_in(g->m, node, k)));
        for (uint32_t k = 0; k < weft_node_out_count(g->m, node); k++)
            label[weft_node_out(g->m, node, k).i] = h;
        one->hash += weft_hash_mix(5, h); /* commutative: a multiset */
        if (item.is_gemm)
            one->gemm[one->n_gemm] =
                (gemm_node){h, one->n_gemm, weft_val_weight(g->m, weft_node_in(g->m, node, 1))};
        one->n_gemm += item.is_gemm;
    }
    one->plain = make_plain(g, one->graph, class);
    qsort(one->gemm, one->n_gemm, sizeof *one->gemm, by_label);
}

/* -- Links ------------------------------------------------------------------------------------ */

/* Joins models with a GEMM by the same weight. */
static void join_by_weight(grouping *g)
{
    weft_map *user = weft_map_create(g->cx->scratch); /* weight -> model + 1 */
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t k = 0; k < g->at[i].n_gemm; k++) {
            uint64_t other = 0;
            if (weft_map_get(user, g->at[i].gemm[k].weight.i, &other))
                join(g, i, (uint32_t)other - 1);
            else
                weft_map_put(user, g->at[i].gemm[k].weight.i, i + 1);
        }
}

static bool are_related(grouping *g, weft_sketches *r, weft_weight a, weft_weight b)
{
    return g->cx->options->merge == WEFT_MERGE_STRATEGY ||
           weft_sketch__compare(r, g->m, a, b) >= related;
}

/* Whether two models of one hash have related weights in corresponding GEMMs. Their GEMMs, sorted
 * by label, are in the same order. */
static bool have_related(grouping *g, const member *a, const member *b)
{
    for (uint32_t k = 0; k < a->n_gemm && k < b->n_gemm; k++)
        if (a->gemm[k].label == b->gemm[k].label &&
            are_related(g, g->sketches, a->gemm[k].weight, b->gemm[k].weight))
            return true;
    return false;
}

/* Joins models of one hash. Each is compared with one representative for each cluster found so far;
 * related to none of them, it becomes a representative. */
static void join_by_hash(grouping *g)
{
    weft_map *last = weft_map_create(g->cx->scratch); /* hash -> last representative + 1 */
    uint32_t *before = weft_arena_array(g->cx->scratch, (size_t)g->n + 1, sizeof *before);
    for (uint32_t i = 0; i < g->n; i++) {
        uint64_t head = 0;
        bool covered = false;
        weft_map_get(last, g->at[i].hash, &head);
        for (uint64_t k = head; k; k = before[k - 1]) {
            bool same = find_root(g, (uint32_t)k - 1) == find_root(g, i);
            if (!same && !have_related(g, &g->at[k - 1], &g->at[i]))
                continue;
            join(g, (uint32_t)k - 1, i);
            covered = true;
        }
        if (covered)
            continue;
        before[i] = (uint32_t)head;
        weft_map_put(last, g->at[i].hash, i + 1);
    }
}

/* The nodes that the alignment maps to each other, and the edges between them: what the edit path
 * keeps. */
static uint32_t count_kept(grouping *g, const weft_columns *c, const member *a, const member *b)
{
    const weft_plain_graph *x = &a->plain, *y = &b->plain;
    uint32_t *map = weft_arena_array(g->cx->scratch, x->n + 1u, sizeof *map), kept = 0;
    for (uint32_t j = 0; j < c->n; j++)
        if (c->at[j].n == 2) {
            uint32_t i = g->number[weft_node_out(g->m, c->at[j].node[0], 0).i];
            map[i] = g->number[weft_node_out(g->m, c->at[j].node[1], 0).i];
        }
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t v = map[i + 1], k = x->first[i];
        kept += v > 0;
        for (uint32_t l = v ? y->first[v - 1] : 0; v && k < x->first[i + 1] && l < y->first[v];
             k++, l++)
            kept += x->from[k] && y->from[l] && map[x->from[k]] == y->from[l];
    }
    return kept;
}

/* Whether the edit distance is within `near` and some corresponding weights are related. */
static bool are_near(grouping *g, uint32_t i, uint32_t k)
{
    const member *a = &g->at[i], *b = &g->at[k];
    weft_graph *const both[] = {a->graph, b->graph};
    uint32_t size = weft_distance__size(&a->plain) + weft_distance__size(&b->plain), none = 0;
    uint32_t limit = (uint32_t)(near * size);
    weft_arena *scratch = g->cx->scratch;
    if (weft_distance__within(&a->plain, &b->plain, limit, &none, scratch) == WEFT_WITHIN_NO)
        return false;
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    weft_columns c = weft_merge__match(g->cx, both, 2);
    weft_sketches *r = weft_sketch__open(scratch); /* in the marked part of scratch */
    bool similar = false;
    for (uint32_t j = 0; j < c.n && !similar; j++) {
        const weft_node *n = c.at[j].node;
        similar = c.at[j].n == 2 && weft_merge__is_gemm(g->m, n[0]) &&
                  are_related(g, r, weft_val_weight(g->m, weft_node_in(g->m, n[0], 1)),
                              weft_val_weight(g->m, weft_node_in(g->m, n[1], 1)));
    }
    bool aligned = similar && size - 2 * count_kept(g, &c, a, b) <= limit;
    weft_arena_reset(scratch, mark);
    return similar && (aligned || weft_distance__within(&a->plain, &b->plain, limit, &g->budget,
                                                        scratch) == WEFT_WITHIN_YES);
}

/* Joins clusters; one model of each, its root, is compared. */
static void join_by_distance(grouping *g)
{
    uint64_t left = CELLS_MAX;
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t k = i + 1; k < g->n; k++) {
            if (find_root(g, i) != i || find_root(g, k) != k || g->at[i].hash == g->at[k].hash)
                continue;
            uint64_t cells = (uint64_t)weft_graph_node_count(g->at[i].graph) *
                             weft_graph_node_count(g->at[k].graph);
            if (cells >= left)
                return;
            left -= cells + 1;
            if (are_near(g, i, k))
                join(g, i, k);
        }
}

/* -- Groups ----------------------------------------------------------------------------------- */

static uint64_t count_shared(const grouping *g, const member *one, const weft_map *held)
{
    uint64_t bytes = 0, yes;
    for (uint32_t k = 0; k < one->n_gemm; k++)
        if (weft_map_get(held, one->gemm[k].weight.i, &yes))
            bytes += weft_weight_get(g->m, one->gemm[k].weight)->bytes;
    return bytes;
}

/* Moves up to `most` models from `left` into a group: the first of them, then one after the other
 * the model that shares most bytes of weights with the group. */
static void grow(grouping *g, uint32_t *left, uint32_t *n_left, uint32_t most,
                 weft_model_group *out)
{
    weft_arena_mark mark = weft_arena_get_mark(g->cx->scratch);
    weft_map *held = weft_map_create(g->cx->scratch);
    bool all = *n_left <= most;
    for (uint32_t next = 0; *n_left > 0 && out->n < most; next = 0) {
        uint64_t best = 0;
        for (uint32_t i = 0; i < *n_left && out->n > 0 && !all; i++) {
            uint64_t shared = count_shared(g, &g->at[left[i]], held);
            if (shared > best) {
                best = shared;
                next = i;
            }
        }
        const member *one = &g->at[left[next]];
        out->model[out->n++] = one->graph;
        memmove(left + next, left + next + 1, (--*n_left - next) * sizeof *left);
        for (uint32_t k = 0; k < one->n_gemm && !all; k++)
            weft_map_put(held, one->gemm[k].weight.i, 1);
    }
    weft_arena_reset(g->cx->scratch, mark);
}

static void note_group(weft_merge_log *log, const weft_model_group *group)
{
    const char **name = weft_arena_array(log->arena, group->n, sizeof *name);
    for (uint32_t i = 0; i < group->n; i++)
        name[i] = weft_arena_strdup(log->arena, weft_graph_name(group->model[i]));
    weft_merge_model_group one = {name, group->n};
    WEFT_VEC_PUSH(log->arena, &log->model_groups, one);
}

weft_model_groups weft_merge__group_models(weft_passctx *cx, weft_graph *const *model, uint32_t n)
{
    weft_arena *scratch = cx->scratch;
    weft_model_groups out = {.at = weft_arena_array(scratch, (size_t)n + 1, sizeof *out.at)};
    weft_graph **room = weft_arena_array(scratch, (size_t)n + 1, sizeof *room);
    if (n == 0)
        return out;
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    const weft_module *m = weft_graph_module(model[0]);
    grouping g = {.cx = cx, .m = m, .n = n};
    g.classes = weft_align__make_classes(m, scratch);
    g.sketches = weft_sketch__open(scratch);
    g.at = weft_arena_array(scratch, n, sizeof *g.at);
    g.number = weft_arena_array(scratch, (size_t)weft_val_count(m) + 1, sizeof *g.number);
    g.budget = BUDGET_MAX;
    uint64_t *label = weft_arena_array(scratch, (size_t)weft_val_count(m) + 1, sizeof *label);
    for (uint32_t i = 0; i < n; i++) {
        g.at[i] = (member){.graph = model[i], .root = i};
        read_model(&g, &g.at[i], label);
    }
    join_by_weight(&g);
    join_by_hash(&g);
    join_by_distance(&g);
    uint32_t *left = weft_arena_array(scratch, (size_t)n + 1, sizeof *left);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_left = 0;
        for (uint32_t k = i; k < n && find_root(&g, i) == i; k++)
            if (find_root(&g, k) == i)
                left[n_left++] = k;
        uint32_t n_group = (n_left + WEFT_MERGE_MODELS_MAX - 1) / WEFT_MERGE_MODELS_MAX;
        for (; n_left > 0; n_group--) {
            weft_model_group *one = &out.at[out.n++];
            one->model = room;
            grow(&g, left, &n_left, (n_left + n_group - 1) / n_group, one);
            room += one->n;
            if (one->n > 1 && cx->options->merge_log)
                note_group(cx->options->merge_log, one);
        }
    }
    weft_arena_reset(scratch, mark);
    return out;
}
