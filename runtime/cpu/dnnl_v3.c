/* oneDNN 3.x behind dnnl_api.h. Its descriptors of memory are handles, and scales and zero points
 * are arguments of every run. */
#include "runtime/cpu/dnnl_api_int.h"

#include <string.h>

/* -- Descriptors of memory ------------------------------------------------------------------ */

void *weft_dnnl__desc_by_tag(int rank, const int64_t *dim, dnnl_data_type_t type,
                             dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    return weft_dnnl__done(dnnl_memory_desc_create_with_tag(&desc, rank, dim, type, tag)) ? desc
                                                                                          : NULL;
}

void *weft_dnnl__desc_by_strides(int rank, const int64_t *dim, dnnl_data_type_t type,
                                 const int64_t *stride)
{
    dnnl_memory_desc_t desc;
    return weft_dnnl__done(dnnl_memory_desc_create_with_strides(&desc, rank, dim, type, stride))
               ? desc
               : NULL;
}

void *weft_dnnl__desc_part(const void *whole, const int64_t *dim, const int64_t *offset)
{
    dnnl_memory_desc_t desc;
    return weft_dnnl__done(dnnl_memory_desc_create_submemory(&desc, whole, dim, offset)) ? desc
                                                                                         : NULL;
}

void *weft_dnnl__desc_copy(const void *desc)
{
    dnnl_memory_desc_t copy;
    return weft_dnnl__done(dnnl_memory_desc_clone(&copy, desc)) ? copy : NULL;
}

void weft_dnnl__desc_destroy(void *desc)
{
    dnnl_memory_desc_destroy(desc);
}

bool weft_dnnl__desc_read(weft_dnnl_md *md)
{
    dnnl_format_kind_t kind;
    const dnnl_dims_t *dim, *stride;
    if (dnnl_memory_desc_query(md->desc, dnnl_query_ndims_s32, &md->rank) != dnnl_success ||
        dnnl_memory_desc_query(md->desc, dnnl_query_dims, &dim) != dnnl_success ||
        dnnl_memory_desc_query(md->desc, dnnl_query_data_type, &md->type) != dnnl_success ||
        dnnl_memory_desc_query(md->desc, dnnl_query_format_kind, &kind) != dnnl_success)
        return false;
    memcpy(md->dim, *dim, sizeof md->dim);
    md->blocked = kind == dnnl_blocked;
    if (!md->blocked)
        return true;
    if (dnnl_memory_desc_query(md->desc, dnnl_query_strides, &stride) != dnnl_success)
        return false;
    memcpy(md->stride, *stride, sizeof md->stride);
    return true;
}

bool weft_dnnl__md_winograd(const weft_dnnl_md *md, weft_dnnl_winograd *out)
{
    (void)md;
    (void)out;
    return false;
}

/* -- Attributes ----------------------------------------------------------------------------- */

bool weft_dnnl__post_ops_are_sound(const weft_dnnl_attr *a)
{
    (void)a;
    return true;
}

/* Hardswish has parameters here, x * clip(alpha * x + beta, 0, 1), and none in oneDNN 2. */
bool weft_dnnl__append_eltwise(dnnl_post_ops_t ops, const weft_dnnl_post *post)
{
    bool swish = post->alg == dnnl_eltwise_hardswish;
    float alpha = swish ? 1.0f / 6 : post->alpha, beta = swish ? 0.5f : post->beta;
    return weft_dnnl__done(dnnl_post_ops_append_eltwise(ops, post->alg, alpha, beta));
}

bool weft_dnnl__append_sum(dnnl_post_ops_t ops, const weft_dnnl_post *post)
{
    return weft_dnnl__done(
        dnnl_post_ops_append_sum(ops, post->alpha, post->zero_point, post->type));
}

/* -- Quantisation --------------------------------------------------------------------------- */

const int weft_dnnl__arg_scale = DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS;
const int weft_dnnl__arg_zero_point = DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC;

