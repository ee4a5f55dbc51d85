/* Rows quantised by their range, times factors of bytes.
 *
 * With VNNI both are bytes: of each panel of 32 columns the factor has bytes with a sign and a
 * weft_vec_panel, and the sums of the rows follow the rows. Elsewhere both are words of 16 bits
 * without their zero points. */
#include "runtime/cpu/cpu_qrows.h"

#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/cpu_qgemm.h"

#include <math.h>

enum { PANEL = WEFT_VEC_PANEL, QUAD = 4 };
/* Rows of a tile. */
enum { ROWS_MAX = 32 };

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* -- The factor ------------------------------------------------------------------------------- */

static int64_t panel_bytes(int64_t inner)
{
    return round_up(inner, QUAD) * PANEL + (int64_t)sizeof(weft_vec_panel);
}

/* Bytes without a sign get one: 128 less, and so do their zero points. */
static void fill_column(int8_t *to, weft_vec_panel *end, int64_t c, const uint8_t *from,
                        int64_t inner, bool is_signed, int64_t zero)
{
    const uint8_t flip = is_signed ? 0 : 0x80;
    int32_t sum = 0;
    for (int64_t i = 0; i < inner; i++) {
        int8_t x = (int8_t)(from[i] ^ flip);
        to[i / QUAD * QUAD * PANEL + c * QUAD + i % QUAD] = x;
        sum += x;
    }
    end->sum[c] = sum;
    end->zero[c] = (int32_t)zero - (is_signed ? 0 : 128);
}

static void fill_bytes(void *to, const void *weight, const weft_cpu_format *f)
{
    int64_t parts = f->size[0], cols = f->size[1], inner = f->size[2], each = panel_bytes(inner);
    bool is_signed = f->zero->dtype == WEFT_DTYPE_I8;
    memset(to, 0, f->bytes);
    for (int64_t part = 0; part < parts; part++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = part * cols + c;
            int8_t *panel =
                (int8_t *)to + (part * (round_up(cols, PANEL) / PANEL) + c / PANEL) * each;
            weft_vec_panel *end = (weft_vec_panel *)(void *)(panel + round_up(inner, QUAD) * PANEL);
            fill_column(panel, end, c % PANEL, (const uint8_t *)weight + at * inner, inner,
                        is_signed, weft_tensor_get_i64(f->zero, at));
        }
}

weft_cpu_format weft_cpu__qrows_format(const weft_cpu_vec *vec, int64_t parts, int64_t cols,
                                       int64_t inner, const weft_slot *zero)
{
    if (!weft_cpu__has_bytes(vec))
        return weft_cpu__words(parts, cols, inner, zero);
    weft_cpu_format f = {.fill = fill_bytes,
                         .zero_weight = zero->weight,
                         .zero = &zero->tensor,
                         .size = {parts, cols, inner}};
    f.bytes = (uint64_t)(parts * (round_up(cols, PANEL) / PANEL) * panel_bytes(inner));
    return f;
}

/* -- The rows --------------------------------------------------------------------------------- */

static int64_t width_of(const weft_cpu_vec *vec, int64_t inner)
{
    return round_up(inner, weft_cpu__has_bytes(vec) ? QUAD : 2);
}

uint64_t weft_cpu__qrows_room(const weft_cpu_vec *vec, int64_t rows, int64_t inner)
{
    int64_t width = width_of(vec, inner);
    return (uint64_t)rows * (uint64_t)(weft_cpu__has_bytes(vec) ? width + QUAD : 2 * width + inner);
}

/* Bytes, rows `width` apart. */
static void quantise_bytes(const weft_cpu_qrows *q, uint8_t *to, int64_t width, const float *x)
{
    size_t inner = (size_t)q->inner, rows = (size_t)q->rows;
    float zero = (float)q->zero;
    if (width == q->inner) {
        q->vec->quantize(to, x, q->scale, zero, 0, 255, rows * inner);
        return;
    }
    for (size_t r = 0; r < rows; r++, to += width) {
        q->vec->quantize(to, x + r * inner, q->scale, zero, 0, 255, inner);
        memset(to + inner, 0, (size_t)width - inner);
    }
}

