/* Strategies for weights that are a common base plus a small difference: one super-GEMM by the base
 * for the rows of all models, and the difference for each model.
 *
 *     %1 = matmul %x, $w         %z = concat %x, %y {axis = 0}
 *     %2 = matmul %y, $v         %p = matmul %z, $w              reads the large weight once
 *                          ==>   %1 = slice %p                   no copy
 *                                %a = matmul %y, $u              $v = $w + $u $t
 *                                %2 = matmul %a, $t, %p2 {epilogue = ["add acc i3"]}
 *
 * low_rank: u and t are low-rank factors, as low-rank adaptation (Hu et al., "LoRA", 2021) leaves
 * them when adapters are merged into the weights; find_similar.c finds them. sparse: v differs from
 * w in few input features; u picks these columns of y, and t is the difference. scattered: v
 * differs from w in few elements, anywhere.
 *
 * The finish of a node (bias, epilogue) is applied by the last GEMM of its model, or by itself for
 * models whose weight is w. For matrices, low_rank and scattered are one node for all models
 * (merge_segments.c). For convolutions, u is a convolution with few features and t one of 1 x 1, or
 * u picks channels.
 *
 * The base is the weight that most models have, the first of those. Models whose weight is no such
 * sum are left out of the group. */
#include "passes/merge/merge_int.h"
#include "passes/similarity/similar.h"

#include <math.h>
#include <string.h>

/* The most input features that differ, relative to all. */
static const double inputs_max = 0.5;

/* The difference of a model's weight from the base; all zero: there is none. */
typedef struct delta {
    /* Two factors, first * second; or the difference in few inputs, `second` with `pick`. */
    uint32_t rank;
    const float *first;   /* [taps, rank]; NULL: `pick` instead */
    const float *second;  /* [rank, features] */
    const uint32_t *pick; /* the inputs that differ; rank is their number times the window */
    /* Or single elements, feature after feature, as operands of patched_matmul. */
    uint32_t elements;
    const float *value;
    const int32_t *tap, *start;
} delta;

static bool has_more(const delta *d)
{
    return d->rank > 0 || d->elements > 0;
}

typedef struct plan {
    weft_val base;
    weft_val bias; /* of all nodes, added by the base GEMM; none: biases differ, or there is none */
    bool one;      /* base and differences are one node of operator `op` */
    weft_op_id op;
    bool alike;             /* all models have the same finish, and that node applies it */
    const delta **by_model; /* NULL: the model is not in the group */
} plan;

/* -- Finding the base and the differences ----------------------------------------------------- */

typedef bool find_delta(weft_merger *g, const weft_merge_form *base, const weft_merge_form *own,
                        delta *out);

static weft_matrix matrix_of(const weft_merger *g, const weft_merge_form *f)
{
    return (weft_matrix){.data = weft_merge__bytes(g, f),
                         .rows = f->by_feature ? f->features : f->taps,
                         .cols = f->by_feature ? f->taps : f->features,
                         .bytes = sizeof(float)};
}

/* Kinds of entries in weft_merger.memo, each for a weight and a storage order. */
enum { KIND_BASE, KIND_LOW_RANK, KIND_SPARSE, KIND_SCATTERED };

static uint64_t way_of(const weft_merge_form *f)
{
    return (uint64_t)f->w.i << 1 | f->by_feature;
}

/* The base that was found before, for a group that includes all these nodes; none: there is none.
 */
static weft_node recall_base(const weft_merger *g, const weft_column *c)
{
    uint64_t base = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        uint64_t found = 0;
        if (!c->node[i].i)
            continue;
        weft_merge_form own = weft_merge__form(g, c->node[i]);
        if (!weft_map_get(g->memo, (uint64_t)KIND_BASE << 61 ^ way_of(&own), &found) ||
            (base && found != base))
            return (weft_node){0};
        base = found;
    }
    return (weft_node){(uint32_t)base};
}

