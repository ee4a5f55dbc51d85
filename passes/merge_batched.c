/* Products by different weights of one shape as one batched product: weights one behind the other,
 * the rows of each model filled up with zeros to those of the one with most.
 *
 *     x [m, k] w    =>   [max(m, n), k] of x      [w]
 *     y [n, k] v         [max(m, n), k] of y   x  [v]
 *
 * No byte less is read: what is saved are launches, and processors that one product alone leaves
 * idle. That is a gain on GPUs with small layers; the weights are stored once more. */
#include "passes/merge_int.h"

#include <string.h>

/* The largest of more rows than this is no expression that dims can hold. */
enum { MODELS_MAX = 16 };

static const char *fit_batched(weft_merger *g, weft_piece *piece)
{
    const char *reason = weft_merge__refuse(g, piece);
    if (!reason && piece->column.n > MODELS_MAX)
        reason = "more models than a maximum of rows can be written for";
    weft_merge_form first = {0};
    for (uint32_t i = 0; !reason && i < g->columns.n_model; i++) {
        if (!piece->column.node[i].i)
            continue;
        weft_merge_form f = weft_merge__form(g, piece->column.node[i]);
        first = first.w.i ? first : f;
        if (f.taps != first.taps || f.features != first.features)
            reason = "the weights have different shapes";
    }
    /* Nobody measured batched products there: no time of theirs is to be believed. */
    if (!reason && g->cx->options->merge == WEFT_MERGE_AUTO && g->sized &&
        g->small.slice.gpu->capability == 0)
        reason = "on a CPU no launch is dear enough";
    piece->together = !reason && weft_merge__parts_align(g, piece);
    return reason;
}

static bool time_batched(weft_merger *g, const weft_piece *piece, const weft_merge_sizes *at,
                         double *us)
{
    weft_node first = weft_merge__first(g, &piece->column);
    weft_merge_form f = weft_merge__form(g, first);
    weft_val y = weft_node_out(g->m, first, 0);
    double most = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = piece->column.node[i];
        double rows = 0;
        if (n.i && !weft_merge__node_rows(at, g->m, n, &rows))
            return false;
        most = rows > most ? rows : most;
    }
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = piece->column.node[i];
        if (n.i && (!weft_merge__chain_us(at, g->m, y, most * f.taps, 1, us) ||
                    (weft_merge__finishes(g, n, false) &&
                     !weft_merge__chain_us(at, g->m, y, most * f.features, 2, us))))
            return false;
    }
    weft_merge_product one = {most, f.features, f.taps, most * f.taps * piece->column.n,
                              piece->column.n};
    return weft_merge__product_us(at, g->m, first, &one, us);
}

static void batched_bytes(weft_merger *g, const weft_piece *piece, uint64_t *read, uint64_t *made)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &piece->column));
    *read = *made = (uint64_t)piece->column.n * f.taps * f.features * sizeof(float);
}

/* The weights [models, taps, features]. */
static weft_val stack_weights(weft_merger *g, const weft_piece *piece)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &piece->column));
    size_t size = (size_t)f.taps * f.features;
    float *all = weft_arena_array(g->cx->scratch, size * piece->column.n, sizeof *all), *to = all;
    const int64_t dim[] = {piece->column.n, f.taps, f.features};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!piece->column.node[i].i)
            continue;
        weft_merge_form own = weft_merge__form(g, piece->column.node[i]);
        const uint8_t *from = weft_merge__bytes(g, &own);
        if (!f.by_feature)
            memcpy(to, from, size * sizeof *to);
        for (uint32_t t = 0; f.by_feature && t < f.taps; t++)
            for (uint32_t k = 0; k < f.features; k++)
                memcpy(&to[(size_t)t * f.features + k],
                       from + ((size_t)k * f.taps + t) * sizeof *to, sizeof *to);
        to += size;
    }
    return weft_rewrite__constant(g->m, WEFT_DTYPE_F32, dim, 3, all, "merge.stacked");
}

/* Model i's operand with `most` rows. */
static weft_val fill_up(weft_merger *g, const weft_piece *piece, uint32_t i, weft_dim most)
{
    weft_node n = piece->column.node[i];
    weft_loc loc = weft_node_loc(g->m, n);
    weft_val x = weft_merge__own(g, i, weft_node_in(g->m, n, 0), loc);
    weft_ttype type = *weft_val_ttype(g->m, x);
    weft_dim rows = weft_merge__rows(g, &type, piece->level);
    type = weft_merge__with_rows(&type, piece->level, rows);
    x = weft_merge__view(g, x, &type, loc);
    weft_dim pads[] = {0, 0, weft_dim_sub(g->dims, most, rows), 0};
    weft_attr attr = WEFT_ATTR_OF_DIMS(PADS, pads, 4);
    type.dim[0] = most;
    return weft_merge__append(g, WEFT_OP_PAD, &x, 1, &attr, 1, &type, loc);
}

static void emit_batched(weft_merger *g, const weft_piece *piece)
{
    weft_node first = weft_merge__first(g, &piece->column);
    weft_merge_form f = weft_merge__form(g, first);
    weft_loc loc = weft_node_loc(g->m, first);
    weft_val row[WEFT_MERGE_MODELS_MAX], part[WEFT_MERGE_MODELS_MAX] = {{0}};
    weft_dim most = 0, start[WEFT_MERGE_MODELS_MAX + 1] = {0}, count = piece->column.n;
    uint32_t n_row = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (piece->column.node[i].i) {
            weft_val y = weft_node_out(g->m, piece->column.node[i], 0);
            weft_dim rows = weft_merge__rows(g, weft_val_ttype(g->m, y), piece->level);
            most = most ? weft_dim_max(g->dims, most, rows) : rows;
        }
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (piece->column.node[i].i) {
            start[i] = weft_dim_mul(g->dims, n_row, most);
            row[n_row++] = fill_up(g, piece, i, most);
        }
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
    weft_ttype type = *weft_val_ttype(g->m, row[0]);
    type.dim[0] = weft_dim_mul(g->dims, count, most);
    weft_val x = weft_merge__append(g, WEFT_OP_CONCAT, row, n_row, &axis, 1, &type, loc);
    weft_ttype flat = type;
    type.rank = 3;
    type.dim[0] = count;
    type.dim[1] = most;
    type.dim[2] = f.taps;
    const weft_val in[] = {weft_merge__view(g, x, &type, loc), stack_weights(g, piece)};
    type.dim[2] = flat.dim[1] = f.features;
    weft_val all = weft_merge__append(g, WEFT_OP_MATMUL, in, 2, NULL, 0, &type, loc);
    all = weft_merge__view(g, all, &flat, loc);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = piece->column.node[i];
        if (n.i)
            part[i] = weft_merge__finish(g, i, n, weft_merge__part(g, piece, i, all, start), false);
    }
    weft_merge__set_parts(g, piece, part);
}

const weft_merge_strategy weft_merge_strategy_batched = {
    .name = "batched",
    .brief = "one batched product by different weights of one shape",
    .fit = fit_batched,
    .time = time_batched,
    .bytes = batched_bytes,
    .emit = emit_batched,
};
