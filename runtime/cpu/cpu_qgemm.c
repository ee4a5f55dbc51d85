/* qlinear_matmul and qlinear_conv with any zero points, exact on every processor: for factors that
 * oneDNN does not take (weights with zero points, products of two activations) and for processors
 * where its sums of bytes saturate (without VNNI).
 *
 * Bytes minus their zero points are words of 16 bits. Operand a is centred into scratch memory
 * first, images with their padding around them, which is 0 then: a convolution is a GEMM whose rows
 * start anywhere in the image, with one offset for each tap (indirect convolution, Dukhan 2019).
 * Operand b is packed [part][panel][tap][pair][32][2], a weight once per engine, another factor at
 * each run. Depthwise convolutions multiply channels by channels. */
#include "base/num.h"
#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/cpu_qgemm.h"
#include "runtime/cpu/cpu_window.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* Sums stay below 2^30 in magnitude, so that a bias may be added. */
enum { INNER_MAX = (1 << 30) / (255 * 255), ROW_BLOCK = 64, COLUMN_BLOCK = 256, PANEL = 32 };
static const double pair_ns = 0.02, byte_ns = 0.05;

typedef struct qgemm {
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    bool is_conv, depthwise, b_is_weight, a_signed, b_signed, y_signed, y_bytes;
    bool has_bias, whole_bias;
    /* Images (matrices of a), groups, rows and inner elements of each; columns of a group. */
    int64_t images, groups, rows, inner, cols, b_matrices, n_scale;
    int64_t taps, pairs, panels;
    int64_t x_image, y_image;                       /* elements of an image of x and y */
    int64_t x_channel, x_pixel, y_channel, y_pixel; /* strides; a pixel is a row of a matmul */
    /* The centred image: [depth][height][width][groups][2 * pairs]. */
    int64_t size[3], padded[3], before[3], channels;
    int64_t image_words;
    int32_t *row, *tap; /* offsets in it; owned. row NULL: i * image_words / rows */
    int64_t *b_of;      /* matrix of b for each image; NULL: one; owned */
    weft_engine *engine;
    weft_cpu_pack *pack;
    weft_cpu_ew *ew;                 /* the epilogue; NULL: none */
    uint64_t at_mul, at_b, at_float; /* offsets in scratch memory */
    /* Of the current run. */
    void *const *arg;
    void **ew_arg;
    int32_t a_zero, b_zero;
    float y_scale, y_zero;
} qgemm;

/* -- Packing -------------------------------------------------------------------------------- */

/* Sizes of a factor: groups (or matrices), cols, channels of a group, taps; strides in the weight.
 */
enum { F_PARTS, F_COLS, F_CHANNELS, F_TAPS, F_PART, F_COL, F_CHANNEL, F_TAP };

static int64_t part_words(const int64_t *size)
{
    int64_t panels = (size[F_COLS] + PANEL - 1) / PANEL;
    return panels * size[F_TAPS] * ((size[F_CHANNELS] + 1) / 2) * 2 * PANEL;
}

/* Channels c and c + 1 of a panel whose columns follow each other, b NULL: there is no c + 1. */
static void pack_pair(int16_t *to, const uint8_t *a, const uint8_t *b, bool is_signed, int16_t zero)
{
    static const uint8_t none[PANEL];
    const int16_t zero_b = b ? zero : 0;
    b = b ? b : none;
    if (is_signed)
        for (int64_t j = 0; j < PANEL; j++) {
            to[2 * j] = (int16_t)((int8_t)a[j] - zero);
            to[2 * j + 1] = (int16_t)((int8_t)b[j] - zero_b);
        }
    else
        for (int64_t j = 0; j < PANEL; j++) {
            to[2 * j] = (int16_t)(a[j] - zero);
            to[2 * j + 1] = (int16_t)(b[j] - zero_b);
        }
}