/* The node whose weight most nodes of the column have. */
static weft_node find_base(const weft_merger *g, const weft_column *c)
{
    weft_node best = recall_base(g, c);
    uint32_t most = 0;
    if (best.i)
        return best;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; c->node[i].i && k < g->columns.n_model; k++)
            same += c->node[k].i &&
                    weft_node_in(g->m, c->node[k], 1).i == weft_node_in(g->m, c->node[i], 1).i;
        if (same > most)
            best = c->node[i];
        most = same > most ? same : most;
    }
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i) {
            weft_merge_form own = weft_merge__form(g, c->node[i]);
            weft_map_put(g->memo, (uint64_t)KIND_BASE << 61 ^ way_of(&own), best.i);
        }
    return best;
}

/* The difference of a weight from the base, computed once for each storage order (tied weights are
 * used in both); NULL: the difference is not of this kind. */
static const delta *recall(weft_merger *g, find_delta *find, uint64_t kind,
                           const weft_merge_form *base, const weft_merge_form *own)
{
    static const delta none;
    uint64_t key = kind << 61 ^ (uint64_t)base->w.i << 31 ^ way_of(own), found = 0;
    if (base->w.i == own->w.i)
        return &none;
    if (weft_map_get(g->memo, key, &found))
        return (const delta *)(uintptr_t)found;
    delta *d = NULL, made = {0};
    if (base->taps == own->taps && base->features == own->features &&
        base->by_feature == own->by_feature && find(g, base, own, &made)) {
        d = weft_arena_alloc(g->cx->scratch, sizeof *d);
        *d = made;
    }
    weft_map_put(g->memo, key, (uint64_t)(uintptr_t)d);
    return d;
}

/* The bias that all nodes of the column have in common; none: they differ, or there is none. */
static weft_val common_bias(const weft_merger *g, const weft_column *c)
{
    weft_node first = weft_merge__first(g, c);
    weft_val bias =
        weft_node_in_count(g->m, first) > 2 ? weft_node_in(g->m, first, 2) : (weft_val){0};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = c->node[i];
        if (n.i && (weft_node_in_count(g->m, n) < 3 || weft_node_in(g->m, n, 2).i != bias.i))
            return (weft_val){0};
    }
    return weft_merge__is_weight(g->m, bias) ? bias : (weft_val){0};
}

static bool find_low_rank(weft_merger *g, const weft_merge_form *base, const weft_merge_form *own,
                          delta *out)
{
    weft_matrix a = matrix_of(g, own), b = matrix_of(g, base);
    weft_factors found;
    if (!weft_similar__factors(&a, &b, own->by_feature, g->cx->scratch, &found))
        return false;
    *out = (delta){.rank = found.rank, .first = found.first, .second = found.second};
    return true;
}

/* Marks the input features in which two weights differ; a weight that is stored by feature is
 * scanned row by row. */
static void mark_inputs(const weft_merge_form *f, const uint8_t *a, const uint8_t *b, bool *differs)
{
    size_t row = (f->by_feature ? f->taps : f->features) * sizeof(float);
    uint32_t rows = f->by_feature ? f->features : f->taps;
    for (uint32_t r = 0; r < rows; r++) {
        const uint8_t *x = a + r * row, *y = b + r * row;
        if (memcmp(x, y, row) == 0)
            continue;
        if (!f->by_feature)
            differs[r] = true;
        for (uint32_t t = 0; f->by_feature && t < f->taps; t++)
            if (memcmp(x + t * sizeof(float), y + t * sizeof(float), sizeof(float)) != 0)
                differs[t / f->window] = true;
    }
}

