/* What the interface of oneDNN is the same for in versions 2.6 and 3.x. */
#include "runtime/cpu/dnnl_api_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Engine --------------------------------------------------------------------------------- */

/* oneDNN keeps the code of primitives that are not in use, some 50 kB each. Sessions have caches of
 * their own; this one is for a second session or bucket with the same sizes. */
enum { CACHE_PRIMITIVES = 512 };

dnnl_status_t weft_dnnl__engine_open(dnnl_engine_t *engine, dnnl_stream_t *stream)
{
    int capacity = 0;
    dnnl_status_t status = dnnl_engine_create(engine, dnnl_cpu, 0);
    if (status != dnnl_success)
        return status;
    if (weft_dnnl__done(dnnl_get_primitive_cache_capacity(&capacity)) &&
        capacity > CACHE_PRIMITIVES)
        (void)dnnl_set_primitive_cache_capacity(CACHE_PRIMITIVES);
    status = dnnl_stream_create(stream, *engine, dnnl_stream_default_flags);
    if (status != dnnl_success)
        dnnl_engine_destroy(*engine);
    return status;
}

void weft_dnnl__engine_close(dnnl_engine_t engine, dnnl_stream_t stream)
{
    if (stream)
        dnnl_stream_destroy(stream);
    if (engine)
        dnnl_engine_destroy(engine);
}

void weft_dnnl__version(char *out, size_t room)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, room, "%d.%d.%d", v->major, v->minor, v->patch);
}

bool weft_dnnl__has_isa(dnnl_cpu_isa_t isa)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

/* -- Scopes --------------------------------------------------------------------------------- */

struct weft_dnnl_pd {
    dnnl_primitive_desc_t pd;
};

/* A descriptor of memory or of a primitive. */
struct weft_dnnl_item {
    weft_dnnl_item *next;
    weft_dnnl_md md;
    weft_dnnl_pd pd;
};

static weft_dnnl_item *new_item(weft_dnnl_scope *scope)
{
    weft_dnnl_item *item = weft_cpu__calloc(1, sizeof *item);
    if (item) {
        item->next = scope->item;
        scope->item = item;
    }
    return item;
}

void weft_dnnl__scope_finish(weft_dnnl_scope *scope)
{
    while (scope->item) {
        weft_dnnl_item *item = scope->item;
        scope->item = item->next;
        if (item->md.desc)
            weft_dnnl__desc_destroy(item->md.desc);
        if (item->pd.pd)
            dnnl_primitive_desc_destroy(item->pd.pd);
        free(item);
    }
}

/* -- Descriptors of memory ------------------------------------------------------------------ */

/* Takes desc. */
static const weft_dnnl_md *own_desc(weft_dnnl_scope *scope, void *desc)
{
    weft_dnnl_item *item = desc ? new_item(scope) : NULL;
    if (!item) {
        if (desc)
            weft_dnnl__desc_destroy(desc);
        return NULL;
    }
    item->md.desc = desc;
    return weft_dnnl__desc_read(&item->md) ? &item->md : NULL;
}

const weft_dnnl_md *weft_dnnl__md_by_tag(weft_dnnl_scope *scope, int rank, const int64_t *dim,
                                         dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return own_desc(scope, weft_dnnl__desc_by_tag(rank, dim, type, tag));
}

const weft_dnnl_md *weft_dnnl__md_by_strides(weft_dnnl_scope *scope, int rank, const int64_t *dim,
                                             dnnl_data_type_t type, const int64_t *stride)
{
    return own_desc(scope, weft_dnnl__desc_by_strides(rank, dim, type, stride));
}

const weft_dnnl_md *weft_dnnl__md_part(weft_dnnl_scope *scope, const weft_dnnl_md *whole,
                                       const int64_t *dim, const int64_t *offset)
{
    return whole ? own_desc(scope, weft_dnnl__desc_part(whole->desc, dim, offset)) : NULL;
}

const weft_dnnl_md *weft_dnnl__md_copy(weft_dnnl_scope *scope, const weft_dnnl_md *md)
{
    return md ? own_desc(scope, weft_dnnl__desc_copy(md->desc)) : NULL;
}

bool weft_dnnl__md_equal(const weft_dnnl_md *a, const weft_dnnl_md *b)
{
    return dnnl_memory_desc_equal(a->desc, b->desc);
}

uint64_t weft_dnnl__md_bytes(const weft_dnnl_md *md)
{
    return md ? dnnl_memory_desc_get_size(md->desc) : 0;
}

/* -- Attributes ----------------------------------------------------------------------------- */