/* Panel `panel` of a part; zero[j * per_col] is the zero point of its column j. */
static void pack_panel(int16_t *to, const uint8_t *from, const int64_t *size, int64_t panel,
                       bool is_signed, const int16_t *zero, int64_t per_col)
{
    int64_t channels = size[F_CHANNELS], pairs = (channels + 1) / 2;
    bool runs = size[F_COL] == 1 && per_col == 0 && (panel + 1) * PANEL <= size[F_COLS];
    for (int64_t t = 0; t < size[F_TAPS]; t++)
        for (int64_t c = 0; c < 2 * pairs; c++) {
            const uint8_t *row = from + panel * PANEL + c * size[F_CHANNEL] + t * size[F_TAP];
            if (runs) {
                pack_pair(to + (t * pairs + c / 2) * PANEL * 2, row,
                          c + 1 < channels ? row + size[F_CHANNEL] : NULL, is_signed, *zero);
                c++;
                continue;
            }
            int16_t *out = to + (t * pairs + c / 2) * PANEL * 2 + c % 2;
            for (int64_t j = 0; j < PANEL; j++) {
                int64_t col = panel * PANEL + j;
                out[2 * j] = 0;
                if (col >= size[F_COLS] || c >= channels)
                    continue;
                uint8_t x = from[col * size[F_COL] + c * size[F_CHANNEL] + t * size[F_TAP]];
                out[2 * j] = (int16_t)((is_signed ? (int8_t)x : x) - zero[j * per_col]);
            }
        }
}

/* Zero points are one for all, one a column, or one a column of each part. */
static void fill_panels(void *to, const void *weight, const weft_cpu_format *f)
{
    int64_t cols = f->size[F_COLS], panels = (cols + PANEL - 1) / PANEL;
    int64_t words = part_words(f->size), n_zero = weft_tensor_numel(f->zero);
    int16_t zero[PANEL] = {0};
    for (int64_t i = 0; i < f->size[F_PARTS] * panels; i++) {
        int64_t part = i / panels, panel = i % panels;
        int64_t first = panel * PANEL + (n_zero == cols ? 0 : part * cols);
        for (int64_t j = 0; j < PANEL && panel * PANEL + j < cols; j++)
            zero[j] = (int16_t)weft_tensor_get_i64(f->zero, n_zero == 1 ? 0 : first + j);
        pack_panel((int16_t *)to + i * (words / panels),
                   (const uint8_t *)weight + part * f->size[F_PART], f->size, panel,
                   f->zero->dtype == WEFT_DTYPE_I8, zero, 1);
    }
}

weft_cpu_format weft_cpu__words(int64_t parts, int64_t cols, int64_t inner, const weft_slot *zero)
{
    weft_cpu_format f = {.fill = fill_panels, .zero_weight = zero->weight, .zero = &zero->tensor};
    const int64_t size[] = {parts, cols, inner, 1, cols * inner, inner, 1, 0};
    memcpy(f.size, size, sizeof size);
    f.bytes = (uint64_t)(parts * part_words(size)) * sizeof(int16_t);
    return f;
}

/* Depthwise weights [tap][channel]. */
static void fill_depthwise(void *to, const void *weight, const weft_cpu_format *f)
{
    int64_t n_zero = weft_tensor_numel(f->zero), channels = f->size[F_PARTS];
    for (int64_t c = 0; c < channels; c++) {
        int64_t zero = weft_tensor_get_i64(f->zero, n_zero == 1 ? 0 : c);
        for (int64_t t = 0; t < f->size[F_TAPS]; t++) {
            uint8_t x = ((const uint8_t *)weight)[c * f->size[F_PART] + t * f->size[F_TAP]];
            ((int16_t *)to)[t * channels + c] =
                (int16_t)((f->zero->dtype == WEFT_DTYPE_I8 ? (int8_t)x : x) - zero);
        }
    }
}

/* -- Running -------------------------------------------------------------------------------- */

static char *scratch_of(const qgemm *k)
{
    return k->arg[k->n_in + 1];
}

static int32_t byte_at(const void *p, bool is_signed)
{
    return is_signed ? *(const int8_t *)p : *(const uint8_t *)p;
}

/* One row of pixels of an image: channels of each group, and a zero where their number is odd. */
static void center_pixels(const qgemm *k, int16_t *to, const uint8_t *from, int64_t n)
{
    int64_t channels = k->groups * k->channels, width = 2 * k->pairs;
    if (k->depthwise)
        width = 1;
    if (k->x_channel == 1 && width == k->channels && k->x_pixel == channels) {
        k->vec->center(to, from, k->a_signed, k->a_zero, (size_t)(n * channels));
        return;
    }
    for (int64_t i = 0; i < n; i++, from += k->x_pixel)
        for (int64_t g = 0; g < k->groups; g++, to += width) {
            const uint8_t *x = from + g * k->channels * k->x_channel;
            if (k->x_channel == 1)
                k->vec->center(to, x, k->a_signed, k->a_zero, (size_t)k->channels);
            for (int64_t c = 0; k->x_channel != 1 && c < k->channels; c++)
                to[c] = (int16_t)(byte_at(x + c * k->x_channel, k->a_signed) - k->a_zero);
            if (width > k->channels)
                to[k->channels] = 0;
        }
}

