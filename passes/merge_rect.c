/* The strategies of USHER (Shubha et al., OSDI 2024), kept to be compared with: weights that have a
 * rectangle of elements in common.
 *
 *     w = [R a]   v = [R d]     R: taps of both by features of both, anywhere in either
 *         [b c]       [e f]
 *
 * rectangle_compact: one product of the inputs that meet R, for the rows of all models, by R; what
 * is left of each weight - the taps beside R, the features beside R - is multiplied for each model
 * and put together with its part.
 *
 * rectangle_literal: as the paper writes it. R in zeros of the size of the weights is multiplied
 * with the rows of all models; each weight with zeros in the place of R with those of its own. That
 * doubles the arithmetic and stores three matrices for two.
 *
 * The rectangle of more than two weights is found one weight after the other: what the next has of
 * what all before have. common_rect.c says what is found. */
#include "passes/merge_int.h"
#include "passes/similar.h"

#include <string.h>

typedef struct corner {
    uint32_t tap, feature;
} corner;

typedef struct plan {
    uint32_t taps, features; /* of the rectangle */
    corner *at;              /* by model */
} plan;

/* -- The rectangle ---------------------------------------------------------------------------- */

/* A copy [taps, features] of elements of a weight. */
static float *take(weft_merger *g, const weft_merge_form *f, const uint32_t *tap, uint32_t n_tap,
                   const uint32_t *feature, uint32_t n_feature)
{
    const uint8_t *bytes = weft_merge__bytes(g, f);
    float *out = weft_arena_array(g->cx->scratch, (size_t)n_tap * n_feature + 1, sizeof *out);
    for (uint32_t t = 0; t < n_tap; t++)
        for (uint32_t i = 0; i < n_feature; i++)
            out[(size_t)t * n_feature + i] = weft_merge__element(f, bytes, tap[t], feature[i]);
    return out;
}

/* n numbers from `from` on. */
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

/* All of a weight as [taps, features]. */
static weft_matrix plain_matrix(weft_merger *g, const weft_merge_form *f, corner at, uint32_t taps,
                                uint32_t features)
{
    const float *copy =
        take(g, f, run_of(g, at.tap, taps), taps, run_of(g, at.feature, features), features);
    return (weft_matrix){
        .data = (const uint8_t *)copy, .rows = taps, .cols = features, .bytes = sizeof *copy};
}

/* Takes weight `own` of model i in: the rectangle shrinks to what it has of it. */
static bool shrink(weft_merger *g, plan *p, const weft_merge_form *first, uint32_t first_model,
                   const weft_merge_form *own, uint32_t i)
{
    weft_matrix a = plain_matrix(g, first, p->at[first_model], p->taps, p->features);
    weft_matrix b = plain_matrix(g, own, (corner){0}, own->taps, own->features);
    weft_rect r = weft_similar__largest_rect(&a, &b, g->cx->scratch);
    if (r.rows == 0 || r.cols == 0)
        return false;
    for (uint32_t k = 0; k < i; k++) {
        p->at[k].tap += r.row_a;
        p->at[k].feature += r.col_a;
    }
    p->at[i] = (corner){r.row_b, r.col_b};
    p->taps = r.rows;
    p->features = r.cols;
    return true;
}

static const char *find_rectangle(weft_merger *g, weft_piece *piece, plan **out)
{
    const char *reason = weft_merge__refuse(g, piece);
    plan *p = weft_arena_alloc(g->cx->scratch, sizeof *p);
    uint32_t n_model = g->columns.n_model, first_model = UINT32_MAX;
    weft_merge_form first = {0};
    if (reason)
        return reason;
    p->at = weft_arena_array(g->cx->scratch, n_model, sizeof *p->at);
    for (uint32_t i = 0; i < n_model; i++) {
        if (!piece->column.node[i].i)
            continue;
        weft_merge_form own = weft_merge__form(g, piece->column.node[i]);
        uint32_t same = first_model;
        if (first_model == UINT32_MAX) {
            first_model = i;
            first = own;
            p->taps = own.taps;
            p->features = own.features;
            continue;
        }
        while (same < i && (!piece->column.node[same].i ||
                            weft_node_in(g->m, piece->column.node[same], 1).i != own.w.i))
            same++;
        if (same < i)
            p->at[i] = p->at[same];
        else if (!shrink(g, p, &first, first_model, &own, i))
            return "no rectangle in common";
    }
    piece->plan = *out = p;
    piece->together = weft_merge__parts_align(g, piece);
    return NULL;
}

/* -- Compact ---------------------------------------------------------------------------------- */

static const char *fit_compact(weft_merger *g, weft_piece *piece)
{
    plan *p;
    return find_rectangle(g, piece, &p);
}

