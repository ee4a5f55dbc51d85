/* Graph edit distance, as far as it takes to compare it with a threshold.
 *
 * Nodes of one graph are mapped to nodes of the other that have the same label, each to one at
 * most. What is not mapped, and every edge that is not between the same places of mapped nodes, is
 * taken away or added, for one edit each; the distance is the least number over all mappings, and
 * finding it is NP-hard (Zeng et al., "Comparing Stars: On Approximating Graph Edit Distance",
 * 2009).
 *
 *     edits = size(a) + size(b) - 2 kept        kept: mapped nodes, and edges between them
 *
 * Lower bound. Of a label that is left k times in one graph and l times in the other, min(k, l)
 * nodes can still be kept, each with as many incoming edges as nodes of that label have at most.
 * Mostly that decides. Else depth-first branch and bound over the nodes of `a` in their order, so
 * that all edges into a node are known when it is mapped; partners that keep most edges first. A
 * branch ends where even the lower bound is above the threshold, and the search where enough is
 * kept. O(nodes) for the bound, O(nodes) for each step, exact when the steps suffice. */
#include "passes/merge/distance.h"

#include <stdbool.h>

enum { NODES_MAX = 256 };

typedef struct search {
    const weft_plain_graph *a, *b;
    uint32_t *map;             /* by node of a: 1 + its partner, 0: none */
    bool *taken;               /* by node of b */
    uint32_t *left_a, *left_b; /* by label: nodes that are not decided on, not taken */
    uint32_t *worth;           /* by label: what a node of it can keep at most */
    uint64_t rest;             /* what can be kept of what is left, at most */
    uint64_t need;             /* what must be kept */
    uint32_t *steps;
    bool is_cut; /* steps did not suffice */
} search;

static uint32_t count_edges(const weft_plain_graph *g, uint32_t node)
{
    uint32_t n = 0;
    for (uint32_t k = g->first[node]; k < g->first[node + 1]; k++)
        n += g->from[k] > 0;
    return n;
}

uint32_t weft_distance__size(const weft_plain_graph *g)
{
    uint32_t size = g->n;
    for (uint32_t i = 0; i < g->n; i++)
        size += count_edges(g, i);
    return size;
}

/* Edges into node i of a that are edges into node v of b. */
static uint32_t count_kept(const search *s, uint32_t i, uint32_t v)
{
    uint32_t kept = 0, k = s->a->first[i], l = s->b->first[v];
    for (; k < s->a->first[i + 1] && l < s->b->first[v + 1]; k++, l++) {
        uint32_t maker = s->a->from[k];
        kept += maker && s->map[maker - 1] && s->map[maker - 1] == s->b->from[l];
    }
    return kept;
}

static uint64_t find_rest(const search *s, uint32_t label)
{
    uint32_t k = s->left_a[label], l = s->left_b[label];
    return (uint64_t)(k < l ? k : l) * s->worth[label];
}

/* So many more nodes of that label are left. */
static void add_left(search *s, uint32_t label, int of_a, int of_b)
{
    s->rest -= find_rest(s, label);
    s->left_a[label] += (uint32_t)of_a;
    s->left_b[label] += (uint32_t)of_b;
    s->rest += find_rest(s, label);
}

/* Maps node i of a and those behind it, `kept` before them. Depth at most NODES_MAX. */
static bool find_mapping(search *s, uint32_t i, uint64_t kept)
{
    if (kept >= s->need)
        return true;
    if (i == s->a->n || kept + s->rest < s->need)
        return false;
    if (*s->steps == 0) {
        s->is_cut = true;
        return false;
    }
    --*s->steps;
    uint32_t label = s->a->label[i];
    for (uint32_t edges = count_edges(s->a, i) + 1; edges-- > 0;)
        for (uint32_t v = 0; v < s->b->n; v++) {
            if (s->taken[v] || s->b->label[v] != label || count_kept(s, i, v) != edges)
                continue;
            s->taken[v] = true;
            s->map[i] = v + 1;
            add_left(s, label, -1, -1);
            bool found = find_mapping(s, i + 1, kept + 1 + edges);
            add_left(s, label, 1, 1);
            s->map[i] = 0;
            s->taken[v] = false;
            if (found || s->is_cut)
                return found;
        }
    add_left(s, label, -1, 0);
    bool found = find_mapping(s, i + 1, kept);
    add_left(s, label, 1, 0);
    return found;
}

static void count_labels(const weft_plain_graph *g, uint32_t *left, uint32_t *most)
{
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t edges = count_edges(g, i);
        left[g->label[i]]++;
        most[g->label[i]] = edges > most[g->label[i]] ? edges : most[g->label[i]];
    }
}

static uint32_t count_distinct(const weft_plain_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++)
        n = g->label[i] >= n ? g->label[i] + 1 : n;
    return n;
}

weft_within weft_distance__within(const weft_plain_graph *a, const weft_plain_graph *b,
                                  uint32_t limit, uint32_t *steps, weft_arena *scratch)
{
    uint64_t size = (uint64_t)weft_distance__size(a) + weft_distance__size(b);
    uint32_t n_a = count_distinct(a), n_b = count_distinct(b), n = n_a > n_b ? n_a : n_b;
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    search s = {.a = a, .b = b, .steps = steps};
    s.need = size > limit ? (size - limit + 1) / 2 : 0;
    s.map = weft_arena_array(scratch, a->n, sizeof *s.map);
    s.taken = weft_arena_array(scratch, b->n, sizeof *s.taken);
    s.left_a = weft_arena_array(scratch, n, sizeof *s.left_a);
    s.left_b = weft_arena_array(scratch, n, sizeof *s.left_b);
    s.worth = weft_arena_array(scratch, n, sizeof *s.worth);
    uint32_t *most = weft_arena_array(scratch, n, sizeof *most);
    count_labels(a, s.left_a, s.worth);
    count_labels(b, s.left_b, most);
    for (uint32_t i = 0; i < n; i++) {
        s.worth[i] = 1 + (s.worth[i] < most[i] ? s.worth[i] : most[i]);
        s.rest += find_rest(&s, i);
    }
    weft_within found = WEFT_WITHIN_UNKNOWN;
    if (s.need == 0 || s.rest < s.need)
        found = s.need == 0 ? WEFT_WITHIN_YES : WEFT_WITHIN_NO;
    else if (a->n <= NODES_MAX && b->n <= NODES_MAX && find_mapping(&s, 0, 0))
        found = WEFT_WITHIN_YES;
    else if (a->n <= NODES_MAX && b->n <= NODES_MAX && !s.is_cut)
        found = WEFT_WITHIN_NO;
    weft_arena_reset(scratch, mark);
    return found;
}