/* Rows of the centred images. */
static void center_rows(void *cx, int64_t begin, int64_t end)
{
    const qgemm *k = cx;
    int64_t width = k->image_words / (k->padded[0] * k->padded[1]), pixel = width / k->padded[2];
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / (k->padded[0] * k->padded[1]);
        int64_t d = i / k->padded[1] % k->padded[0] - k->before[0];
        int64_t h = i % k->padded[1] - k->before[1];
        int16_t *to = (int16_t *)(void *)scratch_of(k) + i * width;
        if (d < 0 || d >= k->size[0] || h < 0 || h >= k->size[1]) {
            memset(to, 0, (size_t)width * sizeof *to);
            continue;
        }
        int64_t left = k->before[2] * pixel, line = k->size[2] * pixel;
        memset(to, 0, (size_t)left * sizeof *to);
        memset(to + left + line, 0, (size_t)(width - left - line) * sizeof *to);
        center_pixels(k, to + left,
                      (const uint8_t *)k->arg[WEFT_QLINEAR_A] + image * k->x_image +
                          (d * k->size[1] + h) * k->size[2] * k->x_pixel,
                      k->size[2]);
    }
}

/* Panels of a factor that is not a weight. */
static void pack_panels(void *cx, int64_t begin, int64_t end)
{
    const qgemm *k = cx;
    const int64_t size[] = {1, k->cols, k->inner, 1, 0, 1, k->cols, 0};
    const int16_t zero = (int16_t)k->b_zero;
    int64_t words = part_words(size) / k->panels;
    for (int64_t i = begin; i < end; i++)
        pack_panel((int16_t *)(void *)(scratch_of(k) + k->at_b) + i * words,
                   (const uint8_t *)k->arg[WEFT_QLINEAR_B] + i / k->panels * k->inner * k->cols,
                   size, i % k->panels, k->b_signed, &zero, 0);
}

/* Stores n sums of row `row`, columns from `col` on, of an image. */
static void store_sums(const qgemm *k, const int32_t *sum, int64_t image, int64_t row, int64_t col,
                       int64_t n)
{
    int64_t all = k->groups * k->cols, at = image * k->y_image + row * k->y_pixel;
    const float *mul = (const float *)(const void *)(scratch_of(k) + k->at_mul) + col;
    const int32_t *whole = (const int32_t *)(const void *)(mul + 2 * all);
    bool direct = k->y_bytes && !k->ew;
    float value[COLUMN_BLOCK];
    uint8_t byte[COLUMN_BLOCK];
    float *to = k->y_bytes && k->ew ? (float *)(void *)(scratch_of(k) + k->at_float)
                                    : (float *)k->arg[k->n_in];
    if (!direct && k->y_channel == 1) {
        k->vec->scale_sums(to + at + col, sum, whole, mul, mul + all, (size_t)n);
        return;
    }
    k->vec->scale_sums(value, sum, whole, mul, mul + all, (size_t)n);
    uint8_t *bytes = (uint8_t *)k->arg[k->n_in] + at + col * k->y_channel;
    if (direct)
        k->vec->quantize(k->y_channel == 1 ? bytes : byte, value, k->y_scale, k->y_zero,
                         k->y_signed ? -128 : 0, k->y_signed ? 127 : 255, (size_t)n);
    for (int64_t i = 0; k->y_channel != 1 && i < n; i++)
        if (direct)
            bytes[i * k->y_channel] = byte[i];
        else
            to[at + (col + i) * k->y_channel] = value[i];
}

/* One block of rows by one panel: index [image][group][panel][block]. */
static void run_tile(const qgemm *k, int64_t index)
{
    int64_t blocks = (k->rows + ROW_BLOCK - 1) / ROW_BLOCK, block = index % blocks;
    int64_t panel = index / blocks % k->panels, group = index / blocks / k->panels % k->groups;
    int64_t image = index / blocks / k->panels / k->groups;
    int64_t first = block * ROW_BLOCK,
            n = k->rows - first < ROW_BLOCK ? k->rows - first : ROW_BLOCK;
    int64_t words = k->taps * k->pairs * 2 * PANEL, width = k->image_words / k->rows;
    int64_t part = k->is_conv ? group : k->b_of ? k->b_of[image] : 0;
    const char *b = k->b_is_weight ? weft_cpu__pack_data(k->pack) : scratch_of(k) + k->at_b;
    const int16_t *w = (const int16_t *)(const void *)b + (part * k->panels + panel) * words;
    const int16_t *x = (const int16_t *)(const void *)scratch_of(k) + image * k->image_words;
    int32_t row[ROW_BLOCK], sum[ROW_BLOCK * PANEL];
    int64_t col = panel * PANEL, cols = k->cols - col < PANEL ? k->cols - col : PANEL;
    x += group * 2 * k->pairs;
    if (!k->row)
        x += first * width;
    for (int64_t i = 0; i < n; i++)
        row[i] = k->row ? k->row[first + i] : (int32_t)(i * width);
    k->vec->words(sum, x, row, (size_t)n, k->tap, (size_t)k->taps, (size_t)k->pairs, w);
    for (int64_t i = 0; i < n; i++)
        store_sums(k, sum + i * PANEL, image, first + i, group * k->cols + col, cols);
}

