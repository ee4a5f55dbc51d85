/* Matches nodes that the alignment in order has left unmatched: nodes that stand elsewhere in the
 * other models, such as two branches that were written in the opposite order.
 *
 * GEMMs first. Unmatched columns and own items of one class are the two sides of a bipartite graph
 * whose edges are weighted by the similarity of the nodes' weights; a matching of maximum weight is
 * the assignment problem, solved by a library (weft_assignment_solver). Then the other nodes, in
 * topological order: nodes of one class whose operands correspond.
 *
 * No cycle. Matched nodes become one vertex in the quotient of all models' graphs. Matching u with
 * v is allowed unless one of them can be reached from the other there: with a1 -> a2 in one model
 * and b2 -> b1 in the other, after a1 = b1 the match a2 = b2 would close a cycle. So each edge of
 * the matching, heaviest first, is tested by a search among the ancestors. Refused edges are
 * removed and what is still unmatched is matched again, up to ROUNDS times. This search and the
 * topological sort below are written here and not taken from igraph: the quotient changes with each
 * match, so igraph would need a new graph for each test, and the sort has to keep the given order
 * where it may.
 *
 * O(V + E) for each cycle test. The solver is used for up to MATCH_MAX vertices on each side; more
 * are matched greedily. At most EDGES_MAX edges are considered, and when the cycle tests have
 * visited weft_matching.visits_left edges in total, nothing more is matched. */
#include "passes/merge/align.h"

#include "base/hash.h"
#include "base/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_MAX = 256, EDGES_MAX = 1 << 17, ROUNDS = 4 };

typedef struct edge {
    uint32_t column, own, score;
} edge;

typedef struct rest {
    weft_matching *x;
    weft_arena *scratch;
    uint32_t *owner; /* by value: index + 1 of the vertex that makes it */
    uint32_t *seen;  /* by vertex: number of the last search that reached it */
    uint32_t *stack;
    uint32_t search;
} rest;

/* -- The quotient graph ----------------------------------------------------------------------- */

/* Vertices: the columns, then the own items. An own item that has a column is part of the column's
 * vertex. */
static uint32_t count_vertices(const weft_matching *x)
{
    return x->columns->n + x->n_own;
}

static uint32_t *list_owners(const weft_matching *x)
{
    uint32_t *owner =
        weft_arena_array(x->cx->scratch, (size_t)weft_val_count(x->m) + 1, sizeof *owner);
    for (uint32_t i = 0; i < x->columns->n; i++)
        for (uint32_t k = 0; k < x->columns->n_model; k++) {
            weft_node n = x->columns->at[i].node[k];
            for (uint32_t r = 0; n.i && r < weft_node_out_count(x->m, n); r++)
                owner[weft_node_out(x->m, n, r).i] = i + 1;
        }
    for (uint32_t j = 0; j < x->n_own; j++)
        for (uint32_t r = 0; r < weft_node_out_count(x->m, x->own[j].node); r++)
            owner[weft_node_out(x->m, x->own[j].node, r).i] =
                x->column_of[j] ? x->column_of[j] : x->columns->n + j + 1;
    return owner;
}

/* The k-th node of a vertex, which may be none. *end: there are no k + 1 nodes. */
static weft_node node_of(const weft_matching *x, uint32_t vertex, uint32_t k, bool *end)
{
    uint32_t n_model = x->columns->n_model;
    *end = false;
    if (vertex >= x->columns->n) {
        *end = k > 0;
        return k > 0 ? (weft_node){0} : x->own[vertex - x->columns->n].node;
    }
    if (k < n_model)
        return x->columns->at[vertex].node[k];
    uint32_t own = x->match[vertex];
    *end = k > n_model || own == 0;
    return *end ? (weft_node){0} : x->own[own - 1].node;
}

/* Iterates over the vertices that make operands of `vertex`; *node and *operand, initially 0, are
 * the position. Returns index + 1 of the next vertex; 0: there is none left. */
static uint32_t next_maker(const weft_matching *x, const uint32_t *owner, uint32_t vertex,
                           uint32_t *node, uint32_t *operand)
{
    for (bool end = false;; ++*node, *operand = 0) {
        weft_node n = node_of(x, vertex, *node, &end);
        if (end)
            return 0;
        while (n.i && *operand < weft_node_in_count(x->m, n)) {
            weft_val v = weft_node_in(x->m, n, (*operand)++);
            if (v.i && owner[v.i])
                return owner[v.i];
        }
    }
}

/* Whether `target` is an ancestor of `from`; also true when the budget of visits is used up. */
static bool depends_on(rest *r, uint32_t from, uint32_t target)
{
    uint32_t n = 0;
    r->search++;
    r->stack[n++] = from;
    while (n > 0) {
        uint32_t at = r->stack[--n], node = 0, operand = 0, maker;
        while ((maker = next_maker(r->x, r->owner, at, &node, &operand))) {
            if (maker - 1 == target || r->x->visits_left == 0)
                return true;
            r->x->visits_left--;
            if (r->seen[maker - 1] == r->search)
                continue;
            r->seen[maker - 1] = r->search;
            r->stack[n++] = maker - 1;
        }
    }
    return false;
}

