/* batched: GEMMs by different weights of one shape as one batched GEMM. The weights are stacked,
 * and the rows of each model are padded with zeros to those of the largest part.
 *
 *     x [m, k] w    ==>  [max(m, n), k] of x      [w]
 *     y [n, k] v         [max(m, n), k] of y   x  [v]
 *
 * Convolutions become one grouped convolution with a group for each model: their channels are
 * concatenated and their images padded.
 *
 * The same number of bytes is read. The gain is fewer launches, and fewer processors that are idle
 * because one GEMM is too small to fill the device: a gain on GPUs with small layers. The weights
 * are stored a second time. */
#include "passes/merge/merge_int.h"

#include <string.h>

/* The most models whose maximum of rows a dim can express. */
enum { MODELS_MAX = 16 };

static weft_dim rows_of(weft_merger *g, const weft_merge_group *group, uint32_t i)
{
    weft_val y = weft_node_out(g->m, group->column.node[i], 0);
    return weft_merge__rows(g, weft_val_ttype(g->m, y), group->level);
}

/* Whether, by the bounds of their symbols, one model never has more rows than another. The maximum
 * is then simplified to the other's rows, which is wrong when the other's part is empty. */
static bool is_outdone(weft_merger *g, const weft_merge_group *group)
{
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        for (uint32_t k = 0; k < i && group->column.node[i].i; k++) {
            if (!group->column.node[k].i)
                continue;
            weft_dim a = rows_of(g, group, i), b = rows_of(g, group, k);
            weft_dim most = weft_dim_max(g->dims, a, b);
            if (most == a || most == b)
                return true;
        }
    return false;
}

static const char *fit_batched(weft_merger *g, weft_merge_group *group)
{
    const char *reason = weft_merge__refuse(g, group);
    if (!reason && (group->column.n > MODELS_MAX || is_outdone(g, group)))
        reason = "the maximum of these models' rows cannot be expressed";
    weft_merge_form first = {0};
    for (uint32_t i = 0; !reason && i < g->columns.n_model; i++) {
        if (!group->column.node[i].i)
            continue;
        weft_merge_form f = weft_merge__form(g, group->column.node[i]);
        first = first.w.i ? first : f;
        if (f.taps != first.taps || f.features != first.features)
            reason = "the weights have different shapes";
    }
    /* Batched GEMMs were not measured on CPUs, so their predicted times cannot be trusted. */
    if (!reason && g->cx->options->merge == WEFT_MERGE_AUTO && g->sized &&
        g->small.slice.gpu->is_cpu)
        reason = "on a CPU launches cost too little";
    group->together = !reason && weft_merge__parts_align(g, group);
    return reason;
}

static bool time_batched(weft_merger *g, const weft_merge_group *group, const weft_merge_sizes *at,
                         double *us)
{
    weft_node first = weft_merge__first(g, &group->column);
    weft_merge_form f = weft_merge__form(g, first);
    weft_val y = weft_node_out(g->m, first, 0);
    double most = 0;
    *us = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        double rows = 0;
        if (n.i && !weft_merge__node_rows(at, g->m, n, &rows))
            return false;
        most = rows > most ? rows : most;
    }
    weft_merge_gemm one = weft_merge__numbers(&f, most, f.taps, f.features);
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        if (n.i && (!weft_merge__chain_us(at, g->m, y, one.x, 1, us) ||
                    (weft_merge__finishes(g, n, false) &&
                     !weft_merge__chain_us(at, g->m, y, most * f.features, 2, us))))
            return false;
    }
    one.x *= group->column.n;
    one.batch = group->column.n;
    return weft_merge__gemm_us(at, g->m, first, &one, us);
}

static void batched_bytes(weft_merger *g, const weft_merge_group *group, uint64_t *read,
                          uint64_t *made)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &group->column));
    *read = *made = (uint64_t)group->column.n * f.taps * f.features * sizeof(float);
}

/* The stacked weights: [models, taps, features], or [models * features, channels, ...]. */
static weft_val stack_weights(weft_merger *g, const weft_merge_group *group)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &group->column));
    size_t size = (size_t)f.taps * f.features;
    float *all = weft_arena_array(g->cx->scratch, size * group->column.n, sizeof *all), *to = all;
    weft_tensor w = weft_weight_tensor(g->m, weft_val_weight(g->m, f.w));
    const int64_t dim[] = {group->column.n, f.taps, f.features};
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        if (!group->column.node[i].i)
            continue;
        weft_merge_form own = weft_merge__form(g, group->column.node[i]);
        const uint8_t *from = weft_merge__bytes(g, &own);
        bool turned = f.by_feature && !f.conv;
        if (!turned)
            memcpy(to, from, size * sizeof *to);
        for (uint32_t t = 0; turned && t < f.taps; t++)
            for (uint32_t k = 0; k < f.features; k++)
                to[(size_t)t * f.features + k] = weft_merge__element(&own, from, t, k);
        to += size;
    }
    w.dim[0] *= group->column.n;
    return weft_rewrite__constant(g->m, WEFT_DTYPE_F32, f.conv ? w.dim : dim, f.conv ? w.rank : 3,
                                  all, "merge.stacked");
}