bool weft_dnnl__append(weft_dnnl_attr *a, weft_dnnl_post post)
{
    if (a->n_post == WEFT_DNNL_POST_MAX)
        return false;
    a->post[a->n_post++] = post;
    return true;
}

static bool append_post_op(dnnl_post_ops_t ops, const weft_dnnl_post *post)
{
    switch (post->kind) {
    case dnnl_eltwise:
        return weft_dnnl__append_eltwise(ops, post);
    case dnnl_sum:
        return weft_dnnl__append_sum(ops, post);
    case dnnl_binary:
        return post->md &&
               weft_dnnl__done(dnnl_post_ops_append_binary(ops, post->alg, post->md->desc));
    case dnnl_prelu:
        return weft_dnnl__done(dnnl_post_ops_append_prelu(ops, post->mask));
    default:
        return false;
    }
}

static bool set_attr(dnnl_primitive_attr_t attr, const weft_dnnl_attr *from, weft_dnnl_masks masks)
{
    dnnl_post_ops_t ops;
    if (!weft_dnnl__done(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)))
        return false;
    if (!from)
        return true;
    weft_dnnl_attr a = *from;
    if (!weft_dnnl__lower_quant(&a) || !weft_dnnl__post_ops_are_sound(&a) ||
        !weft_dnnl__done(dnnl_post_ops_create(&ops)))
        return false;
    bool done = true;
    for (uint32_t i = 0; i < a.n_post && done; i++)
        done = append_post_op(ops, &a.post[i]);
    done = done && weft_dnnl__set_quant(attr, &a.quant, masks) &&
           weft_dnnl__done(dnnl_primitive_attr_set_post_ops(attr, ops));
    dnnl_post_ops_destroy(ops);
    return done;
}

/* NULL: failed, or the post-ops are not sound. */
static dnnl_primitive_attr_t create_attr(const weft_dnnl_attr *from, weft_dnnl_masks masks)
{
    dnnl_primitive_attr_t attr;
    if (!weft_dnnl__done(dnnl_primitive_attr_create(&attr)))
        return NULL;
    if (set_attr(attr, from, masks))
        return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

/* -- Primitive descriptors ------------------------------------------------------------------ */

/* NULL for an absent operand. */
static const void *desc_of(const weft_dnnl_md *md)
{
    return md ? md->desc : NULL;
}

/* Takes pd. */
static weft_dnnl_pd *own_pd(weft_dnnl_scope *scope, dnnl_primitive_desc_t pd)
{
    weft_dnnl_item *item = new_item(scope);
    if (!item) {
        dnnl_primitive_desc_destroy(pd);
        return NULL;
    }
    item->pd.pd = pd;
    return &item->pd;
}

static weft_dnnl_pd *describe(weft_dnnl_scope *scope, const weft_dnnl_op *op,
                              const weft_dnnl_attr *from, weft_dnnl_masks masks)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr = create_attr(from, masks);
    bool done = attr && weft_dnnl__done(weft_dnnl__describe(&pd, scope->engine, op, attr));
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return done ? own_pd(scope, pd) : NULL;
}

/* Weights of a convolution with groups have one dim more. */
static weft_dnnl_masks conv_masks(const weft_dnnl_md *x, const weft_dnnl_md *w)
{
    return (weft_dnnl_masks){.result = 1 << 1, .weights = w->rank > x->rank ? 3 : 1};
}

weft_dnnl_pd *weft_dnnl__conv(weft_dnnl_scope *scope, const weft_dnnl_attr *attr,
                              dnnl_alg_kind_t alg, int tile, const weft_dnnl_window *window,
                              const weft_dnnl_md *x, const weft_dnnl_md *w,
                              const weft_dnnl_md *bias, const weft_dnnl_md *y)
{
    if (!x || !w || !y)
        return NULL;
    const weft_dnnl_op op = {dnnl_convolution, alg,           window,  x->desc,
                             w->desc,          desc_of(bias), y->desc, tile};
    return describe(scope, &op, attr, conv_masks(x, w));
}

weft_dnnl_pd *weft_dnnl__deconv(weft_dnnl_scope *scope, const weft_dnnl_attr *attr,
                                const weft_dnnl_window *window, const weft_dnnl_md *x,
                                const weft_dnnl_md *w, const weft_dnnl_md *bias,
                                const weft_dnnl_md *y)
{
    if (!x || !w || !y)
        return NULL;
    const weft_dnnl_op op = {.kind = dnnl_deconvolution,
                             .alg = dnnl_deconvolution_direct,
                             .window = window,
                             .x = x->desc,
                             .w = w->desc,
                             .bias = desc_of(bias),
                             .y = y->desc};
    return describe(scope, &op, attr, conv_masks(x, w));
}

