/* Convolutions by oneDNN. Activations keep the layouts that the compiler chose; weights are packed
 * into the layout that the implementation prefers. If only oneDNN's reference implementation
 * supports these layouts, the activations are reordered for a fast implementation. Winograd is used
 * where the compiler asks for it and oneDNN supports it. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_images.h"
#include "runtime/cpu/cpu_window.h"

#include "base/num.h"

#include <string.h>

typedef struct conv_plan {
    weft_cpu_window window;
    int64_t group;
    weft_dnnl_scope scope;
    const weft_dnnl_md *x, *w, *w_any, *b, *y, *x_any, *y_any;
    bool has_bias;
    dnnl_epilogue epilogue;
    const weft_dnnl_pd *pd;
    bool no_winograd;
} conv_plan;

static bool describe(weft_prep *p, conv_plan *c)
{
    const weft_slot *x = &p->in[0], *w = &p->in[1], *y = &p->out[0];
    int32_t rank = x->tensor.rank;
    dnnl_dims_t dims, bias = {y->tensor.dim[1]};
    int n = 0;

    if (rank < 3 || rank > 5 || w->tensor.rank != rank || w->layout != WEFT_LAYOUT_PLAIN ||
        w->tensor.dtype != WEFT_DTYPE_F32 || !weft_cpu__window(p, w->tensor.dim + 2, &c->window))
        return false;
    c->group = weft_attrs_int(p->attrs, WEFT_ATTR_GROUP, 1);
    if (c->group < 1 || w->tensor.dim[0] % c->group != 0 ||
        w->tensor.dim[1] * c->group != x->tensor.dim[1] || w->tensor.dim[0] != y->tensor.dim[1] ||
        x->tensor.dim[0] != y->tensor.dim[0])
        return false;
    if (c->group > 1) {
        dims[n++] = c->group;
        dims[n++] = w->tensor.dim[0] / c->group;
    } else {
        dims[n++] = w->tensor.dim[0];
    }
    for (int32_t d = 1; d < rank; d++)
        dims[n++] = w->tensor.dim[d];
    c->has_bias = p->n_in > 2 && p->in[2].present;
    if (c->has_bias &&
        (p->in[2].tensor.dtype != WEFT_DTYPE_F32 || weft_slot_numel(&p->in[2]) != y->tensor.dim[1]))
        return false;
    c->x = weft_dnnl__md(&c->scope, x);
    c->y = weft_dnnl__md(&c->scope, y);
    c->x_any = weft_dnnl__md_any(&c->scope, rank, x->tensor.dim);
    c->y_any = weft_dnnl__md_any(&c->scope, rank, y->tensor.dim);
    c->w = weft_dnnl__md_plain(&c->scope, n, dims);
    c->w_any = weft_dnnl__md_any(&c->scope, n, dims);
    c->b = weft_dnnl__md_plain(&c->scope, 1, bias);
    return c->x && c->y && c->x_any && c->y_any && c->w && c->w_any && c->b;
}

/* Finds an implementation for these formats of activations; `tile`: see weft_dnnl__conv. */
static const weft_dnnl_pd *find(const weft_prep *p, conv_plan *c, dnnl_alg_kind_t alg, int tile,
                                const weft_dnnl_md *x, const weft_dnnl_md *y)
{
    weft_dnnl_window window;
    for (uint32_t i = 0; i < c->window.n; i++) {
        window.stride[i] = c->window.stride[i];
        window.dilation[i] = c->window.dilation[i] - 1;
        window.before[i] = c->window.before[i];
        window.after[i] = c->window.after[i];
    }
    return weft_dnnl__conv(&c->scope, &c->epilogue.attr, alg, tile, &window, x,
                           p->in[1].weight ? c->w_any : c->w, c->has_bias ? c->b : NULL, y);
}

/* As find, but rejects the reference implementation and, unless allowed, GEMM over unfolded images
 * (im2col). */
