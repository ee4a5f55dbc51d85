/* What the products of bytes by oneDNN share: scales, zero points, the bias, and the conversion of
 * those that are known at the run only.
 *
 * The weight is i8 with zero points of 0. If the scale and the zero point of operand a are
 * constant, they are part of the primitive. Otherwise (dynamic quantisation) the primitive scales
 * by b's scale alone, its first post-op multiplies by a's scale, one element in memory, and the
 * zero point is converted from the byte in memory to the i32 that oneDNN reads. */
#include "runtime/cpu/cpu_dnnl_qproduct_int.h"
#include "runtime/cpu/cpu_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool weft_qproduct__is_exact(void)
{
    return weft_dnnl__has_isa(dnnl_cpu_isa_avx512_core_vnni) ||
           weft_dnnl__has_isa(dnnl_cpu_isa_avx2_vnni);
}

static const weft_slot *operand(const weft_prep *p, uint32_t i)
{
    return i < p->n_in && p->in[i].present ? &p->in[i] : NULL;
}

/* A constant of one element. */
static bool number(const weft_prep *p, uint32_t i, double *out)
{
    const weft_slot *s = operand(p, i);
    if (!s || !s->tensor.data || weft_slot_numel(s) != 1)
        return false;
    *out = weft_tensor_get_f64(&s->tensor, 0);
    return true;
}

static bool is_zero(const weft_slot *s)
{
    int64_t n = weft_slot_numel(s);
    for (int64_t i = 0; s->tensor.data && i < n; i++)
        if (weft_tensor_get_i64(&s->tensor, i) != 0)
            return false;
    return s->tensor.data != NULL;
}

static bool read_scales(weft_prep *p, qproduct *q)
{
    const weft_slot *s = operand(p, WEFT_QLINEAR_B_SCALE), *zero = operand(p, WEFT_QLINEAR_B_ZERO);
    const weft_slot *b = operand(p, WEFT_QLINEAR_B);
    int64_t n = weft_slot_numel(s);
    if (!b->weight || b->tensor.dtype != WEFT_DTYPE_I8 || b->layout != WEFT_LAYOUT_PLAIN ||
        !is_zero(zero) || !s->tensor.data || (n != 1 && n != q->cols))
        return false;
    q->scale = weft_cpu__malloc((size_t)n * sizeof *q->scale);
    if (!q->scale)
        return false;
    for (int64_t i = 0; i < n; i++) {
        q->scale[i] = (float)weft_tensor_get_f64(&s->tensor, i);
        if (!isfinite(q->scale[i]))
            return false;
    }
    q->epilogue.attr.quant.sw = q->scale;
    q->epilogue.attr.quant.n_sw = (uint32_t)n;
    return true;
}

/* Scale and zero point of operand a: constant, or one f32 and one byte in memory. */
static bool read_a(weft_prep *p, qproduct *q)
{
    weft_dnnl_quant *quant = &q->epilogue.attr.quant;
    const weft_slot *scale = operand(p, WEFT_QLINEAR_A_SCALE),
                    *zero = operand(p, WEFT_QLINEAR_A_ZERO);
    double s, z;
    quant->sx = 1;
    if (number(p, WEFT_QLINEAR_A_SCALE, &s) && number(p, WEFT_QLINEAR_A_ZERO, &z)) {
        quant->sx = (float)s;
        quant->zx = (int32_t)z;
        return isfinite(quant->sx) && quant->sx != 0;
    }
    q->at_run = true;
    quant->zx_at_run = true;
    return weft_slot_numel(scale) == 1 && scale->tensor.dtype == WEFT_DTYPE_F32 &&
           weft_slot_numel(zero) == 1 && !operand(p, WEFT_QLINEAR_Y_SCALE);
}

/* ONNX rounds, then adds the zero point of y; oneDNN adds it first. The results differ where a sum
 * is halfway between two numbers and the zero point is odd: often if the scales are powers of two,
 * which other kernels are for. */