static void run_tiles(void *cx, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        run_tile(cx, i);
}

/* Rows [begin, end) of all images, all channels. */
static void run_depthwise(void *cx, int64_t begin, int64_t end)
{
    const qgemm *k = cx;
    const int16_t *w = weft_cpu__pack_data(k->pack);
    int32_t sum[COLUMN_BLOCK];
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / k->rows, r = i % k->rows;
        const int16_t *x = (const int16_t *)(const void *)scratch_of(k) + image * k->image_words;
        for (int64_t c = 0; c < k->groups; c += COLUMN_BLOCK) {
            int64_t n = k->groups - c < COLUMN_BLOCK ? k->groups - c : COLUMN_BLOCK;
            k->vec->depthwise(sum, x + k->row[r] + c, k->tap, (size_t)k->taps, w + c,
                              (size_t)k->groups, (size_t)n);
            store_sums(k, sum, image, r, c, n);
        }
    }
}

/* Factor, addend and whole addend of each column: see store_sums. Without steps and a bias of
 * floats, sums are requantised by one factor, as engines do. */
static void read_scales(qgemm *k)
{
    int64_t all = k->groups * k->cols;
    float *mul = (float *)(void *)(scratch_of(k) + k->at_mul), *add = mul + all;
    int32_t *whole = (int32_t *)(void *)(add + all);
    const float *sw = k->arg[WEFT_QLINEAR_B_SCALE];
    const void *bias = k->has_bias ? k->arg[WEFT_QLINEAR_BIAS] : NULL;
    bool at_once = k->y_bytes && !k->ew && (!bias || k->whole_bias);
    float sx = *(const float *)k->arg[WEFT_QLINEAR_A_SCALE];
    k->a_zero = byte_at(k->arg[WEFT_QLINEAR_A_ZERO], k->a_signed);
    if (!k->b_is_weight)
        k->b_zero = byte_at(k->arg[WEFT_QLINEAR_B_ZERO], k->b_signed);
    if (k->y_bytes) {
        k->y_scale = *(const float *)k->arg[WEFT_QLINEAR_Y_SCALE];
        k->y_zero = (float)byte_at(k->arg[WEFT_QLINEAR_Y_ZERO], k->y_signed);
    }
    for (int64_t c = 0; c < all; c++) {
        mul[c] = sx * sw[k->n_scale == 1 ? 0 : c] / (at_once ? k->y_scale : 1);
        add[c] = bias && !k->whole_bias ? ((const float *)bias)[c] : 0;
        whole[c] = bias && k->whole_bias ? ((const int32_t *)bias)[c] : 0;
    }
    if (at_once)
        k->y_scale = 1;
}

enum { QUANTIZE_PART = 4096 };

static void quantize_parts(void *cx, int64_t begin, int64_t end)
{
    const qgemm *k = cx;
    int64_t all = k->images * k->y_image, from = begin * QUANTIZE_PART, to = end * QUANTIZE_PART;
    to = to < all ? to : all;
    k->vec->quantize((uint8_t *)k->arg[k->n_in] + from,
                     (const float *)(const void *)(scratch_of(k) + k->at_float) + from, k->y_scale,
                     k->y_zero, k->y_signed ? -128 : 0, k->y_signed ? 127 : 255,
                     (size_t)(to - from));
}

static void run_epilogue(qgemm *k)
{
    if (!k->y_bytes) {
        weft_cpu__ew_run(k->ew, k->arg);
        return;
    }
    memcpy(k->ew_arg, k->arg, (k->n_in + 2) * sizeof *k->ew_arg);
    k->ew_arg[k->n_in] = scratch_of(k) + k->at_float;
    weft_cpu__ew_run(k->ew, k->ew_arg);
    weft_par_for(k->threads, (k->images * k->y_image + QUANTIZE_PART - 1) / QUANTIZE_PART,
                 QUANTIZE_PART * byte_ns, quantize_parts, k);
}

