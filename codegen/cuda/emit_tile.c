/* Which tile a product is computed in.
 *
 * A large tile reads each operand less often; a small one makes more blocks. So the largest tile is
 * taken that still makes FULL_BLOCKS of them, about one for each multiprocessor of a large GPU, and
 * the smallest when none does. Sizes that are symbols decide at run time: with q blocks of a tile,
 *
 *     enough(q) = min(1, max(0, q - FULL_BLOCKS + 1))
 *
 * is 1 where the tile is large enough a choice and 0 elsewhere, and each tile's kernel gets its
 * blocks times its own `enough` and what the larger tiles left. A kernel without blocks is not
 * launched. */
#include "codegen/cuda/product_int.h"

enum { FULL_BLOCKS = 100 };

/* Three stages of the largest tile take 48 KiB, the most that needs no special launch. */
static const weft_cuda_tile half_tiles[WEFT_CUDA_VARIANTS_MAX] = {
    {.bm = 128, .bn = 128, .warps_m = 2, .warps_n = 4, .stages = 3},
    {.bm = 64, .bn = 64, .warps_m = 2, .warps_n = 2, .stages = 4},
    {.bm = 32, .bn = 32, .warps_m = 1, .warps_n = 2, .stages = 4},
};

static const weft_cuda_tile float_tiles[WEFT_CUDA_VARIANTS_MAX] = {
    {.bm = 128, .bn = 128, .warps_m = 2, .warps_n = 4, .stages = 2, .min_blocks = 2},
    {.bm = 64, .bn = 64, .warps_m = 2, .warps_n = 2, .stages = 2},
    {.bm = 32, .bn = 32, .warps_m = 1, .warps_n = 2, .stages = 2},
};

const char *weft_cuda__tile_text(weft_cuda *cu, const weft_cuda_tile *t)
{
    return weft_arena_printf(weft_cuda__arena(cu), "%u, %u, %u, %u, %u", t->bm, t->bn, t->warps_m,
                             t->warps_n, t->stages);
}

/* 1 where q >= FULL_BLOCKS, else 0. */
static weft_dim enough(weft_cuda *cu, weft_dim q)
{
    weft_dimpool *pool = weft_cuda__dims(cu);
    int64_t lo, hi;
    weft_dim_bounds(pool, q, &lo, &hi);
    if (lo >= FULL_BLOCKS)
        return 1;
    if (hi < FULL_BLOCKS)
        return 0;
    weft_dim over = weft_dim_add(pool, q, 1 - FULL_BLOCKS);
    return weft_dim_min(pool, 1, weft_dim_max(pool, 0, over));
}

/* More than half of the tile would lie outside at any size. */
static bool is_wasteful(const weft_cuda *cu, const weft_cuda_tile *t, weft_dim m, weft_dim n)
{
    int64_t lo, m_hi, n_hi;
    weft_dim_bounds(weft_cuda__dims(cu), m, &lo, &m_hi);
    weft_dim_bounds(weft_cuda__dims(cu), n, &lo, &n_hi);
    return m_hi <= t->bm / 2 || n_hi <= t->bn / 2;
}

uint32_t weft_cuda__tiles(weft_cuda *cu, weft_dtype dtype, weft_dim m, weft_dim n, weft_dim batch,
                          weft_cuda_variant out[WEFT_CUDA_VARIANTS_MAX])
{
    weft_dimpool *pool = weft_cuda__dims(cu);
    const weft_cuda_tile *tile = dtype == WEFT_DTYPE_F32 ? float_tiles : half_tiles;
    weft_dim left = 1; /* 1 where no larger tile was taken */
    uint32_t count = 0;
    for (uint32_t i = 0; i < WEFT_CUDA_VARIANTS_MAX && left != 0; i++) {
        const weft_cuda_tile *t = &tile[i];
        bool last = i + 1 == WEFT_CUDA_VARIANTS_MAX;
        if (!last && is_wasteful(cu, t, m, n))
            continue;
        weft_dim q =
            weft_cuda__mul(cu, weft_cuda__mul(cu, weft_cuda__ceil_div(cu, m, t->bm), batch),
                           weft_cuda__ceil_div(cu, n, t->bn));
        weft_dim taken = last ? 1 : enough(cu, q);
        if (taken == 0)
            continue;
        out[count++] =
            (weft_cuda_variant){t, weft_cuda__mul(cu, q, weft_cuda__mul(cu, left, taken))};
        left = weft_cuda__mul(cu, left, weft_dim_sub(pool, 1, taken));
    }
    return count;
}
