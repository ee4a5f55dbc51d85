/* Normalisation, softmax and reductions of f32, by rows. */
#include "runtime/cpu/cpu_int.h"
#include "runtime/cpu/cpu_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* [rows][n]; for kernels along channels, [rows][channels][n]. */
typedef struct rows_kernel {
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    int64_t rows, n, channels;
    float eps, factor;
    float *scale, *shift;    /* per channel; owned */
    bool relu, mean_is_zero; /* rms_norm */
    void *const *arg;
} rows_kernel;

static void destroy_rows(void *state)
{
    rows_kernel *k = state;
    free(k->scale);
    free(k->shift);
    free(k);
}

static rows_kernel *create_rows(weft_prep *p, weft_kernel_fn run, const char *variant)
{
    rows_kernel *k = weft_cpu__calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->vec = weft_cpu__of(p)->vec;
    k->threads = weft_cpu__of(p)->threads;
    k->n_in = p->n_in;
    p->run = run;
    p->state = k;
    p->destroy = destroy_rows;
    p->variant = variant;
    return k;
}

static bool plain_f32(const weft_slot *s)
{
    return weft_slot_is(s, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN);
}

static bool find_axis(const weft_prep *p, int64_t otherwise, int32_t *out)
{
    int64_t axis = weft_attrs_int(p->attrs, WEFT_ATTR_AXIS, otherwise);
    if (axis < 0)
        axis += p->in[0].tensor.rank;
    *out = (int32_t)axis;
    return axis >= 0 && axis < p->in[0].tensor.rank;
}

/* -- Layer normalisation -------------------------------------------------------------------- */

static void layer_norm_rows(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    const float *x = k->arg[0], *bias = k->n_in > 2 ? k->arg[2] : NULL;
    float *y = k->arg[k->n_in];
    for (int64_t r = begin; r < end && k->mean_is_zero; r++)
        k->vec->rms_norm(y + r * k->n, x + r * k->n, k->arg[1], k->eps, (size_t)k->n);
    for (int64_t r = begin; r < end && !k->mean_is_zero; r++)
        k->vec->layer_norm(y + r * k->n, x + r * k->n, k->arg[1], bias, k->eps, (size_t)k->n);
}

static weft_err run_layer_norm(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)k->n * 0.3, layer_norm_rows, k);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_layer_norm(weft_prep *p)
{
    int32_t axis;
    for (uint32_t i = 0; i < p->n_in; i++)
        if (p->in[i].present && !plain_f32(&p->in[i]))
            return WEFT_ERR_OK;
    for (uint32_t i = 1; i < p->n_out; i++)
        if (p->out[i].present)
            return WEFT_ERR_OK;
    if (!find_axis(p, -1, &axis) || p->n_in < 2 || !p->in[1].present || !plain_f32(&p->out[0]) ||
        !weft_slot_same_dims(&p->in[0], &p->out[0]))
        return WEFT_ERR_OK;
    int64_t n = weft_slot_count(&p->in[0], axis, p->in[0].tensor.rank);
    if (weft_slot_numel(&p->in[1]) != n ||
        (p->n_in > 2 && p->in[2].present && weft_slot_numel(&p->in[2]) != n))
        return WEFT_ERR_OK;
    bool is_rms = p->op == WEFT_OP_RMS_NORM;
    rows_kernel *k = create_rows(p, run_layer_norm, is_rms ? "rms_norm" : "layer_norm");
    if (!k)
        return WEFT_ERR_NOMEM;
    k->mean_is_zero = is_rms;
    k->rows = weft_slot_count(&p->in[0], 0, axis);
    k->n = n;
    k->eps = (float)weft_attrs_float(p->attrs, WEFT_ATTR_EPSILON, 1e-5);
    return WEFT_ERR_OK;
}

/* -- Softmax -------------------------------------------------------------------------------- */

enum { SOFTMAX_CHUNK = 256, SOFTMAX_SHORT = 32 };

/* Rows so short that the exponentials of several fill vectors. */
static void softmax_short(const rows_kernel *k, const float *x, float *y, int64_t rows)
{
    float part[SOFTMAX_CHUNK], *at = part;
    const float *exponent = part;
    for (int64_t r = 0; r < rows; r++) {
        float max = -INFINITY;
        for (int64_t i = 0; i < k->n; i++)
            max = x[i] > max ? x[i] : max;
        for (int64_t i = 0; i < k->n; i++)
            *at++ = *x++ - max;
    }
    k->vec->step[WEFT_STEP_EXP](part, &exponent, (size_t)(rows * k->n));
    at = part;
    for (int64_t r = 0; r < rows; r++, at += k->n) {
        float sum = 0;
        for (int64_t i = 0; i < k->n; i++)
            sum += at[i];
        for (int64_t i = 0; i < k->n; i++)
            *y++ = at[i] / sum;
    }
}