weft_dnnl_pd *weft_dnnl__matmul(weft_dnnl_scope *scope, const weft_dnnl_attr *attr,
                                const weft_dnnl_md *a, const weft_dnnl_md *b,
                                const weft_dnnl_md *bias, const weft_dnnl_md *y)
{
    if (!a || !b || !y)
        return NULL;
    const weft_dnnl_op op = {
        .kind = dnnl_matmul, .x = a->desc, .w = b->desc, .bias = desc_of(bias), .y = y->desc};
    int column = 1 << (y->rank - 1);
    return describe(scope, &op, attr, (weft_dnnl_masks){column, column});
}

weft_dnnl_pd *weft_dnnl__pool(weft_dnnl_scope *scope, dnnl_alg_kind_t alg,
                              const weft_dnnl_window *window, const weft_dnnl_md *x,
                              const weft_dnnl_md *y)
{
    if (!x || !y)
        return NULL;
    const weft_dnnl_op op = {
        .kind = dnnl_pooling, .alg = alg, .window = window, .x = x->desc, .y = y->desc};
    return describe(scope, &op, NULL, (weft_dnnl_masks){0});
}

weft_dnnl_pd *weft_dnnl__prelu(weft_dnnl_scope *scope, const weft_dnnl_md *x,
                               const weft_dnnl_md *slope)
{
    if (!x || !slope)
        return NULL;
    const weft_dnnl_op op = {.kind = dnnl_prelu, .x = x->desc, .w = slope->desc, .y = x->desc};
    return describe(scope, &op, NULL, (weft_dnnl_masks){0});
}

weft_dnnl_pd *weft_dnnl__reorder(weft_dnnl_scope *scope, const weft_dnnl_md *from,
                                 const weft_dnnl_md *to)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr = from && to ? create_attr(NULL, (weft_dnnl_masks){0}) : NULL;
    bool done = attr && weft_dnnl__done(dnnl_reorder_primitive_desc_create(
                            &pd, from->desc, scope->engine, to->desc, scope->engine, attr));
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return done ? own_pd(scope, pd) : NULL;
}

const weft_dnnl_md *weft_dnnl__pd_md(weft_dnnl_scope *scope, const weft_dnnl_pd *pd,
                                     dnnl_query_t what, int index)
{
    const void *desc = dnnl_primitive_desc_query_md(pd->pd, what, index);
    if (!desc || dnnl_memory_desc_get_size(desc) == 0)
        return NULL;
    return own_desc(scope, weft_dnnl__desc_copy(desc));
}

const char *weft_dnnl__pd_name(const weft_dnnl_pd *pd)
{
    const char *name = NULL;
    (void)dnnl_primitive_desc_query(pd->pd, dnnl_query_impl_info_str, 0, &name);
    return name ? name : "";
}

bool weft_dnnl__is_slow(const weft_dnnl_pd *pd)
{
    const char *name = weft_dnnl__pd_name(pd);
    /* "gemm:ref", where there is no JIT for GEMMs (aarch64), is a convolution by a blocked GEMM. */
    return !*name || (strstr(name, "ref") && strncmp(name, "gemm", 4) != 0) ||
           strstr(name, "simple");
}

/* -- Execution ------------------------------------------------------------------------------ */

dnnl_primitive_t weft_dnnl__primitive_create(const weft_dnnl_pd *pd)
{
    dnnl_primitive_t prim;
    return weft_dnnl__done(dnnl_primitive_create(&prim, pd->pd)) ? prim : NULL;
}

void weft_dnnl__primitive_destroy(dnnl_primitive_t prim)
{
    if (prim)
        dnnl_primitive_destroy(prim);
}

dnnl_memory_t weft_dnnl__memory_create(dnnl_engine_t engine, const weft_dnnl_md *md, void *at)
{
    dnnl_memory_t memory;
    if (!md || !weft_dnnl__done(dnnl_memory_create(&memory, md->desc, engine, at)))
        return NULL;
    return memory;
}

bool weft_dnnl__memory_move(dnnl_memory_t memory, void *at)
{
    return weft_dnnl__done(dnnl_memory_set_data_handle(memory, at));
}

void weft_dnnl__memory_destroy(dnnl_memory_t memory)
{
    if (memory)
        dnnl_memory_destroy(memory);
}

bool weft_dnnl__execute(dnnl_primitive_t prim, dnnl_stream_t stream, uint32_t n,
                        const dnnl_exec_arg_t *arg)
{
    return weft_dnnl__done(dnnl_primitive_execute(prim, stream, (int)n, arg));
}