static bool rounds_alike(const weft_dnnl_quant *q)
{
    int exponent;
    for (uint32_t i = 0; q->zy % 2 != 0 && i < q->n_sw; i++)
        if (frexp((double)q->sx * (double)q->sw[i] / (double)q->sy, &exponent) == 0.5)
            return false;
    return true;
}

static bool read_y(weft_prep *p, qproduct *q)
{
    double s, z;
    if (!operand(p, WEFT_QLINEAR_Y_SCALE))
        return true;
    if (!number(p, WEFT_QLINEAR_Y_SCALE, &s) || !number(p, WEFT_QLINEAR_Y_ZERO, &z) ||
        !(isfinite(s) && (float)s > 0))
        return false;
    q->epilogue.attr.quant.sy = (float)s;
    q->epilogue.attr.quant.zy = (int32_t)z;
    return rounds_alike(&q->epilogue.attr.quant);
}

/* The bias in real units, then as the primitive expects it. */
static bool read_bias(weft_prep *p, qproduct *q)
{
    const weft_slot *s = operand(p, WEFT_QLINEAR_BIAS);
    const weft_dnnl_quant *quant = &q->epilogue.attr.quant;
    if (!s)
        return true;
    bool whole = s->tensor.dtype == WEFT_DTYPE_I32;
    if (!s->tensor.data || weft_slot_numel(s) != q->cols || (q->at_run && whole))
        return false;
    q->adds_bias = q->at_run;
    if (q->adds_bias)
        return true;
    q->bias = weft_cpu__malloc((size_t)q->cols * sizeof *q->bias);
    if (!q->bias)
        return false;
    for (int64_t i = 0; i < q->cols; i++) {
        double by = (double)quant->sx * (double)quant->sw[quant->n_sw == 1 ? 0 : i];
        q->bias[i] = (float)(weft_tensor_get_f64(&s->tensor, i) * (whole ? by : 1));
    }
    return weft_dnnl__quant_bias(quant, (uint32_t)q->cols, q->bias, q->bias);
}

bool weft_qproduct__read(weft_prep *p, qproduct *q, int64_t cols, int bias_rank, int bias_axis)
{
    dnnl_dims_t dim;
    q->cols = cols;
    if (!weft_qproduct__is_exact() || cols < 1 || !read_scales(p, q) || !read_a(p, q) ||
        !read_y(p, q) || !read_bias(p, q))
        return false;
    for (int d = 0; d < bias_rank; d++)
        dim[d] = d == bias_axis ? cols : 1;
    q->bias_md = weft_dnnl__md_plain(&q->scope, bias_rank, dim);
    return q->bias_md != NULL;
}

/* acc * a's scale, + bias */
static uint32_t front_steps(const qproduct *q, weft_step *front)
{
    uint32_t n = 0;
    if (q->at_run) {
        front[n] = (weft_step){.op = WEFT_STEP_MUL, .n_args = 2};
        front[n].arg[0].kind = WEFT_ARG_ACC;
        front[n].arg[1].kind = WEFT_ARG_INPUT;
        front[n++].arg[1].idx = WEFT_QLINEAR_A_SCALE;
    }
    if (q->adds_bias) {
        front[n] = (weft_step){.op = WEFT_STEP_ADD, .n_args = 2};
        front[n].arg[0].kind = WEFT_ARG_ACC;
        front[n].arg[1].kind = WEFT_ARG_INPUT;
        front[n++].arg[1].idx = WEFT_QLINEAR_BIAS;
    }
    return n;
}

weft_err weft_qproduct__epilogue(weft_prep *p, qproduct *q, bool collapsed)
{
    weft_step front[2];
    weft_dnnl_quant quant = q->epilogue.attr.quant;
    weft_err err =
        weft_dnnl__epilogue(p, &q->scope, &q->epilogue, collapsed, front, front_steps(q, front));
    q->epilogue.attr.quant = quant;
    return err;
}

