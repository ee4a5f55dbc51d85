/* The difference of a weight from a base, in the two forms that GEMMs take: low-rank factors, as
 * low-rank adaptation (Hu et al., "LoRA", 2021) leaves them when adapters are merged into weights,
 * and single elements. */
#include "passes/similarity/similar.h"

#include <math.h>
#include <string.h>

enum { RANK_MAX = 64 };

/* The most elements of both factors, relative to the weight. */
static const double factors_max = 0.5;
/* The most that the largest element of the base may exceed that of the weight. */
static const double scale_max = 2;
/* The most single elements, relative to the weight: each costs a hundred times an element of a
 * GEMM. */
static const double elements_max = 0.05;

static float value(const weft_matrix *m, size_t at)
{
    float x;
    memcpy(&x, m->data + at * sizeof x, sizeof x);
    return x;
}

bool weft_similar__is_precise(const weft_matrix *a, const weft_matrix *b)
{
    bool nan_a, nan_b;
    double of_a = weft_similar__largest(a, &nan_a), of_b = weft_similar__largest(b, &nan_b);
    /* No sum gives a NaN back exactly. */
    return !nan_a && !nan_b && isfinite(of_a) && of_b <= scale_max * of_a;
}

/* -- Factors ---------------------------------------------------------------------------------- */

static uint32_t rank_limit(const weft_matrix *a)
{
    double most = factors_max * a->rows * a->cols / ((double)a->rows + a->cols);
    return most < RANK_MAX ? (uint32_t)most : RANK_MAX;
}

bool weft_similar__factors(const weft_matrix *a, const weft_matrix *b, bool by_feature,
                           weft_arena *arena, weft_factors *out)
{
    weft_low_rank low;
    uint32_t most = rank_limit(a), taps = by_feature ? a->cols : a->rows;
    if (most == 0 || !weft_similar__low_rank(a, b, most, 0, arena, &low) || !low.rank ||
        !weft_similar__is_precise(a, b))
        return false;
    /* (u v)^T = v^T u^T for a weight stored by feature. */
    const float *factor = by_feature ? low.v : low.u;
    float *first = weft_arena_array(arena, (size_t)taps * low.rank, sizeof *first);
    for (uint32_t t = 0; t < taps; t++)
        for (uint32_t r = 0; r < low.rank; r++)
            first[(size_t)t * low.rank + r] = factor[(size_t)r * taps + t];
    *out = (weft_factors){.rank = low.rank,
                          .first = first,
                          .second = by_feature ? low.u : low.v,
                          .residual = low.residual};
    return true;
}

/* -- Single elements -------------------------------------------------------------------------- */

/* The summands that make `from` to `to`: their difference, or, where rounding it would leave
 * another number, -from and to. Returns how many. */
static uint32_t split(float to, float from, float *out)
{
    float difference = to - from, sum = from + difference;
    if (memcmp(&to, &from, sizeof to) == 0)
        return 0;
    out[0] = sum == to ? difference : -from;
    out[1] = to;
    return sum == to ? 1 : 2;
}

bool weft_similar__elements(const weft_matrix *a, const weft_matrix *b, bool by_feature,
                            weft_arena *arena, weft_elements *out)
{
    size_t size = (size_t)a->rows * a->cols, n = 0, at = 0;
    uint32_t taps = by_feature ? a->cols : a->rows, features = by_feature ? a->rows : a->cols;
    double most = elements_max * (double)size;
    float part[2];
    for (size_t i = 0; i < size && (double)n <= most; i++)
        n += split(value(a, i), value(b, i), part);
    if (n == 0 || (double)n > most || n > INT32_MAX || !weft_similar__is_precise(a, b))
        return false;
    float *values = weft_arena_array(arena, n, sizeof *values);
    int32_t *tap = weft_arena_array(arena, n, sizeof *tap);
    int32_t *start = weft_arena_array(arena, (size_t)features + 1, sizeof *start);
    for (uint32_t f = 0; f < features; f++) {
        start[f] = (int32_t)at;
        for (uint32_t t = 0; t < taps; t++) {
            size_t i = by_feature ? (size_t)f * taps + t : (size_t)t * features + f;
            uint32_t parts = split(value(a, i), value(b, i), part);
            for (uint32_t k = 0; k < parts; k++, at++) {
                values[at] = part[k];
                tap[at] = (int32_t)t;
            }
        }
    }
    start[features] = (int32_t)at;
    *out = (weft_elements){.n = (uint32_t)n, .value = values, .tap = tap, .start = start};
    return true;
}