/* Which of the arguments a quantisation has; creation and runs must agree. */
static bool has_sx(const weft_dnnl_quant *q)
{
    return q->n_sw > 0 && !q->scale_at_run && q->sx != 1;
}

static bool has_sy(const weft_dnnl_quant *q)
{
    return q->sy != 0 && q->sy != 1;
}

bool weft_dnnl__lower_quant(weft_dnnl_attr *a)
{
    (void)a;
    return true;
}

bool weft_dnnl__set_quant(dnnl_primitive_attr_t attr, const weft_dnnl_quant *q,
                          weft_dnnl_masks masks)
{
    int mask = q->n_sw > 1 ? masks.weights : 0;
    return (!has_sx(q) ||
            weft_dnnl__done(dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_SRC, 0))) &&
           (q->n_sw == 0 ||
            weft_dnnl__done(dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_WEIGHTS, mask))) &&
           (!has_sy(q) ||
            weft_dnnl__done(dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_DST, 0))) &&
           ((q->zx == 0 && !q->zx_at_run) ||
            weft_dnnl__done(dnnl_primitive_attr_set_zero_points_mask(attr, DNNL_ARG_SRC, 0))) &&
           (q->zy == 0 ||
            weft_dnnl__done(dnnl_primitive_attr_set_zero_points_mask(attr, DNNL_ARG_DST, 0)));
}

uint32_t weft_dnnl__quant_args(const weft_dnnl_quant *q, weft_dnnl_const *out)
{
    uint32_t n = 0;
    if (has_sx(q))
        out[n++] = (weft_dnnl_const){DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, dnnl_f32, 1, &q->sx};
    if (q->n_sw > 0 && !q->scale_at_run)
        out[n++] =
            (weft_dnnl_const){DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, dnnl_f32, q->n_sw, q->sw};
    if (has_sy(q))
        out[n++] = (weft_dnnl_const){DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, dnnl_f32, 1, &q->sy};
    if (q->zx != 0 && !q->zx_at_run)
        out[n++] = (weft_dnnl_const){DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, dnnl_s32, 1, &q->zx};
    if (q->zy != 0)
        out[n++] = (weft_dnnl_const){DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, dnnl_s32, 1, &q->zy};
    return n;
}

bool weft_dnnl__quant_bias(const weft_dnnl_quant *q, uint32_t n, const float *bias, float *out)
{
    (void)q;
    memcpy(out, bias, n * sizeof *out);
    return true;
}

/* -- Primitive descriptors ------------------------------------------------------------------ */

dnnl_status_t weft_dnnl__describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const weft_dnnl_op *op, dnnl_primitive_attr_t attr)
{
    const weft_dnnl_window *n = op->window;
    switch (op->kind) {
    case dnnl_convolution:
        if (op->tile != 0)
            return dnnl_unimplemented;
        return dnnl_convolution_forward_primitive_desc_create(
            out, engine, dnnl_forward_inference, op->alg, op->x, op->w, op->bias, op->y, n->stride,
            n->dilation, n->before, n->after, attr);
    case dnnl_deconvolution:
        return dnnl_deconvolution_forward_primitive_desc_create(
            out, engine, dnnl_forward_inference, op->alg, op->x, op->w, op->bias, op->y, n->stride,
            n->dilation, n->before, n->after, attr);
    case dnnl_matmul:
        return dnnl_matmul_primitive_desc_create(out, engine, op->x, op->w, op->bias, op->y, attr);
    case dnnl_pooling:
        return dnnl_pooling_forward_primitive_desc_create(
            out, engine, dnnl_forward_inference, op->alg, op->x, op->y, n->stride, n->kernel,
            n->dilation, n->before, n->after, attr);
    case dnnl_prelu:
        return dnnl_prelu_forward_primitive_desc_create(out, engine, dnnl_forward_inference, op->x,
                                                        op->w, op->y, attr);

    default:
        return dnnl_invalid_arguments;
    }
}
