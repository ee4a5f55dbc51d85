/* Compares the graph edit distance of two graphs with a threshold.
 *
 * A mapping assigns nodes of one graph to nodes of the other that have the same label, one to one.
 * Each node without a partner, and each edge that does not connect the same operand positions of
 * mapped nodes, costs one edit. The distance is the minimum over all mappings; finding it is
 * NP-hard (Zeng et al., "Comparing Stars: On Approximating Graph Edit Distance", 2009).
 *
 *     edits = size(a) + size(b) - 2 kept        kept: mapped nodes and the edges between them
 *
 * Bound: if a label is left k times in one graph and l times in the other, at most min(k, l) of its
 * nodes can still be kept, each with at most as many incoming edges as any node of that label has.
 * The bound decides most cases. Otherwise: depth-first branch and bound over the nodes of `a` in
 * topological order, so that all edges into a node are known when the node is mapped; the partners
 * that keep most edges are tried first. A branch is cut when its bound keeps too little, and the
 * search ends when enough is kept. O(nodes) for the bound and for each branch; exact unless the
 * budget of branches runs out. */
#include "passes/merge/distance.h"

#include <stdbool.h>

enum { NODES_MAX = 256 };

typedef struct search {
    const weft_plain_graph *a, *b;
    uint32_t *map;             /* by node of a: index + 1 of its partner, 0: none */
    bool *taken;               /* by node of b: it is a partner */
    uint32_t *left_a, *left_b; /* by label: nodes of a that are undecided, nodes of b not taken */
    uint32_t *worth;           /* by label: bound on what one of its nodes keeps, with its edges */
    uint64_t rest;             /* bound on what the nodes that are left keep */
    uint64_t need;             /* what must be kept for the distance to be within the limit */
    uint32_t *budget;
    bool is_cut; /* the budget ran out */
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

/* The edges into node i of a that are also edges into node v of b under the mapping. */
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

/* Changes the numbers of nodes with this label that are left, and the bound with them. */
static void add_left(search *s, uint32_t label, int of_a, int of_b)
{
    s->rest -= find_rest(s, label);
    s->left_a[label] += (uint32_t)of_a;
    s->left_b[label] += (uint32_t)of_b;
    s->rest += find_rest(s, label);
}

/* Maps nodes i, i + 1, ... of a; earlier nodes keep `kept`. Recursion depth: at most NODES_MAX. */
static bool find_mapping(search *s, uint32_t i, uint64_t kept)
{
    if (kept >= s->need)
        return true;
    if (i == s->a->n || kept + s->rest < s->need)
        return false;
    if (*s->budget == 0) {
        s->is_cut = true;
        return false;
    }
    --*s->budget;
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
                                  uint32_t limit, uint32_t *budget, weft_arena *scratch)
{
    uint64_t size = (uint64_t)weft_distance__size(a) + weft_distance__size(b);
    uint32_t n_a = count_distinct(a), n_b = count_distinct(b), n = n_a > n_b ? n_a : n_b;
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    search s = {.a = a, .b = b, .budget = budget};
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
