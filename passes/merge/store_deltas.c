/* store-deltas: a weight that is another one plus a small difference is kept as the difference, in
 * every program that uses it, so that a family of models takes the bytes of one model and of what
 * distinguishes the others, in the bundle and in memory. Only when asked for: GEMMs take longer,
 * and add in another order.
 *
 *     %1 = matmul %x, $v, $bias, %r {epilogue = ["add acc i3"]}
 *   ==>
 *     %1 = patched_matmul %x, $w, $bias, $value, $tap, $first, %r {starts = dims[0],
 *                                                                epilogue = ["add acc i6"]}
 *
 * with the operators that joint programs use (merge_delta.c), for a single segment: single elements
 * (patched_matmul; exact: $w plus the elements is $v) and, where the weights may change within f32
 * rounding of their largest element, low-rank factors (low_rank_matmul).
 *
 * A weight is moved only if all its uses are GEMMs that can be rewritten, otherwise it would remain
 * beside its difference. Weights that must remain come first, then those of most programs: each is
 * compared with the most similar one of its type that remains, by sketches (weight_sketch.c), and
 * remains if its difference is neither kind or takes more than half its bytes. O(n^2) comparisons
 * of sketches for n weights of a type; each weight is compared with one other in full. */
#include "passes/merge/merge_int.h"
#include "passes/similarity/similar.h"
#include "passes/similarity/weight_sketch.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_MIN = 4096, IN_MAX = 3 + WEFT_PATCH_OPERANDS + WEFT_MERGE_OPERANDS_MAX };

/* Sketches of weights that were trained apart are less similar. */
static const double similar_min = 0.5;

typedef struct use {
    weft_graph *g;
    weft_node n;
} use;

/* A weight, with the GEMMs that can take it as a difference. */
typedef struct stored {
    weft_weight w;
    WEFT_VEC(use) uses;
    bool remains; /* a use is of another kind */
    bool by_feature;
} stored;

/* What replaces a weight. */
typedef struct difference {
    weft_op_id op;
    weft_val base, in[WEFT_PATCH_OPERANDS];
    uint32_t n_in;
} difference;

/* -- Weights and their uses ------------------------------------------------------------------- */

static bool same_type(const weft_module *m, weft_val a, weft_val b)
{
    return weft_val_type(m, a).i == weft_val_type(m, b).i;
}

/* Whether the rows of all operands can be put one behind the other. */
static bool has_rows(const weft_module *m, weft_node n)
{
    weft_val y = weft_node_out(m, n, 0);
    const weft_ttype *x = weft_val_ttype(m, weft_node_in(m, n, 0));
    if (x->dtype != WEFT_DTYPE_F32 || x->rank < 2 || weft_val_ttype(m, y)->dtype != WEFT_DTYPE_F32)
        return false;
    for (uint32_t k = 2; k < weft_node_in_count(m, n); k++) {
        weft_val v = weft_node_in(m, n, k);
        if (v.i && weft_val_ttype(m, v)->rank > 1 && !same_type(m, v, y))
            return false;
    }
    return true;
}

static bool can_rewrite(const weft_merger *g, weft_node n)
{
    return weft_node_op(g->m, n) == WEFT_OP_MATMUL &&
           !weft_attrs_int(weft_node_attrs(g->m, n), WEFT_ATTR_TRANS_A, 0) &&
           !weft_merge__refuse_node(g, n) && has_rows(g->m, n);
}

static void add_use(const weft_merger *g, weft_graph *in, weft_node n, uint32_t k, stored *s)
{
    if (k != 1 || weft_graph_is_body(in) || !can_rewrite(g, n)) {
        s->remains = true;
        return;
    }
    bool by_feature = weft_attrs_int(weft_node_attrs(g->m, n), WEFT_ATTR_TRANS_B, 0) != 0;
    use one = {in, n};
    s->remains = s->remains || (s->uses.len && s->by_feature != by_feature);
    s->by_feature = by_feature;
    WEFT_VEC_PUSH(g->cx->scratch, &s->uses, one);
}

static void add_outputs(const weft_merger *g, const weft_graph *of, stored *all)
{
    for (uint32_t i = 0; i < weft_graph_output_count(of); i++) {
        weft_val v = weft_graph_output(of, i);
        if (weft_merge__is_weight(g->m, v))
            all[weft_val_weight(g->m, v).i].remains = true;
    }
}

static int compare_stored(const void *a, const void *b)
{
    const stored *x = a, *y = b;
    if (x->remains != y->remains)
        return x->remains ? -1 : 1;
    if (x->uses.len != y->uses.len)
        return x->uses.len > y->uses.len ? -1 : 1;
    return x->w.i < y->w.i ? -1 : x->w.i > y->w.i;
}

