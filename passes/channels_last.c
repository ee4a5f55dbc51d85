/* channels-last: gives images on GPUs channels innermost (layout nhwc).
 *
 *     %y = conv %x, $w {...}    ==>    %t : ...:nhwc = reorder %x {layout = "nhwc"}
 *       $w : f32[m,c,3,3]              %u : ...:nhwc = conv %t, $v {trans_w = 1, ...}
 *                                      %y = reorder %u {layout = "plain"}      $v : f32[m,3,3,c]
 *
 * Tensor cores multiply along the channels: kernels read groups of them at once, cuDNN's engines do
 * not convert images in their workspace, and a convolution with a window of one pixel is a product.
 * One forward sweep: convolutions with constant weights take channels innermost; element-wise
 * kernels, concatenations, pooling and the like keep the layout of their operand; all others take
 * plain values. Transpositions read either. Where a value does not have the layout that a node
 * needs, a `reorder` is inserted before the first such node and shared by later ones. Graph inputs
 * and outputs are plain.
 *
 * An operand that is broadcast needs no reorder if its memory is the same in both layouts: one
 * channel, or one pixel. Weights are transposed once for all their convolutions. O(nodes + bytes of
 * weights). */
#include "passes/layouts.h"

#include "ops/place.h"

#include <string.h>

typedef struct chooser {
    weft_layouts to;
    weft_graph *g;
    weft_module *m;
    weft_map *weight; /* weight -> value with channels innermost; of all graphs */
} chooser;

static bool is_last(const chooser *c, weft_val v)
{
    return v.i && weft_layouts__layout_of(&c->to, v) == WEFT_LAYOUT_NHWC;
}

/* -- Broadcasting --------------------------------------------------------------------------- */

/* Whether the memory of v, broadcast to `like`, is the same in both layouts. */
static bool is_alike(const chooser *c, weft_val v, weft_val like)
{
    const weft_ttype *a = weft_val_ttype(c->m, v), *b = weft_val_ttype(c->m, like);
    return weft_place_is_one(a->dim, a->rank, b->rank);
}

/* Whether the operand can be broadcast to channels innermost. */
static bool can_spread(const chooser *c, weft_val v, weft_val like)
{
    const weft_ttype *a = weft_val_ttype(c->m, v), *b = weft_val_ttype(c->m, like);
    return a->rank == b->rank || (a->rank < b->rank && is_alike(c, v, like));
}

static void spread(chooser *c, weft_node n, uint32_t i, weft_val like)
{
    weft_val v = weft_node_in(c->m, n, i);
    if (!is_alike(c, v, like))
        weft_layouts__ask(&c->to, n, i, WEFT_LAYOUT_NHWC);
}

/* -- Convolutions --------------------------------------------------------------------------- */

/* The weight [m, c, taps...] as [m, taps..., c]. */
static weft_val transposed(chooser *c, weft_val v)
{
    uint64_t found = 0;
    weft_weight id = weft_val_weight(c->m, v);
    if (weft_map_get(c->weight, id.i, &found))
        return (weft_val){(uint32_t)found};
    weft_tensor t = weft_weight_tensor(c->m, id);
    size_t size = weft_dtype_size(t.dtype), channels = (size_t)t.dim[1], taps = 1;
    size_t n = (size_t)weft_tensor_numel(&t);
    weft_dim dim[WEFT_RANK_MAX] = {t.dim[0]};
    for (int32_t i = 2; i < t.rank; i++) {
        dim[i - 1] = t.dim[i];
        taps *= (size_t)t.dim[i];
    }
    dim[t.rank - 1] = t.dim[1];
    char *to = weft_arena_array(weft_module_arena(c->m), n + 1, size);
    const char *from = t.data;
    for (size_t i = 0; i < n; i++) {
        size_t at =
            i / (channels * taps) * channels * taps + i % taps * channels + i / taps % channels;
        memcpy(to + at * size, from + i * size, size);
    }
    weft_weight_info info = {.type = weft_type_make(c->m, t.dtype, dim, (uint32_t)t.rank),
                             .name = weft_weight_get(c->m, id)->name,
                             .data = (const uint8_t *)to,
                             .bytes = n * size};
    weft_val out = weft_weight_val(c->m, weft_weight_add(c->m, &info));
    weft_map_put(c->weight, id.i, out.i);
    return out;
}

static bool takes_last(const chooser *c, weft_node n)
{
    const weft_ttype *x = weft_val_ttype(c->m, weft_node_in(c->m, n, 0));
    weft_val w = weft_node_in(c->m, n, 1), y = weft_node_out(c->m, n, 0);
    bool fits =
        x->rank >= 3 && x->rank <= 5 && weft_val_get_kind(c->m, w) == WEFT_VAL_WEIGHT &&
        weft_val_ttype(c->m, w)->dim[1] > 0 &&
        (x->dtype == WEFT_DTYPE_F32 || x->dtype == WEFT_DTYPE_F16 || x->dtype == WEFT_DTYPE_BF16) &&
        weft_attrs_int(weft_node_attrs(c->m, n), WEFT_ATTR_TRANS_W, 0) == 0;
    for (uint32_t i = 3; i < weft_node_in_count(c->m, n); i++) {
        weft_val v = weft_node_in(c->m, n, i);
        fits = fits && (!v.i || can_spread(c, v, y));
    }
    return fits;
}

