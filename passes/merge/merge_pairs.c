/* How much every two models have in common, for reports: which nodes correspond, and USHER's
 * similarity of their weights (OSDI'24, section 4.3 and Figure 8),
 *
 *     2 |common| / (|A| + |B|)
 *
 * over the weights of GEMMs and of look-ups. What two corresponding nodes have in common is the
 * largest rectangle that occurs in both weights, at any offset.
 *
 * The search for a rectangle reads both weights several times, and k models make k (k - 1) / 2
 * pairs. Equal weights are one weight in the module and pairs of weights that were compared before
 * are remembered; for all others there is a budget of bytes. When little of it is left, only
 * rectangles at offset 0 are searched for, and when it is used up none: the similarity is then a
 * lower bound, and is reported as one. */
#include "passes/merge/align.h"
#include "passes/similarity/similar.h"

#include "base/map.h"

enum { PAIRS_MAX = 4096, SEARCH_PASSES = 8 };

static const uint64_t budget_bytes = 4ull << 30; /* read, 2 to 4 s on one core */
static const uint64_t cells_max = 1ull << 30;    /* of alignments; pairs beyond are left out */

typedef struct measurer {
    weft_passctx *cx;
    const weft_module *m;
    weft_merge_log *log;
    weft_map *known; /* pair of weights -> 2 * common elements + (1: exact, 0: a lower bound) */
    uint64_t left;   /* of the budget, in bytes */
} measurer;

static bool as_matrix(const weft_module *m, weft_weight w, weft_matrix *out)
{
    weft_tensor t = weft_weight_tensor(m, w);
    uint64_t n = (uint64_t)weft_tensor_numel(&t), size = weft_dtype_size(t.dtype);
    uint64_t rows = t.rank > 0 ? (uint64_t)t.dim[0] : 1, cols = rows ? n / rows : 0;
    if (n == 0 || rows > UINT32_MAX || cols > UINT32_MAX || size > 8 || (size & (size - 1)) != 0)
        return false;
    *out = (weft_matrix){t.data, (uint32_t)rows, (uint32_t)cols, (uint32_t)size};
    return true;
}

/* Elements that two different weights have in common; *all: exact, not a lower bound. */
static uint64_t count_common(measurer *x, weft_weight v, weft_weight w, bool *all)
{
    uint64_t pair = v.i < w.i ? (uint64_t)v.i << 32 | w.i : (uint64_t)w.i << 32 | v.i, found = 0;
    uint64_t bytes = weft_weight_get(x->m, v)->bytes + weft_weight_get(x->m, w)->bytes;
    weft_arena *scratch = x->cx->scratch;
    weft_matrix a, b;
    weft_rect r = {0};
    *all = true;
    if (!as_matrix(x->m, v, &a) || !as_matrix(x->m, w, &b) || a.bytes != b.bytes)
        return 0;
    if (weft_map_get(x->known, pair, &found)) {
        *all = found & 1;
        return found / 2;
    }
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    if (bytes <= x->left / SEARCH_PASSES) {
        x->left -= bytes * SEARCH_PASSES;
        r = weft_similar__largest_rect(&a, &b, scratch);
    } else {
        *all = false;
        if (bytes <= x->left) {
            x->left -= bytes;
            r = weft_similar__rect_at(&a, &b, 0, 0, scratch);
        }
    }
    weft_arena_reset(scratch, mark);
    found = (uint64_t)r.rows * r.cols;
    weft_map_put(x->known, pair, 2 * found + *all);
    return found;
}

/* The weight that is compared; none: the node has none. */
static weft_weight main_weight(const weft_module *m, weft_node n)
{
    uint32_t which = n.i ? weft_align__main_weight(m, n) : UINT32_MAX;
    return which == UINT32_MAX ? (weft_weight){0} : weft_val_weight(m, weft_node_in(m, n, which));
}

static void add_column(measurer *x, const weft_column *c, weft_merge_pair *p)
{
    weft_weight a = main_weight(x->m, c->node[0]), b = main_weight(x->m, c->node[1]);
    p->nodes[0] += c->node[0].i != 0;
    p->nodes[1] += c->node[1].i != 0;
    p->matched += c->n == 2;
    p->bytes[0] += a.i ? weft_weight_get(x->m, a)->bytes : 0;
    p->bytes[1] += b.i ? weft_weight_get(x->m, b)->bytes : 0;
    if (!a.i || !b.i)
        return;
    if (a.i == b.i) {
        p->equal_bytes += weft_weight_get(x->m, a)->bytes;
        p->common_bytes += weft_weight_get(x->m, a)->bytes;
        return;
    }
    bool all = true;
    weft_tensor t = weft_weight_tensor(x->m, a);
    p->common_bytes += count_common(x, a, b, &all) * weft_dtype_size(t.dtype);
    p->lower_bound = p->lower_bound || !all;
}

static void measure_pair(measurer *x, weft_graph *a, weft_graph *b)
{
    weft_graph *const both[] = {a, b};
    weft_merge_pair p = {.model = {weft_arena_strdup(x->log->arena, weft_graph_name(a)),
                                   weft_arena_strdup(x->log->arena, weft_graph_name(b))}};
    weft_arena_mark mark = weft_arena_get_mark(x->cx->scratch);
    weft_columns columns = weft_merge__match(x->cx, both, 2);
    for (uint32_t i = 0; i < columns.n; i++)
        add_column(x, &columns.at[i], &p);
    weft_arena_reset(x->cx->scratch, mark);
    double nodes = (double)p.nodes[0] + p.nodes[1];
    double bytes = (double)p.bytes[0] + (double)p.bytes[1];
    p.architecture = nodes > 0 ? 2.0 * p.matched / nodes : 0;
    p.similarity = bytes > 0 ? 2 * (double)p.common_bytes / bytes : 0;
    WEFT_VEC_PUSH(x->log->arena, &x->log->pairs, p);
}

void weft_merge__measure_pairs(weft_passctx *cx, weft_module *m)
{
    weft_merge_log *log = cx->options->merge_log;
    uint32_t n = weft_graph_count(m);
    if (!log || !log->want_pairs)
        return;
    measurer x = {.cx = cx, .m = m, .log = log, .left = budget_bytes};
    uint64_t left = cells_max;
    x.known = weft_map_create(log->arena);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n && log->pairs.len < PAIRS_MAX; k++) {
            weft_graph *a = weft_graph_at(m, i), *b = weft_graph_at(m, k);
            uint64_t cells = (uint64_t)weft_graph_node_count(a) * weft_graph_node_count(b);
            if (weft_merge__is_alone(cx->options, a) || weft_merge__is_alone(cx->options, b) ||
                cells > left)
                continue;
            left -= cells;
            measure_pair(&x, a, b);
        }
}