/* -- Kernels -------------------------------------------------------------------------------- */

/* A kernel whose zero point is converted first: scratch memory at `offset` holds the i32. */
typedef struct q_kernel {
    dnnl_kernel *inner;
    weft_kernel_fn run;
    uint32_t zero, scratch;
    uint64_t offset;
    bool is_u8;
} q_kernel;

static weft_err run_converted(void *state, void *const *arg)
{
    const q_kernel *k = state;
    const uint8_t *zero = arg[k->zero];
    *(int32_t *)(void *)((char *)arg[k->scratch] + k->offset) = k->is_u8 ? *zero : (int8_t)*zero;
    return k->run(k->inner, arg);
}

static void destroy_converted(void *state)
{
    q_kernel *k = state;
    weft_dnnl__destroy(k->inner);
    free(k);
}

/* Binds the zero point of a at the run to an i32 behind the scratch memory used so far. */
static bool bind_zero(weft_prep *p, qproduct *q, dnnl_kernel *k, dnnl_call *s, q_kernel *outer)
{
    const int64_t one = 1;
    const weft_dnnl_md *md = weft_dnnl__md_by_tag(&q->scope, 1, &one, dnnl_s32, dnnl_a);
    outer->zero = WEFT_QLINEAR_A_ZERO;
    outer->scratch = p->n_in + p->n_out;
    outer->is_u8 = p->in[WEFT_QLINEAR_A_ZERO].tensor.dtype == WEFT_DTYPE_U8;
    outer->offset = (p->scratch_bytes + 63) / 64 * 64;
    p->scratch_bytes = outer->offset + sizeof(int32_t);
    return md &&
           weft_dnnl__bind(k, s, weft_dnnl__arg_zero_point, md, outer->scratch, outer->offset);
}

static bool bind_bias(qproduct *q, dnnl_kernel *k, dnnl_call *s)
{
    if (!q->bias)
        return true;
    if (k->n_value == DNNL_VALUE_MAX)
        return false;
    k->value[k->n_value++] = q->bias; /* owned by the kernel from here */
    bool done = weft_dnnl__bind_const(k, s, DNNL_ARG_BIAS, q->bias_md, q->bias);
    q->bias = NULL;
    return done;
}

static weft_err bind_all(weft_prep *p, qproduct *q, dnnl_kernel *k, dnnl_call *s,
                         const weft_dnnl_pd *pd)
{
    if (!bind_bias(q, k, s) || !weft_dnnl__bind_quant(k, s, &q->epilogue.attr.quant) ||
        !weft_dnnl__bind_epilogue(p, k, s, &q->epilogue))
        return WEFT_ERR_UNSUP;
    if (!q->at_run) {
        weft_dnnl__set(p, k, pd);
        return WEFT_ERR_OK;
    }
    q_kernel *outer = weft_cpu__calloc(1, sizeof *outer);
    if (!outer || !bind_zero(p, q, k, s, outer)) {
        free(outer);
        return outer ? WEFT_ERR_UNSUP : WEFT_ERR_NOMEM;
    }
    weft_dnnl__set(p, k, pd);
    outer->inner = k;
    outer->run = p->run;
    p->run = run_converted;
    p->state = outer;
    p->destroy = destroy_converted;
    return WEFT_ERR_OK;
}

weft_err weft_qproduct__finish(weft_prep *p, qproduct *q, dnnl_kernel *k, dnnl_call *s,
                               const weft_dnnl_pd *pd)
{
    weft_err err = bind_all(p, q, k, s, pd);
    if (err != WEFT_ERR_OK) {
        weft_dnnl__destroy(k);
        p->scratch_bytes = 0;
    }
    return err;
}

void weft_qproduct__destroy(qproduct *q)
{
    free(q->scale);
    free(q->bias);
    weft_dnnl__scope_finish(&q->scope);
}
