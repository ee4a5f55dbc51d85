/* oneDNN 2.6 behind dnnl_api.h. Its descriptors of memory are structs, and of quantisation it knows
 *   post_ops(scale[c] * (sum((x - zx) * w) + bias[c])) + zy
 * with one scale, so sx * sw[c] and, where the post-ops allow it, 1 / sy are multiplied. */
#include "runtime/cpu/dnnl_api_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- Descriptors of memory ------------------------------------------------------------------ */

/* A struct on the heap; frees it unless `status` is success. */
static void *checked(dnnl_memory_desc_t *desc, dnnl_status_t status)
{
    if (weft_dnnl__done(status))
        return desc;
    free(desc);
    return NULL;
}

void *weft_dnnl__desc_by_tag(int rank, const int64_t *dim, dnnl_data_type_t type,
                             dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t *desc = weft_cpu__calloc(1, sizeof *desc);
    return desc ? checked(desc, dnnl_memory_desc_init_by_tag(desc, rank, dim, type, tag)) : NULL;
}

void *weft_dnnl__desc_by_strides(int rank, const int64_t *dim, dnnl_data_type_t type,
                                 const int64_t *stride)
{
    dnnl_memory_desc_t *desc = weft_cpu__calloc(1, sizeof *desc);
    return desc ? checked(desc, dnnl_memory_desc_init_by_strides(desc, rank, dim, type, stride))
                : NULL;
}

void *weft_dnnl__desc_part(const void *whole, const int64_t *dim, const int64_t *offset)
{
    dnnl_memory_desc_t *desc = weft_cpu__calloc(1, sizeof *desc);
    return desc ? checked(desc, dnnl_memory_desc_init_submemory(desc, whole, dim, offset)) : NULL;
}

void *weft_dnnl__desc_copy(const void *desc)
{
    dnnl_memory_desc_t *copy = weft_cpu__malloc(sizeof *copy);
    if (copy)
        memcpy(copy, desc, sizeof *copy);
    return copy;
}

void weft_dnnl__desc_destroy(void *desc)
{
    free(desc);
}

bool weft_dnnl__desc_read(weft_dnnl_md *md)
{
    const dnnl_memory_desc_t *desc = md->desc;
    md->rank = desc->ndims;
    md->type = desc->data_type;
    memcpy(md->dim, desc->dims, sizeof md->dim);
    md->blocked = desc->format_kind == dnnl_blocked;
    if (md->blocked)
        memcpy(md->stride, desc->format_desc.blocking.strides, sizeof md->stride);
    return true;
}

/* F(2x2,3x3): u v O i B o, B blocks of output channels in chunks O. */
static void place_2x3(const dnnl_wino_desc_t *d, weft_dnnl_winograd *f)
{
    f->i_step = f->oc_blocks * f->oc_block;
    f->oc_step = f->oc_block;
    f->ic_step = f->i_step * f->ic_block;
    f->ic_chunk_step = f->ic_step;
    f->oc_chunk_step = f->ic_step * (d->ic / f->ic_block);
    f->v_step = f->oc_chunk_step * (d->oc / (f->oc_block * f->oc_blocks));
    f->u_step = f->v_step * d->alpha;
}

/* F(4x4,3x3): O u v I B J i o, B and J blocks of output and input channels in chunks O and I. */
static void place_4x3(const dnnl_wino_desc_t *d, weft_dnnl_winograd *f)
{
    f->i_step = f->oc_block;
    f->ic_step = f->i_step * f->ic_block;
    f->oc_step = f->ic_step * f->ic_blocks;
    f->ic_chunk_step = f->oc_step * f->oc_blocks;
    f->v_step = f->ic_chunk_step * (d->ic / (f->ic_block * f->ic_blocks));
    f->u_step = f->v_step * d->alpha;
    f->oc_chunk_step = f->u_step * d->alpha;
}

