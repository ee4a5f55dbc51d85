/* Private to runtime/cpu: vector loops over floats, compiled for several instruction sets.
 *
 * cpu_vec_body.h is included once per instruction set; weft_cpu__vec returns the widest that this
 * processor supports, of at most `lanes` floats a vector. Pointers need no alignment. Lengths and
 * strides are in floats. */
#ifndef WEFT_RUNTIME_CPU_CPU_VEC_H
#define WEFT_RUNTIME_CPU_CPU_VEC_H

#include "ops/ops.h"

typedef void (*weft_vec_step)(float *dst, const float *const *arg, size_t n);

/* Attention: keys of a head are packed in blocks of 32, [dim][32]; queries are processed 8 rows at
 * a time. */
enum { WEFT_VEC_KEYS = 32, WEFT_VEC_ROWS = 8 };
/* A number is tame if its magnitude is at most this. */
#define WEFT_TAME_MOST 1e9f
/* Columns of a matrix that `panel` multiplies by. */
enum { WEFT_VEC_PANEL = 32 };

/* A pointwise convolution (kernel 1) of one image whose channels are in blocks of the vector width.
 * Distances in floats. */
typedef struct weft_vec_pointwise {
    size_t in;               /* channels of x */
    size_t pixels;           /* how many pixels are computed */
    size_t blocks;           /* of results: at most those of a panel */
    size_t x_block, y_block; /* from one block of channels to the next */
    const float *bias;       /* WEFT_VEC_PANEL numbers */
    const float *add;        /* added to the result, at the same places as y; NULL: none */
    float lo, hi;            /* the result is clipped to [lo, hi]; NaN stays */
} weft_vec_pointwise;

/* Comparisons: element types and orders. */
typedef enum weft_vec_type {
    WEFT_VEC_F32,
    WEFT_VEC_I32,
    WEFT_VEC_I64,
    WEFT_VEC_U8,
    WEFT_VEC_TYPES
} weft_vec_type;
typedef enum weft_vec_order {
    WEFT_VEC_EQUAL,
    WEFT_VEC_LESS,
    WEFT_VEC_LESS_OR_EQUAL,
    WEFT_VEC_ORDERS
} weft_vec_order;
/* y[i] = x[i or 0] order z[i or 0]; x_runs, z_runs: i, else 0. */
typedef void (*weft_vec_compare)(uint8_t *y, const void *x, bool x_runs, const void *z, bool z_runs,
                                 size_t n);

/* Rows of weights of `bits` bits: `words` of 32 bits, in `blocks` of 2^shift words, read in
 * `groups` of 16 words. Rows of x, `x_stride` apart, are ordered as the bits are, and have the sums
 * of each lane behind each group: (32 / bits + 1) * 16 floats a group. As bytes, they have 8 / bits
 * times 64 bytes, the scales of the lanes, and their sums times these. */
typedef struct weft_vec_nbits {
    int bits;
    uint32_t shift;
    size_t groups, words, blocks, x_stride;
    size_t used; /* words that have elements of x */
} weft_vec_nbits;

/* Rows of bytes, `stride` apart, in blocks: scales [row][block], and sums of their products with
 * the bytes. */
typedef struct weft_vec_bytes {
    const int8_t *q;
    size_t stride;
    const float *scale, *sum;
} weft_vec_bytes;

/* Rows of 4 * quads bytes without a sign, `stride` apart; whole[r] is the sum of row r less its
 * zero points. */
typedef struct weft_vec_rows {
    const uint8_t *q;
    size_t stride, quads;
    int32_t zero;
    const int32_t *whole;
} weft_vec_rows;

/* Of a factor of bytes with a sign, [quad][32][4]: sums of its columns, and their zero points. */
typedef struct weft_vec_panel {
    int32_t sum[WEFT_VEC_PANEL], zero[WEFT_VEC_PANEL];
} weft_vec_panel;