static void softmax_rows(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    const float *x = k->arg[0];
    float *y = k->arg[1];
    int64_t step = k->n <= SOFTMAX_SHORT ? SOFTMAX_CHUNK / k->n : 1;
    for (int64_t r = begin; r < end; r += step)
        if (k->n <= SOFTMAX_SHORT)
            softmax_short(k, x + r * k->n, y + r * k->n, end - r < step ? end - r : step);
        else
            k->vec->softmax(y + r * k->n, x + r * k->n, (size_t)k->n);
}

/* The softmax of n <= SOFTMAX_CHUNK columns, each of k->channels elements at a distance of k->n. */
static void softmax_chunk(const rows_kernel *k, const float *x, float *y, size_t n)
{
    float max[SOFTMAX_CHUNK], sum[SOFTMAX_CHUNK];
    const weft_vec_step *step = k->vec->step;
    memcpy(max, x, n * sizeof *max);
    memset(sum, 0, n * sizeof *sum);
    for (int64_t c = 1; c < k->channels; c++)
        step[WEFT_STEP_MAX](max, (const float *const[]){max, x + c * k->n}, n);
    for (int64_t c = 0; c < k->channels; c++) {
        float *out = y + c * k->n;
        step[WEFT_STEP_SUB](out, (const float *const[]){x + c * k->n, max}, n);
        step[WEFT_STEP_EXP](out, (const float *const[]){out}, n);
        k->vec->accumulate(sum, out, n);
    }
    for (int64_t c = 0; c < k->channels; c++)
        step[WEFT_STEP_DIV](y + c * k->n, (const float *const[]){y + c * k->n, sum}, n);
}

/* Softmax along `channels`, with n elements after that axis. */
static void softmax_columns(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)k->arg[0] + r * k->channels * k->n;
        float *y = (float *)k->arg[1] + r * k->channels * k->n;
        for (int64_t i = 0; i < k->n; i += SOFTMAX_CHUNK)
            softmax_chunk(k, x + i, y + i,
                          (size_t)(k->n - i < SOFTMAX_CHUNK ? k->n - i : SOFTMAX_CHUNK));
    }
}

static weft_err run_softmax(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    if (k->channels)
        weft_par_for(k->threads, k->rows, (double)(k->n * k->channels) * 4, softmax_columns, k);
    else
        weft_par_for(k->threads, k->rows, (double)k->n, softmax_rows, k);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_softmax(weft_prep *p)
{
    int32_t axis, rank = p->in[0].tensor.rank;
    if (!plain_f32(&p->in[0]) || !plain_f32(&p->out[0]) || !find_axis(p, -1, &axis) ||
        !weft_slot_same_dims(&p->in[0], &p->out[0]) || p->n_in != 1)
        return WEFT_ERR_OK;
    rows_kernel *k = create_rows(p, run_softmax, "softmax");
    if (!k)
        return WEFT_ERR_NOMEM;
    k->rows = weft_slot_count(&p->in[0], 0, axis);
    k->n = weft_slot_count(&p->in[0], axis + 1, rank);
    k->channels = p->in[0].tensor.dim[axis];
    if (k->n == 1) {
        k->n = k->channels;
        k->channels = 0;
    }
    return WEFT_ERR_OK;
}

/* -- Batch normalisation -------------------------------------------------------------------- */

static void batch_norm_planes(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    const float *x = k->arg[0];
    float *y = k->arg[k->n_in];
    for (int64_t r = begin; r < end; r++)
        k->vec->affine(y + r * k->n, x + r * k->n, k->scale[r % k->channels],
                       k->shift[r % k->channels], (size_t)k->n);
}

static void batch_norm_blocks(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    const float *x = k->arg[0];
    float *y = k->arg[k->n_in];
    for (int64_t r = begin; r < end; r++)
        k->vec->affine16(y + r * k->n, x + r * k->n, k->scale + r % k->channels * 16,
                         k->shift + r % k->channels * 16, (size_t)k->n);
}

static weft_err run_batch_norm(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)k->n * 0.3, batch_norm_planes, k);
    return WEFT_ERR_OK;
}

static weft_err run_batch_norm16(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)k->n * 0.3, batch_norm_blocks, k);
    return WEFT_ERR_OK;
}