bool weft_dnnl__md_winograd(const weft_dnnl_md *md, weft_dnnl_winograd *out)
{
    const dnnl_memory_desc_t *desc = md->desc;
    const dnnl_wino_desc_t *d = &desc->format_desc.wino_desc;
    if (desc->format_kind != dnnl_format_kind_wino || desc->data_type != dnnl_f32 || d->r != 3)
        return false;
    bool is_4x3 = d->wino_format == dnnl_wino_wei_OBaaIBOIio && d->alpha == 6;
    bool is_2x3 = d->alpha == 4 && (d->wino_format == dnnl_wino_wei_aaOBiOo ||
                                    d->wino_format == dnnl_wino_wei_aaOio);
    weft_dnnl_winograd f = {.tile = d->alpha - 2,
                            .oc = d->oc,
                            .ic = d->ic,
                            .oc_block = d->oc_block,
                            .ic_block = d->ic_block,
                            .oc_blocks = d->wino_format == dnnl_wino_wei_aaOio ? 1 : d->oc2_block,
                            .ic_blocks = is_4x3 ? d->ic2_block : 1};
    if ((!is_4x3 && !is_2x3) || f.oc_block < 1 || f.ic_block < 1 || f.oc_blocks < 1 ||
        f.ic_blocks < 1)
        return false;
    (is_4x3 ? place_4x3 : place_2x3)(d, &f);
    *out = f;
    return true;
}

/* -- Attributes ----------------------------------------------------------------------------- */

/* NaN parameters compare unequal, so two of them count as a conflict, which is safe. */
static bool conflict(const weft_dnnl_post *a, const weft_dnnl_post *b)
{
    return a->kind == dnnl_eltwise && b->kind == dnnl_eltwise && a->alg == b->alg &&
           !(a->alpha == b->alpha && a->beta == b->beta);
}

bool weft_dnnl__post_ops_are_sound(const weft_dnnl_attr *a)
{
    for (uint32_t i = 1; i < a->n_post; i++)
        for (uint32_t j = 0; j < i; j++)
            if (conflict(&a->post[i], &a->post[j]))
                return false;
    return true;
}

bool weft_dnnl__append_eltwise(dnnl_post_ops_t ops, const weft_dnnl_post *post)
{
    return weft_dnnl__done(
        dnnl_post_ops_append_eltwise(ops, 1.0f, post->alg, post->alpha, post->beta));
}

bool weft_dnnl__append_sum(dnnl_post_ops_t ops, const weft_dnnl_post *post)
{
    return weft_dnnl__done(
        dnnl_post_ops_append_sum_v3(ops, post->alpha, post->zero_point, post->type));
}

/* -- Quantisation --------------------------------------------------------------------------- */

const int weft_dnnl__arg_scale = DNNL_ARG_ATTR_OUTPUT_SCALES;
const int weft_dnnl__arg_zero_point = DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC;

uint32_t weft_dnnl__quant_args(const weft_dnnl_quant *q, weft_dnnl_const *out)
{
    (void)q;
    (void)out;
    return 0;
}

bool weft_dnnl__quant_bias(const weft_dnnl_quant *q, uint32_t n, const float *bias, float *out)
{
    if (q->scale_at_run)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        float scale = q->n_sw == 0 ? 1.0f : q->sx * q->sw[q->n_sw == 1 ? 0 : i];
        out[i] = bias[i] / scale;
        if (!isfinite(out[i]))
            return false;
    }
    return true;
}

/* Whether post_ops(x / s) = post_ops(x) / s for s > 0, with the scales of sums divided by s. */
static bool are_homogeneous(const weft_dnnl_attr *a)
{
    for (uint32_t i = 0; i < a->n_post; i++)
        if (a->post[i].kind != dnnl_sum &&
            !(a->post[i].kind == dnnl_eltwise && a->post[i].alg == dnnl_eltwise_relu))
            return false;
    return true;
}

static bool append_factor(weft_dnnl_attr *a, float factor)
{
    if (a->n_post == WEFT_DNNL_POST_MAX)
        return false;
    a->post[a->n_post++] =
        (weft_dnnl_post){.kind = dnnl_eltwise, .alg = dnnl_eltwise_linear, .alpha = factor};
    return true;
}

/* Removes sy: it is multiplied into the other scales, or becomes a last post-op. */
bool weft_dnnl__lower_quant(weft_dnnl_attr *a)
{
    static const float one = 1.0f;
    weft_dnnl_quant *q = &a->quant;
    float sy = q->sy;
    q->sy = 0;
    if (sy == 0 || sy == 1)
        return true;
    if (q->scale_at_run || !are_homogeneous(a) || (sy < 0 && a->n_post > 0))
        return append_factor(a, 1 / sy);
    if (q->n_sw == 0) {
        q->n_sw = 1;
        q->sw = &one;
        q->sx = 1;
    }
    q->sx /= sy;
    for (uint32_t i = 0; i < a->n_post; i++)
        if (a->post[i].kind == dnnl_sum)
            a->post[i].alpha /= sy;
    return true;
}