static weft_err run_qgemm(void *state, void *const *arg)
{
    qgemm *k = state;
    int64_t lines = k->images * k->padded[0] * k->padded[1];
    int64_t blocks = (k->rows + ROW_BLOCK - 1) / ROW_BLOCK;
    k->arg = arg;
    read_scales(k);
    weft_par_for(k->threads, lines,
                 byte_ns * (double)(k->image_words / (k->padded[0] * k->padded[1])), center_rows,
                 k);
    if (!k->b_is_weight)
        weft_par_for(k->threads, k->b_matrices * k->panels, byte_ns * (double)(k->inner * PANEL),
                     pack_panels, k);
    if (k->depthwise)
        weft_par_for(k->threads, k->images * k->rows, pair_ns * (double)(k->taps * k->groups),
                     run_depthwise, k);
    else
        weft_par_for(k->threads, k->images * k->groups * k->panels * blocks,
                     pair_ns * ROW_BLOCK * (double)(k->taps * k->pairs), run_tiles, k);
    if (k->ew)
        run_epilogue(k);
    return WEFT_ERR_OK;
}

/* -- Preparing ------------------------------------------------------------------------------ */

static void destroy_qgemm(void *state)
{
    qgemm *k = state;
    if (k->pack)
        weft_cpu__put_pack(k->engine, k->pack);
    weft_cpu__ew_destroy(k->ew);
    free(k->row);
    free(k->tap);
    free(k->b_of);
    free(k->ew_arg);
    free(k);
}

static bool is_single(const weft_slot *s, weft_dtype dtype)
{
    return s->present && weft_slot_numel(s) == 1 && s->tensor.dtype == dtype;
}

static bool is_byte(const weft_slot *s)
{
    return s->tensor.dtype == WEFT_DTYPE_U8 || s->tensor.dtype == WEFT_DTYPE_I8;
}

static const weft_slot *optional(const weft_prep *p, uint32_t i)
{
    return i < p->n_in && p->in[i].present ? &p->in[i] : NULL;
}

/* The bias: floats, or integers that leave room for the sums. */
static bool read_bias(const weft_prep *p, qgemm *k)
{
    const weft_slot *s = optional(p, WEFT_QLINEAR_BIAS);
    if (!s)
        return true;
    k->has_bias = true;
    k->whole_bias = s->tensor.dtype == WEFT_DTYPE_I32;
    if (weft_slot_numel(s) != k->groups * k->cols || s->layout != WEFT_LAYOUT_PLAIN ||
        (!k->whole_bias && s->tensor.dtype != WEFT_DTYPE_F32) || (k->whole_bias && !s->tensor.data))
        return false;
    for (int64_t i = 0; k->whole_bias && i < k->groups * k->cols; i++)
        if (llabs(weft_tensor_get_i64(&s->tensor, i)) >= 1 << 30)
            return false;
    return true;
}

/* Element types, scales, zero points; the sizes are known. */
static bool read_operands(const weft_prep *p, qgemm *k)
{
    const weft_slot *a = &p->in[WEFT_QLINEAR_A], *b = &p->in[WEFT_QLINEAR_B], *y = &p->out[0];
    const weft_slot *scale = &p->in[WEFT_QLINEAR_B_SCALE], *zero = &p->in[WEFT_QLINEAR_B_ZERO];
    int64_t all = k->groups * k->cols, n_zero = weft_slot_numel(zero);
    k->y_bytes = optional(p, WEFT_QLINEAR_Y_SCALE) != NULL;
    k->a_signed = a->tensor.dtype == WEFT_DTYPE_I8;
    k->b_signed = b->tensor.dtype == WEFT_DTYPE_I8;
    k->y_signed = y->tensor.dtype == WEFT_DTYPE_I8;
    k->n_scale = weft_slot_numel(scale);
    k->b_is_weight = b->weight != 0 && zero->weight != 0; /* packs depend on weights only */
    if (!is_byte(a) || !is_byte(b) || b->layout != WEFT_LAYOUT_PLAIN ||
        !is_single(&p->in[WEFT_QLINEAR_A_SCALE], WEFT_DTYPE_F32) ||
        !is_single(&p->in[WEFT_QLINEAR_A_ZERO], a->tensor.dtype) ||
        scale->tensor.dtype != WEFT_DTYPE_F32 || zero->tensor.dtype != b->tensor.dtype ||
        (k->n_scale != 1 && k->n_scale != all))
        return false;
    if (n_zero != 1 && (!k->b_is_weight || n_zero != all))
        return false;
    if (k->y_bytes ? !is_byte(y) || !is_single(&p->in[WEFT_QLINEAR_Y_SCALE], WEFT_DTYPE_F32) ||
                         !is_single(&p->in[WEFT_QLINEAR_Y_ZERO], y->tensor.dtype)
                   : y->tensor.dtype != WEFT_DTYPE_F32)
        return false;
    return read_bias(p, k);
}