static bool time_one(weft_merger *g, weft_node n, const weft_merge_sizes *at, double rows,
                     uint32_t taps, uint32_t features, double *us)
{
    weft_merge_product one = {rows, features, taps, rows * taps, 1};
    return taps == 0 || features == 0 || weft_merge__product_us(at, g->m, n, &one, us);
}

static bool time_compact(weft_merger *g, const weft_piece *piece, const weft_merge_sizes *at,
                         double *us)
{
    const plan *p = piece->plan;
    double all = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = piece->column.node[i];
        double rows = 0;
        if (!n.i)
            continue;
        weft_merge_form f = weft_merge__form(g, n);
        weft_val y = weft_node_out(g->m, n, 0);
        if (!weft_merge__node_rows(at, g->m, n, &rows) ||
            !time_one(g, n, at, rows, f.taps - p->taps, p->features, us) ||
            !time_one(g, n, at, rows, f.taps, f.features - p->features, us) ||
            !weft_merge__chain_us(at, g->m, y, rows * p->taps, 1, us) ||
            !weft_merge__chain_us(at, g->m, y, rows * f.features, 2, us))
            return false;
        all += rows;
    }
    return time_one(g, weft_merge__first(g, &piece->column), at, all, p->taps, p->features, us);
}

static void compact_bytes(weft_merger *g, const weft_piece *piece, uint64_t *read, uint64_t *made)
{
    const plan *p = piece->plan;
    uint64_t rect = (uint64_t)p->taps * p->features;
    *made = rect * sizeof(float);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_merge_form f = {0};
        if (piece->column.node[i].i)
            f = weft_merge__form(g, piece->column.node[i]);
        *made += f.taps ? ((uint64_t)f.taps * f.features - rect) * sizeof(float) : 0;
    }
    *read = *made;
}

/* The rectangle's product for the rows of all models. */
static weft_val multiply_rectangle(weft_merger *g, const weft_piece *piece)
{
    const plan *p = piece->plan;
    weft_val part[WEFT_MERGE_MODELS_MAX], w = {0};
    uint32_t n = 0;
    weft_ttype type = {0};
    weft_loc loc = weft_node_loc(g->m, weft_merge__first(g, &piece->column));
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!piece->column.node[i].i)
            continue;
        weft_merge_form f = weft_merge__form(g, piece->column.node[i]);
        const uint32_t *tap = run_of(g, p->at[i].tap, p->taps);
        if (!w.i)
            w = weft_merge__weight(
                g, p->taps, p->features,
                take(g, &f, tap, p->taps, run_of(g, p->at[i].feature, p->features), p->features),
                "merge.rectangle");
        weft_val x = weft_merge__pick(g, weft_merge__own(g, i, f.x, loc), tap, p->taps, loc);
        type = *weft_val_ttype(g->m, x);
        type = weft_merge__with_rows(&type, piece->level, weft_merge__rows(g, &type, piece->level));
        part[n++] = weft_merge__view(g, x, &type, loc);
    }
    type.dim[0] = weft_merge__starts(g, piece)[g->columns.n_model];
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
    weft_val x = weft_merge__append(g, WEFT_OP_CONCAT, part, n, &axis, 1, &type, loc);
    return weft_merge__multiply(g, x, w, loc);
}

/* `product` and what the taps beside the rectangle add to its features. */
static weft_val add_other_taps(weft_merger *g, const plan *p, uint32_t i, weft_node n,
                               weft_val product)
{
    static const char *const steps[] = {"add acc i3"};
    weft_merge_form f = weft_merge__form(g, n);
    weft_loc loc = weft_node_loc(g->m, n);
    uint32_t left = f.taps - p->taps;
    if (left == 0)
        return product;
    const uint32_t *tap = run_outside(g, f.taps, p->at[i].tap, p->taps);
    const float *w = take(g, &f, tap, left, run_of(g, p->at[i].feature, p->features), p->features);
    const weft_val in[] = {weft_merge__pick(g, weft_merge__own(g, i, f.x, loc), tap, left, loc),
                           weft_merge__weight(g, left, p->features, w, "merge.taps"),
                           {0},
                           product};
    weft_attr attr = WEFT_ATTR_OF_STRS(EPILOGUE, steps, 1);
    return weft_merge__append(g, WEFT_OP_MATMUL, in, 4, &attr, 1, weft_val_ttype(g->m, product),
                              loc);
}

