/* Signal processing: Fourier transforms, window functions, the mel filter bank. */
#include "ops/data_int.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* -- Windows -------------------------------------------------------------------------------- */

weft_err weft_infer_window(weft_infer_ctx *cx)
{
    const weft_dim *size;
    uint32_t n;
    weft_given given = weft_param__dims(cx, 0, WEFT_ATTR_SIZE, &size, &n);
    if (given == WEFT_GIVEN_NOT || (given == WEFT_GIVEN_KNOWN && n != 1))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "one size is wanted");
    weft_dtype dtype = weft_attrs_dtype(cx->attrs, WEFT_ATTR_OUTPUT_DATATYPE, WEFT_DTYPE_F32);
    weft_ttype *out = weft_infer__out(cx, 0, dtype, 1);
    out->dim[0] = given == WEFT_GIVEN_KNOWN ? size[0] : weft_dim_fresh(cx->pool);
    return WEFT_ERR_OK;
}

/* a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n) */
weft_err weft_eval_window(weft_eval_ctx *cx)
{
    static const double terms[3][3] = {
        {0.5, 0.5, 0}, {25.0 / 46, 1 - 25.0 / 46, 0}, {0.42, 0.5, 0.08}};
    weft_op_id id = cx->op->id;
    const double *a = terms[id == WEFT_OP_HANN_WINDOW ? 0 : id == WEFT_OP_HAMMING_WINDOW ? 1 : 2];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    int64_t n = weft_tensor_numel(out);
    bool periodic = weft_attrs_int(cx->attrs, WEFT_ATTR_PERIODIC, 1) != 0;
    double period = (double)(periodic ? n : n - 1);
    for (int64_t i = 0; i < n; i++) {
        double x = period > 0 ? 2 * pi * (double)i / period : 0;
        weft_tensor_set_f64(out, i, a[0] - a[1] * cos(x) + a[2] * cos(2 * x));
    }
    return WEFT_ERR_OK;
}

/* -- Fourier transforms --------------------------------------------------------------------- */

typedef struct weft_complex {
    double re, im;
} weft_complex;

/* exp(sign * 2 pi i k / n) for k in [0, n). */
static weft_complex *make_twiddles(weft_arena *arena, int64_t n, double sign)
{
    weft_complex *w = weft_arena_array(arena, (size_t)n, sizeof *w);
    for (int64_t k = 0; k < n; k++) {
        double angle = sign * 2 * pi * (double)k / (double)n;
        w[k] = (weft_complex){cos(angle), sin(angle)};
    }
    return w;
}

/* out[0..n) from in[0], in[step], ...; `w` belongs to a transform of n * stride. Splits off factors
 * of 2 and takes the rest by definition. */
static void transform(const weft_complex *in, int64_t step, weft_complex *out, weft_complex *tmp,
                      int64_t n, const weft_complex *w, int64_t stride)
{
    if (n % 2 != 0 || n <= 4) {
        for (int64_t k = 0; k < n; k++) {
            weft_complex sum = {0, 0};
            for (int64_t i = 0; i < n; i++) {
                weft_complex x = in[i * step], t = w[i * k % n * stride];
                sum.re += x.re * t.re - x.im * t.im;
                sum.im += x.re * t.im + x.im * t.re;
            }
            out[k] = sum;
        }
        return;
    }
    int64_t half = n / 2;
    transform(in, 2 * step, tmp, out, half, w, 2 * stride);
    transform(in + step, 2 * step, tmp + half, out + half, half, w, 2 * stride);
    for (int64_t k = 0; k < half; k++) {
        weft_complex e = tmp[k], o = tmp[half + k], t = w[k * stride];
        weft_complex p = {o.re * t.re - o.im * t.im, o.re * t.im + o.im * t.re};
        out[k] = (weft_complex){e.re + p.re, e.im + p.im};
        out[half + k] = (weft_complex){e.re - p.re, e.im - p.im};
    }
}

/* Number of bins of a transform of n points. */
static int64_t n_bins(int64_t n, bool onesided)
{
    return onesided ? n / 2 + 1 : n;
}

/* Axis of the transform: operand 2 (newest form) or the attribute; the last dim is real, imaginary.
 */
static bool dft_axis(weft_attrs attrs, const int64_t *given, uint32_t n_given, uint32_t rank,
                     uint32_t *out)
{
    int64_t axis = -2;
    if (given && n_given == 1)
        axis = given[0];
    else if (weft_attrs_find(attrs, WEFT_ATTR_AXIS))
        axis = weft_attrs_int(attrs, WEFT_ATTR_AXIS, 1);
    return weft_axis__fix(axis, rank, out) && *out + 1 < rank;
}

