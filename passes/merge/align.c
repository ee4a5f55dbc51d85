/* Aligns several models: finds which of their nodes correspond (columns), and an order of the
 * columns that is a topological order of every model.
 *
 * The models are added one after the other. The nodes of the next model are matched with the
 * columns found so far in three stages:
 *
 *   1. Anchors: nodes with equal weights, by the longest common subsequence of these nodes alone.
 *      Then nodes with equal weights that cross this subsequence, where that makes no cycle
 *      (match_rest.c). So a shared layer is found wherever it stands in the models.
 *   2. Between two anchors: a global alignment of maximum score (Needleman and Wunsch, "A general
 *      method applicable to the search for similarities in the amino acid sequence of two
 * proteins", 1970) with no gap penalty. match_score.c has the scores.
 *   3. The rest: bipartite matching in any order, where that makes no cycle (match_rest.c).
 *
 * All nodes are sorted topologically again after stage 1, if anchors cross, and after stage 3. So
 * the alignment of stage 2 compares two sequences in topological order, and contracting each column
 * to one node makes no cycle. Matching by similarity alone would not ensure that.
 *
 * Equal nodes at the start and at the end of a sequence are paired first; most nodes of sibling
 * models are. O(n m) for the others, up to TABLE_MAX cells for one alignment and CELLS_MAX cells in
 * total; sequences beyond these limits are left to stage 3. */
#include "passes/merge/align.h"

#include "base/map.h"

#include <string.h>

enum { TABLE_MAX = 1 << 25, CELLS_MAX = 1 << 27, VISITS_MAX = 1 << 26 };

/* -- Alignment of two sequences --------------------------------------------------------------- */

/* Some columns and some own items, both in order. In an alignment of anchors every pair of equal
 * nodes scores 1. */
typedef struct span {
    const uint32_t *column, *own;
    uint32_t n, k;
    bool anchors;
} span;

static uint32_t score_pair(const weft_matching *x, const span *s, uint32_t i, uint32_t j)
{
    if (s->anchors)
        return weft_align__equals_column(x, s->column[i], s->own[j]);
    uint32_t score = weft_align__score_column(x, s->column[i], s->own[j]);
    return score > WEFT_SCORE_WEAK ? score : 0;
}

static void pair_up(weft_matching *x, const span *s, uint32_t i, uint32_t j)
{
    x->match[s->column[i]] = s->own[j] + 1;
    x->column_of[s->own[j]] = s->column[i] + 1;
}

static void make_room(weft_matching *x, size_t row, size_t trace)
{
    if (row > x->row_room) {
        x->row_room = 2 * row;
        x->row = weft_arena_array(x->cx->scratch, x->row_room, sizeof *x->row);
    }
    if (trace > x->trace_room) {
        x->trace_room = 2 * trace;
        x->trace = weft_arena_array(x->cx->scratch, x->trace_room, 1);
    }
    memset(x->row, 0, row * sizeof *x->row);
}

/* Fills the table of Needleman and Wunsch from its last row up, so that the trace reads forwards.
 */
static void align_middle(weft_matching *x, const span *s)
{
    enum { PAIR, SKIP_COLUMN, SKIP_OWN };
    uint32_t n = s->n, k = s->k;
    size_t width = (size_t)k + 1;
    uint64_t cells = (uint64_t)(n + 1) * width;
    if (n == 0 || k == 0 || cells > TABLE_MAX || cells > x->cells_left)
        return;
    x->cells_left -= cells;
    make_room(x, width * 2, cells);
    uint64_t *row = x->row;
    uint8_t *trace = x->trace;
    uint64_t *next = row + width; /* scores of row i + 1 */
    for (uint32_t i = n; i-- > 0;) {
        row[k] = 0;
        for (uint32_t j = k; j-- > 0;) {
            uint8_t move = row[j + 1] > next[j] ? SKIP_OWN : SKIP_COLUMN;
            uint32_t score = score_pair(x, s, i, j);
            row[j] = move == SKIP_OWN ? row[j + 1] : next[j];
            if (score && next[j + 1] + score > row[j]) {
                row[j] = next[j + 1] + score;
                move = PAIR;
            }
            trace[i * width + j] = move;
        }
        memcpy(next, row, width * sizeof *row);
    }
    for (uint32_t i = 0, j = 0; i < n && j < k;) {
        uint8_t move = trace[i * width + j];
        if (move == PAIR)
            pair_up(x, s, i, j);
        i += move != SKIP_OWN;
        j += move != SKIP_COLUMN;
    }
}

/* No pair scores more than two equal nodes, so some best alignment pairs equal nodes at both ends.
 */