static bool find_sparse(weft_merger *g, const weft_merge_form *base, const weft_merge_form *own,
                        delta *out)
{
    const uint8_t *a = weft_merge__bytes(g, own), *b = weft_merge__bytes(g, base);
    uint32_t n = 0, inputs = own->taps / own->window;
    bool *differs = weft_arena_array(g->cx->scratch, inputs, sizeof *differs);
    mark_inputs(own, a, b, differs);
    for (uint32_t c = 0; c < inputs; c++)
        n += differs[c];
    weft_matrix of_own = matrix_of(g, own), of_base = matrix_of(g, base);
    if (n == 0 || n > inputs_max * inputs || !weft_similar__is_precise(&of_own, &of_base))
        return false;
    uint32_t *pick = weft_arena_array(g->cx->scratch, n, sizeof *pick), taps = n * own->window;
    float *second = weft_arena_array(g->cx->scratch, (size_t)taps * own->features, sizeof *second);
    float *to = second;
    n = 0;
    for (uint32_t t = 0; t < own->taps; t++) {
        if (!differs[t / own->window])
            continue;
        pick[n] = t / own->window;
        n += (t + 1) % own->window == 0;
        for (uint32_t f = 0; f < own->features; f++)
            *to++ = weft_merge__element(own, a, t, f) - weft_merge__element(base, b, t, f);
    }
    *out = (delta){.rank = taps, .second = second, .pick = pick};
    return true;
}

static bool find_scattered(weft_merger *g, const weft_merge_form *base, const weft_merge_form *own,
                           delta *out)
{
    weft_matrix a = matrix_of(g, own), b = matrix_of(g, base);
    weft_elements found;
    if (!weft_similar__elements(&a, &b, own->by_feature, g->cx->scratch, &found))
        return false;
    *out =
        (delta){.elements = found.n, .value = found.value, .tap = found.tap, .start = found.start};
    return true;
}

static const char *fit(weft_merger *g, weft_merge_group *p, find_delta *find, uint64_t kind,
                       const char *none)
{
    const char *reason = weft_merge__refuse(g, p);
    if (reason)
        return reason;
    plan *made = weft_arena_alloc(g->cx->scratch, sizeof *made);
    weft_node base_node = find_base(g, &p->column);
    weft_merge_form base = weft_merge__form(g, base_node);
    uint32_t kept = 0, differ = 0;
    made->base = base.w;
    made->by_model = weft_arena_array(g->cx->scratch, g->columns.n_model, sizeof *made->by_model);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!p->column.node[i].i)
            continue;
        weft_merge_form own = weft_merge__form(g, p->column.node[i]);
        made->by_model[i] = recall(g, find, kind, &base, &own);
        kept += made->by_model[i] != NULL;
        differ += made->by_model[i] && has_more(made->by_model[i]);
    }
    if (differ == 0 || kept < 2)
        return none;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (!made->by_model[i])
            p->column.node[i] = (weft_node){0};
    p->column.n = kept;
    made->bias = common_bias(g, &p->column);
    made->one = find != find_sparse && !base.conv;
    made->op = find == find_scattered ? WEFT_OP_PATCHED_MATMUL : WEFT_OP_LOW_RANK_MATMUL;
    made->alike = made->one && weft_merge__finish_alike(g, &p->column);
    p->plan = made;
    p->together = made->alike || weft_merge__parts_align(g, p);
    p->gathers = made->alike;
    return NULL;
}

static const char *fit_low_rank(weft_merger *g, weft_merge_group *p)
{
    return fit(g, p, find_low_rank, KIND_LOW_RANK,
               "the differences of the weights have no low rank");
}

static const char *fit_scattered(weft_merger *g, weft_merge_group *p)
{
    if (weft_target_is_gpu(g->cx->options->target))
        return "not done for GPUs";
    if (weft_node_op(g->m, weft_merge__first(g, &p->column)) != WEFT_OP_MATMUL)
        return "not done for this operator";
    return fit(g, p, find_scattered, KIND_SCATTERED,
               "the weights differ in more than 5 % of their elements, or in none");
}

static const char *fit_sparse(weft_merger *g, weft_merge_group *p)
{
    return fit(g, p, find_sparse, KIND_SPARSE, "the weights differ in many inputs, or in none");
}

/* -- Time ------------------------------------------------------------------------------------- */