weft_err weft_infer_dft(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *length;
    const int64_t *given_axis;
    uint32_t n, n_axis, axis;
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    weft_given given = weft_param__ints(cx, 2, WEFT_ATTR_AXIS, &given_axis, &n_axis);
    bool axis_later = given == WEFT_GIVEN_LATER;
    if (axis_later)
        axis = 0;
    else if (!dft_axis(cx->attrs, given_axis, n_axis, x->rank, &axis))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the axis is out of range");
    weft_dim parts = x->dim[x->rank - 1];
    if (weft_dim_is_const(parts) && parts != 1 && parts != 2)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the last dimension is %lld, not 1 or 2",
                         (long long)parts);
    bool onesided = weft_attrs_int(cx->attrs, WEFT_ATTR_ONESIDED, 0) != 0;
    bool to_real = onesided && weft_attrs_int(cx->attrs, WEFT_ATTR_INVERSE, 0) != 0;
    weft_infer__copy(cx, 0, 0);
    weft_ttype *out = &cx->out[0];
    out->dim[x->rank - 1] = to_real ? 1 : 2;
    given = weft_param__dims(cx, 1, WEFT_ATTR_NONE, &length, &n);
    if (axis_later) {
        for (uint32_t k = 0; k + 1 < x->rank && (onesided || given != WEFT_GIVEN_NOT); k++)
            out->dim[k] = weft_dim_fresh(cx->pool);
        return WEFT_ERR_OK;
    }
    if (given == WEFT_GIVEN_LATER)
        out->dim[axis] = weft_dim_fresh(cx->pool);
    else if (given == WEFT_GIVEN_KNOWN && n == 1)
        out->dim[axis] = length[0];
    else if (to_real)
        out->dim[axis] = weft_dim_mul(cx->pool, weft_dim_sub(cx->pool, out->dim[axis], 1), 2);
    if (onesided && !to_real)
        out->dim[axis] = weft_dim_add(cx->pool, weft_dim_floordiv(cx->pool, out->dim[axis], 2), 1);
    return WEFT_ERR_OK;
}

/* Operations of `transform` for each of n points. */
static double point_flops(int64_t n)
{
    double flops = 0;
    for (; n > 4 && n % 2 == 0; n /= 2)
        flops += 5;
    return flops + 8 * (double)n;
}

/* The axis may be known to the evaluation only: that of the largest cost then. For stft axis 2 of
 * the result, whose frames may be one-sided. */
weft_work weft_work_dft(const weft_work_ctx *cx)
{
    const weft_work_operand *out = &cx->out[0];
    bool is_stft = cx->op->id == WEFT_OP_STFT;
    const weft_work_operand *lines =
        is_stft || (cx->n_in > 1 && cx->in[1].present) ? out : &cx->in[0];
    bool given = weft_attrs_find(cx->attrs, WEFT_ATTR_AXIS) != NULL;
    int64_t given_axis = weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 1);
    double most = 1;
    for (int64_t a = 0; a + 1 < lines->rank; a++) {
        int64_t axis = given ? given_axis + (given_axis < 0 ? lines->rank : 0) : a;
        if (is_stft ? a != 2 : a != axis)
            continue;
        double flops = point_flops(lines->dim[a]);
        if (lines == out) /* of n / 2 + 1 bins of n points */
            flops = fmax(flops, fmax(point_flops(2 * lines->dim[a] - 2),
                                     point_flops(2 * lines->dim[a] - 1)));
        most = fmax(most, flops);
    }
    return weft_work__bytes(cx, weft_work__numel(out) * most);
}

/* Samples k of line i into `line`; a one-sided spectrum is completed by its mirror image. */
static void load_line(const weft_tensor *x, const double *from, int64_t first, int64_t inner,
                      int32_t axis, bool mirror, weft_complex *line, int64_t n)
{
    int64_t parts = x->dim[x->rank - 1], have = x->dim[axis] < n ? x->dim[axis] : n;
    memset(line, 0, (size_t)n * sizeof *line);
    for (int64_t k = 0; k < have; k++) {
        const double *at = from + (first + k * inner) * parts;
        line[k] = (weft_complex){at[0], parts == 2 ? at[1] : 0};
    }
    for (int64_t k = n / 2 + 1; k < n && mirror; k++)
        line[k] = (weft_complex){line[n - k].re, -line[n - k].im};
}