/* Matches the two, that is makes them one vertex, unless that closes a cycle. */
static bool contract(rest *r, uint32_t column, uint32_t own)
{
    weft_matching *x = r->x;
    uint32_t vertex = x->columns->n + own;
    if (depends_on(r, vertex, column) || depends_on(r, column, vertex))
        return false;
    x->match[column] = own + 1;
    x->column_of[own] = column + 1;
    for (uint32_t i = 0; i < weft_node_out_count(x->m, x->own[own].node); i++)
        r->owner[weft_node_out(x->m, x->own[own].node, i).i] = column + 1;
    return true;
}

/* -- GEMMs: matching of maximum weight -------------------------------------------------------- */

static int by_score(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    if (x->column != y->column)
        return x->column > y->column ? 1 : -1;
    return (x->own > y->own) - (x->own < y->own);
}

/* Numbers vertices in the order of their first edge, from 1 on; 0: it has no edge. */
static void number_vertex(uint32_t *number, uint32_t *n)
{
    if (*number == 0)
        *number = ++*n;
}

/* Moves the edges of a matching of maximum weight to the front and returns how many there are. All
 * edges, which are in order of decreasing score, when there are too many vertices or no memory: the
 * caller then takes each edge whose ends are free, which is the greedy matching. */
static uint32_t select_edges(rest *r, edge *list, uint32_t n)
{
    const weft_matching *x = r->x;
    weft_arena_mark mark = weft_arena_get_mark(r->scratch);
    uint32_t *left = weft_arena_array(r->scratch, (size_t)x->columns->n + 1, sizeof *left);
    uint32_t *right = weft_arena_array(r->scratch, (size_t)x->n_own + 1, sizeof *right);
    uint32_t n_left = 0, n_right = 0, kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        number_vertex(&left[list[i].column], &n_left);
        number_vertex(&right[list[i].own], &n_right);
    }
    weft_assignment_edge *ends = weft_arena_array(r->scratch, (size_t)n + 1, sizeof *ends);
    for (uint32_t i = 0; i < n; i++)
        ends[i] =
            (weft_assignment_edge){left[list[i].column] - 1, right[list[i].own] - 1, list[i].score};
    uint32_t *partner = weft_arena_array(r->scratch, (size_t)n_left + 1, sizeof *partner);
    if (n_left <= MATCH_MAX && n_right <= MATCH_MAX &&
        x->cx->options->assignment->solve(n_left, n_right, ends, n, partner)) {
        for (uint32_t i = 0; i < n; i++)
            if (partner[ends[i].left] == ends[i].right)
                list[kept++] = list[i];
        n = kept;
    }
    weft_arena_reset(r->scratch, mark);
    return n;
}

/* The weight of an edge: the score; among equal scores, nodes at a similar position are preferred.
 */
static uint32_t place_score(const weft_matching *x, uint32_t column, uint32_t own, uint32_t score)
{
    double apart = fabs((double)column / x->columns->n - (double)own / x->n_own);
    return score * 64 + (uint32_t)(63 * (1 - apart));
}

/* The pairs of an unmatched column and an unmatched own item of one class; `equal`: only pairs with
 * equal weights. */
static edge *list_edges(rest *r, bool equal, uint32_t *out_n)
{
    const weft_matching *x = r->x;
    weft_map *last = weft_map_create(r->scratch); /* class -> last column of it + 1 */
    uint32_t *before = weft_arena_array(r->scratch, (size_t)x->columns->n + 1, sizeof *before);
    WEFT_VEC(edge) list = {0};
    for (uint32_t i = 0; i < x->columns->n; i++) {
        uint64_t at = 0;
        if (x->match[i])
            continue;
        weft_map_get(last, x->variant[i]->item.class[WEFT_COLUMN_SIZE], &at);
        before[i] = (uint32_t)at;
        weft_map_put(last, x->variant[i]->item.class[WEFT_COLUMN_SIZE], i + 1);
    }
    for (uint32_t j = 0; j < x->n_own; j++) {
        uint64_t at = 0;
        if (x->column_of[j] || !(x->own[j].is_gemm || x->own[j].anchors) ||
            !weft_map_get(last, x->own[j].class[WEFT_COLUMN_SIZE], &at))
            continue;
        for (; at && list.len < EDGES_MAX; at = before[at - 1]) {
            uint32_t column = (uint32_t)at - 1;
            if (equal && !weft_align__equals_column(x, column, j))
                continue;
            uint32_t score = weft_align__score_column(x, column, j);
            edge e = {column, j, place_score(x, column, j, score)};
            if (score > 0)
                WEFT_VEC_PUSH(r->scratch, &list, e);
        }
    }
    *out_n = list.len;
    return list.at;
}