static bool find_fast(const weft_prep *p, conv_plan *c, dnnl_alg_kind_t alg, int tile,
                      const weft_dnnl_md *x, const weft_dnnl_md *y, bool unfolding)
{
    const weft_dnnl_pd *pd = find(p, c, alg, tile, x, y);
    if (!pd || weft_dnnl__is_slow(pd) || (!unfolding && strstr(weft_dnnl__pd_name(pd), "gemm")))
        return false;
    c->pd = pd;
    return true;
}

static bool find_direct(const weft_prep *p, conv_plan *c, bool unfolding)
{
    return find_fast(p, c, dnnl_convolution_direct, 0, c->x, c->y, unfolding) ||
           find_fast(p, c, dnnl_convolution_direct, 0, c->x_any, c->y_any, unfolding);
}

/* For one image, oneDNN prefers tiles of 2 x 2. From maps of 24 x 24 on, those of 4 x 4 take 0.65
 * to 0.85 of the time; on maps of 14 x 14 1.0 to 1.15, because the rims of tiles are lost, and on
 * smaller ones more. */
enum { LARGE_MAP = 24 };

static bool find_winograd(const weft_prep *p, conv_plan *c)
{
    const weft_tensor *y = &p->out[0].tensor;
    bool large = y->dim[2] >= LARGE_MAP && y->dim[3] >= LARGE_MAP;
    return (large && find_fast(p, c, dnnl_convolution_winograd, 4, c->x, c->y, false)) ||
           find_fast(p, c, dnnl_convolution_winograd, 0, c->x, c->y, false);
}

/* In order of preference: Winograd, with a separate epilogue if it cannot be fused; the given
 * layouts; reorders to the layouts that oneDNN prefers; no fused epilogue; any implementation. */
static bool choose(weft_prep *p, conv_plan *c)
{
    const char *algo = weft_attrs_str(p->attrs, WEFT_ATTR_ALGO, "");
    bool winograd = strcmp(algo, "winograd") == 0 && p->out[0].tensor.rank == 4 && !p->keep_nan &&
                    !c->no_winograd;
    if (winograd && find_winograd(p, c))
        return true;
    if (winograd && c->epilogue.fused && c->epilogue.n_step > 0) {
        weft_dnnl__unfuse(&c->epilogue);
        if (find_winograd(p, c))
            return true;
        if (weft_dnnl__epilogue(p, &c->scope, &c->epilogue, false, NULL, 0) != WEFT_ERR_OK)
            return false;
    }
    /* GEMM over unfolded images computes binary post-ops element by element. */
    if (find_direct(p, c, false) || (c->epilogue.n_operand == 0 && find_direct(p, c, true)))
        return true;
    if (c->epilogue.n_step > 0 && c->epilogue.fused) {
        weft_dnnl__unfuse(&c->epilogue);
        if (find_direct(p, c, false) || find_direct(p, c, true))
            return true;
    }
    c->pd = find(p, c, dnnl_convolution_direct, 0, c->x, c->y);
    return c->pd != NULL;
}

/* Winograd spreads special values among its results: those of the input are looked for in each run,
 * and weights must have none. */
static bool watch_winograd(const weft_prep *p, conv_plan *c, dnnl_kernel *k)
{
    if (!strstr(weft_dnnl__pd_name(c->pd), "wino"))
        return true;
    c->no_winograd = k->n_pack == 0 || !weft_dnnl__pack_is_tame(k->pack[0]);
    k->tame_in = weft_cpu__slot_stored(&p->in[0]);
    return !c->no_winograd;
}

