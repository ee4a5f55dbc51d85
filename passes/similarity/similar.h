/* Exact measures of how similar two weights are, as matrices. Equality is by bits: a NaN equals
 * itself, and -0 differs from 0. */
#ifndef WEFT_PASSES_SIMILARITY_SIMILAR_H
#define WEFT_PASSES_SIMILARITY_SIMILAR_H

#include "passes/passes_int.h"

typedef struct weft_matrix {
    const uint8_t *data; /* row-major, may be unaligned */
    uint32_t rows, cols;
    uint32_t bytes; /* of an element: 1, 2, 4 or 8 */
} weft_matrix;

/* Equal sub-matrices of a and b: the position in each, and the size. */
typedef struct weft_rect {
    uint32_t row_a, col_a, row_b, col_b, rows, cols;
} weft_rect;

/* The largest rectangle of equal elements at one offset: element (0, 0) of b coincides with (row,
 * col) of a, which may be negative. All 0: there is none. O(area of the overlap). */
weft_rect weft_similar__rect_at(const weft_matrix *a, const weft_matrix *b, int64_t row,
                                int64_t col, weft_arena *scratch);

/* The largest common rectangle at any offset. It is found if both sides are at least WEFT_RECT_SIDE
 * and its elements are not all equal; other rectangles are found only at offset (0, 0). */
enum { WEFT_RECT_TILE = 16, WEFT_RECT_SIDE = 2 * WEFT_RECT_TILE - 1 };
weft_rect weft_similar__largest_rect(const weft_matrix *a, const weft_matrix *b,
                                     weft_arena *scratch);

/* -- Everything about a pair ---------------------------------------------------------------- */

typedef struct weft_similarity {
    bool identical;
    /* Rows of a that b has at the same index, and at any index (each row of b counts once); columns
     * likewise. */
    uint32_t same_rows, common_rows, same_cols, common_cols;
    weft_rect rect;     /* largest common rectangle */
    double metric;      /* 2 |rect| / (|a| + |b|), USHER's similarity */
    uint64_t differing; /* elements that differ if the shapes are equal; else all elements of a */
} weft_similarity;

/* Both matrices must have elements of the same size. */
weft_similarity weft_similar__measure(const weft_matrix *a, const weft_matrix *b,
                                      weft_arena *scratch);

/* The number of entries (such as hashes of rows) that both lists have; each entry of b counts once.
 * O(n_a + n_b). */
uint32_t weft_similar__count_common(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b,
                                    weft_arena *scratch);

/* a - b = u v with low-rank factors in f32: u [rows, rank] is stored column after column, v [rank,
 * cols] row after row. */
typedef struct weft_low_rank {
    uint32_t rank;
    const float *u, *v;
    double residual; /* largest element of |a - b - u v| */
} weft_low_rank;

/* The largest absolute element of an f32 matrix; NaN counts for nothing, *out_nan: there is one. */
double weft_similar__largest(const weft_matrix *m, bool *out_nan);
/* Approximates the difference of two f32 matrices of one shape by low-rank factors of rank at most
 * `max_rank`, within `tolerance` at every element; 0: within f32 rounding of the largest element.
 * false: there are none. The factors live in `arena`. O((rows + cols) rank^2) to find and O(rows
 * cols rank) to check. */
bool weft_similar__low_rank(const weft_matrix *a, const weft_matrix *b, uint32_t max_rank,
                            double tolerance, weft_arena *arena, weft_low_rank *out);

/* -- A weight as a base and a difference, for GEMMs: weight_delta.c ----------------------------
 *
 * Weights a and b of one shape, f32, [taps, features] or, `by_feature`, [features, taps]; x b plus
 * the product of x and the difference is x a. */

/* x (a - b) = (x first) second, within f32 rounding of the largest element. */
typedef struct weft_factors {
    uint32_t rank;
    const float *first;  /* [taps, rank] */
    const float *second; /* [rank, features] */
    double residual;     /* largest element of |a - b - first second| */
} weft_factors;

/* Single elements, feature after feature, as operands of patched_matmul. b plus the elements in
 * their order is a, in every bit but the sign of zeros. */
typedef struct weft_elements {
    uint32_t n;
    const float *value;
    const int32_t *tap;
    const int32_t *start; /* [features + 1] */
} weft_elements;

/* Whether b plus a difference is precise: the rounding of a base with much larger elements than the
 * weight would remain in the sum. */
bool weft_similar__is_precise(const weft_matrix *a, const weft_matrix *b);
/* false: the difference has no low rank, or the factors have more than half the elements of a. */
bool weft_similar__factors(const weft_matrix *a, const weft_matrix *b, bool by_feature,
                           weft_arena *arena, weft_factors *out);
/* false: the difference takes more than 5 % of the number of elements of a, or there is none. */
bool weft_similar__elements(const weft_matrix *a, const weft_matrix *b, bool by_feature,
                            weft_arena *arena, weft_elements *out);

#endif