static bool is_plain(const weft_slot *s)
{
    return s->layout == WEFT_LAYOUT_PLAIN;
}

/* The matrix of b for each matrix of a and y, whose batch dims are equal. */
static bool find_matrices(const weft_slot *b, const weft_slot *y, qgemm *k)
{
    int32_t batch = y->tensor.rank - 2, shift = y->tensor.rank - b->tensor.rank;
    k->b_of = weft_cpu__calloc((size_t)k->images + 1, sizeof *k->b_of);
    if (!k->b_of || shift < 0)
        return false;
    for (int64_t i = 0; i < k->images; i++) {
        int64_t left = i, at = 0, step = 1;
        for (int32_t d = batch - 1; d >= 0; d--) {
            int64_t n = d < shift ? 1 : b->tensor.dim[d - shift];
            if (n != 1 && n != y->tensor.dim[d])
                return false;
            at += left % y->tensor.dim[d] % n * step;
            step *= n;
            left /= y->tensor.dim[d];
        }
        k->b_of[i] = at;
    }
    return true;
}

static bool describe_matmul(const weft_prep *p, qgemm *k)
{
    const weft_slot *a = &p->in[WEFT_QLINEAR_A], *b = &p->in[WEFT_QLINEAR_B], *y = &p->out[0];
    int32_t ra = a->tensor.rank, rb = b->tensor.rank, ry = y->tensor.rank;
    if (ra < 2 || rb < 2 || ra != ry || !is_plain(a) || !is_plain(y))
        return false;
    k->inner = k->channels = a->tensor.dim[ra - 1];
    k->cols = b->tensor.dim[rb - 1];
    k->b_matrices = weft_slot_count(b, 0, rb - 2);
    k->groups = k->taps = 1;
    k->images = k->b_matrices == 1 ? 1 : weft_slot_count(y, 0, ry - 2);
    if (b->tensor.dim[rb - 2] != k->inner || y->tensor.dim[ry - 1] != k->cols || k->images < 1 ||
        weft_slot_count(a, 0, ra - 1) != weft_slot_count(y, 0, ry - 1) || k->cols < 1)
        return false;
    k->rows = weft_slot_count(y, 0, ry - 1) / k->images;
    k->size[0] = k->padded[0] = k->size[2] = k->padded[2] = 1;
    k->size[1] = k->padded[1] = k->rows;
    k->x_channel = k->y_channel = 1;
    k->x_pixel = k->inner;
    k->y_pixel = k->cols;
    k->x_image = k->rows * k->inner;
    k->y_image = k->rows * k->cols;
    return k->b_matrices == 1 || find_matrices(b, y, k);
}

/* Strides of an image: channels are outermost or innermost. */
static bool read_layout(const weft_slot *s, int64_t *channel, int64_t *pixel, int64_t *image)
{
    int64_t pixels = weft_slot_count(s, 2, s->tensor.rank), channels = s->tensor.dim[1];
    bool inside = s->layout == WEFT_LAYOUT_NHWC;
    *channel = inside ? 1 : pixels;
    *pixel = inside ? channels : 1;
    *image = pixels * channels;
    return inside || is_plain(s);
}