static bool time_own(weft_merger *g, weft_node n, const delta *d, bool biased,
                     const weft_merge_form *f, const weft_merge_sizes *at, double rows, double *us)
{
    weft_merge_form factor = weft_merge__pointwise(f, d->rank);
    weft_merge_gemm first = weft_merge__numbers(f, rows, f->taps, d->rank);
    weft_merge_gemm second = weft_merge__numbers(d->pick ? f : &factor, rows, d->rank, f->features);
    weft_val y = weft_node_out(g->m, n, 0);
    if (d->rank == 0)
        return !weft_merge__finishes(g, n, biased) ||
               weft_merge__chain_us(at, g->m, y, rows * f->features, 2, us);
    if (d->pick)
        return weft_merge__chain_us(at, g->m, y, second.x, 1, us) &&
               weft_merge__gemm_us(at, g->m, n, &second, us);
    return weft_merge__gemm_us(at, g->m, n, &first, us) &&
           weft_merge__gemm_us(at, g->m, n, &second, us);
}

/* Base and differences in one node; the finish by itself unless all models share it. */
static bool time_one(weft_merger *g, const weft_merge_group *p, const weft_merge_sizes *at,
                     double *us)
{
    const plan *made = p->plan;
    weft_node first = weft_merge__first(g, &p->column);
    weft_merge_form f = weft_merge__form(g, first);
    const delta *last = NULL;
    weft_delta extra = {0};
    double all = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        const delta *d = made->by_model[i];
        double rows = 0;
        if (!n.i)
            continue;
        if (!weft_merge__node_rows(at, g->m, n, &rows) ||
            (!made->alike && weft_merge__finishes(g, n, made->bias.i != 0) &&
             !weft_merge__chain_us(at, g->m, weft_node_out(g->m, n, 0), rows * f.features, 2, us)))
            return false;
        all += rows;
        extra.rank += rows * d->rank;
        extra.segments += d != last;
        extra.ranks += d != last ? d->rank : 0;
        extra.element += rows * d->elements;
        extra.elements += d != last ? d->elements : 0;
        last = d;
    }
    extra.rank /= fmax(1, all);
    extra.element /= fmax(1, all);
    weft_merge_gemm base = weft_merge__numbers(&f, all, f.taps, f.features);
    base.delta = extra;
    return weft_merge__gemm_us(at, g->m, first, &base, us);
}

static bool time_delta(weft_merger *g, const weft_merge_group *p, const weft_merge_sizes *at,
                       double *us)
{
    const plan *made = p->plan;
    if (made->one)
        return time_one(g, p, at, us);
    weft_node first = weft_merge__first(g, &p->column);
    weft_merge_form f = weft_merge__form(g, first);
    double all = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        double rows = 0;
        if (n.i && (!weft_merge__node_rows(at, g->m, n, &rows) ||
                    !time_own(g, n, made->by_model[i], made->bias.i != 0, &f, at, rows, us)))
            return false;
        all += rows;
    }
    weft_merge_gemm base = weft_merge__numbers(&f, all, f.taps, f.features);
    return weft_merge__gemm_us(at, g->m, first, &base, us);
}

static void count_bytes(weft_merger *g, const weft_merge_group *p, uint64_t *read, uint64_t *made)
{
    const plan *x = p->plan;
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &p->column));
    *read = (uint64_t)f.taps * f.features * sizeof(float);
    *made = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        const delta *d = x->by_model[i];
        for (uint32_t k = 0; k < i && d; k++)
            d = x->by_model[k] == d ? NULL : d;
        if (d && d->rank)
            *made += (uint64_t)d->rank * (f.features + (d->first ? f.taps : 0)) * sizeof(float);
        if (d && d->elements)
            *made += d->elements * (sizeof *d->value + sizeof *d->tap) +
                     ((uint64_t)f.features + 1) * sizeof *d->start;
    }
    *read += *made;
}

/* -- The joint graph -------------------------------------------------------------------------- */