/* All weights by number, in the order in which they are looked at. */
static stored *collect(const weft_merger *g, uint32_t *out_n)
{
    uint32_t n = weft_weight_count(g->m), kept = 0;
    stored *all = weft_arena_array(g->cx->scratch, (size_t)n + 1, sizeof *all);
    for (uint32_t i = 0; i < weft_graph_count(g->m); i++) {
        weft_graph *one = weft_graph_at(g->m, i);
        add_outputs(g, one, all);
        WEFT_FOREACH_NODE (g->m, one, node)
            for (uint32_t k = 0; k < weft_node_in_count(g->m, node); k++) {
                weft_val v = weft_node_in(g->m, node, k);
                if (weft_merge__is_weight(g->m, v))
                    add_use(g, one, node, k, &all[weft_val_weight(g->m, v).i]);
            }
    }
    for (uint32_t w = 1; w <= n; w++) {
        const weft_weight_info *info = weft_weight_get(g->m, (weft_weight){w});
        const weft_ttype *type = weft_type_get(g->m, info->type);
        all[w].w.i = w;
        if ((all[w].remains || all[w].uses.len) && info->bytes >= BYTES_MIN && type->rank == 2 &&
            type->dtype == WEFT_DTYPE_F32)
            all[kept++] = all[w];
    }
    qsort(all, kept, sizeof *all, compare_stored);
    *out_n = kept;
    return all;
}

/* -- Differences ------------------------------------------------------------------------------ */

static weft_matrix matrix_of(const weft_module *m, weft_weight w)
{
    weft_tensor t = weft_weight_tensor(m, w);
    return (weft_matrix){.data = t.data,
                         .rows = (uint32_t)t.dim[0],
                         .cols = (uint32_t)t.dim[1],
                         .bytes = sizeof(float)};
}

static weft_val vector(weft_merger *g, weft_dtype dtype, int64_t n, const void *at,
                       const char *name)
{
    return weft_rewrite__constant(g->m, dtype, &n, 1, at, name);
}

static weft_val matrix(weft_merger *g, int64_t rows, int64_t cols, const float *at,
                       const char *name)
{
    const int64_t dim[] = {rows, cols};
    return weft_rewrite__constant(g->m, WEFT_DTYPE_F32, dim, 2, at, name);
}

/* MODEL:INITIALISER, of the first model that uses it in a GEMM. */
static const char *name_of(const weft_merger *g, const stored *s)
{
    const char *name = weft_weight_get(g->m, s->w)->name;
    return weft_arena_printf(g->log->arena, "%s%s%s",
                             s->uses.len ? weft_graph_name(s->uses.at[0].g) : "",
                             s->uses.len ? ":" : "", name ? name : "");
}

/* Adds a row to the log; `size`: rank or number of elements, 0: the weight remains. */
static void note(const weft_merger *g, const stored *s, const stored *base, const char *kind,
                 uint32_t size, uint64_t bytes, double error)
{
    weft_merge_log *log = g->log;
    if (!log)
        return;
    weft_delta_row row = {.weight = name_of(g, s),
                          .base = name_of(g, base),
                          .kind = kind,
                          .size = size,
                          .full_bytes = weft_weight_get(g->m, s->w)->bytes,
                          .bytes = bytes,
                          .error = error};
    WEFT_VEC_PUSH(log->arena, &log->deltas, row);
}

/* Finds the difference of a weight from the base and makes its operands. false: it is neither kind.
 */
static bool find_difference(weft_merger *g, const stored *s, const stored *base, difference *out)
{
    weft_matrix a = matrix_of(g->m, s->w), b = matrix_of(g->m, base->w);
    int64_t taps = s->by_feature ? a.cols : a.rows, features = s->by_feature ? a.rows : a.cols;
    weft_elements elements;
    weft_factors factors;
    *out = (difference){.base = weft_weight_val(g->m, base->w)};
    if (!weft_target_is_gpu(g->cx->options->target) &&
        weft_similar__elements(&a, &b, s->by_feature, g->cx->scratch, &elements)) {
        out->op = WEFT_OP_PATCHED_MATMUL;
        out->n_in = WEFT_PATCH_OPERANDS;
        out->in[0] = vector(g, WEFT_DTYPE_F32, elements.n, elements.value, "delta.value");
        out->in[1] = vector(g, WEFT_DTYPE_I32, elements.n, elements.tap, "delta.tap");
        out->in[2] = vector(g, WEFT_DTYPE_I32, features + 1, elements.start, "delta.first");
        note(g, s, base, "elements", elements.n,
             8 * (uint64_t)elements.n + 4 * ((uint64_t)features + 1), 0);
        return true;
    }
    if (g->cx->options->deltas != WEFT_DELTAS_NEAR ||
        !weft_similar__factors(&a, &b, s->by_feature, g->cx->scratch, &factors)) {
        note(g, s, base, "none", 0, weft_weight_get(g->m, s->w)->bytes, 0);
        return false;
    }
    out->op = WEFT_OP_LOW_RANK_MATMUL;
    out->n_in = 2;
    out->in[0] = matrix(g, taps, factors.rank, factors.first, "delta.down");
    out->in[1] = matrix(g, factors.rank, features, factors.second, "delta.up");
    note(g, s, base, "low_rank", factors.rank,
         4 * (uint64_t)factors.rank * (uint64_t)(taps + features), factors.residual);
    return true;
}

