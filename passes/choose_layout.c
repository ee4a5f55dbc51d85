/* choose-layout: chooses the memory layout of each value and the algorithm of each convolution.
 *
 * On a CPU convolutions are fastest with channels in blocks of the vector width (c16 with AVX-512,
 * c8 with AVX2). Element-wise kernels, pooling, aligned concatenation, and slices and
 * concatenations of whole images work on blocks as well; all other kernels need plain row-major
 * values. One forward sweep decides for each node: a convolution takes blocks if the rules below
 * predict a gain, operators that work on any layout keep that of their operand, others take plain
 * values. If a value does not have the layout that a node needs, a `reorder` is inserted before the
 * first such node and shared by later ones. Graph inputs and outputs are plain.
 *
 * A transposition that moves the channels to the end reads blocks, and one that moves them back
 * writes blocks for a convolution: one copy instead of two.
 *
 * Products of bytes (qlinear_conv) have channels innermost (nhwc), which oneDNN's kernels for u8
 * and s8 read and write, and the operators between them follow.
 *
 * Rules for convolutions (measured with oneDNN 2.6 on AVX-512, batch 1 to 8):
 *   - f32 and more than half a block of output channels; dense, depthwise, or grouped by whole
 *     blocks. Padding of channels costs less than the pooling and element-wise kernels of plain
 *     values do;
 *   - with fewer input channels than a block a plain input stays plain (first layers);
 *   - winograd for 3x3, stride 1, dense, whole blocks, and a result of at least 12x12 or
 *     WINOGRAD_MIN_CHANNELS weights per tap: about 2x faster; slower only on small maps with few
 * channels. Differences are about 1e-6 of the scale. A table of tuned algorithms (weft compile
 * --tune) overrides the winograd rule. O(nodes). */
#include "passes/layouts.h"

#include "ops/place.h"

#include <string.h>

enum { WINOGRAD_MIN_SIZE = 12, WINOGRAD_MIN_CHANNELS = 65536, LONE_FLOPS_PER_BYTE = 200 };

typedef struct chooser {
    weft_passctx *cx;
    weft_layouts to;
    weft_graph *g;
    weft_module *m;
    weft_layout blocked;
    int64_t block;
} chooser;

static weft_layout layout_of(const chooser *c, weft_val v)
{
    return weft_layouts__layout_of(&c->to, v);
}

static void ask_operand(chooser *c, weft_node n, uint32_t i, weft_layout want)
{
    weft_layouts__ask(&c->to, n, i, want);
}

static void give_result(chooser *c, weft_node n, weft_layout layout)
{
    weft_layouts__give(&c->to, n, layout);
}

static void ask_plain(chooser *c, weft_node n)
{
    weft_layouts__ask_plain(&c->to, n);
}

/* -- Convolutions --------------------------------------------------------------------------- */

typedef struct conv_shape {
    int64_t ci, co, group;
    int64_t kernel[2], out[2]; /* out: upper bound, 1 when unknown */
    bool is_2d, unit_stride, unit_dilation, small_pads;
} conv_shape;

static bool all_equal(weft_attrs attrs, weft_attr_key key, int64_t lo, int64_t hi)
{
    uint32_t n = 0;
    const int64_t *x = weft_attrs_ints(attrs, key, &n);
    for (uint32_t i = 0; i < n; i++)
        if (x[i] < lo || x[i] > hi)
            return false;
    return true;
}

static bool read_conv(const chooser *c, weft_node n, conv_shape *s)
{
    const weft_ttype *x = weft_val_ttype(c->m, weft_node_in(c->m, n, 0));
    const weft_ttype *w = weft_val_ttype(c->m, weft_node_in(c->m, n, 1));
    const weft_ttype *y = weft_val_ttype(c->m, weft_node_out(c->m, n, 0));
    weft_attrs attrs = weft_node_attrs(c->m, n);
    if (x->dtype != WEFT_DTYPE_F32 || x->rank < 3 || x->rank > 5 || !weft_dim_is_const(x->dim[1]) ||
        weft_val_get_kind(c->m, weft_node_in(c->m, n, 1)) != WEFT_VAL_WEIGHT)
        return false;
    *s = (conv_shape){.ci = x->dim[1],
                      .co = w->dim[0],
                      .group = weft_attrs_int(attrs, WEFT_ATTR_GROUP, 1),
                      .is_2d = x->rank == 4,
                      .unit_stride = all_equal(attrs, WEFT_ATTR_STRIDES, 1, 1),
                      .unit_dilation = all_equal(attrs, WEFT_ATTR_DILATIONS, 1, 1),
                      .small_pads = all_equal(attrs, WEFT_ATTR_PADS, 0, 1)};
    for (uint32_t i = 0; i < 2 && s->is_2d; i++) {
        s->kernel[i] = w->dim[2 + i];
        s->out[i] = weft_dim_is_const(y->dim[2 + i]) ? y->dim[2 + i] : 1;
    }
    return s->group > 0;
}

