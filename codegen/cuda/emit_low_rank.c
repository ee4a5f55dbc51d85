/* Emits low_rank_matmul: one kernel for the rows of all segments (low_rank.cuh).
 *
 * Tiles are those of other GEMMs, except that no tile has rows of two segments, so that a block has
 * one pair of low-rank factors. If there are too few blocks, the depth is split as in emit_tile.c.
 * Because x u needs shared memory and registers, the largest tile of f16 has two stages instead of
 * three and one block per multiprocessor instead of two. Blocks at once on sm_90 at rank 16, by
 * registers (NVRTC 13.0): f16 1 of 128 x 128 (8 warps), 5 of 64 x 64 (20 warps); f32 2 (16) and 4
 * (16).
 *
 * Each column of blocks computes x u again: a share of rank / BN more arithmetic, which costs less
 * than a second kernel and a second pass over x when there are few rows. */
#include "codegen/cuda/cuda_gemm_int.h"

enum { RANK_MAX = 64, RANK_STEP = 16, STATIC_BYTES = 48 << 10 };

typedef struct problem {
    weft_dtype dtype;
    weft_dim n, k;
    bool trans_b;
    uint32_t n_segment;
    const weft_dim *start;                 /* [n_segment] */
    weft_dim rows[WEFT_LOW_RANK_SEGMENTS]; /* of each segment */
    uint32_t padded;                       /* padded rank: columns of x u, 16, 32 or 64 */
    uint32_t bias;                         /* operand; UINT32_MAX: none */
} problem;

/* Rank of segment i: columns of u; 0: the segment has no factors. */
static weft_dim rank_of(weft_cuda *cu, uint32_t i)
{
    const weft_ttype *u = weft_cuda__in_type(cu, weft_low_rank_u(i));
    return u ? u->dim[1] : 0;
}

static weft_err read_segments(weft_cuda *cu, problem *p)
{
    weft_dim all = weft_cuda__in_type(cu, 0)->dim[0];
    p->padded = RANK_STEP;
    for (uint32_t i = 0; i < p->n_segment; i++) {
        weft_dim last = i + 1 < p->n_segment ? p->start[i + 1] : all, rank = rank_of(cu, i);
        int64_t least, most;
        p->rows[i] = weft_dim_sub(weft_cuda__dims(cu), last, p->start[i]);
        weft_dim_bounds(weft_cuda__dims(cu), p->rows[i], &least, &most);
        if (least < 0)
            return weft_cuda__unsup(cu, "only running tells whether segment %u has rows", i);
        if (!weft_dim_is_const(rank))
            return weft_cuda__unsup(cu, "only running tells the rank of segment %u", i);
        if (rank > RANK_MAX)
            return weft_cuda__unsup(cu, "segment %u has rank %lld, at most %d", i, (long long)rank,
                                    RANK_MAX);
        while (p->padded < rank)
            p->padded *= 2;
    }
    return WEFT_ERR_OK;
}

/* Reduces the tile's stages until they fit shared memory. */
static weft_cuda_tile fit_tile(const problem *p, const weft_cuda_tile *t)
{
    weft_cuda_tile own = *t;
    uint32_t bytes = (t->bm + t->bn + p->padded) * 32 * 2; /* per stage, with 16-bit elements */
    while (own.stages * bytes > STATIC_BYTES)
        own.stages--;
    if (own.stages < t->stages || p->padded > RANK_STEP)
        own.min_blocks = 0;
    return own;
}

/* Prints the position of the block: one line for each segment. */
static void print_place(weft_cuda_kernel *k, const problem *p, const weft_cuda_tile *t,
                        weft_dim tiles)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    weft_buf *body = weft_cuda__body(k);
    weft_buf_printf(body, "    low_rank_place<%s> place(%s, %u);\n", weft_dtype_name(p->dtype),
                    weft_cuda__number(k, tiles), t->bn);
    for (uint32_t i = 0; i < p->n_segment; i++) {
        weft_dim rank = rank_of(weft_cuda__of(k), i);
        weft_dim last = weft_cuda__add(weft_cuda__of(k), p->start[i], p->rows[i]);
        const char *factors = "0, 0";
        if (rank > 0) {
            const char *u = weft_arena_printf(arena, "u%u", i);
            const char *v = weft_arena_printf(arena, "v%u", i);
            weft_cuda__in(k, u, weft_low_rank_u(i));
            weft_cuda__in(k, v, weft_low_rank_u(i) + 1);
            factors = weft_arena_printf(arena, "%s, %s", u, v);
        }
        const char *to = weft_cuda__number(k, last), *from = weft_cuda__number(k, p->start[i]);
        weft_buf_printf(body, "    place.segment(%u, %s, %s, %s, %lld);\n", t->bm, from, to,
                        factors, (long long)rank);
    }
}

static weft_err emit_tiled(weft_cuda *cu, const problem *p, const weft_cuda_extent *e,
                           const weft_cuda_variant *v)
{
    const weft_cuda_tile t = fit_tile(p, v->tile);
    weft_arena *arena = weft_cuda__arena(cu);
    const char *type = weft_dtype_name(p->dtype), *post = "no_post{}";
    weft_cuda_tiled tiled =
        weft_cuda__begin_tiled(cu, v, &t, weft_arena_printf(arena, "low_rank_%s", type));
    weft_cuda_kernel *k = tiled.kernel;
    weft_cuda__include(k, "low_rank.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "w", 1);
    print_place(k, p, &t, weft_cuda__row_tiles(cu, e, t.bm));
    weft_cuda__add_result(&tiled);
    if (v->parts <= 1)
        WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, -1, 1, 1, p->bias, &post));
    const char *n = weft_cuda__number(k, p->n), *depth = weft_cuda__number(k, p->k);
    weft_buf_printf(weft_cuda__body(k),
                    "    low_rank<%s, %s, %s, %u>(x, w, y, %s, place, %s, %s, %s, %s);\n", type,
                    weft_cuda__tile_text(cu, &t), p->trans_b ? "true" : "false", p->padded,
                    tiled.first, n, depth, weft_cuda__part_text(&tiled), post);
    return weft_cuda__end_tiled(&tiled, -1, false, 1, 1, p->bias);
}

weft_err weft_cuda_emit_low_rank(weft_cuda *cu, weft_node n)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    problem p = {.dtype = (weft_dtype)y->dtype, .n = y->dim[1], .k = x->dim[1]};
    p.trans_b = weft_attrs_int(attrs, WEFT_ATTR_TRANS_B, 0) != 0;
    p.bias = weft_node_in(weft_cuda__module(cu), n, 2).i ? 2 : UINT32_MAX;
    if (!weft_cuda__param(cu, UINT32_MAX, WEFT_ATTR_STARTS, &p.start, &p.n_segment))
        return weft_cuda__unsup(cu, "only running tells `starts`");
    WEFT_TRY(read_segments(cu, &p));
    const weft_cuda_extent e = {p.dtype, p.rows, p.n_segment, p.n, 1, p.k};
    weft_cuda_variant v[WEFT_CUDA_VARIANTS_MAX];
    uint32_t count = weft_cuda__tiles(cu, &e, 1, v);
    for (uint32_t i = 0; i < count; i++)
        WEFT_TRY(emit_tiled(cu, &p, &e, &v[i]));
    return WEFT_ERR_OK;
}