/* The most similar weight of those that remain; NULL: none is similar. */
static const stored *find_base(const weft_merger *g, weft_sketches *sketches, const stored *s,
                               const stored *const *base, size_t n)
{
    double most = similar_min;
    const stored *best = NULL;
    for (size_t i = 0; i < n; i++) {
        double similar = 0;
        if (weft_weight_get(g->m, base[i]->w)->type.i == weft_weight_get(g->m, s->w)->type.i)
            similar = weft_sketch__compare(sketches, g->m, s->w, base[i]->w);
        if (similar > most) {
            most = similar;
            best = base[i];
        }
    }
    return best;
}

/* -- Rewriting -------------------------------------------------------------------------------- */

/* `v` with all its rows one behind the other; vectors and omitted operands as they are. */
static weft_err view_rows(weft_merger *g, const use *u, weft_val v, weft_val *out)
{
    *out = v;
    if (!v.i || weft_val_ttype(g->m, v)->rank < 3)
        return WEFT_ERR_OK;
    const weft_ttype *type = weft_val_ttype(g->m, v);
    const weft_dim dim[] = {weft_merge__rows(g, type, WEFT_JOINT_ROWS), type->dim[type->rank - 1]};
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, dim, 2);
    return weft_rewrite__emit(g->cx, u->g, u->n, WEFT_OP_VIEW, &v, 1, &shape, 1,
                              weft_node_loc(g->m, u->n), out);
}

static weft_err rewrite(weft_merger *g, const use *u, const difference *d, bool by_feature)
{
    uint32_t n_in = 3 + d->n_in, n_attr = 0, operand[WEFT_MERGE_OPERANDS_MAX] = {0};
    weft_val in[IN_MAX] = {{0}, d->base}, made, old = weft_node_out(g->m, u->n, 0);
    const char *steps[WEFT_STEPS_MAX];
    const weft_dim start = 0;
    weft_loc loc = weft_node_loc(g->m, u->n);
    weft_attr attr[3];
    WEFT_TRY(view_rows(g, u, weft_node_in(g->m, u->n, 0), &in[0]));
    WEFT_TRY(view_rows(g, u, weft_node_in(g->m, u->n, 2), &in[2]));
    memcpy(in + 3, d->in, d->n_in * sizeof *in);
    for (uint32_t k = 3; k < weft_node_in_count(g->m, u->n); k++) {
        operand[k] = n_in;
        WEFT_TRY(view_rows(g, u, weft_node_in(g->m, u->n, k), &in[n_in++]));
    }
    uint32_t n_steps = weft_merge__add_epilogue(g, u->n, operand, NULL, steps, 0);
    if (n_steps)
        attr[n_attr++] = WEFT_ATTR_OF_STRS(EPILOGUE, steps, n_steps);
    attr[n_attr++] = WEFT_ATTR_OF_DIMS(STARTS, &start, 1);
    if (by_feature)
        attr[n_attr++] = WEFT_ATTR_OF_INT(TRANS_B, 1);
    WEFT_TRY(weft_rewrite__emit(g->cx, u->g, u->n, d->op, in, n_in, attr, n_attr, loc, &made));
    if (!same_type(g->m, made, old)) {
        const weft_ttype *type = weft_val_ttype(g->m, old);
        weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, type->dim, type->rank);
        weft_val rows = made;
        WEFT_TRY(
            weft_rewrite__emit(g->cx, u->g, u->n, WEFT_OP_VIEW, &rows, 1, &shape, 1, loc, &made));
    }
    weft_rewrite__replace_result(u->g, u->n, 0, made);
    weft_rewrite__remove_dead(u->g, u->n);
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    weft_merger g = {.cx = cx, .m = m, .dims = weft_module_dims(m), .log = cx->options->merge_log};
    WEFT_VEC(const stored *) bases = {0};
    uint32_t n = 0;
    if (cx->options->deltas == WEFT_DELTAS_OFF)
        return WEFT_ERR_OK;
    weft_sketches *sketches = weft_sketch__open(cx->scratch);
    const stored *all = collect(&g, &n);
    for (uint32_t i = 0; i < n; i++) {
        const stored *s = &all[i];
        const stored *base = NULL;
        difference d;
        if (!s->remains)
            base = find_base(&g, sketches, s, bases.at, bases.len);
        if (!base || !find_difference(&g, s, base, &d) || !weft_rewrite__allow(cx)) {
            WEFT_VEC_PUSH(cx->scratch, &bases, s);
            continue;
        }
        for (size_t k = 0; k < s->uses.len; k++)
            WEFT_TRY(rewrite(&g, &s->uses.at[k], &d, s->by_feature));
        *changed = true;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_store_deltas = {
    .name = "store-deltas",
    .brief = "weights become a base and differences in all programs, when asked for",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .breaks = WEFT_FACT_ALL,
    .run = run,
};