static bool wants_blocks(const chooser *c, const conv_shape *s)
{
    if (s->group == 1 || (s->group == s->ci && s->group == s->co))
        return 2 * s->co > c->block;
    return s->ci / s->group % c->block == 0 && s->co / s->group % c->block == 0;
}

/* A slice of whole images, which are contiguous in every layout. */
static bool takes_images(const weft_module *m, weft_node n)
{
    int64_t axis;
    weft_dim start;
    return weft_place_is_cut(weft_node_op(m, n), weft_node_attrs(m, n), weft_node_in_count(m, n),
                             &axis, &start) &&
           axis == 0;
}

/* Whether choose_node can give the node blocks. */
static bool takes_blocks(const weft_module *m, weft_node n)
{
    switch (weft_node_op(m, n)) {
    case WEFT_OP_TRANSPOSE:
    case WEFT_OP_SPLIT:
    case WEFT_OP_PAD:
    case WEFT_OP_RESIZE:
        return false;
    case WEFT_OP_SLICE:
        return takes_images(m, n);
    default:
        return weft_node_opdef(m, n)->traits & WEFT_T_LAYOUT;
    }
}

/* A small convolution between plain values: two reorders cost more than blocks gain. oneDNN's
 * kernels for depthwise windows reorder plain values themselves, to a slower layout. */
static bool is_lone(const chooser *c, weft_node n, const conv_shape *s)
{
    weft_val y = weft_node_out(c->m, n, 0);
    bool depthwise = s->is_2d && s->group > 1 && s->group == s->ci && s->group == s->co;
    if (layout_of(c, weft_node_in(c->m, n, 0)) != WEFT_LAYOUT_PLAIN || s->ci < c->block ||
        depthwise)
        return false;
    WEFT_FOREACH_USE (c->m, y, use)
        if (takes_blocks(c->m, use.node))
            return false;
    double per_pixel = 2.0 * (double)(s->ci / s->group) * (double)s->co;
    for (uint32_t i = 0; i < 2 && s->is_2d; i++)
        per_pixel *= (double)s->kernel[i];
    return per_pixel < LONE_FLOPS_PER_BYTE * 4.0 * (double)(s->ci + s->co);
}

/* The tuned algorithm of this convolution; NULL if it was not measured. */
static const char *tuned_algo(const chooser *c, weft_node n)
{
    const weft_pass_options *o = c->cx->options;
    const char *item = weft_node_loc(c->m, n).item;
    for (size_t i = 0; i < o->n_tuned && item; i++)
        if (strcmp(o->tuned[i].item, item) == 0 &&
            strcmp(o->tuned[i].model, weft_graph_name(c->g)) == 0)
            return o->tuned[i].algo;
    return NULL;
}

static const char *choose_algo(const chooser *c, weft_node n, const conv_shape *s)
{
    const char *tuned = tuned_algo(c, n);
    bool fits = s->is_2d && s->kernel[0] == 3 && s->kernel[1] == 3 && s->unit_stride &&
                s->unit_dilation && s->small_pads && s->group == 1 && s->ci % c->block == 0 &&
                s->co % c->block == 0 && c->blocked == WEFT_LAYOUT_C16;
    bool large = s->out[0] >= WINOGRAD_MIN_SIZE && s->out[1] >= WINOGRAD_MIN_SIZE;
    bool gains = large || s->ci * s->co >= WINOGRAD_MIN_CHANNELS;
    if (tuned)
        gains = strcmp(tuned, "winograd") == 0;
    return fits && gains ? "winograd" : "direct";
}

static void choose_conv(chooser *c, weft_node n)
{
    conv_shape s;
    weft_val y = weft_node_out(c->m, n, 0);
    if (!read_conv(c, n, &s) || !wants_blocks(c, &s) || is_lone(c, n, &s)) {
        ask_plain(c, n);
        return;
    }
    bool plain_input = s.group == 1 && s.ci < c->block &&
                       layout_of(c, weft_node_in(c->m, n, 0)) == WEFT_LAYOUT_PLAIN;
    ask_operand(c, n, 0, plain_input ? WEFT_LAYOUT_PLAIN : c->blocked);
    for (uint32_t i = 3; i < weft_node_in_count(c->m, n); i++) {
        weft_val v = weft_node_in(c->m, n, i);
        if (v.i)
            ask_operand(c, n, i,
                        weft_layouts__is_full(&c->to, v, y) ? c->blocked : WEFT_LAYOUT_PLAIN);
    }
    give_result(c, n, c->blocked);
    if (s.is_2d)
        weft_node_set_attr(c->m, n, &WEFT_ATTR_OF_STR(ALGO, choose_algo(c, n, &s)));
}

