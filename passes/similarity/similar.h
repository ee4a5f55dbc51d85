/* How alike two weights are. A weight is looked at as a matrix of n rows (output features,
 * filters) by k columns (input features, taps): what one row of a product's result reads. Equality
 * is by bits: a NaN equals itself, -0 and 0 differ. */
#ifndef WEFT_PASSES_SIMILARITY_SIMILAR_H
#define WEFT_PASSES_SIMILARITY_SIMILAR_H

#include "passes/passes_int.h"

typedef struct weft_matrix {
    const uint8_t *data; /* row after row, may be unaligned */
    uint32_t rows, cols;
    uint32_t bytes; /* of an element: 1, 2, 4 or 8 */
} weft_matrix;

/* Equal sub-matrices of a and b. */
typedef struct weft_rect {
    uint32_t row_a, col_a, row_b, col_b, rows, cols;
} weft_rect;

/* The largest rectangle of equal elements when b is laid over a so that b's element (0, 0) meets
 * a's (row, col), which may be negative; all 0 where they do not touch. O(area of the overlap). */
weft_rect weft_similar__rect_at(const weft_matrix *a, const weft_matrix *b, int64_t row,
                                int64_t col, weft_arena *scratch);

/* The largest common rectangle at any offset. Exact whenever both its sides are at least
 * WEFT_RECT_SIDE and it is not all one value repeated; smaller ones are found only where the
 * matrices lie upon each other. common_rect.c says how. */
enum { WEFT_RECT_TILE = 16, WEFT_RECT_SIDE = 2 * WEFT_RECT_TILE - 1 };
weft_rect weft_similar__largest_rect(const weft_matrix *a, const weft_matrix *b,
                                     weft_arena *scratch);

/* -- Everything about a pair ---------------------------------------------------------------- */

typedef struct weft_similarity {
    bool identical;
    /* Rows of a that b has: at the same place, and anywhere (each row of b once); columns alike. */
    uint32_t same_rows, common_rows, same_cols, common_cols;
    weft_rect rect;     /* largest common rectangle */
    double metric;      /* 2 |rect| / (|a| + |b|), USHER's similarity */
    uint64_t differing; /* elements that differ, of matrices of one shape; else all of a */
} weft_similarity;

/* Both matrices have elements of one size. */
weft_similarity weft_similar__measure(const weft_matrix *a, const weft_matrix *b,
                                      weft_arena *scratch);

/* Numbers (hashes of rows, say) that both lists have, each of b once. O(n_a + n_b). */
uint32_t weft_similar__count_common(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b,
                                    weft_arena *scratch);

/* a - b as a sum of `rank` products of a column and a row, both f32: u is rows x rank, v rank x
 * cols, column after column and row after row. */
typedef struct weft_low_rank {
    uint32_t rank;
    const float *u, *v;
    double residual; /* largest element of |a - b - u v| */
} weft_low_rank;

/* The difference of two f32 matrices of one shape as a product of rank at most `max_rank`, within
 * `tolerance` of every element; 0: within the rounding of f32 at the largest element. false: not of
 * so low a rank. Lives in `arena`. O((rows + cols) rank^2), and O(rows cols rank) to check. */
bool weft_similar__low_rank(const weft_matrix *a, const weft_matrix *b, uint32_t max_rank,
                            double tolerance, weft_arena *arena, weft_low_rank *out);

#endif