static bool set_scales(dnnl_primitive_attr_t attr, const weft_dnnl_quant *q, int channel)
{
    int mask = q->n_sw > 1 ? channel : 0;
    float at_run = DNNL_RUNTIME_F32_VAL;
    if (q->n_sw == 0)
        return true;
    if (q->scale_at_run)
        return weft_dnnl__done(dnnl_primitive_attr_set_output_scales(attr, 1, mask, &at_run));
    float *scale = weft_cpu__malloc(q->n_sw * sizeof *scale);
    if (!scale)
        return false;
    for (uint32_t i = 0; i < q->n_sw; i++)
        scale[i] = q->sx * q->sw[i];
    bool done = weft_dnnl__done(dnnl_primitive_attr_set_output_scales(attr, q->n_sw, mask, scale));
    free(scale);
    return done;
}

static bool set_zero_point(dnnl_primitive_attr_t attr, int arg, int32_t value)
{
    return value == 0 ||
           weft_dnnl__done(dnnl_primitive_attr_set_zero_points(attr, arg, 1, 0, &value));
}

bool weft_dnnl__set_quant(dnnl_primitive_attr_t attr, const weft_dnnl_quant *q,
                          weft_dnnl_masks masks)
{
    return set_scales(attr, q, masks.result) &&
           set_zero_point(attr, DNNL_ARG_SRC, q->zx_at_run ? DNNL_RUNTIME_S32_VAL : q->zx) &&
           set_zero_point(attr, DNNL_ARG_DST, q->zy);
}

/* -- Primitive descriptors ------------------------------------------------------------------ */

/* Any of the library's structs; each starts with its kind. */
typedef union descriptor {
    dnnl_convolution_desc_t conv;
    dnnl_deconvolution_desc_t deconv;
    dnnl_matmul_desc_t matmul;
    dnnl_pooling_v2_desc_t pool;
    dnnl_prelu_desc_t prelu;

} descriptor;

static dnnl_status_t init(descriptor *out, const weft_dnnl_op *op)
{
    const weft_dnnl_window *n = op->window;
    switch (op->kind) {
    case dnnl_convolution:
        return dnnl_dilated_convolution_forward_desc_init(
            &out->conv, dnnl_forward_inference, op->alg, op->x, op->w, op->bias, op->y, n->stride,
            n->dilation, n->before, n->after);
    case dnnl_deconvolution:
        return dnnl_dilated_deconvolution_forward_desc_init(
            &out->deconv, dnnl_forward_inference, op->alg, op->x, op->w, op->bias, op->y, n->stride,
            n->dilation, n->before, n->after);
    case dnnl_matmul:
        return dnnl_matmul_desc_init(&out->matmul, op->x, op->w, op->bias, op->y);
    case dnnl_pooling:
        return dnnl_pooling_v2_forward_desc_init(&out->pool, dnnl_forward_inference, op->alg, op->x,
                                                 op->y, n->stride, n->kernel, n->dilation,
                                                 n->before, n->after);
    case dnnl_prelu:
        return dnnl_prelu_forward_desc_init(&out->prelu, dnnl_forward_inference, op->x, op->w);

    default:
        return dnnl_invalid_arguments;
    }
}

/* The first implementation whose name contains `name`. */
static dnnl_status_t create_named(dnnl_primitive_desc_t *out, const descriptor *d, const char *name,
                                  dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_iterator_t at;
    dnnl_status_t status = dnnl_primitive_desc_iterator_create(&at, d, attr, engine, NULL);
    if (status != dnnl_success)
        return status;
    for (; status == dnnl_success; status = dnnl_primitive_desc_iterator_next(at)) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(at);
        const char *found = NULL;
        if (!pd) {
            status = dnnl_out_of_memory;
            break;
        }
        if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &found) == dnnl_success &&
            strstr(found, name)) {
            *out = pd;
            break;
        }
        dnnl_primitive_desc_destroy(pd);
    }
    dnnl_primitive_desc_iterator_destroy(at);
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

dnnl_status_t weft_dnnl__describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const weft_dnnl_op *op, dnnl_primitive_attr_t attr)
{
    descriptor d;
    dnnl_status_t status = init(&d, op);
    if (status != dnnl_success)
        return status;
    if (op->kind == dnnl_convolution && op->tile == 4)
        return create_named(out, &d, "wino_4x3", engine, attr);
    return dnnl_primitive_desc_create(out, &d, attr, engine, NULL);
}