/* A convolution of bytes: channels innermost. */
static void choose_qlinear(chooser *c, weft_node n)
{
    weft_val x = weft_node_in(c->m, n, WEFT_QLINEAR_A), y = weft_node_out(c->m, n, 0);
    uint8_t rank = weft_val_ttype(c->m, x)->rank;
    if (rank < 3 || rank > 5 ||
        weft_val_get_kind(c->m, weft_node_in(c->m, n, WEFT_QLINEAR_B)) != WEFT_VAL_WEIGHT) {
        ask_plain(c, n);
        return;
    }
    ask_operand(c, n, WEFT_QLINEAR_A, WEFT_LAYOUT_NHWC);
    for (uint32_t i = WEFT_QLINEAR_OPERANDS; i < weft_node_in_count(c->m, n); i++) {
        weft_val v = weft_node_in(c->m, n, i);
        if (v.i)
            ask_operand(c, n, i,
                        weft_layouts__is_full(&c->to, v, y) ? WEFT_LAYOUT_NHWC : WEFT_LAYOUT_PLAIN);
    }
    give_result(c, n, WEFT_LAYOUT_NHWC);
}

/* -- Followers ------------------------------------------------------------------------------ */

/* One element per channel ([c, 1, 1], [1, c, 1, 1]), or a single element. */
static bool is_per_channel(const chooser *c, weft_val v, weft_val like)
{
    const weft_ttype *a = weft_val_ttype(c->m, v), *b = weft_val_ttype(c->m, like);
    for (uint32_t i = 0; i < a->rank; i++) {
        uint32_t axis = b->rank - a->rank + i;
        if (a->dim[i] != 1 && (axis != 1 || a->dim[i] != b->dim[1]))
            return false;
    }
    return layout_of(c, v) == WEFT_LAYOUT_PLAIN;
}

static void choose_ew(chooser *c, weft_node n)
{
    weft_val y = weft_node_out(c->m, n, 0);
    uint32_t n_in = weft_node_in_count(c->m, n), blocked = 0, plain = 0;
    bool fits = weft_val_ttype(c->m, y)->rank >= 3;
    weft_layout layout = c->blocked; /* of the first operand that is not plain */
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(c->m, n, i);
        if (weft_layouts__is_full(&c->to, v, y)) {
            if (layout_of(c, v) != WEFT_LAYOUT_PLAIN && blocked++ == 0)
                layout = layout_of(c, v);
            plain += layout_of(c, v) == WEFT_LAYOUT_PLAIN;
        } else
            fits = fits && (weft_layouts__is_gate(&c->to, v, y) || is_per_channel(c, v, y));
    }
    if (!fits || blocked == 0 || plain > blocked) {
        ask_plain(c, n);
        return;
    }
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(c->m, n, i);
        if (weft_layouts__is_full(&c->to, v, y) || weft_layouts__is_gate(&c->to, v, y))
            ask_operand(c, n, i, layout);
    }
    give_result(c, n, layout);
}

/* Blocks if at least half of the operands have blocks. */
static void choose_batch(chooser *c, weft_node n)
{
    uint32_t n_in = weft_node_in_count(c->m, n), blocked = 0;
    for (uint32_t i = 0; i < n_in; i++)
        blocked += layout_of(c, weft_node_in(c->m, n, i)) == c->blocked;
    weft_layout layout = blocked && 2 * blocked >= n_in ? c->blocked : WEFT_LAYOUT_PLAIN;
    for (uint32_t i = 0; i < n_in; i++)
        ask_operand(c, n, i, layout);
    give_result(c, n, layout);
}

/* Whether at least half of the operands have channels innermost; the others are then reordered. */
static bool are_innermost(chooser *c, weft_node n)
{
    uint32_t n_in = weft_node_in_count(c->m, n), innermost = 0;
    for (uint32_t i = 0; i < n_in; i++)
        innermost += layout_of(c, weft_node_in(c->m, n, i)) == WEFT_LAYOUT_NHWC;
    if (innermost == 0 || 2 * innermost < n_in)
        return false;
    for (uint32_t i = 0; i < n_in; i++)
        ask_operand(c, n, i, WEFT_LAYOUT_NHWC);
    return true;
}

static void choose_concat(chooser *c, weft_node n)
{
    const weft_ttype *y = weft_val_ttype(c->m, weft_node_out(c->m, n, 0));
    int64_t axis = weft_attrs_int(weft_node_attrs(c->m, n), WEFT_ATTR_AXIS, 0);
    uint32_t n_in = weft_node_in_count(c->m, n);
    bool fits = y->rank >= 3 && (axis == 1 || axis + y->rank == 1);
    if (axis == 0 || axis + y->rank == 0) {
        choose_batch(c, n);
        return;
    }
    if (fits && are_innermost(c, n)) {
        give_result(c, n, WEFT_LAYOUT_NHWC);
        return;
    }
    for (uint32_t i = 0; i < n_in && fits; i++) {
        const weft_ttype *x = weft_val_ttype(c->m, weft_node_in(c->m, n, i));
        bool whole = weft_dim_is_const(x->dim[1]) && x->dim[1] % c->block == 0;
        fits = x->layout == c->blocked && (whole || i + 1 == n_in);
    }
    if (fits)
        give_result(c, n, c->blocked);
    else
        ask_plain(c, n);
}