static void choose_conv(chooser *c, weft_node n)
{
    weft_val y = weft_node_out(c->m, n, 0);
    if (!takes_last(c, n)) {
        weft_layouts__ask_plain(&c->to, n);
        return;
    }
    weft_layouts__ask(&c->to, n, 0, WEFT_LAYOUT_NHWC);
    weft_node_set_in(c->m, n, 1, transposed(c, weft_node_in(c->m, n, 1)));
    weft_node_set_attr(c->m, n, &WEFT_ATTR_OF_INT(TRANS_W, 1));
    for (uint32_t i = 3; i < weft_node_in_count(c->m, n); i++)
        if (weft_node_in(c->m, n, i).i)
            spread(c, n, i, y);
    weft_layouts__give(&c->to, n, WEFT_LAYOUT_NHWC);
    c->to.changed = true;
}

/* -- Followers ------------------------------------------------------------------------------ */

/* At least half of the operands of the result's shape have channels innermost. */
static void choose_ew(chooser *c, weft_node n)
{
    weft_val y = weft_node_out(c->m, n, 0);
    uint32_t n_in = weft_node_in_count(c->m, n), last = 0, full = 0;
    bool fits = weft_val_ttype(c->m, y)->rank >= 3;
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(c->m, n, i);
        bool is_full = weft_layouts__is_full(&c->to, v, y) && !is_alike(c, v, y);
        full += is_full;
        last += is_full && is_last(c, v);
        fits = fits && can_spread(c, v, y);
    }
    if (!fits || 2 * last < full || last == 0) {
        weft_layouts__ask_plain(&c->to, n);
        return;
    }
    for (uint32_t i = 0; i < n_in; i++)
        spread(c, n, i, y);
    weft_layouts__give(&c->to, n, WEFT_LAYOUT_NHWC);
}

/* Of images or channels, at least half of which have channels innermost. */
static void choose_concat(chooser *c, weft_node n)
{
    uint32_t n_in = weft_node_in_count(c->m, n), last = 0;
    int64_t axis = weft_attrs_int(weft_node_attrs(c->m, n), WEFT_ATTR_AXIS, 0);
    axis += axis < 0 ? weft_val_ttype(c->m, weft_node_out(c->m, n, 0))->rank : 0;
    for (uint32_t i = 0; i < n_in; i++)
        last += is_last(c, weft_node_in(c->m, n, i));
    bool fits = axis < 2 && last && 2 * last >= n_in;
    weft_layout layout = fits ? WEFT_LAYOUT_NHWC : WEFT_LAYOUT_PLAIN;
    for (uint32_t i = 0; i < n_in; i++)
        weft_layouts__ask(&c->to, n, i, layout);
    weft_layouts__give(&c->to, n, layout);
}

/* An operator of images with plain parameters. */
static void follow(chooser *c, weft_node n)
{
    for (uint32_t i = 1; i < weft_node_in_count(c->m, n); i++)
        weft_layouts__ask(&c->to, n, i, WEFT_LAYOUT_PLAIN);
    weft_layouts__give_all(&c->to, n, weft_layouts__layout_of(&c->to, weft_node_in(c->m, n, 0)));
}

/* The same where further results (places of maxima, statistics) are of plain images. */
static void choose_single(chooser *c, weft_node n)
{
    if (weft_node_out_count(c->m, n) > 1)
        weft_layouts__ask_plain(&c->to, n);
    else
        follow(c, n);
}

/* Transpositions read any layout. One that moves channels to their place for a convolution writes
 * them innermost. */
static void choose_transpose(chooser *c, weft_node n)
{
    weft_val y = weft_node_out(c->m, n, 0);
    weft_layout layout = WEFT_LAYOUT_PLAIN;
    if (weft_layouts__moves_channels(c->m, n, true))
        WEFT_FOREACH_USE (c->m, y, use)
            if (weft_node_op(c->m, use.node) == WEFT_OP_CONV && takes_last(c, use.node) &&
                weft_node_in(c->m, use.node, 0).i == y.i)
                layout = WEFT_LAYOUT_NHWC;
    weft_layouts__give(&c->to, n, layout);
}

static void choose_node(chooser *c, weft_node n)
{
    switch (weft_node_op(c->m, n)) {
    case WEFT_OP_CONV:
        choose_conv(c, n);
        return;
    case WEFT_OP_EW:
        choose_ew(c, n);
        return;
    case WEFT_OP_CONCAT:
        choose_concat(c, n);
        return;
    case WEFT_OP_TRANSPOSE:
        choose_transpose(c, n);
        return;
    case WEFT_OP_MAX_POOL:
    case WEFT_OP_BATCH_NORM:
        choose_single(c, n);
        return;
    case WEFT_OP_AVERAGE_POOL:
    case WEFT_OP_GLOBAL_AVERAGE_POOL:
    case WEFT_OP_SLICE:
    case WEFT_OP_SPLIT:
    case WEFT_OP_PAD:
    case WEFT_OP_RESIZE:
        follow(c, n);
        return;
    default:
        weft_layouts__ask_plain(&c->to, n);
    }
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    weft_map *weight = weft_map_create(cx->scratch);
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        chooser c = {.to = weft_layouts__start(cx, g), .g = g, .m = m, .weight = weight};
        WEFT_FOREACH_NODE (m, g, n)
            choose_node(&c, n);
        weft_layouts__finish(&c.to);
        *changed |= c.to.changed;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_channels_last = {
    .name = "channels-last",
    .brief = "channels innermost for the convolutions of GPUs",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .run = run,
};