/* The features of model i in their order. */
static weft_val put_together(weft_merger *g, const plan *p, uint32_t i, weft_node n,
                             weft_val product)
{
    weft_merge_form f = weft_merge__form(g, n);
    weft_loc loc = weft_node_loc(g->m, n);
    uint32_t left = f.features - p->features, from = p->at[i].feature;
    if (left == 0)
        return product;
    const uint32_t *other = run_outside(g, f.features, from, p->features);
    weft_val w = weft_merge__weight(
        g, f.taps, left, take(g, &f, run_of(g, 0, f.taps), f.taps, other, left), "merge.features");
    const weft_val part[] = {product,
                             weft_merge__multiply(g, weft_merge__own(g, i, f.x, loc), w, loc)};
    uint32_t *pick = weft_arena_array(g->cx->scratch, f.features, sizeof *pick), k = 0;
    for (uint32_t j = 0; j < f.features; j++)
        pick[j] = j - from < p->features ? j - from : p->features + k++;
    return weft_merge__pick(g, weft_merge__beside(g, part, 2, loc), pick, f.features, loc);
}

static void emit_compact(weft_merger *g, const weft_piece *piece)
{
    const plan *p = piece->plan;
    const weft_dim *start = weft_merge__starts(g, piece);
    weft_val all = multiply_rectangle(g, piece), part[WEFT_MERGE_MODELS_MAX] = {{0}};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = piece->column.node[i];
        if (!n.i)
            continue;
        weft_val own = weft_merge__part(g, piece, i, all, start);
        own = put_together(g, p, i, n, add_other_taps(g, p, i, n, own));
        part[i] = weft_merge__finish(g, i, n, own, false);
    }
    weft_merge__set_parts(g, piece, part);
}

const weft_merge_strategy weft_merge_strategy_rectangle_compact = {
    .name = "rectangle_compact",
    .brief = "one product by a common rectangle, the rest for each model (baseline)",
    .asked_only = true,
    .fit = fit_compact,
    .time = time_compact,
    .bytes = compact_bytes,
    .emit = emit_compact,
};

/* -- Literal ---------------------------------------------------------------------------------- */

static const char *fit_literal(weft_merger *g, weft_piece *piece)
{
    plan *p;
    const char *reason = find_rectangle(g, piece, &p);
    weft_merge_form first = {0};
    corner at = {0};
    for (uint32_t i = 0; !reason && i < g->columns.n_model; i++) {
        weft_merge_form f;
        if (!piece->column.node[i].i)
            continue;
        f = weft_merge__form(g, piece->column.node[i]);
        if (!first.w.i) {
            first = f;
            at = p->at[i];
        }
        if (f.taps != first.taps || f.features != first.features)
            reason = "the weights have different shapes";
        else if (p->at[i].tap != at.tap || p->at[i].feature != at.feature)
            reason = "the rectangle lies elsewhere in another weight";
    }
    return reason;
}

static bool time_literal(weft_merger *g, const weft_piece *piece, const weft_merge_sizes *at,
                         double *us)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &piece->column));
    double all = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = piece->column.node[i];
        double rows = 0;
        if (n.i && (!weft_merge__node_rows(at, g->m, n, &rows) ||
                    !time_one(g, n, at, rows, f.taps, f.features, us)))
            return false;
        all += rows;
    }
    return time_one(g, weft_merge__first(g, &piece->column), at, all, f.taps, f.features, us);
}

static void literal_bytes(weft_merger *g, const weft_piece *piece, uint64_t *read, uint64_t *made)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &piece->column));
    *read = *made = (uint64_t)(piece->column.n + 1) * f.taps * f.features * sizeof(float);
}

/* The weight with zeros inside the rectangle, or outside. */
static weft_val blank(weft_merger *g, const plan *p, uint32_t i, const weft_merge_form *f,
                      bool inside)
{
    float *w = take(g, f, run_of(g, 0, f->taps), f->taps, run_of(g, 0, f->features), f->features);
    for (uint32_t t = 0; t < f->taps; t++)
        for (uint32_t j = 0; j < f->features; j++)
            if ((t - p->at[i].tap < p->taps && j - p->at[i].feature < p->features) == inside)
                w[(size_t)t * f->features + j] = 0;
    return weft_merge__weight(g, f->taps, f->features, w, inside ? "merge.rest" : "merge.common");
}

static void emit_literal(weft_merger *g, const weft_piece *piece)
{
    const plan *p = piece->plan;
    const weft_dim *start = weft_merge__starts(g, piece);
    weft_val all = {0}, part[WEFT_MERGE_MODELS_MAX] = {{0}};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = piece->column.node[i];
        if (!n.i)
            continue;
        weft_merge_form f = weft_merge__form(g, n);
        if (!all.i)
            all = weft_merge__multiply_all(g, piece, blank(g, p, i, &f, false));
        weft_val x = weft_merge__own(g, i, f.x, weft_node_loc(g->m, n));
        weft_val product = weft_merge__part(g, piece, i, all, start);
        part[i] = weft_merge__finish_sum(g, i, n, x, blank(g, p, i, &f, true), product, false);
    }
    weft_merge__set_parts(g, piece, part);
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
