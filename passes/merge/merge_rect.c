/* The strategies of USHER (Shubha et al., OSDI 2024) for weights that have a rectangle of elements
 * in common, kept as baselines.
 *
 *     w = [R a]   v = [R d]     R: some inputs of both by some features of both, anywhere in either
 *         [b c]       [e f]
 *
 * Inputs are taps, or input channels of a convolution with a whole kernel for each feature.
 *
 * rectangle_compact: one super-GEMM of the inputs of R by R for the rows of all models. What is
 * left of each weight (the inputs outside R, the features outside R) is multiplied for each model,
 * and added to or concatenated with its part.
 *
 * rectangle_literal: as the paper describes it. R, with zeros around it in the shape of the
 * weights, is multiplied with the rows of all models; each weight, with zeros in place of R, with
 * the rows of its model. This doubles the arithmetic and stores three matrices for two.
 *
 * For more than two weights the rectangle is found one weight after the other: the largest
 * rectangle that the next weight has in common with the rectangle so far. common_rect.c has the
 * search. */
#include "passes/merge/merge_int.h"
#include "passes/similarity/similar.h"

#include "base/hash.h"

#include <string.h>

typedef struct corner {
    uint32_t input, feature;
} corner;

typedef struct plan {
    uint32_t inputs, features; /* size of the rectangle */
    corner *at;                /* by model: its position */
} plan;

/* -- The rectangle ---------------------------------------------------------------------------- */

static uint32_t inputs_of(const weft_merge_form *f)
{
    return f->taps / f->window;
}

/* A copy [taps, features] of some inputs and features of a weight. */
static float *take(weft_merger *g, const weft_merge_form *f, const uint32_t *input,
                   uint32_t n_input, const uint32_t *feature, uint32_t n_feature)
{
    const uint8_t *bytes = weft_merge__bytes(g, f);
    size_t size = (size_t)n_input * f->window * n_feature;
    float *all = weft_arena_array(g->cx->scratch, size + 1, sizeof *all), *out = all;
    for (uint32_t t = 0; t < n_input; t++)
        for (uint32_t k = 0; k < f->window; k++)
            for (uint32_t i = 0; i < n_feature; i++)
                *out++ = weft_merge__element(f, bytes, input[t] * f->window + k, feature[i]);
    return all;
}

/* The n numbers from `from` on. */
static uint32_t *run_of(weft_merger *g, uint32_t from, uint32_t n)
{
    uint32_t *list = weft_arena_array(g->cx->scratch, (size_t)n + 1, sizeof *list);
    for (uint32_t i = 0; i < n; i++)
        list[i] = from + i;
    return list;
}

/* The numbers below n outside [from, from + length). */
static uint32_t *run_outside(weft_merger *g, uint32_t n, uint32_t from, uint32_t length)
{
    uint32_t *list = weft_arena_array(g->cx->scratch, (size_t)n + 1, sizeof *list), k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (i < from || i >= from + length)
            list[k++] = i;
    return list;
}

/* Part of a weight as a matrix [inputs, features] for the search: of elements, or of hashes of
 * kernels. */
static weft_matrix make_matrix(weft_merger *g, const weft_merge_form *f, corner at, uint32_t inputs,
                               uint32_t features)
{
    const uint32_t *input = run_of(g, at.input, inputs), *feature = run_of(g, at.feature, features);
    const uint8_t *bytes = weft_merge__bytes(g, f);
    weft_matrix m = {.rows = inputs, .cols = features, .bytes = sizeof(float)};
    if (f->window == 1) {
        m.data = (const uint8_t *)take(g, f, input, inputs, feature, features);
        return m;
    }
    uint64_t *hash = weft_arena_array(g->cx->scratch, (size_t)inputs * features, sizeof *hash);
    size_t kernel = f->window * sizeof(float);
    for (uint32_t t = 0; t < inputs; t++)
        for (uint32_t i = 0; i < features; i++)
            hash[(size_t)t * features + i] = weft_hash64(
                bytes + ((size_t)feature[i] * inputs_of(f) + input[t]) * kernel, kernel, 0);
    m.data = (const uint8_t *)hash;
    m.bytes = sizeof *hash;
    return m;
}

