/* Random cases of low_rank_matmul and patched_matmul, with expected results computed by definition
 * in double. */
#ifndef WEFT_TESTS_LOW_RANK_CASE_H
#define WEFT_TESTS_LOW_RANK_CASE_H

#include "ops/ops.h"
#include "tests/support/rand.h"

#include <math.h>
#include <string.h>

enum { LOW_RANK_OPERANDS = 3 + WEFT_PATCH_OPERANDS * WEFT_LOW_RANK_SEGMENTS + 1 };

typedef struct low_rank_case {
    weft_arena *arena;
    weft_op_id op;
    uint64_t seed;
    weft_dtype dtype;
    int64_t rows, k, n;
    uint32_t segments;
    int64_t start[WEFT_LOW_RANK_SEGMENTS + 1]; /* [segments]: rows */
    bool trans_b, gelu;                        /* gelu: gelu of the sum with the last operand */
    weft_tensor tensor[LOW_RANK_OPERANDS];
    const weft_tensor *operand[LOW_RANK_OPERANDS]; /* NULL: omitted */
    uint32_t n_operand;
    weft_attr attr[3];
    weft_attrs attrs;
    double *want; /* [rows, n] */
} low_rank_case;

static inline uint32_t low_rank_draw(low_rank_case *c, uint32_t below)
{
    return rand_below(&c->seed, below);
}

static inline weft_tensor *low_rank_room(low_rank_case *c, uint32_t at, weft_dtype dtype,
                                         int32_t rank, int64_t first, int64_t second)
{
    weft_tensor *t = &c->tensor[at];
    *t = (weft_tensor){.dtype = dtype, .rank = rank, .dim = {first, second}};
    t->data = weft_arena_alloc(c->arena, weft_tensor_bytes(t) + 128);
    t->data = (void *)(((uintptr_t)t->data + 63) / 64 * 64);
    c->operand[at] = t;
    c->n_operand = at + 1;
    return t;
}

static inline void low_rank_add(low_rank_case *c, uint32_t at, int32_t rank, int64_t first,
                                int64_t second)
{
    weft_tensor *t = low_rank_room(c, at, c->dtype, rank, first, second);
    int64_t numel = weft_tensor_numel(t);
    for (int64_t i = 0; i < numel; i++)
        weft_tensor_set_f64(t, i, (double)low_rank_draw(c, 1u << 16) / (1 << 15) - 1);
}

/* A few patched elements for each feature; none for some features. */
static inline void low_rank_add_patch(low_rank_case *c, uint32_t at)
{
    int32_t each = low_rank_draw(c, 64) ? 1 + (int32_t)low_rank_draw(c, 4) : 0, n = 0;
    int32_t *first = low_rank_room(c, at + 2, WEFT_DTYPE_I32, 1, c->n + 1, 0)->data;
    for (int64_t f = 0; f < c->n; f++) {
        first[f] = n;
        n += (int32_t)low_rank_draw(c, (uint32_t)each + 1);
    }
    first[c->n] = n;
    low_rank_add(c, at, 1, n, 0);
    int32_t *tap = low_rank_room(c, at + 1, WEFT_DTYPE_I32, 1, n, 0)->data;
    for (int32_t i = 0; i < n; i++)
        tap[i] = (int32_t)low_rank_draw(c, (uint32_t)c->k);
    c->n_operand = at + 3;
}

static inline double low_rank_at(const weft_tensor *t, int64_t row, int64_t col)
{
    return weft_tensor_get_f64(t, t->rank == 1 ? col : row * t->dim[1] + col);
}

/* x p_i of one element. */
static inline double low_rank_patch(const low_rank_case *c, uint32_t segment, int64_t row,
                                    int64_t col)
{
    const weft_tensor *const *in = &c->operand[weft_patch_value(segment)];
    double sum = 0;
    for (int64_t i = in[0] ? weft_tensor_get_i64(in[2], col) : 0;
         in[0] && i < weft_tensor_get_i64(in[2], col + 1); i++)
        sum += low_rank_at(c->operand[0], row, weft_tensor_get_i64(in[1], i)) *
               weft_tensor_get_f64(in[0], i);
    return sum;
}

/* x u_i v_i of one element. */
static inline double low_rank_thin(const low_rank_case *c, uint32_t segment, int64_t row,
                                   int64_t col)
{
    if (c->op == WEFT_OP_PATCHED_MATMUL)
        return low_rank_patch(c, segment, row, col);
    const weft_tensor *u = c->operand[weft_low_rank_u(segment)];
    const weft_tensor *v = c->operand[weft_low_rank_u(segment) + 1];
    double sum = 0;
    for (int64_t r = 0; u && r < u->dim[1]; r++) {
        double inner = 0;
        for (int64_t t = 0; t < c->k; t++)
            inner += low_rank_at(c->operand[0], row, t) * low_rank_at(u, t, r);
        sum += inner * low_rank_at(v, r, col);
    }
    return sum;
}