static bool match_gemms(rest *r, bool equal)
{
    weft_matching *x = r->x;
    uint32_t n = 0;
    bool any = false;
    edge *list = list_edges(r, equal, &n);
    if (n > 0)
        qsort(list, n, sizeof *list, by_score);
    for (int round = 0; round < ROUNDS && n > 0; round++) {
        edge *best = weft_arena_array(r->scratch, n, sizeof *best);
        memcpy(best, list, n * sizeof *best);
        uint32_t n_best = select_edges(r, best, n), kept = 0;
        for (uint32_t i = 0; i < n_best; i++)
            if (!x->match[best[i].column] && !x->column_of[best[i].own])
                any = contract(r, best[i].column, best[i].own) || any;
        /* Keeps the edges between unmatched vertices, except those that were refused just now. */
        for (uint32_t i = 0, k = 0; i < n; i++) {
            bool tried = k < n_best && by_score(&list[i], &best[k]) == 0;
            k += tried;
            if (!tried && !x->match[list[i].column] && !x->column_of[list[i].own])
                list[kept++] = list[i];
        }
        n = kept;
    }
    return any;
}

/* -- Nodes whose operands correspond ---------------------------------------------------------- */

/* Hash of the class and the operands of a node; 0: no operand is made by a node. */
static uint64_t hash_place(const rest *r, weft_node n, uint32_t class)
{
    const weft_matching *x = r->x;
    uint64_t h = weft_hash_mix(1, class);
    bool any = false;
    for (uint32_t i = 0; i < weft_node_in_count(x->m, n); i++) {
        weft_val v = weft_node_in(x->m, n, i);
        weft_val_kind kind = v.i ? weft_val_get_kind(x->m, v) : WEFT_VAL_WEIGHT;
        h = weft_hash_mix(h, kind);
        if (kind == WEFT_VAL_WEIGHT)
            continue;
        h = weft_hash_mix(h, weft_val_index(x->m, v));
        h = weft_hash_mix(h, kind == WEFT_VAL_NODE ? r->owner[v.i] : 0);
        any = any || kind == WEFT_VAL_NODE;
    }
    return any ? h : 0;
}

static bool match_followers(rest *r)
{
    weft_matching *x = r->x;
    weft_map *place = weft_map_create(r->scratch); /* hash -> column + 1 */
    bool any = false;
    for (uint32_t i = 0; i < x->columns->n; i++)
        for (uint32_t k = 0; k < x->columns->n_model && !x->match[i]; k++) {
            weft_node n = x->columns->at[i].node[k];
            uint32_t class = x->variant[i]->item.class[WEFT_COLUMN_SHAPE];
            uint64_t h = n.i ? hash_place(r, n, class) : 0;
            if (h)
                weft_map_put(place, h, i + 1);
        }
    for (uint32_t j = 0; j < x->n_own; j++) {
        uint64_t column = 0, h;
        if (x->column_of[j])
            continue;
        h = hash_place(r, x->own[j].node, x->own[j].class[WEFT_COLUMN_SHAPE]);
        if (h && weft_map_get(place, h, &column) && !x->match[column - 1] &&
            weft_align__score_column(x, (uint32_t)column - 1, j) > 0)
            any = contract(r, (uint32_t)column - 1, j) || any;
    }
    return any;
}

static rest make_rest(weft_matching *x)
{
    weft_arena *scratch = x->cx->scratch;
    size_t n = (size_t)count_vertices(x) + 1;
    rest r = {.x = x, .scratch = scratch, .owner = list_owners(x)};
    r.seen = weft_arena_array(scratch, n, sizeof *r.seen);
    r.stack = weft_arena_array(scratch, n, sizeof *r.stack);
    return r;
}

bool weft_align__match_crossed(weft_matching *x)
{
    rest r = make_rest(x);
    return match_gemms(&r, true);
}

bool weft_align__match_rest(weft_matching *x)
{
    rest r = make_rest(x);
    bool any = match_gemms(&r, false);
    return match_followers(&r) || any;
}

/* -- Order ------------------------------------------------------------------------------------ */

typedef struct visit {
    uint32_t vertex, node, operand; /* a vertex and the position of next_maker in it */
} visit;

/* Depth-first topological sort: the vertices in the given order, but each is preceded by its
 * ancestors. */
void weft_align__sort(const weft_matching *x, uint32_t *order, uint32_t n)
{
    weft_arena *scratch = x->cx->scratch;
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    const uint32_t *owner = list_owners(x);
    size_t room = (size_t)count_vertices(x) + 1;
    uint32_t *sorted = weft_arena_array(scratch, room, sizeof *sorted);
    visit *stack = weft_arena_array(scratch, room, sizeof *stack);
    bool *done = weft_arena_array(scratch, room, sizeof *done);
    uint32_t n_sorted = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t depth = 0, maker;
        if (!done[order[i]])
            stack[depth++] = (visit){.vertex = order[i]};
        while (depth > 0) {
            visit *at = &stack[depth - 1];
            while ((maker = next_maker(x, owner, at->vertex, &at->node, &at->operand)) &&
                   done[maker - 1])
                ;
            if (maker) {
                stack[depth++] = (visit){.vertex = maker - 1};
                continue;
            }
            done[at->vertex] = true;
            sorted[n_sorted++] = at->vertex;
            depth--;
        }
    }
    memcpy(order, sorted, n * sizeof *order);
    weft_arena_reset(scratch, mark);
}