/* Scratch memory: reordered input, reordered result, the primitive's own scratch memory. */
static weft_err build(weft_prep *p, conv_plan *c, dnnl_kernel *k)
{
    uint32_t scratch = p->n_in + p->n_out;
    const weft_dnnl_md *x = weft_dnnl__pd_md(&c->scope, c->pd, dnnl_query_src_md, 0);
    const weft_dnnl_md *y = weft_dnnl__pd_md(&c->scope, c->pd, dnnl_query_dst_md, 0);
    const weft_dnnl_md *w = weft_dnnl__pd_md(&c->scope, c->pd, dnnl_query_weights_md, 0);
    if (!x || !y || !w)
        return WEFT_ERR_UNSUP;
    bool x_moves = !weft_dnnl__md_equal(x, c->x), y_moves = !weft_dnnl__md_equal(y, c->y);
    uint64_t x_bytes = x_moves ? weft_align_up(weft_dnnl__md_bytes(x), 64) : 0;
    uint64_t y_bytes = y_moves ? weft_align_up(weft_dnnl__md_bytes(y), 64) : 0;

    p->scratch_bytes = x_bytes + y_bytes;
    /* When the result is computed in another layout, an operand of the epilogue in the result's
     * layout cannot be used. */
    if (y_moves)
        for (uint32_t i = 0; i < c->epilogue.n_operand; i++)
            if (weft_dnnl__md_equal(c->epilogue.attr.post[c->epilogue.position[i]].md, c->y))
                return WEFT_ERR_UNSUP;
    if (x_moves && !weft_dnnl__add_reorder(k, c->x, 0, 0, x, scratch, 0))
        return WEFT_ERR_UNSUP;
    dnnl_call *s = weft_dnnl__add(k, c->pd);
    if (!s || !weft_dnnl__bind(k, s, DNNL_ARG_SRC, x, x_moves ? scratch : 0, 0) ||
        !weft_dnnl__bind(k, s, DNNL_ARG_DST, y, y_moves ? scratch : p->n_in,
                         y_moves ? x_bytes : 0) ||
        (c->has_bias && !weft_dnnl__bind(k, s, DNNL_ARG_BIAS, c->b, 2, 0)) ||
        !weft_dnnl__bind_scratch(p, k, s, c->pd, x_bytes + y_bytes))
        return WEFT_ERR_UNSUP;
    WEFT_TRY(weft_dnnl__bind_weight(p, k, s, DNNL_ARG_WEIGHTS, 1, c->w, w));
    if (!watch_winograd(p, c, k) || !weft_dnnl__bind_epilogue(p, k, s, &c->epilogue))
        return WEFT_ERR_UNSUP;
    if (y_moves && !weft_dnnl__add_reorder(k, y, scratch, x_bytes, c->y, p->n_in, 0))
        return WEFT_ERR_UNSUP;
    return WEFT_ERR_OK;
}

static weft_err try_build(weft_prep *p, conv_plan *c)
{
    dnnl_kernel *k = weft_dnnl__create(p);
    if (!k)
        return WEFT_ERR_NOMEM;
    weft_err err = build(p, c, k);
    if (err != WEFT_ERR_OK) {
        weft_dnnl__destroy(k);
        p->scratch_bytes = 0;
        return err;
    }
    weft_dnnl__set(p, k, c->pd);
    return WEFT_ERR_OK;
}

static weft_err choose_and_build(weft_prep *p, conv_plan *c)
{
    WEFT_TRY(weft_dnnl__epilogue(p, &c->scope, &c->epilogue, false, NULL, 0));
    if (weft_dnnl__is_costly(&c->epilogue, weft_slot_numel(&p->out[0])))
        weft_dnnl__unfuse(&c->epilogue);
    if (!choose(p, c))
        return WEFT_ERR_OK;
    weft_err err = try_build(p, c);
    if (err != WEFT_ERR_UNSUP || c->epilogue.n_operand == 0)
        return err;
    weft_dnnl__unfuse(&c->epilogue);
    return choose(p, c) ? try_build(p, c) : WEFT_ERR_OK;
}

static weft_err prepare_conv(weft_prep *p)
{
    conv_plan c = {.scope = weft_dnnl__scope(p->engine)};
    weft_err err = describe(p, &c) ? choose_and_build(p, &c) : WEFT_ERR_OK;
    if (c.no_winograd)
        err = choose_and_build(p, &c);
    weft_dnnl__scope_finish(&c.scope);
    return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
}