/* Equal hashes need not be equal kernels. */
static bool same_rectangle(weft_merger *g, const plan *p, const weft_merge_form *a, corner at_a,
                           const weft_merge_form *b, corner at_b)
{
    size_t kernel = a->window * sizeof(float), inputs = inputs_of(a), others = inputs_of(b);
    const uint8_t *x = weft_merge__bytes(g, a), *y = weft_merge__bytes(g, b);
    for (uint32_t i = 0; a->window > 1 && i < p->features; i++)
        if (memcmp(x + ((at_a.feature + i) * inputs + at_a.input) * kernel,
                   y + ((at_b.feature + i) * others + at_b.input) * kernel,
                   p->inputs * kernel) != 0)
            return false;
    return true;
}

/* Shrinks the rectangle to what weight `own` of model i has in common with it. */
static bool shrink(weft_merger *g, plan *p, const weft_merge_form *first, uint32_t first_model,
                   const weft_merge_form *own, uint32_t i)
{
    weft_matrix a = make_matrix(g, first, p->at[first_model], p->inputs, p->features);
    weft_matrix b = make_matrix(g, own, (corner){0}, inputs_of(own), own->features);
    weft_rect r = weft_similar__largest_rect(&a, &b, g->cx->scratch);
    if (r.rows == 0 || r.cols == 0)
        return false;
    for (uint32_t k = 0; k < i; k++) {
        p->at[k].input += r.row_a;
        p->at[k].feature += r.col_a;
    }
    p->at[i] = (corner){r.row_b, r.col_b};
    p->inputs = r.rows;
    p->features = r.cols;
    return same_rectangle(g, p, first, p->at[first_model], own, p->at[i]);
}

static const char *find_rectangle(weft_merger *g, weft_merge_group *group, plan **out)
{
    const char *reason = weft_merge__refuse(g, group);
    plan *p = weft_arena_alloc(g->cx->scratch, sizeof *p);
    uint32_t n_model = g->columns.n_model, first_model = UINT32_MAX;
    weft_merge_form first = {0};
    if (reason)
        return reason;
    p->at = weft_arena_array(g->cx->scratch, n_model, sizeof *p->at);
    for (uint32_t i = 0; i < n_model; i++) {
        if (!group->column.node[i].i)
            continue;
        weft_merge_form own = weft_merge__form(g, group->column.node[i]);
        uint32_t same = first_model;
        if (first_model == UINT32_MAX) {
            first_model = i;
            first = own;
            p->inputs = inputs_of(&own);
            p->features = own.features;
            continue;
        }
        while (same < i && (!group->column.node[same].i ||
                            weft_node_in(g->m, group->column.node[same], 1).i != own.w.i))
            same++;
        if (same < i)
            p->at[i] = p->at[same];
        else if (!shrink(g, p, &first, first_model, &own, i))
            return "no rectangle in common";
    }
    group->plan = *out = p;
    group->together = weft_merge__parts_align(g, group);
    return NULL;
}

/* -- Compact ---------------------------------------------------------------------------------- */

static const char *fit_compact(weft_merger *g, weft_merge_group *group)
{
    plan *p;
    return find_rectangle(g, group, &p);
}

static bool time_one(weft_merger *g, const weft_merge_form *f, const weft_merge_sizes *at,
                     double rows, uint32_t taps, uint32_t features, double *us)
{
    weft_merge_gemm one = weft_merge__numbers(f, rows, taps, features);
    return taps == 0 || features == 0 || weft_merge__gemm_us(at, g->m, f->node, &one, us);
}

static bool time_compact(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                         double *us)
{
    const plan *p = group->plan;
    weft_merge_form first = weft_merge__form(g, weft_merge__first(g, &group->column));
    uint32_t taps = p->inputs * first.window;
    double all = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        double rows = 0;
        if (!n.i)
            continue;
        weft_merge_form f = weft_merge__form(g, n);
        weft_val y = weft_node_out(g->m, n, 0);
        if (!weft_merge__node_rows(at, g->m, n, &rows) ||
            !time_one(g, &f, at, rows, f.taps - taps, p->features, us) ||
            !time_one(g, &f, at, rows, f.taps, f.features - p->features, us) ||
            !weft_merge__chain_us(at, g->m, y, rows * taps * f.spread, 1, us) ||
            !weft_merge__chain_us(at, g->m, y, rows * f.features, 2, us))
            return false;
        all += rows;
    }
    return time_one(g, &first, at, all, taps, p->features, us);
}