typedef struct weft_cpu_vec {
    const char *name;
    weft_vec_step step[WEFT_STEP_COUNT]; /* NULL: none */
    /* As `step`, but arguments 1 and 2 are one float each; NULL: none. */
    weft_vec_step step_by[WEFT_STEP_COUNT];
    /* As quantize_sum below. */
    weft_vec_step quantize_sum_u8_by, quantize_sum_i8_by;
    /* Quantises and dequantises by one scale and zero point. */
    weft_vec_step round_trip_u8_by, round_trip_i8_by;
    /* y[i] = table[x[i]], a table of 256 bytes */
    void (*map_bytes)(uint8_t *y, const uint8_t *x, const uint8_t *table, size_t n);
    void (*from_u8)(float *y, const uint8_t *x, size_t n);
    void (*from_i8)(float *y, const int8_t *x, size_t n);
    /* The low byte of whole numbers. */
    void (*to_bytes)(uint8_t *y, const float *x, size_t n);
    /* x / scale, rounded half to even, + zero, saturated to [lo, hi]; NaN gives lo. */
    void (*quantize)(uint8_t *y, const float *x, float scale, float zero, float lo, float hi,
                     size_t n);
    /* As quantize, but zero is added before rounding. */
    void (*quantize_sum)(uint8_t *y, const float *x, float scale, float zero, float lo, float hi,
                         size_t n);
    /* Extends [*lo, *hi] by x; NaN is skipped. */
    void (*range)(const float *x, size_t n, float *lo, float *hi);
    /* out[r][0..32) = sum over n_tap taps t and i < 2 * pairs of x[row[r] + tap[t] + i] * w[t][i],
     * exactly; w is [tap][pair][32][2]. */
    void (*words)(int32_t *out, const int16_t *x, const int32_t *row, size_t rows,
                  const int32_t *tap, size_t n_tap, size_t pairs, const int16_t *w);
    /* Products of rows of bytes and a panel, whose zero points are taken off. NULL: needs VNNI, see
     * weft_cpu__has_bytes. */
    void (*byte_rows)(int32_t *out, const weft_vec_rows *x, size_t rows, const int8_t *w,
                      const weft_vec_panel *panel);
    /* y[i] = x[i] - zero */
    void (*center)(int16_t *y, const uint8_t *x, bool is_signed, int32_t zero, size_t n);
    /* out[i] = sum over n_tap taps t of x[tap[t] + i] * w[t * stride + i] */
    void (*depthwise)(int32_t *out, const int16_t *x, const int32_t *tap, size_t n_tap,
                      const int16_t *w, size_t stride, size_t n);
    /* y[i] = (sum[i] + whole[i]) * mul[i] + add[i] */
    void (*scale_sums)(float *y, const int32_t *sum, const int32_t *whole, const float *mul,
                       const float *add, size_t n);
    /* x * y + z, and relu(x * y + z). */
    weft_vec_step multiply_add, multiply_add_relu;
    /* Whether all numbers are tame; NaN and infinities are not. */
    bool (*are_tame)(const float *x, size_t n);
    /* y = x * scale + shift */
    void (*affine)(float *y, const float *x, float scale, float shift, size_t n);
    /* As affine, with 16 values of scale and shift; n is a multiple of 16. */
    void (*affine16)(float *y, const float *x, const float *scale, const float *shift, size_t n);
    void (*affine16_relu)(float *y, const float *x, const float *scale, const float *shift,
                          size_t n);
    float (*sum)(const float *x, size_t n);
    float (*max)(const float *x, size_t n);
    /* As max, but NaN if an element is NaN. */
    float (*max_or_nan)(const float *x, size_t n);
    weft_vec_compare compare[WEFT_VEC_TYPES][WEFT_VEC_ORDERS];
    float (*dot)(const float *x, const float *y, size_t n);
    /* out[r][j] = dot product of x[r] and y[j], vectors of length n; r < rows, j < cols. */
    void (*dots)(float *out, size_t out_stride, const float *x, size_t x_stride, size_t rows,
                 const float *y, size_t y_stride, size_t cols, size_t n);
    /* y[r][f] = sum of x[tap[i]][r] * value[i] for i in first[f] .. first[f + 1] - 1, for rows <= 8
     * and n features; x has 8 columns. */
    void (*patch)(float *y, size_t y_stride, size_t rows, const float *x, const float *value,
                  const int32_t *tap, const int32_t *first, size_t n);
    /* y[i] += x[i] */
    void (*accumulate)(float *y, const float *x, size_t n);
    /* y[i] += a * x[i] */
    void (*axpy)(float *y, const float *x, float a, size_t n);
    /* y[0..16) = factor * sum over n groups of 16 */
    void (*sum16)(float *y, const float *x, float factor, size_t n);
    /* y[0..16) = maximum, or sum / count, of x[at + tap[i]][0..16) for i < n; NaN stays. */
    void (*max16)(float *y, const float *x, int64_t at, const int32_t *tap, size_t n);
    void (*mean16)(float *y, const float *x, int64_t at, const int32_t *tap, size_t n, float count);
    /* bias may be NULL */
    void (*layer_norm)(float *y, const float *x, const float *scale, const float *bias, float eps,
                       size_t n);
    /* y[i] = x[i] / sqrt(mean of the squares + eps) * scale[i] */
    void (*rms_norm)(float *y, const float *x, const float *scale, float eps, size_t n);
    /* (y[i], y[n + i]) = (x[i], x[n + i]) turned by the angle of cosine c[i] and sine s[i] */
    void (*rotate)(float *y, const float *x, const float *c, const float *s, size_t n);
    void (*softmax)(float *y, const float *x, size_t n);
    /* x[i] = mask[i] ? x[i] : fill */
    void (*mask)(float *x, const uint8_t *mask, float fill, size_t n);
    /* x = exp(x - max), returns the sum; max is taken over x. */
    float (*exp_shift)(float *x, size_t n, float *out_max);
    /* dst [cols][rows] = src [rows][cols] transposed; strides in floats. */
    void (*transpose)(float *dst, size_t dst_stride, const float *src, size_t src_stride,
                      size_t rows, size_t cols);
    /* scores[r][0..32) = scale * q[r] . k for rows <= 8 and one packed block of keys. */
    void (*qk)(float *scores, size_t scores_stride, const float *q, size_t q_stride, size_t rows,
               const float *packed, size_t dim, float scale);
    /* out[r][0..cols) = factor[r] * sum over n keys of p[r][key] * v[key][0..cols), rows <= 8. */
    void (*pv)(float *out, size_t out_stride, const float *p, size_t p_stride, size_t rows,
               const float *v, size_t v_stride, size_t n, size_t cols, const float *factor);
    /* out[r][0..32) = sum over i < n of x[r][i] * packed[i][0..32) */
    void (*panel)(float *out, size_t out_stride, const float *x, size_t x_stride, size_t rows,
                  const float *packed, size_t n);
    size_t lanes; /* channels of a block of the kernels below; 0: there are none */
    /* w: a panel [in][WEFT_VEC_PANEL] */
    void (*pointwise)(float *y, const float *x, const float *w, const weft_vec_pointwise *s);

    /* A row of k elements in that order. */
    void (*nbits_order)(const weft_vec_nbits *s, float *y, const float *x, size_t k);
    /* out[r][c] = dot product of row r of ordered x and row c of the weights; zero may be NULL:
     * the middle of the range. */
    void (*nbits_dots)(const weft_vec_nbits *s, float *out, size_t out_stride, const float *x,
                       size_t rows, const uint8_t *b, const float *scale, const float *zero,
                       size_t cols);
    /* w[i][0..32) = (element i - zero) * scale for i < n elements of 32 columns, whose words are
     * [word][32]. */
    void (*nbits_unpack)(int bits, float *w, const uint32_t *word, const float *scale,
                         const float *zero, size_t n);
    /* The elements of such words in a byte each: 8 / bits words for one. */
    void (*nbits_spread)(int bits, uint32_t *to, const uint32_t *word, size_t words);
    /* n elements of x as bytes of one scale, and their sum; false: they have no such form (not
     * finite, or too small). */
    bool (*nbits_quantise)(int8_t *y, float *scale, float *sum, const float *x, size_t n);
    /* out[r][0..32) = products of rows of bytes and 32 columns of unsigned bytes
     * [block][words][32], scales and zeros [block][32]; NULL: needs VNNI, see weft_cpu__has_bytes.
     */
    void (*nbits_bytes)(float *out, size_t out_stride, const weft_vec_bytes *x, size_t rows,
                        const uint32_t *w, const float *scale, const float *zero, size_t blocks,
                        size_t words);
    /* A row of bytes in the order of the bits: x_stride is (8 / bits + 2) * 16 floats a group. */
    void (*nbits_byte_order)(const weft_vec_nbits *s, float *y, const int8_t *q,
                             const float *scale);
    /* nbits_dots of such rows; NULL as nbits_bytes. */
    void (*nbits_byte_dots)(const weft_vec_nbits *s, float *out, size_t out_stride, const float *x,
                            size_t rows, const uint8_t *b, const float *scale, const float *zero,
                            size_t cols);
} weft_cpu_vec;

extern const weft_cpu_vec weft_cpu_vec_base;
#if defined(__x86_64__)
extern const weft_cpu_vec weft_cpu_vec_avx2;
extern const weft_cpu_vec weft_cpu_vec_avx512;
#endif

const weft_cpu_vec *weft_cpu__vec(uint32_t lanes);
/* Whether the functions of the table that need VNNI may be called here. */
bool weft_cpu__has_bytes(const weft_cpu_vec *vec);

#endif