weft_err weft_eval_dft(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *length = weft_eval__in(cx, 1);
    weft_tensor *out = weft_eval__out(cx, 0);
    const int64_t *given_axis = NULL;
    uint32_t n_axis = 0, axis;
    if (!out)
        return WEFT_ERR_OK;
    weft_eval_param(cx, 2, WEFT_ATTR_AXIS, &given_axis, &n_axis);
    if (x->rank < 2 || !dft_axis(cx->attrs, given_axis, n_axis, (uint32_t)x->rank, &axis))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the axis is out of range");
    bool onesided = weft_attrs_int(cx->attrs, WEFT_ATTR_ONESIDED, 0) != 0;
    bool inverse = weft_attrs_int(cx->attrs, WEFT_ATTR_INVERSE, 0) != 0;
    bool to_real = onesided && inverse;
    int64_t parts = x->dim[x->rank - 1], dim[WEFT_RANK_MAX];
    int64_t n = to_real ? 2 * (x->dim[axis] - 1) : x->dim[axis];
    if (length && weft_tensor_numel(length) == 1)
        n = weft_tensor_get_i64(length, 0);
    if (parts < 1 || parts > 2 || n < 1 || n > WEFT_NUMEL_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "needs real or complex samples");
    memcpy(dim, x->dim, sizeof dim);
    dim[axis] = to_real ? n : n_bins(n, onesided);
    dim[x->rank - 1] = to_real ? 1 : 2;
    WEFT_TRY(weft_eval__check_dims(cx, 0, dim, x->rank));
    const double *from = weft_eval__f64(cx, x);
    int64_t outer = weft_dims__product(x->dim, 0, (int32_t)axis);
    int64_t inner = weft_dims__product(x->dim, (int32_t)axis + 1, x->rank - 1), bins = dim[axis];
    weft_complex *w = make_twiddles(cx->scratch, n, inverse ? 1 : -1);
    weft_complex *line = weft_arena_array(cx->scratch, (size_t)n, 3 * sizeof *line);
    double scale = inverse ? 1 / (double)n : 1;
    for (int64_t i = 0; i < outer * inner; i++) {
        load_line(x, from, i / inner * x->dim[axis] * inner + i % inner, inner, (int32_t)axis,
                  to_real, line, n);
        transform(line, 1, line + n, line + 2 * n, n, w, 1);
        for (int64_t k = 0; k < bins; k++) {
            int64_t at = ((i / inner * bins + k) * inner + i % inner) * (to_real ? 1 : 2);
            weft_tensor_set_f64(out, at, line[n + k].re * scale);
            if (!to_real)
                weft_tensor_set_f64(out, at + 1, line[n + k].im * scale);
        }
    }
    return WEFT_ERR_OK;
}

/* -- stft ----------------------------------------------------------------------------------- */

weft_err weft_infer_stft(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *step, *length;
    uint32_t n;
    weft_dimpool *pool = cx->pool;
    WEFT_TRY(weft_infer__rank(cx, 0, 2, 3));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    if (!weft_infer__has(cx, 2) && !weft_infer__has(cx, 3))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "neither window nor frame_length is given");
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, 4);
    out->dim[0] = x->dim[0];
    out->dim[1] = weft_dim_fresh(pool);
    out->dim[2] = weft_dim_fresh(pool);
    out->dim[3] = 2;
    weft_given given = weft_param__dims(cx, 3, WEFT_ATTR_NONE, &length, &n);
    if (given == WEFT_GIVEN_LATER || (given == WEFT_GIVEN_KNOWN && n != 1))
        return WEFT_ERR_OK;
    weft_dim frame = given == WEFT_GIVEN_KNOWN ? length[0] : cx->in[2].type.dim[0];
    bool onesided = weft_attrs_int(cx->attrs, WEFT_ATTR_ONESIDED, 1) != 0;
    out->dim[2] = onesided ? weft_dim_add(pool, weft_dim_floordiv(pool, frame, 2), 1) : frame;
    if (weft_param__dims(cx, 1, WEFT_ATTR_NONE, &step, &n) != WEFT_GIVEN_KNOWN || n != 1)
        return WEFT_ERR_OK;
    if (weft_dim_is_const(step[0]) && step[0] < 1)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "frame_step is %lld", (long long)step[0]);
    weft_dim span = weft_infer__not_negative(pool, weft_dim_sub(pool, x->dim[1], frame));
    out->dim[1] = weft_dim_add(pool, weft_dim_floordiv(pool, span, step[0]), 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_stft(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *window = weft_eval__in(cx, 2), *len = weft_eval__in(cx, 3);
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    int64_t step = weft_tensor_numel(cx->in[1]) == 1 ? weft_tensor_get_i64(cx->in[1], 0) : 0;
    int64_t frame = len && weft_tensor_numel(len) == 1 ? weft_tensor_get_i64(len, 0)
                    : window                           ? weft_tensor_numel(window)
                                                       : 0;
    int64_t parts = x->rank == 3 ? x->dim[2] : 1, n = x->dim[1];
    bool onesided = weft_attrs_int(cx->attrs, WEFT_ATTR_ONESIDED, 1) != 0;
    if (x->rank < 2 || step < 1 || frame < 1 || frame > n || parts < 1 || parts > 2 ||
        (window && weft_tensor_numel(window) != frame))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "frames of %lld every %lld in %lld samples",
                         (long long)frame, (long long)step, (long long)n);
    int64_t frames = (n - frame) / step + 1, bins = n_bins(frame, onesided);
    WEFT_TRY(weft_eval__check_dims(cx, 0, (int64_t[]){x->dim[0], frames, bins, 2}, 4));
    const double *from = weft_eval__f64(cx, x), *win = window ? weft_eval__f64(cx, window) : NULL;
    weft_complex *w = make_twiddles(cx->scratch, frame, -1);
    weft_complex *line = weft_arena_array(cx->scratch, (size_t)frame, 3 * sizeof *line);
    for (int64_t i = 0; i < x->dim[0] * frames; i++) {
        const double *at = from + (i / frames * n + i % frames * step) * parts;
        for (int64_t k = 0; k < frame; k++) {
            double g = win ? win[k] : 1;
            line[k] = (weft_complex){at[k * parts] * g, parts == 2 ? at[k * 2 + 1] * g : 0};
        }
        transform(line, 1, line + frame, line + 2 * frame, frame, w, 1);
        for (int64_t k = 0; k < bins; k++) {
            weft_tensor_set_f64(out, (i * bins + k) * 2, line[frame + k].re);
            weft_tensor_set_f64(out, (i * bins + k) * 2 + 1, line[frame + k].im);
        }
    }
    return WEFT_ERR_OK;
}