static void choose_pool(chooser *c, weft_node n)
{
    weft_layout layout = layout_of(c, weft_node_in(c->m, n, 0));
    bool global = weft_node_op(c->m, n) == WEFT_OP_GLOBAL_AVERAGE_POOL ||
                  weft_node_op(c->m, n) == WEFT_OP_GLOBAL_MAX_POOL;
    if (weft_node_out_count(c->m, n) > 1)
        ask_plain(c, n);
    else
        give_result(c, n, global ? WEFT_LAYOUT_PLAIN : layout);
}

static bool has_whole_blocks(const chooser *c, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(c->m, v);
    return t->dtype == WEFT_DTYPE_F32 && t->rank >= 3 && weft_dim_is_const(t->dim[1]) &&
           t->dim[1] % c->block == 0;
}

/* Whether `user` would have v, which is plain, reordered to blocks. */
static bool wants_reorder(const chooser *c, weft_node user, weft_val v)
{
    conv_shape s;
    if (weft_node_op(c->m, user) == WEFT_OP_CONV)
        return weft_node_in(c->m, user, 0).i == v.i && read_conv(c, user, &s) &&
               wants_blocks(c, &s) && !is_lone(c, user, &s);
    for (uint32_t i = 0;
         weft_node_op(c->m, user) == WEFT_OP_EW && i < weft_node_in_count(c->m, user); i++)
        if (layout_of(c, weft_node_in(c->m, user, i)) == c->blocked)
            return true;
    return false;
}

static void choose_transpose(chooser *c, weft_node n)
{
    weft_val x = weft_node_in(c->m, n, 0), y = weft_node_out(c->m, n, 0);
    if (layout_of(c, x) == c->blocked && weft_layouts__moves_channels(c->m, n, false) &&
        has_whole_blocks(c, x)) {
        give_result(c, n, WEFT_LAYOUT_PLAIN);
        return;
    }
    ask_plain(c, n);
    if (!weft_layouts__moves_channels(c->m, n, true) || !has_whole_blocks(c, y))
        return;
    WEFT_FOREACH_USE (c->m, y, use)
        if (wants_reorder(c, use.node, y)) {
            give_result(c, n, c->blocked);
            return;
        }
}

static void choose_node(chooser *c, weft_node n)
{
    switch (weft_node_op(c->m, n)) {
    case WEFT_OP_CONV:
        choose_conv(c, n);
        return;
    case WEFT_OP_QLINEAR_CONV:
        choose_qlinear(c, n);
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
    case WEFT_OP_SLICE:
        if (takes_images(c->m, n))
            give_result(c, n, layout_of(c, weft_node_in(c->m, n, 0)));
        else
            ask_plain(c, n);
        return;
    case WEFT_OP_MAX_POOL:
    case WEFT_OP_AVERAGE_POOL:
    case WEFT_OP_GLOBAL_AVERAGE_POOL:
        choose_pool(c, n);
        return;
    case WEFT_OP_DYNAMIC_QUANTIZE_LINEAR:
        /* Padded channels would count in the range. */
        ask_operand(c, n, 0,
                    layout_of(c, weft_node_in(c->m, n, 0)) == WEFT_LAYOUT_NHWC ? WEFT_LAYOUT_NHWC
                                                                               : WEFT_LAYOUT_PLAIN);
        give_result(c, n, layout_of(c, weft_node_in(c->m, n, 0)));
        return;
    case WEFT_OP_REORDER:
        return;
    default:
        ask_plain(c, n);
    }
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    const char *target = cx->options->target ? cx->options->target : "cpu";
    weft_layout blocked = strcmp(target, "cpu:avx2") == 0 ? WEFT_LAYOUT_C8 : WEFT_LAYOUT_C16;
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        chooser c = {.cx = cx,
                     .to = weft_layouts__start(cx, g),
                     .g = g,
                     .m = m,
                     .blocked = blocked,
                     .block = weft_layout_block(blocked)};
        WEFT_FOREACH_NODE (m, c.g, n)
            choose_node(&c, n);
        weft_layouts__finish(&c.to);
        *changed |= c.to.changed;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_choose_layout = {
    .name = "choose-layout",
    .brief = "memory layouts of values and algorithms of convolutions",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .run = run,
};
