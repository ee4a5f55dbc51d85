/* Estimates how similar two weights are from sketches. Aligning models asks for many pairs of
 * weights, most of which have nothing in common, so a pair must cost less than reading both
 * weights.
 *
 * Weights of one shape: a sketch is SAMPLES elements at fixed positions. The estimate is the larger
 * of the share of samples that are equal bit by bit (frozen or pruned rows, sparse changes) and the
 * cosine similarity of the samples (a fine-tuned weight has the direction of its origin; two
 * weights that were trained independently are orthogonal up to 1/sqrt(SAMPLES)). Weights that
 * differ in one of the first two dims: a sketch is the hashes of all rows or columns. The estimate
 * is the share of the smaller weight's rows (columns) that the larger one has anywhere. After
 * PAIRS_MAX pairs, further pairs are estimated at 0. */
#include "passes/similarity/weight_sketch.h"

#include "passes/similarity/similar.h"

#include "base/hash.h"
#include "base/map.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 256, PAIRS_MAX = 1 << 19 };

typedef struct sketch {
    double *sample;      /* NULL: not taken yet */
    uint64_t *row, *col; /* hashes of all rows and columns; NULL: not made yet */
} sketch;

struct weft_sketches {
    weft_arena *arena;
    weft_map *known; /* weight -> index of its sketch */
    weft_map *pairs; /* pair of weights -> estimate, as the bits of a double */
    WEFT_VEC(sketch) sketches;
};

weft_sketches *weft_sketch__open(weft_arena *arena)
{
    weft_sketches *r = weft_arena_alloc(arena, sizeof *r);
    r->arena = arena;
    r->known = weft_map_create(arena);
    r->pairs = weft_map_create(arena);
    return r;
}

static sketch *find_sketch(weft_sketches *r, weft_weight w)
{
    uint64_t at = 0;
    if (weft_map_get(r->known, w.i, &at))
        return &r->sketches.at[at];
    sketch none = {0};
    WEFT_VEC_PUSH(r->arena, &r->sketches, none);
    weft_map_put(r->known, w.i, r->sketches.len - 1);
    return &r->sketches.at[r->sketches.len - 1];
}

/* -- Samples ---------------------------------------------------------------------------------- */

static const double *take_samples(weft_sketches *r, const weft_module *m, weft_weight w)
{
    sketch *s = find_sketch(r, w);
    weft_tensor t = weft_weight_tensor(m, w);
    uint64_t n = (uint64_t)weft_tensor_numel(&t), stride = n / SAMPLES;
    if (s->sample)
        return s->sample;
    s->sample = weft_arena_array(r->arena, SAMPLES, sizeof *s->sample);
    for (uint64_t i = 0; i < SAMPLES && n > 0; i++) {
        uint64_t at = stride ? i * stride + weft_hash_mix(i, n) % stride : i % n;
        size_t size = weft_dtype_size(t.dtype);
        uint64_t bits[2] = {0};
        memcpy(bits, (const uint8_t *)t.data + at * size, size);
        weft_tensor one = {.dtype = t.dtype, .data = bits};
        s->sample[i] = weft_tensor_get_f64(&one, 0);
    }
    return s->sample;
}

static double compare_samples(const double *a, const double *b)
{
    double ab = 0, aa = 0, bb = 0, equal = 0;
    for (int i = 0; i < SAMPLES; i++) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
        equal += memcmp(&a[i], &b[i], sizeof a[i]) == 0;
    }
    double cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
    equal /= SAMPLES;
    return isfinite(cosine) && cosine > equal ? fmin(cosine, 1) : equal;
}

/* -- Rows and columns ------------------------------------------------------------------------- */

/* Bytes of a row: a weight is a matrix of its first dim by all others. */
static uint64_t row_bytes(const weft_tensor *t)
{
    return t->rank > 0 && t->dim[0] > 0 ? weft_tensor_bytes(t) / (uint64_t)t->dim[0] : 0;
}

static const uint64_t *hash_rows(weft_sketches *r, const weft_module *m, weft_weight w)
{
    sketch *s = find_sketch(r, w);
    weft_tensor t = weft_weight_tensor(m, w);
    if (s->row)
        return s->row;
    s->row = weft_arena_array(r->arena, (size_t)t.dim[0] + 1, sizeof *s->row);
    weft_hash_rows(t.data, (size_t)t.dim[0], 1, (size_t)row_bytes(&t), s->row);
    return s->row;
}

static const uint64_t *hash_cols(weft_sketches *r, const weft_module *m, weft_weight w)
{
    sketch *s = find_sketch(r, w);
    weft_tensor t = weft_weight_tensor(m, w);
    size_t col = t.dim[1] > 0 ? row_bytes(&t) / (uint64_t)t.dim[1] : 0;
    if (s->col)
        return s->col;
    s->col = weft_arena_array(r->arena, (size_t)t.dim[1] + 1, sizeof *s->col);
    weft_hash_cols(t.data, (size_t)t.dim[0], (size_t)t.dim[1], col, s->col);
    return s->col;
}

/* The share of the shorter list's hashes that the longer list has too. */
static double share_common(weft_arena *scratch, const uint64_t *a, int64_t n_a, const uint64_t *b,
                           int64_t n_b)
{
    int64_t fewer = n_a < n_b ? n_a : n_b;
    double common = weft_similar__count_common(a, (size_t)n_a, b, (size_t)n_b, scratch);
    return fewer > 0 ? common / (double)fewer : 0;
}

static double compare(weft_sketches *r, const weft_module *m, weft_weight a, weft_weight b)
{
    weft_tensor s = weft_weight_tensor(m, a), t = weft_weight_tensor(m, b);
    if (s.dtype != t.dtype || s.rank != t.rank)
        return 0;
    if (memcmp(s.dim, t.dim, s.rank * sizeof s.dim[0]) == 0) {
        const double *x = take_samples(r, m, a);
        return compare_samples(x, take_samples(r, m, b));
    }
    if (s.rank < 2)
        return 0;
    if (s.dim[1] == t.dim[1]) {
        const uint64_t *x = hash_rows(r, m, a);
        return share_common(r->arena, x, s.dim[0], hash_rows(r, m, b), t.dim[0]);
    }
    if (s.dim[0] != t.dim[0])
        return 0;
    const uint64_t *x = hash_cols(r, m, a);
    return share_common(r->arena, x, s.dim[1], hash_cols(r, m, b), t.dim[1]);
}

double weft_sketch__compare(weft_sketches *r, const weft_module *m, weft_weight a, weft_weight b)
{
    uint64_t pair = a.i < b.i ? (uint64_t)a.i << 32 | b.i : (uint64_t)b.i << 32 | a.i, bits = 0;
    double similarity = 0;
    if (a.i == b.i)
        return 1;
    if (weft_map_get(r->pairs, pair, &bits)) {
        memcpy(&similarity, &bits, sizeof similarity);
        return similarity;
    }
    if (weft_map_len(r->pairs) >= PAIRS_MAX)
        return 0;
    similarity = compare(r, m, a, b);
    memcpy(&bits, &similarity, sizeof bits);
    weft_map_put(r->pairs, pair, bits);
    return similarity;
}