/* -- mel_weight_matrix ---------------------------------------------------------------------- */

/* num_mel_bins, dft_length, sample_rate, lower and upper edge in hertz. */
weft_err weft_infer_mel_weight_matrix(weft_infer_ctx *cx)
{
    const weft_dim *bins, *length;
    uint32_t n, m;
    weft_dtype dtype = weft_attrs_dtype(cx->attrs, WEFT_ATTR_OUTPUT_DATATYPE, WEFT_DTYPE_F32);
    weft_ttype *out = weft_infer__out(cx, 0, dtype, 2);
    weft_infer__fresh(cx, out);
    if (weft_param__dims(cx, 1, WEFT_ATTR_NONE, &length, &n) == WEFT_GIVEN_KNOWN && n == 1)
        out->dim[0] = weft_dim_add(cx->pool, weft_dim_floordiv(cx->pool, length[0], 2), 1);
    if (weft_param__dims(cx, 0, WEFT_ATTR_NONE, &bins, &m) == WEFT_GIVEN_KNOWN && m == 1)
        out->dim[1] = bins[0];
    return WEFT_ERR_OK;
}

static double hertz_to_mel(double hz)
{
    return 2595 * log10(1 + hz / 700);
}

static double mel_to_hertz(double mel)
{
    return 700 * (pow(10, mel / 2595) - 1);
}

weft_err weft_eval_mel_weight_matrix(weft_eval_ctx *cx)
{
    weft_tensor *out = weft_eval__out(cx, 0);
    double v[5];
    if (!out)
        return WEFT_ERR_OK;
    for (int i = 0; i < 5; i++) {
        if (weft_tensor_numel(cx->in[i]) != 1)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %d is no scalar", i);
        v[i] = weft_tensor_get_f64(cx->in[i], 0);
    }
    int64_t bins = out->rank == 2 ? out->dim[1] : 0, rows = out->rank == 2 ? out->dim[0] : 0;
    if (!(v[2] > 0) || (double)bins != v[0] || !(v[1] >= 0) || (int64_t)v[1] / 2 + 1 != rows)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "sizes and sample rate do not fit");
    double low = hertz_to_mel(v[3]), step = (hertz_to_mel(v[4]) - low) / (double)(bins + 2);
    int64_t *edge = weft_arena_array(cx->scratch, (size_t)bins + 2, sizeof *edge);
    for (int64_t i = 0; i < bins + 2; i++) {
        double at = floor((v[1] + 1) * mel_to_hertz((double)i * step + low) / v[2]);
        edge[i] = at >= 0 && at < 9e15 ? (int64_t)at : 0;
    }
    memset(out->data, 0, weft_tensor_bytes(out));
    for (int64_t i = 0; i < bins; i++) {
        int64_t a = edge[i], b = edge[i + 1], c = edge[i + 2];
        if (a == b && b < rows)
            weft_tensor_set_f64(out, b * bins + i, 1);
        for (int64_t j = a; j <= b && j < rows && a != b; j++)
            weft_tensor_set_f64(out, j * bins + i, (double)(j - a) / (double)(b - a));
        for (int64_t j = b; j < c && j < rows && b != c; j++)
            weft_tensor_set_f64(out, j * bins + i, (double)(c - j) / (double)(c - b));
    }
    return WEFT_ERR_OK;
}