static void align(weft_matching *x, span s)
{
    while (s.n && s.k && weft_align__equals_column(x, s.column[0], s.own[0])) {
        pair_up(x, &s, 0, 0);
        s.column++, s.own++;
        s.n--, s.k--;
    }
    while (s.n && s.k && weft_align__equals_column(x, s.column[s.n - 1], s.own[s.k - 1])) {
        s.n--, s.k--;
        pair_up(x, &s, s.n, s.k);
    }
    align_middle(x, &s);
}

/* -- Stages ----------------------------------------------------------------------------------- */

static void match_anchors(weft_matching *x)
{
    weft_map *held = weft_map_create(x->cx->scratch), *there = weft_map_create(x->cx->scratch);
    uint32_t *column = weft_arena_array(x->cx->scratch, (size_t)x->columns->n + 1, sizeof *column);
    uint32_t *own = weft_arena_array(x->cx->scratch, (size_t)x->n_own + 1, sizeof *own);
    span s = {.column = column, .own = own, .anchors = true};
    for (uint32_t j = 0; j < x->n_own; j++)
        if (x->own[j].anchors)
            weft_map_put(there, x->own[j].class[WEFT_COLUMN_EQUAL], 1);
    for (uint32_t i = 0; i < x->columns->n; i++) {
        bool found = false;
        for (const weft_variant *v = x->variant[i]; v; v = v->next) {
            uint64_t one;
            if (!v->item.anchors || !weft_map_get(there, v->item.class[WEFT_COLUMN_EQUAL], &one))
                continue;
            weft_map_put(held, v->item.class[WEFT_COLUMN_EQUAL], 1);
            found = true;
        }
        if (found)
            column[s.n++] = i;
    }
    for (uint32_t j = 0; j < x->n_own; j++) {
        uint64_t one;
        if (x->own[j].anchors && weft_map_get(held, x->own[j].class[WEFT_COLUMN_EQUAL], &one))
            own[s.k++] = j;
    }
    align(x, s);
}

/* All vertices, numbered as for weft_align__sort: the columns in their order, and each own item
 * that has no column directly before the next matched column. */
static uint32_t *list_in_order(const weft_matching *x, uint32_t *out_n)
{
    uint32_t n_column = x->columns->n, j = 0, n = 0;
    uint32_t *order =
        weft_arena_array(x->cx->scratch, (size_t)n_column + x->n_own + 1, sizeof *order);
    for (uint32_t i = 0; i <= n_column; i++) {
        uint32_t until = i == n_column ? x->n_own : x->match[i] ? x->match[i] - 1 : j;
        for (; j < until; j++)
            if (!x->column_of[j])
                order[n++] = n_column + j;
        if (i < n_column)
            order[n++] = i;
    }
    *out_n = n;
    return order;
}

/* Aligns the columns and own items between every two neighbouring matches. `order`: all n vertices
 * in an order in which no two matches cross. */
static void match_between(weft_matching *x, const uint32_t *order, uint32_t n)
{
    uint32_t *column = weft_arena_array(x->cx->scratch, (size_t)n + 1, sizeof *column);
    uint32_t *own = weft_arena_array(x->cx->scratch, (size_t)n + 1, sizeof *own);
    span s = {.column = column, .own = own};
    for (uint32_t i = 0; i <= n; i++) {
        if (i < n && order[i] >= x->columns->n) {
            own[s.k++] = order[i] - x->columns->n;
        } else if (i < n && !x->match[order[i]]) {
            column[s.n++] = order[i];
        } else {
            align(x, s);
            s.n = s.k = 0;
        }
    }
}

/* -- Columns ---------------------------------------------------------------------------------- */

static weft_column make_column(weft_passctx *cx, uint32_t n_model, uint32_t model, weft_node n)
{
    weft_column c = {.n = 1};
    c.node = weft_arena_array(cx->scratch, n_model, sizeof *c.node);
    c.node[model] = n;
    return c;
}

static const weft_variant *add_variant(weft_passctx *cx, const weft_variant *list,
                                       const weft_item *item)
{
    for (const weft_variant *v = list; v; v = v->next)
        if (v->item.class[WEFT_COLUMN_EQUAL] == item->class[WEFT_COLUMN_EQUAL])
            return list;
    weft_variant *v = weft_arena_alloc(cx->scratch, sizeof *v);
    *v = (weft_variant){*item, list};
    return v;
}

static weft_column_kind kind_of(const weft_variant *list)
{
    weft_column_kind kind = WEFT_COLUMN_EQUAL;
    for (const weft_variant *v = list; v && v->next; v = v->next) {
        bool shape = v->item.class[WEFT_COLUMN_SHAPE] == v->next->item.class[WEFT_COLUMN_SHAPE];
        if (kind != WEFT_COLUMN_SIZE)
            kind = shape ? WEFT_COLUMN_SHAPE : WEFT_COLUMN_SIZE;
    }
    return kind;
}