/* Constant parameters only; others are rare. */
weft_err weft_cpu__prepare_batch_norm(weft_prep *p)
{
    const weft_slot *x = &p->in[0], *y = &p->out[0];
    bool blocked = x->layout == WEFT_LAYOUT_C16;
    double eps = weft_attrs_float(p->attrs, WEFT_ATTR_EPSILON, 1e-5);
    if (p->n_in != 5 || x->tensor.rank < 2 || x->tensor.dtype != WEFT_DTYPE_F32 ||
        x->layout != y->layout || (x->layout != WEFT_LAYOUT_PLAIN && !blocked) ||
        !weft_slot_same_dims(x, y) || y->tensor.dtype != WEFT_DTYPE_F32 ||
        weft_attrs_int(p->attrs, WEFT_ATTR_TRAINING_MODE, 0))
        return WEFT_ERR_OK;
    int64_t channels = x->tensor.dim[1], plane = weft_slot_count(x, 2, x->tensor.rank);
    for (uint32_t i = 1; i < 5; i++)
        if (!plain_f32(&p->in[i]) || !p->in[i].weight || weft_slot_numel(&p->in[i]) != channels)
            return WEFT_ERR_OK;
    rows_kernel *k = create_rows(p, blocked ? run_batch_norm16 : run_batch_norm, "batch_norm");
    if (!k)
        return WEFT_ERR_NOMEM;
    k->channels = blocked ? (channels + 15) / 16 : channels;
    k->rows = x->tensor.dim[0] * k->channels;
    k->n = blocked ? plane * 16 : plane;
    k->scale = weft_cpu__calloc((size_t)channels + 16, sizeof *k->scale);
    k->shift = weft_cpu__calloc((size_t)channels + 16, sizeof *k->shift);
    if (!k->scale || !k->shift) {
        destroy_rows(k);
        p->run = NULL;
        return WEFT_ERR_NOMEM;
    }
    for (int64_t c = 0; c < channels; c++) {
        double var = weft_tensor_get_f64(&p->in[4].tensor, c);
        double scale = weft_tensor_get_f64(&p->in[1].tensor, c) / sqrt(var + eps);
        k->scale[c] = (float)scale;
        k->shift[c] = (float)(weft_tensor_get_f64(&p->in[2].tensor, c) -
                              weft_tensor_get_f64(&p->in[3].tensor, c) * scale);
    }
    return WEFT_ERR_OK;
}

/* -- Reductions ----------------------------------------------------------------------------- */

static void sum_rows(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    const float *x = k->arg[0];
    float *y = k->arg[k->n_in];
    for (int64_t r = begin; r < end; r++)
        y[r] = k->vec->sum(x + r * k->n, (size_t)k->n) * k->factor;
}

static void sum_blocks(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    const float *x = k->arg[0];
    float *y = k->arg[k->n_in];
    if (k->channels % 16 == 0) {
        for (int64_t r = begin; r < end; r++)
            k->vec->sum16(y + r * 16, x + r * k->n * 16, k->factor, (size_t)k->n);
        return;
    }
    /* In a plain result the last block of an image has fewer channels. */
    int64_t blocks = (k->channels + 15) / 16;
    for (int64_t r = begin; r < end; r++) {
        float lanes[16];
        int64_t at = r % blocks * 16, left = k->channels - at;
        k->vec->sum16(lanes, x + r * k->n * 16, k->factor, (size_t)k->n);
        memcpy(y + r / blocks * k->channels + at, lanes,
               (size_t)(left < 16 ? left : 16) * sizeof *lanes);
    }
}

static weft_err run_sum(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)k->n * 0.1, sum_rows, k);
    return WEFT_ERR_OK;
}

static weft_err run_sum16(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)k->n * 1.0, sum_blocks, k);
    return WEFT_ERR_OK;
}

/* Channels innermost: an image is n rows of channels. */
static void sum_images(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    size_t channels = (size_t)k->channels;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)k->arg[0] + r * k->n * k->channels;
        float *y = (float *)k->arg[k->n_in] + r * k->channels;
        memset(y, 0, channels * sizeof *y);
        for (int64_t i = 0; i < k->n; i++)
            k->vec->accumulate(y, x + i * k->channels, channels);
        k->vec->affine(y, y, k->factor, 0, channels);
    }
}

static weft_err run_sum_last(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)(k->n * k->channels) * 0.1, sum_images, k);
    return WEFT_ERR_OK;
}

static void max_rows(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    const float *x = k->arg[0];
    float *y = k->arg[k->n_in];
    for (int64_t r = begin; r < end; r++)
        y[r] = k->vec->max_or_nan(x + r * k->n, (size_t)k->n);
}

static weft_err run_max(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)k->n * 0.1, max_rows, k);
    return WEFT_ERR_OK;
}