static inline double low_rank_element(const low_rank_case *c, uint32_t segment, int64_t row,
                                      int64_t col)
{
    const weft_tensor *w = c->operand[1];
    double sum = c->operand[2] ? low_rank_at(c->operand[2], 0, col) : 0;
    for (int64_t t = 0; t < c->k; t++)
        sum += low_rank_at(c->operand[0], row, t) *
               low_rank_at(w, c->trans_b ? col : t, c->trans_b ? t : col);
    sum += low_rank_thin(c, segment, row, col);
    if (c->gelu) {
        sum += low_rank_at(c->operand[c->n_operand - 1], row, col);
        sum = sum / 2 * (1 + erf(sum / sqrt(2)));
    }
    return sum;
}

static inline void low_rank_expect(low_rank_case *c)
{
    uint32_t segment = 0;
    c->want = weft_arena_array(c->arena, (size_t)(c->rows * c->n) + 1, sizeof *c->want);
    for (int64_t row = 0; row < c->rows; row++) {
        while (row >= c->start[segment + 1])
            segment++;
        for (int64_t col = 0; col < c->n; col++)
            c->want[row * c->n + col] = low_rank_element(c, segment, row, col);
    }
}

static inline void low_rank_attrs(low_rank_case *c)
{
    uint32_t n = 0;
    if (c->gelu) {
        const char **steps = weft_arena_array(c->arena, 2, sizeof *steps);
        steps[0] = weft_arena_printf(c->arena, "add acc i%u", c->n_operand - 1);
        steps[1] = "gelu acc";
        c->attr[n++] = (weft_attr){
            .key = WEFT_ATTR_EPILOGUE, .kind = WEFT_KIND_STRS, .n = 2, .u = {.strs = steps}};
    }
    c->attr[n++] = (weft_attr){
        .key = WEFT_ATTR_STARTS, .kind = WEFT_KIND_DIMS, .n = c->segments, .u = {.dims = c->start}};
    c->attr[n++] =
        (weft_attr){.key = WEFT_ATTR_TRANS_B, .kind = WEFT_KIND_INT, .u = {.i = c->trans_b}};
    c->attrs = (weft_attrs){c->attr, n};
}

/* Segments of up to `most` rows; some are empty, some have no low-rank factors. */
static inline void low_rank_make(low_rank_case *c, weft_op_id op, weft_arena *arena, uint32_t seed,
                                 weft_dtype dtype, uint32_t segments, uint32_t most)
{
    *c = (low_rank_case){
        .arena = arena, .op = op, .seed = seed, .dtype = dtype, .segments = segments};
    c->k = 1 + low_rank_draw(c, 70);
    c->n = 1 + low_rank_draw(c, 90);
    c->trans_b = low_rank_draw(c, 2);
    c->gelu = low_rank_draw(c, 2);
    for (uint32_t i = 0; i < segments; i++) {
        c->start[i] = c->rows;
        c->rows += low_rank_draw(c, most + 1);
    }
    c->start[segments] = c->rows;
    low_rank_add(c, 0, 2, c->rows, c->k);
    low_rank_add(c, 1, 2, c->trans_b ? c->n : c->k, c->trans_b ? c->k : c->n);
    if (low_rank_draw(c, 2))
        low_rank_add(c, 2, 1, c->n, 0);
    for (uint32_t i = 0; i < segments; i++) {
        int64_t rank = low_rank_draw(c, 64) ? 1 + low_rank_draw(c, 20) : 0;
        if (low_rank_draw(c, 4) == 0)
            continue;
        if (op == WEFT_OP_PATCHED_MATMUL) {
            low_rank_add_patch(c, weft_patch_value(i));
            continue;
        }
        low_rank_add(c, weft_low_rank_u(i), 2, c->k, rank);
        low_rank_add(c, weft_low_rank_u(i) + 1, 2, rank, c->n);
    }
    if (c->gelu)
        low_rank_add(c,
                     op == WEFT_OP_PATCHED_MATMUL ? weft_patch_value(segments)
                                                  : weft_low_rank_u(segments),
                     2, c->rows, c->n);
    low_rank_attrs(c);
    low_rank_expect(c);
}

/* Largest error, relative to the largest expected element. */
static inline double low_rank_error(const low_rank_case *c, const weft_tensor *got)
{
    double worst = 0, scale = 1e-6;
    for (int64_t i = 0; i < c->rows * c->n; i++)
        scale = fmax(scale, fabs(c->want[i]));
    for (int64_t i = 0; i < c->rows * c->n; i++) {
        double e = fabs(weft_tensor_get_f64(got, i) - c->want[i]) / scale;
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

#endif