/* -- Images that are columns ------------------------------------------------------------------ */

enum { COLUMN_SLOTS = 16, COLUMN_ATTRS = 4 };

static bool is_column(const weft_slot *s)
{
    return s->present && s->tensor.rank == 4 && s->tensor.dim[3] == 1;
}

/* A slot with its last two dims exchanged: the bytes are the same, because one of them is 1. */
static bool turn_slot(const weft_slot *from, weft_slot *to)
{
    int32_t rank = from->tensor.rank;
    *to = *from;
    if (!from->present || rank < 2)
        return true;
    to->tensor.dim[rank - 2] = from->tensor.dim[rank - 1];
    to->tensor.dim[rank - 1] = from->tensor.dim[rank - 2];
    return to->tensor.dim[rank - 2] == 1;
}

/* The window's numbers in the order of the turned dims, in `number`. */
static bool turn_attr(weft_attr *a, int64_t number[4])
{
    const weft_attrs one = {a, 1};
    uint32_t n = 0;
    const int64_t *from = weft_attrs_ints(one, (weft_attr_key)a->key, &n);
    if (!from || n == 0)
        return true;
    if (n != (a->key == WEFT_ATTR_PADS ? 4u : 2u))
        return false;
    for (uint32_t i = 0; i < n; i++)
        number[i] = from[i ^ 1];
    *a = (weft_attr){.key = a->key, .kind = WEFT_KIND_INTS, .n = n, .u = {.ints = number}};
    return true;
}

static bool is_window(const weft_attr *a)
{
    return a->key == WEFT_ATTR_PADS || a->key == WEFT_ATTR_STRIDES ||
           a->key == WEFT_ATTR_DILATIONS || a->key == WEFT_ATTR_KERNEL_SHAPE;
}

/* Exporters of one-dimensional convolutions write images of width 1. oneDNN's loops run along the
 * width: the image is taken for one row instead. Sets no kernel if that does not work. */
static weft_err prepare_column(weft_prep *p)
{
    weft_slot slot[COLUMN_SLOTS];
    weft_attr attr[WEFT_OP_ATTR_MAX];
    int64_t number[COLUMN_ATTRS][4];
    uint32_t n_window = 0;
    if (!is_column(&p->in[0]) || !is_column(&p->in[1]) || !is_column(&p->out[0]) ||
        p->in[0].tensor.dim[2] == 1 || p->n_in + 1 > COLUMN_SLOTS || p->attrs.n > WEFT_OP_ATTR_MAX)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i <= p->n_in; i++) {
        const weft_slot *from = i < p->n_in ? &p->in[i] : &p->out[0];
        /* Operands of the epilogue that are wider than the result's column do not exist. */
        if (!turn_slot(from, &slot[i]))
            return WEFT_ERR_OK;
    }
    for (uint32_t i = 0; i < p->attrs.n; i++) {
        attr[i] = p->attrs.at[i];
        if (is_window(&attr[i]) &&
            (n_window == COLUMN_ATTRS || !turn_attr(&attr[i], number[n_window++])))
            return WEFT_ERR_OK;
    }
    weft_prep turned = *p;
    turned.in = slot;
    turned.out = &slot[p->n_in];
    turned.attrs.at = attr;
    WEFT_TRY(prepare_conv(&turned));
    p->run = turned.run;
    p->state = turned.state;
    p->destroy = turned.destroy;
    p->variant = turned.variant;
    p->scratch_bytes = turned.scratch_bytes;
    return WEFT_ERR_OK;
}

/* -- Winograd by images ----------------------------------------------------------------------- */

/* oneDNN's F(4x4,3x3) transforms all images before its products: the scratch memory grows with the
 * batch. With few tiles the products have few rows, and one image after the other by F(2x2,3x3),
 * which oneDNN chooses for a small image, is faster: at 512 channels of 7 x 7, 8 images take the
 * same time, 4 take 0.63 of it, 2 take 0.55. Its weights are 16 numbers for 9 instead of 36, and
 * those of the batch of one. */