/* Behind the rows of bytes. */
static int32_t *wholes_of(const weft_cpu_qrows *q, int64_t width)
{
    return (int32_t *)(void *)((uint8_t *)q->x + q->rows * width);
}

static void sum_rows(const weft_cpu_qrows *q, int64_t width)
{
    const uint8_t *x = q->x;
    int32_t *whole = wholes_of(q, width);
    for (int64_t r = 0; r < q->rows; r++, x += width) {
        int32_t sum = 0;
        for (int64_t i = 0; i < width; i++)
            sum += x[i];
        whole[r] = sum - (int32_t)q->inner * q->zero;
    }
}

void weft_cpu__qrows_quantise(weft_cpu_qrows *q, const float *x)
{
    int64_t width = width_of(q->vec, q->inner);
    float lo = 0, hi = 0, zero;
    q->vec->range(x, (size_t)(q->rows * q->inner), &lo, &hi);
    weft_quantize_by_range(lo, hi, &q->scale, &zero);
    q->zero = (int32_t)zero;
    if (weft_cpu__has_bytes(q->vec)) {
        quantise_bytes(q, q->x, width, x);
        sum_rows(q, width);
        return;
    }
    int16_t *word = q->x; /* the bytes follow the words */
    uint8_t *byte = (uint8_t *)(word + q->rows * width);
    quantise_bytes(q, byte, q->inner, x);
    for (int64_t r = 0; r < q->rows; r++) {
        word[r * width + width - 1] = 0;
        q->vec->center(word + r * width, byte + r * q->inner, false, q->zero, (size_t)q->inner);
    }
}

/* -- The product ------------------------------------------------------------------------------ */

static void sum_words(const weft_cpu_qrows *q, int32_t *sum, int64_t first, int64_t rows,
                      int64_t panel)
{
    const int32_t tap = 0;
    int64_t width = width_of(q->vec, q->inner);
    int32_t row[ROWS_MAX];
    for (int64_t j = 0; j < rows; j++)
        row[j] = (int32_t)(j * width);
    q->vec->words(sum, (const int16_t *)q->x + first * width, row, (size_t)rows, &tap, 1,
                  (size_t)width / 2, (const int16_t *)q->w + panel * width * PANEL);
}

static void sum_bytes(const weft_cpu_qrows *q, int32_t *sum, int64_t first, int64_t rows,
                      int64_t panel)
{
    int64_t width = width_of(q->vec, q->inner);
    const int8_t *w = (const int8_t *)q->w + panel * panel_bytes(q->inner);
    const weft_vec_rows x = {.q = (const uint8_t *)q->x + first * width,
                             .stride = (size_t)width,
                             .quads = (size_t)width / QUAD,
                             .zero = q->zero,
                             .whole = wholes_of(q, width) + first};
    q->vec->byte_rows(sum, &x, (size_t)rows, w,
                      (const weft_vec_panel *)(const void *)(w + width * PANEL));
}

/* out = sum * scale, for n columns. */
static void scale_row(float *out, const int32_t *sum, const float *scale, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        out[c] = (float)sum[c] * scale[c];
}

void weft_cpu__qrows_multiply(void *qrows, int64_t begin, int64_t end)
{
    const weft_cpu_qrows *q = qrows;
    int64_t panels = round_up(q->cols, PANEL) / PANEL;
    bool bytes = weft_cpu__has_bytes(q->vec);
    int32_t sum[ROWS_MAX * PANEL];
    float scale[PANEL];
    for (int64_t i = q->first + begin; i < q->first + end; i++) {
        int64_t col = i % panels * PANEL, n = q->cols - col < PANEL ? q->cols - col : PANEL;
        const float *s = q->col_s + i / panels * q->cols + col;
        for (int64_t c = 0; c < n; c++)
            scale[c] = q->scale * s[c];
        for (int64_t r = 0; r < q->rows; r += ROWS_MAX) {
            int64_t rows = q->rows - r < ROWS_MAX ? q->rows - r : ROWS_MAX;
            float *out = q->out + r * q->stride + (i - q->first) / panels * q->part + col;
            (bytes ? sum_bytes : sum_words)(q, sum, r, rows, i);
            for (int64_t j = 0; j < rows; j++)
                scale_row(out + j * q->stride, sum + j * PANEL, scale, n);
        }
    }
}