/* The padded image holds every window, also those that reach past the padding. */
static void pad_image(qgemm *k, const weft_cpu_window *w, const weft_slot *x, const weft_slot *y,
                      int64_t *out)
{
    uint32_t skip = 3 - w->n;
    for (uint32_t d = 0; d < 3; d++) {
        uint32_t i = d - skip;
        k->size[d] = k->padded[d] = out[d] = 1;
        k->before[d] = 0;
        if (d < skip)
            continue;
        k->size[d] = x->tensor.dim[2 + i];
        out[d] = y->tensor.dim[2 + i];
        k->before[d] = w->before[i];
        int64_t reach = (out[d] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
        k->padded[d] = w->before[i] + k->size[d];
        k->padded[d] = reach > k->padded[d] ? reach : k->padded[d];
    }
}

/* Offsets of rows and taps in the padded image. */
static bool list_offsets(qgemm *k, const weft_cpu_window *w, const int64_t *out, int64_t pixel)
{
    uint32_t skip = 3 - w->n;
    int64_t kernel[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, stride[3] = {1, 1, 1};
    for (uint32_t i = 0; i < w->n; i++) {
        kernel[skip + i] = w->kernel[i];
        dilation[skip + i] = w->dilation[i];
        stride[skip + i] = w->stride[i];
    }
    k->row = weft_cpu__malloc((size_t)k->rows * sizeof *k->row);
    k->tap = weft_cpu__malloc((size_t)k->taps * sizeof *k->tap);
    if (!k->row || !k->tap)
        return false;
    for (int64_t i = 0; i < k->rows; i++) {
        int64_t d = i / (out[1] * out[2]) * stride[0], h = i / out[2] % out[1] * stride[1];
        int64_t at = (d * k->padded[1] + h) * k->padded[2] + i % out[2] * stride[2];
        k->row[i] = (int32_t)(at * pixel);
    }
    for (int64_t i = 0; i < k->taps; i++) {
        int64_t d = i / (kernel[1] * kernel[2]) * dilation[0];
        int64_t h = i / kernel[2] % kernel[1] * dilation[1];
        int64_t at = (d * k->padded[1] + h) * k->padded[2] + i % kernel[2] * dilation[2];
        k->tap[i] = (int32_t)(at * pixel);
    }
    return true;
}

static bool describe_conv(const weft_prep *p, qgemm *k)
{
    const weft_slot *x = &p->in[WEFT_QLINEAR_A], *w = &p->in[WEFT_QLINEAR_B], *y = &p->out[0];
    int32_t rank = x->tensor.rank;
    weft_cpu_window window;
    int64_t out[3];
    k->groups = weft_attrs_int(p->attrs, WEFT_ATTR_GROUP, 1);
    if (rank < 3 || rank > 5 || w->tensor.rank != rank || y->tensor.rank != rank || k->groups < 1 ||
        !w->weight || w->tensor.dim[0] % k->groups != 0 || w->tensor.dim[0] != y->tensor.dim[1] ||
        w->tensor.dim[1] * k->groups != x->tensor.dim[1] ||
        !weft_cpu__window(p, w->tensor.dim + 2, &window) ||
        !read_layout(x, &k->x_channel, &k->x_pixel, &k->x_image) ||
        !read_layout(y, &k->y_channel, &k->y_pixel, &k->y_image))
        return false;
    k->images = x->tensor.dim[0];
    k->cols = w->tensor.dim[0] / k->groups;
    k->channels = w->tensor.dim[1];
    k->taps = weft_slot_count(w, 2, rank);
    k->inner = k->channels * k->taps;
    k->rows = weft_slot_count(y, 2, rank);
    k->depthwise = k->channels == 1 && k->cols == 1;
    pad_image(k, &window, x, y, out);
    return true;
}

/* How the weight is packed. */
static weft_cpu_format format_of(const weft_prep *p, const qgemm *k)
{
    const weft_slot *zero = &p->in[WEFT_QLINEAR_B_ZERO];
    weft_cpu_format f = {.fill = k->depthwise ? fill_depthwise : fill_panels,
                         .zero_weight = zero->weight,
                         .zero = &zero->tensor,
                         .size = {k->groups, k->cols, k->channels, k->taps}};
    f.size[F_PART] = k->cols * k->inner;
    if (k->is_conv) {
        f.size[F_COL] = k->inner;
        f.size[F_CHANNEL] = k->taps;
        f.size[F_TAP] = 1;
    } else {
        f.size[F_PARTS] = k->b_matrices;
        f.size[F_COL] = 1;
        f.size[F_CHANNEL] = k->cols;
    }
    int64_t words = k->depthwise ? k->groups * k->taps : f.size[F_PARTS] * part_words(f.size);
    f.bytes = (uint64_t)words * sizeof(int16_t);
    return f;
}

/* Scratch memory: centred images, factors of the columns, packed b, floats before quantisation. */
static bool lay_out(weft_prep *p, qgemm *k)
{
    uint64_t bytes = 0, part = 0, all = (uint64_t)(k->groups * k->cols);
    if (!weft_size_mul((uint64_t)k->image_words * sizeof(int16_t), (uint64_t)k->images, &bytes))
        return false;
    k->at_mul = weft_align_up(bytes, 64);
    k->at_b = weft_align_up(k->at_mul + all * 3 * sizeof(float), 64);
    bytes = (uint64_t)k->panels * (uint64_t)k->pairs * 2 * PANEL * sizeof(int16_t);
    if (!weft_size_mul(bytes, k->b_is_weight ? 0 : (uint64_t)k->b_matrices, &part))
        return false;
    k->at_float = weft_align_up(k->at_b + part, 64);
    part = k->ew && k->y_bytes ? (uint64_t)(k->images * k->y_image) * sizeof(float) : 0;
    p->scratch_bytes = k->at_float + part;
    return p->scratch_bytes < (uint64_t)1 << 40;
}

/* The steps over the result before quantisation. */
static weft_err prepare_steps(const weft_prep *p, qgemm *k)
{
    const weft_attr *steps = weft_attrs_find(p->attrs, WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    weft_prep real = *p;
    weft_slot out = p->out[0];
    if (!steps || steps->kind != WEFT_KIND_STRS || steps->n == 0)
        return WEFT_ERR_OK;
    if (steps->n > WEFT_STEPS_MAX)
        return WEFT_ERR_UNSUP;
    WEFT_TRY(weft_steps_parse(steps->u.strs, steps->n, p->n_in, p->diag, p->where, step));
    out.tensor.dtype = WEFT_DTYPE_F32;
    real.out = &out;
    WEFT_TRY(weft_cpu__ew_create(&real, step, steps->n, true, &k->ew));
    k->ew_arg = weft_cpu__calloc(p->n_in + 2, sizeof *k->ew_arg);
    return !k->ew ? WEFT_ERR_UNSUP : k->ew_arg ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

/* Words of a centred image, whose pixels have `pixel` words; 0: offsets in an image that is
 * convolved do not fit 32 bits, or nearly all of it is padding. */
static int64_t count_words(const qgemm *k, int64_t pixel)
{
    enum { PADDING_MAX = 16, SMALL = 4096 };
    int64_t n = pixel, most = k->is_conv ? INT32_MAX : INT64_MAX / 4;
    for (uint32_t d = 0; d < 3; d++) {
        if (n < 1 || k->padded[d] < 1 || k->padded[d] > most / n)
            return 0;
        n *= k->padded[d];
    }
    return n / PADDING_MAX <= 2 * k->x_image + k->y_image + SMALL ? n : 0;
}

/* UNSUP: not by this kernel. */
static weft_err prepare(weft_prep *p, qgemm *k)
{
    weft_cpu_window window;
    int64_t out[3];
    if (!(k->is_conv ? describe_conv(p, k) : describe_matmul(p, k)) || !read_operands(p, k) ||
        k->inner < 1 || k->inner > INNER_MAX || k->rows < 1 || k->images < 1 || k->cols < 1 ||
        (k->is_conv && !k->b_is_weight))
        return WEFT_ERR_UNSUP;
    k->pairs = (k->channels + 1) / 2;
    k->panels = (k->cols + PANEL - 1) / PANEL;
    int64_t pixel = k->depthwise ? k->groups : k->groups * 2 * k->pairs;
    k->image_words = count_words(k, pixel);
    if (k->image_words < 1 || k->rows > INT32_MAX)
        return WEFT_ERR_UNSUP;
    if (k->is_conv) {
        (void)weft_cpu__window(p, p->in[WEFT_QLINEAR_B].tensor.dim + 2, &window);
        pad_image(k, &window, &p->in[WEFT_QLINEAR_A], &p->out[0], out);
        if (!list_offsets(k, &window, out, pixel))
            return WEFT_ERR_NOMEM;
    } else if (!(k->tap = weft_cpu__calloc(1, sizeof *k->tap))) {
        return WEFT_ERR_NOMEM;
    }
    WEFT_TRY(prepare_steps(p, k));
    if (!lay_out(p, k))
        return WEFT_ERR_UNSUP;
    if (!k->b_is_weight)
        return WEFT_ERR_OK;
    const weft_cpu_format format = format_of(p, k);
    return weft_cpu__pack_as(p, WEFT_QLINEAR_B, &format, &k->pack);
}

weft_err weft_cpu__prepare_qgemm(weft_prep *p)
{
    qgemm *k = weft_cpu__calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    k->vec = weft_cpu__of(p)->vec;
    k->threads = weft_cpu__of(p)->threads;
    k->n_in = p->n_in;
    k->engine = p->engine;
    k->is_conv = p->op == WEFT_OP_QLINEAR_CONV;
    weft_err err = prepare(p, k);
    if (err != WEFT_ERR_OK) {
        destroy_qgemm(k);
        p->scratch_bytes = 0;
        return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
    }
    p->run = run_qgemm;
    p->state = k;
    p->destroy = destroy_qgemm;
    p->variant = k->depthwise ? "words:depthwise" : "words";
    return WEFT_ERR_OK;
}