static void max_images(void *cx, int64_t begin, int64_t end)
{
    const rows_kernel *k = cx;
    size_t channels = (size_t)k->channels;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)k->arg[0] + r * k->n * k->channels;
        float *y = (float *)k->arg[k->n_in] + r * k->channels;
        memcpy(y, x, channels * sizeof *y);
        for (int64_t i = 1; i < k->n; i++)
            k->vec->step[WEFT_STEP_MAX](y, (const float *const[]){y, x + i * k->channels},
                                        channels);
    }
}

static weft_err run_max_last(void *state, void *const *arg)
{
    rows_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, (double)(k->n * k->channels) * 0.1, max_images, k);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_global_max(weft_prep *p)
{
    const weft_slot *x = &p->in[0], *y = &p->out[0];
    if (p->n_in != 1 || p->n_out != 1 || !plain_f32(x) || !plain_f32(y) || x->tensor.rank < 3 ||
        weft_slot_numel(y) != x->tensor.dim[0] * x->tensor.dim[1])
        return WEFT_ERR_OK;
    rows_kernel *k = create_rows(p, run_max, "global_max");
    if (!k)
        return WEFT_ERR_NOMEM;
    k->rows = weft_slot_numel(y);
    k->n = weft_slot_count(x, 2, x->tensor.rank);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_global_pool(weft_prep *p)
{
    const weft_slot *x = &p->in[0], *y = &p->out[0];
    bool blocked = x->layout == WEFT_LAYOUT_C16, innermost = x->layout == WEFT_LAYOUT_NHWC;
    if (p->n_in != 1 || x->tensor.rank < 3 || x->tensor.dtype != WEFT_DTYPE_F32 ||
        (x->layout != WEFT_LAYOUT_PLAIN && !blocked && !innermost) ||
        (y->layout != x->layout && y->layout != WEFT_LAYOUT_PLAIN) ||
        y->tensor.dtype != WEFT_DTYPE_F32 || y->tensor.rank < 2 ||
        y->tensor.dim[0] != x->tensor.dim[0] || y->tensor.dim[1] != x->tensor.dim[1] ||
        weft_slot_numel(y) != x->tensor.dim[0] * x->tensor.dim[1])
        return WEFT_ERR_OK;
    rows_kernel *k = create_rows(p,
                                 blocked     ? run_sum16
                                 : innermost ? run_sum_last
                                             : run_sum,
                                 "global_pool");
    if (!k)
        return WEFT_ERR_NOMEM;
    k->n = weft_slot_count(x, 2, x->tensor.rank);
    if (innermost) {
        k->rows = x->tensor.dim[0];
        k->channels = x->tensor.dim[1];
        k->factor = 1.0f / (float)k->n;
        return WEFT_ERR_OK;
    }
    k->rows = x->tensor.dim[0] * (blocked ? (x->tensor.dim[1] + 15) / 16 : x->tensor.dim[1]);
    k->channels = y->layout == WEFT_LAYOUT_PLAIN ? x->tensor.dim[1] : 0;
    k->factor = 1.0f / (float)k->n;
    return WEFT_ERR_OK;
}

/* Reduces neighbouring axes of a plain operand. */
weft_err weft_cpu__prepare_reduce(weft_prep *p)
{
    const weft_slot *x = &p->in[0], *y = &p->out[0];
    uint32_t n;
    const int64_t *axes = weft_attrs_ints(p->attrs, WEFT_ATTR_AXES, &n);
    int32_t rank = x->tensor.rank, first = 0, last;
    uint32_t mask = 0;
    if (!plain_f32(x) || !plain_f32(y) || !axes || n == 0 || n > (uint32_t)rank)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < n; i++) {
        int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (a < 0 || a >= rank)
            return WEFT_ERR_OK;
        mask |= 1u << a;
    }
    while (!(mask >> first & 1))
        first++;
    for (last = first; last < rank && (mask >> last & 1);)
        last++;
    if (mask >> last)
        return WEFT_ERR_OK;
    int64_t rows = weft_slot_count(x, 0, first), inner = weft_slot_count(x, last, rank);
    if (weft_slot_numel(y) != rows * inner)
        return WEFT_ERR_OK;
    bool max = p->op == WEFT_OP_REDUCE_MAX;
    if (max && weft_slot_count(x, first, last) == 0)
        return WEFT_ERR_OK;
    rows_kernel *k = create_rows(p,
                                 max          ? inner == 1 ? run_max : run_max_last
                                 : inner == 1 ? run_sum
                                              : run_sum_last,
                                 "reduce");
    if (!k)
        return WEFT_ERR_NOMEM;
    k->rows = rows;
    k->channels = inner;
    k->n = weft_slot_count(x, first, last);
    /* The mean of nothing is 0, as the sum. */
    k->factor = p->op == WEFT_OP_REDUCE_MEAN && k->n > 0 ? 1.0f / (float)k->n : 1.0f;
    return WEFT_ERR_OK;
}