static void compact_bytes(weft_merger *g, const weft_merge_group *group, uint64_t *read,
                          uint64_t *made)
{
    const plan *p = group->plan;
    weft_merge_form first = weft_merge__form(g, weft_merge__first(g, &group->column));
    uint64_t rect = (uint64_t)p->inputs * first.window * p->features;
    *made = rect * sizeof(float);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_merge_form f = {0};
        if (group->column.node[i].i)
            f = weft_merge__form(g, group->column.node[i]);
        *made += f.taps ? ((uint64_t)f.taps * f.features - rect) * sizeof(float) : 0;
    }
    *read = *made;
}

/* The super-GEMM by the rectangle for the rows of all models. */
static weft_val multiply_rectangle(weft_merger *g, const weft_merge_group *group)
{
    const plan *p = group->plan;
    weft_val part[WEFT_MERGE_MODELS_MAX], w = {0};
    uint32_t n = 0;
    weft_ttype type = {0};
    weft_merge_form first = weft_merge__form(g, weft_merge__first(g, &group->column));
    weft_loc loc = weft_node_loc(g->m, first.node);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!group->column.node[i].i)
            continue;
        weft_merge_form f = weft_merge__form(g, group->column.node[i]);
        const uint32_t *input = run_of(g, p->at[i].input, p->inputs);
        const uint32_t *feature = run_of(g, p->at[i].feature, p->features);
        if (!w.i)
            w = weft_merge__make_weight(g, &f, p->inputs * f.window, p->features,
                                        take(g, &f, input, p->inputs, feature, p->features),
                                        "merge.rectangle");
        weft_val x = weft_merge__own(g, i, f.x, loc);
        x = weft_merge__take_features(g, &f, x, input, p->inputs);
        type = *weft_val_ttype(g->m, x);
        type = weft_merge__with_rows(&type, group->level, weft_merge__rows(g, &type, group->level));
        part[n++] = weft_merge__view(g, x, &type, loc);
    }
    type.dim[0] = weft_merge__starts(g, group)[g->columns.n_model];
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
    weft_val x = weft_merge__append(g, WEFT_OP_CONCAT, part, n, &axis, 1, &type, loc);
    return weft_merge__make_gemm(g, &first, x, w);
}

/* `result` plus the GEMM of the inputs outside the rectangle by its features. */
static weft_val add_other_inputs(weft_merger *g, const plan *p, uint32_t i,
                                 const weft_merge_form *f, weft_val result)
{
    uint32_t left = inputs_of(f) - p->inputs;
    if (left == 0)
        return result;
    const uint32_t *input = run_outside(g, inputs_of(f), p->at[i].input, p->inputs);
    const float *w = take(g, f, input, left, run_of(g, p->at[i].feature, p->features), p->features);
    weft_val x = weft_merge__own(g, i, f->x, weft_node_loc(g->m, f->node));
    weft_val weight =
        weft_merge__make_weight(g, f, left * f->window, p->features, w, "merge.inputs");
    weft_val taken = weft_merge__take_features(g, f, x, input, left);
    return weft_merge__accumulate_gemm(g, f, taken, weight, result);
}

/* Concatenates `result` with the GEMM of the features outside the rectangle, in the order of the
 * weight. */
static weft_val put_together(weft_merger *g, const plan *p, uint32_t i, const weft_merge_form *f,
                             weft_val result)
{
    uint32_t left = f->features - p->features, from = p->at[i].feature;
    if (left == 0)
        return result;
    const uint32_t *other = run_outside(g, f->features, from, p->features);
    const float *w = take(g, f, run_of(g, 0, inputs_of(f)), inputs_of(f), other, left);
    weft_val x = weft_merge__own(g, i, f->x, weft_node_loc(g->m, f->node));
    const weft_val part[] = {
        result, weft_merge__make_gemm(
                    g, f, x, weft_merge__make_weight(g, f, f->taps, left, w, "merge.features"))};
    uint32_t *pick = weft_arena_array(g->cx->scratch, f->features, sizeof *pick), k = 0;
    for (uint32_t j = 0; j < f->features; j++)
        pick[j] = j - from < p->features ? j - from : p->features + k++;
    return weft_merge__take_features(g, f, weft_merge__concat_features(g, f, part, 2), pick,
                                     f->features);
}