enum { TILE = 4, FEW_TILES = 128 };
/* Scratch memory above this is divided. */
static const uint64_t scratch_most = 64 << 20;

/* How `images` images at once would be computed. */
typedef struct winograd_way {
    bool is_winograd, is_2x3;
    uint64_t scratch_bytes; /* without room for weights, which is not used */
} winograd_way;

static weft_err find_way(const weft_prep *p, int64_t images, winograd_way *out)
{
    weft_cpu_images of;
    weft_prep part;
    *out = (winograd_way){0};
    if (!weft_cpu__images(p, images, 1, 2, &of, &part))
        return WEFT_ERR_OK;
    conv_plan c = {.scope = weft_dnnl__scope(p->engine)};
    weft_err err = WEFT_ERR_OK;
    if (describe(&part, &c)) {
        err = weft_dnnl__epilogue(&part, &c.scope, &c.epilogue, false, NULL, 0);
        if (err == WEFT_ERR_OK && choose(&part, &c)) {
            const char *name = weft_dnnl__pd_name(c.pd);
            uint64_t scratch =
                weft_dnnl__md_bytes(weft_dnnl__pd_md(&c.scope, c.pd, dnnl_query_scratchpad_md, 0));
            uint64_t weights =
                weft_dnnl__md_bytes(weft_dnnl__pd_md(&c.scope, c.pd, dnnl_query_weights_md, 0));
            out->is_winograd = strstr(name, "wino") != NULL;
            out->is_2x3 = strstr(name, "wino_2x3") != NULL;
            out->scratch_bytes = scratch > weights ? scratch - weights : scratch;
        }
    }
    weft_dnnl__scope_finish(&c.scope);
    return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
}

/* The number of images to compute at once. */
static weft_err count_images(const weft_prep *p, int64_t *out)
{
    const weft_tensor *y = &p->out[0].tensor;
    int64_t batch = y->dim[0];
    int64_t tiles = (y->dim[2] + TILE - 1) / TILE * ((y->dim[3] + TILE - 1) / TILE);
    winograd_way way;
    *out = batch;
    if (tiles > 0 && batch < (FEW_TILES + tiles - 1) / tiles) {
        WEFT_TRY(find_way(p, 1, &way));
        if (way.is_2x3) {
            *out = 1;
            return WEFT_ERR_OK;
        }
    }
    for (int64_t parts = 1; parts <= batch; parts++) {
        if (batch % parts != 0)
            continue;
        WEFT_TRY(find_way(p, batch / parts, &way));
        if (!way.is_winograd)
            return WEFT_ERR_OK;
        *out = batch / parts;
        if (way.scratch_bytes <= scratch_most)
            return WEFT_ERR_OK;
    }
    return WEFT_ERR_OK;
}

/* Sets no kernel if all images are better computed at once. */
static weft_err prepare_images(weft_prep *p)
{
    weft_cpu_images of;
    weft_prep part;
    int64_t images;
    if (strcmp(weft_attrs_str(p->attrs, WEFT_ATTR_ALGO, ""), "winograd") != 0 ||
        p->in[0].tensor.rank != 4 || p->out[0].tensor.dim[0] < 2)
        return WEFT_ERR_OK;
    WEFT_TRY(count_images(p, &images));
    if (images == p->out[0].tensor.dim[0] || !weft_cpu__images(p, images, 1, 2, &of, &part))
        return WEFT_ERR_OK;
    WEFT_TRY(prepare_conv(&part));
    return part.run ? weft_cpu__set_images(p, &of, &part) : WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_dnnl_conv(weft_prep *p)
{
    WEFT_TRY(prepare_column(p));
    if (!p->run)
        WEFT_TRY(prepare_images(p));
    return p->run ? WEFT_ERR_OK : prepare_conv(p);
}