/* Makes the weights of a difference, once for all models that have it. */
static void make_weights(weft_merger *g, const plan *x, uint32_t model, const weft_merge_form *f,
                         weft_merge_extra *made)
{
    const delta *d = x->by_model[model];
    for (uint32_t k = 0; k < model; k++)
        if (x->by_model[k] == d) {
            made[model] = made[k];
            return;
        }
    if (d->elements) {
        const int64_t n = d->elements, ends = (int64_t)f->features + 1;
        made[model].in[0] =
            weft_rewrite__constant(g->m, WEFT_DTYPE_F32, &n, 1, d->value, "merge.value");
        made[model].in[1] =
            weft_rewrite__constant(g->m, WEFT_DTYPE_I32, &n, 1, d->tap, "merge.tap");
        made[model].in[2] =
            weft_rewrite__constant(g->m, WEFT_DTYPE_I32, &ends, 1, d->start, "merge.first");
        return;
    }
    weft_merge_form factor = weft_merge__pointwise(f, d->rank);
    if (d->first)
        made[model].in[0] = weft_merge__make_weight(g, f, f->taps, d->rank, d->first, "merge.down");
    made[model].in[1] = weft_merge__make_weight(g, d->first ? &factor : f, d->rank, f->features,
                                                d->second, "merge.up");
}

static void emit_one(weft_merger *g, const weft_merge_group *p)
{
    const plan *x = p->plan;
    const weft_dim *start = weft_merge__starts(g, p);
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &p->column));
    weft_merge_extra made[WEFT_MERGE_MODELS_MAX] = {{{{0}}}};
    weft_val part[WEFT_MERGE_MODELS_MAX] = {{0}};
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i && has_more(x->by_model[i]))
            make_weights(g, x, i, &f, made);
    weft_val all = weft_merge__extended(g, p, x->op, x->base, x->bias, made, x->alike);
    if (x->alike) {
        weft_merge__set_joined(g, p, 0, all, start);
        return;
    }
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i)
            part[i] = weft_merge__finish(g, i, p->column.node[i],
                                         weft_merge__part(g, p, i, all, start), x->bias.i != 0);
    weft_merge__set_parts(g, p, part);
}

static void emit_delta(weft_merger *g, const weft_merge_group *p)
{
    const plan *x = p->plan;
    if (x->one) {
        emit_one(g, p);
        return;
    }
    const weft_dim *start = weft_merge__starts(g, p);
    weft_val all = weft_merge__multiply_base(g, p, x->base, x->bias);
    weft_val part[WEFT_MERGE_MODELS_MAX] = {{0}};
    weft_merge_extra made[WEFT_MERGE_MODELS_MAX] = {{{{0}}}};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = p->column.node[i];
        const delta *d = x->by_model[i];
        if (!n.i)
            continue;
        weft_merge_form f = weft_merge__form(g, n);
        weft_val result = weft_merge__part(g, p, i, all, start);
        if (d->rank == 0) {
            part[i] = weft_merge__finish(g, i, n, result, x->bias.i != 0);
            continue;
        }
        make_weights(g, x, i, &f, made);
        weft_merge_form second = d->pick ? f : weft_merge__pointwise(&f, d->rank);
        weft_val own = weft_merge__own(g, i, f.x, weft_node_loc(g->m, n));
        weft_val factor = d->pick
                              ? weft_merge__take_features(g, &f, own, d->pick, d->rank / f.window)
                              : weft_merge__make_gemm(g, &f, own, made[i].in[0]);
        part[i] =
            weft_merge__finish_gemm(g, i, &second, factor, made[i].in[1], result, x->bias.i != 0);
    }
    weft_merge__set_parts(g, p, part);
}

const weft_merge_strategy weft_merge_strategy_low_rank = {
    .name = "low_rank",
    .brief = "one super-GEMM by a base weight, low-rank factors for the differences",
    .fit = fit_low_rank,
    .time = time_delta,
    .bytes = count_bytes,
    .emit = emit_delta,
};

const weft_merge_strategy weft_merge_strategy_sparse = {
    .name = "sparse",
    .brief = "one super-GEMM by a base weight, a GEMM of the inputs that differ",
    .fit = fit_sparse,
    .time = time_delta,
    .bytes = count_bytes,
    .emit = emit_delta,
};

const weft_merge_strategy weft_merge_strategy_scattered = {
    .name = "scattered",
    .brief = "one super-GEMM by a base weight, and single elements that differ",
    .fit = fit_scattered,
    .time = time_delta,
    .bytes = count_bytes,
    .emit = emit_delta,
};