static void emit_compact(weft_merger *g, const weft_merge_group *group)
{
    const plan *p = group->plan;
    const weft_dim *start = weft_merge__starts(g, group);
    weft_val all = multiply_rectangle(g, group), part[WEFT_MERGE_MODELS_MAX] = {{0}};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        if (!n.i)
            continue;
        weft_merge_form f = weft_merge__form(g, n);
        weft_val own = weft_merge__part(g, group, i, all, start);
        own = put_together(g, p, i, &f, add_other_inputs(g, p, i, &f, own));
        part[i] = weft_merge__finish(g, i, n, own, false);
    }
    weft_merge__set_parts(g, group, part);
}

const weft_merge_strategy weft_merge_strategy_rectangle_compact = {
    .name = "rectangle_compact",
    .brief = "one super-GEMM by a common rectangle, the rest for each model (baseline)",
    .asked_only = true,
    .fit = fit_compact,
    .time = time_compact,
    .bytes = compact_bytes,
    .emit = emit_compact,
};

/* -- Literal ---------------------------------------------------------------------------------- */

static const char *fit_literal(weft_merger *g, weft_merge_group *group)
{
    plan *p;
    const char *reason = find_rectangle(g, group, &p);
    weft_merge_form first = {0};
    corner at = {0};
    for (uint32_t i = 0; !reason && i < g->columns.n_model; i++) {
        weft_merge_form f;
        if (!group->column.node[i].i)
            continue;
        f = weft_merge__form(g, group->column.node[i]);
        if (!first.w.i) {
            first = f;
            at = p->at[i];
        }
        if (f.taps != first.taps || f.features != first.features)
            reason = "the weights have different shapes";
        else if (p->at[i].input != at.input || p->at[i].feature != at.feature)
            reason = "the rectangle is at another position in another weight";
    }
    return reason;
}

static bool time_literal(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                         double *us)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &group->column));
    double all = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        double rows = 0;
        if (n.i && (!weft_merge__node_rows(at, g->m, n, &rows) ||
                    !time_one(g, &f, at, rows, f.taps, f.features, us)))
            return false;
        all += rows;
    }
    return time_one(g, &f, at, all, f.taps, f.features, us);
}

static void literal_bytes(weft_merger *g, const weft_merge_group *group, uint64_t *read,
                          uint64_t *made)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &group->column));
    *read = *made = (uint64_t)(group->column.n + 1) * f.taps * f.features * sizeof(float);
}

/* A copy of the weight with zeros inside the rectangle, or outside. */
static weft_val blank(weft_merger *g, const plan *p, uint32_t i, const weft_merge_form *f,
                      bool inside)
{
    uint32_t inputs = inputs_of(f);
    float *w = take(g, f, run_of(g, 0, inputs), inputs, run_of(g, 0, f->features), f->features);
    for (uint32_t t = 0; t < f->taps; t++)
        for (uint32_t j = 0; j < f->features; j++)
            if ((t / f->window - p->at[i].input < p->inputs &&
                 j - p->at[i].feature < p->features) == inside)
                w[(size_t)t * f->features + j] = 0;
    return weft_merge__make_weight(g, f, f->taps, f->features, w,
                                   inside ? "merge.rest" : "merge.common");
}

static void emit_literal(weft_merger *g, const weft_merge_group *group)
{
    const plan *p = group->plan;
    const weft_dim *start = weft_merge__starts(g, group);
    weft_val all = {0}, part[WEFT_MERGE_MODELS_MAX] = {{0}};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        if (!n.i)
            continue;
        weft_merge_form f = weft_merge__form(g, n);
        if (!all.i)
            all = weft_merge__multiply_all(g, group, blank(g, p, i, &f, false));
        weft_val x = weft_merge__own(g, i, f.x, weft_node_loc(g->m, n));
        weft_val result = weft_merge__part(g, group, i, all, start);
        part[i] = weft_merge__finish_gemm(g, i, &f, x, blank(g, p, i, &f, true), result, false);
    }
    weft_merge__set_parts(g, group, part);
}

const weft_merge_strategy weft_merge_strategy_rectangle_literal = {
    .name = "rectangle_literal",
    .brief = "the same with zeros in place of what is left out (baseline)",
    .asked_only = true,
    .fit = fit_literal,
    .time = time_literal,
    .bytes = literal_bytes,
    .emit = emit_literal,
};