static weft_dim most_rows(weft_merger *g, const weft_merge_group *group)
{
    weft_dim most = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (group->column.node[i].i) {
            weft_dim rows = rows_of(g, group, i);
            most = most ? weft_dim_max(g->dims, most, rows) : rows;
        }
    return most;
}

/* The operand of model i, padded to `most` rows. */
static weft_val fill_up(weft_merger *g, const weft_merge_group *group, uint32_t i, weft_dim most)
{
    weft_node n = group->column.node[i];
    weft_loc loc = weft_node_loc(g->m, n);
    weft_val x = weft_merge__own(g, i, weft_node_in(g->m, n, 0), loc);
    weft_ttype type = *weft_val_ttype(g->m, x);
    weft_dim rows = weft_merge__rows(g, &type, group->level), pads[2 * WEFT_RANK_MAX] = {0};
    type = weft_merge__with_rows(&type, group->level, rows);
    x = weft_merge__view(g, x, &type, loc);
    pads[type.rank] = weft_dim_sub(g->dims, most, rows);
    weft_attr attr = WEFT_ATTR_OF_DIMS(PADS, pads, 2u * type.rank);
    type.dim[0] = most;
    return weft_merge__append(g, WEFT_OP_PAD, &x, 1, &attr, 1, &type, loc);
}

/* The batched GEMM of operands with `most` rows each: [models * most, features]. */
static weft_val multiply_rows(weft_merger *g, const weft_merge_form *f, const weft_val *part,
                              uint32_t n, weft_dim most, weft_val w)
{
    weft_loc loc = weft_node_loc(g->m, f->node);
    weft_attr axis = WEFT_ATTR_OF_INT(AXIS, 0);
    weft_ttype flat = *weft_val_ttype(g->m, part[0]), type = flat;
    flat.dim[0] = weft_dim_mul(g->dims, n, most);
    weft_val x = weft_merge__append(g, WEFT_OP_CONCAT, part, n, &axis, 1, &flat, loc);
    type.rank = 3;
    type.dim[0] = n;
    type.dim[1] = most;
    type.dim[2] = f->taps;
    const weft_val in[] = {weft_merge__view(g, x, &type, loc), w};
    type.dim[2] = flat.dim[1] = f->features;
    weft_val all = weft_merge__append(g, WEFT_OP_MATMUL, in, 2, NULL, 0, &type, loc);
    return weft_merge__view(g, all, &flat, loc);
}

/* The grouped convolution: [most, models * features, ...]. */
static weft_val multiply_images(weft_merger *g, const weft_merge_form *f, const weft_val *part,
                                uint32_t n, weft_val w)
{
    weft_val y = weft_merge__make_gemm(g, f, weft_merge__concat_features(g, f, part, n), w);
    weft_node_set_attr(g->m, weft_val_node(g->m, y), &WEFT_ATTR_OF_INT(GROUP, n));
    return y;
}

static void emit_batched(weft_merger *g, const weft_merge_group *group)
{
    weft_merge_form f = weft_merge__form(g, weft_merge__first(g, &group->column));
    weft_val row[WEFT_MERGE_MODELS_MAX], part[WEFT_MERGE_MODELS_MAX] = {{0}};
    weft_dim most = most_rows(g, group), start[WEFT_MERGE_MODELS_MAX + 1] = {0};
    uint32_t n_row = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (group->column.node[i].i) {
            start[i] = f.conv ? 0 : weft_dim_mul(g->dims, n_row, most);
            row[n_row++] = fill_up(g, group, i, most);
        }
    weft_val w = stack_weights(g, group);
    weft_val all =
        f.conv ? multiply_images(g, &f, row, n_row, w) : multiply_rows(g, &f, row, n_row, most, w);
    uint32_t *feature = weft_arena_array(g->cx->scratch, f.features, sizeof *feature);
    for (uint32_t i = 0, first = 0; i < g->columns.n_model; i++) {
        weft_node n = group->column.node[i];
        if (!n.i)
            continue;
        for (uint32_t k = 0; k < f.features; k++)
            feature[k] = first + k;
        first += f.conv ? f.features : 0;
        weft_val own = weft_merge__take_features(g, &f, all, feature, f.features);
        own = weft_merge__part(g, group, i, own, start);
        part[i] = weft_merge__finish(g, i, n, own, false);
    }
    weft_merge__set_parts(g, group, part);
}

const weft_merge_strategy weft_merge_strategy_batched = {
    .name = "batched",
    .brief = "one batched GEMM by different weights of one shape",
    .fit = fit_batched,
    .time = time_batched,
    .bytes = batched_bytes,
    .emit = emit_batched,
};