static void add_model(weft_matching *x)
{
    weft_passctx *cx = x->cx;
    weft_columns *c = x->columns;
    size_t most = (size_t)c->n + x->n_own + 1;
    x->match = weft_arena_array(cx->scratch, (size_t)c->n + 1, sizeof *x->match);
    x->column_of = weft_arena_array(cx->scratch, (size_t)x->n_own + 1, sizeof *x->column_of);
    uint32_t without = cx->options->match_without;
    if (!(without & WEFT_MATCH_ANCHORS))
        match_anchors(x);
    bool crossed = !(without & WEFT_MATCH_CROSSED) && weft_align__match_crossed(x);
    uint32_t n = 0, *order = list_in_order(x, &n);
    if (crossed)
        weft_align__sort(x, order, n);
    if (!(without & WEFT_MATCH_BETWEEN))
        match_between(x, order, n);
    bool rest = !(without & WEFT_MATCH_REST) && weft_align__match_rest(x);
    order = list_in_order(x, &n);
    if (crossed || rest)
        weft_align__sort(x, order, n);
    weft_column *at = weft_arena_array(cx->scratch, most, sizeof *at);
    const weft_variant **variant = weft_arena_array(cx->scratch, most, sizeof *variant);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t own = order[i] >= c->n ? order[i] - c->n + 1 : x->match[order[i]];
        at[i] = order[i] < c->n ? c->at[order[i]]
                                : make_column(cx, c->n_model, x->model, x->own[own - 1].node);
        variant[i] = order[i] < c->n ? x->variant[order[i]] : NULL;
        if (own)
            variant[i] = add_variant(cx, variant[i], &x->own[own - 1]);
        if (own && order[i] < c->n) {
            at[i].node[x->model] = x->own[own - 1].node;
            at[i].n++;
        }
        at[i].kind = kind_of(variant[i]);
    }
    c->at = at;
    c->n = n;
    x->variant = variant;
}

weft_columns weft_merge__match(weft_passctx *cx, weft_graph *const *model, uint32_t n_model)
{
    weft_columns c = {.model = model, .n_model = n_model};
    if (n_model == 0)
        return c;
    const weft_module *m = weft_graph_module(model[0]);
    weft_node_classes *classes = weft_align__make_classes(m, cx->scratch);
    weft_matching x = {.cx = cx, .m = m, .columns = &c};
    x.cells_left = CELLS_MAX;
    x.visits_left = VISITS_MAX;
    x.sketches = weft_sketch__open(cx->scratch);
    for (uint32_t i = 0; i < n_model; i++) {
        weft_dim batch = weft_merge__batch(model[i]);
        weft_item *own =
            weft_arena_array(cx->scratch, (size_t)weft_graph_node_count(model[i]) + 1, sizeof *own);
        x.n_own = 0;
        x.model = i;
        WEFT_FOREACH_NODE (m, model[i], n)
            own[x.n_own++] = weft_align__make_item(classes, n, batch);
        x.own = own;
        add_model(&x);
    }
    return c;
}

/* -- Splitting -------------------------------------------------------------------------------- */

typedef WEFT_VEC(weft_column) column_list;

static void split_column(weft_passctx *cx, const weft_columns *columns, const weft_column *wide,
                         column_list *list)
{
    const weft_module *m = weft_graph_module(columns->model[0]);
    weft_node_classes *classes = weft_align__make_classes(m, cx->scratch);
    uint32_t first = list->len;
    for (uint32_t k = 0; k < columns->n_model; k++) {
        weft_node n = wide->node[k];
        if (!n.i)
            continue;
        weft_item item = weft_align__make_item(classes, n, weft_merge__batch(columns->model[k]));
        uint32_t at = first + item.class[WEFT_COLUMN_EQUAL];
        if (at == list->len) {
            weft_column one = make_column(cx, columns->n_model, k, n);
            WEFT_VEC_PUSH(cx->scratch, list, one);
        } else {
            list->at[at].node[k] = n;
            list->at[at].n++;
        }
    }
}

weft_columns weft_merge__split(weft_passctx *cx, const weft_columns *columns)
{
    column_list list = {0};
    for (uint32_t i = 0; i < columns->n; i++) {
        if (columns->at[i].kind == WEFT_COLUMN_EQUAL)
            WEFT_VEC_PUSH(cx->scratch, &list, columns->at[i]);
        else
            split_column(cx, columns, &columns->at[i], &list);
    }
    return (weft_columns){columns->model, columns->n_model, list.at, list.len};
}
