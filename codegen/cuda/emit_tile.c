/* Chooses the tile of a GEMM.
 *
 * A larger tile reads each operand less often; a smaller one gives more blocks. The choice is the
 * largest tile that gives at least FULL_BLOCKS blocks, about one per multiprocessor of a large GPU,
 * or the smallest tile if none does. If that gives fewer than FEW_BLOCKS blocks and the depth is a
 * large constant, the depth is split (split-K) and another kernel adds the partial sums. If sizes
 * are symbols, the choice is made at run time: with q blocks of a tile,
 *
 *     enough(q) = min(1, max(0, q - FULL_BLOCKS + 1))
 *
 * is 1 if the tile gives enough blocks and 0 otherwise, and `fewer` is its complement. The number
 * of blocks of each tile's kernel is multiplied by its own `enough` and by `fewer` of all larger
 * tiles. A kernel without blocks is not launched. (`fewer` is not 1 - enough, because expanded
 * products of such differences would exceed the size limit of a dim.) */
#include "codegen/cuda/cuda_gemm_int.h"

enum { FULL_BLOCKS = 96, FEW_BLOCKS = 48, TILES = 3 };

/* Smallest depth of a part, largest number of parts, multiple of the depth of a part. */
enum { PART_DEPTH = 128, PARTS_MAX = 8, DEPTH_STEP = 32 };

/* Three stages of the largest tile take 48 KiB, the most that a kernel gets without opting in. */
static const weft_cuda_tile half_tiles[TILES] = {
    {.bm = 128, .bn = 128, .warps_m = 2, .warps_n = 4, .stages = 3, .min_blocks = 2},
    {.bm = 64, .bn = 64, .warps_m = 2, .warps_n = 2, .stages = 4},
    {.bm = 32, .bn = 32, .warps_m = 1, .warps_n = 2, .stages = 4},
};

static const weft_cuda_tile float_tiles[TILES] = {
    {.bm = 128, .bn = 128, .warps_m = 2, .warps_n = 4, .stages = 2, .min_blocks = 2},
    {.bm = 64, .bn = 64, .warps_m = 2, .warps_n = 2, .stages = 2},
    {.bm = 32, .bn = 32, .warps_m = 1, .warps_n = 2, .stages = 2},
};

const char *weft_cuda__tile_text(weft_cuda *cu, const weft_cuda_tile *t)
{
    return weft_arena_printf(weft_cuda__arena(cu), "%u, %u, %u, %u, %u, %s", t->bm, t->bn,
                             t->warps_m, t->warps_n, t->stages,
                             weft_cuda__tf32(cu) ? "true" : "false");
}

weft_dim weft_cuda__enough(weft_cuda *cu, weft_dim q, int64_t n)
{
    weft_dimpool *pool = weft_cuda__dims(cu);
    int64_t lo, hi;
    weft_dim_bounds(pool, q, &lo, &hi);
    if (lo >= n)
        return 1;
    if (hi < n)
        return 0;
    weft_dim over = weft_dim_add(pool, q, 1 - n);
    return weft_dim_min(pool, 1, weft_dim_max(pool, 0, over));
}

weft_dim weft_cuda__fewer(weft_cuda *cu, weft_dim q, int64_t n)
{
    weft_dimpool *pool = weft_cuda__dims(cu);
    weft_dim enough = weft_cuda__enough(cu, q, n);
    if (weft_dim_is_const(enough))
        return 1 - enough;
    return weft_dim_min(pool, 1, weft_dim_max(pool, 0, weft_dim_sub(pool, n, q)));
}

weft_dim weft_cuda__row_tiles(weft_cuda *cu, const weft_cuda_extent *e, uint32_t bm)
{
    weft_dim q = 0;
    for (uint32_t i = 0; i < e->n_run; i++)
        q = weft_cuda__add(cu, q, weft_cuda__ceil_div(cu, e->rows[i], bm));
    return q;
}

/* Whether more than half of every tile would be outside of the result at any size. */
static bool is_wasteful(const weft_cuda *cu, const weft_cuda_tile *t, const weft_cuda_extent *e)
{
    int64_t lo, hi, most = 0;
    for (uint32_t i = 0; i < e->n_run; i++) {
        weft_dim_bounds(weft_cuda__dims(cu), e->rows[i], &lo, &hi);
        most = hi > most ? hi : most;
    }
    weft_dim_bounds(weft_cuda__dims(cu), e->n, &lo, &hi);
    return most <= t->bm / 2 || hi <= t->bn / 2;
}

/* The number of parts into which the depth is split if there are q blocks. */
static uint32_t count_parts(weft_dim depth, weft_dim q)
{
    if (!weft_dim_is_const(depth) || depth < 2 * PART_DEPTH)
        return 1;
    int64_t n = depth / PART_DEPTH;
    if (weft_dim_is_const(q) && q > 0 && n > 2 * FULL_BLOCKS / q)
        n = 2 * FULL_BLOCKS / q;
    return (uint32_t)(n < PARTS_MAX ? n : PARTS_MAX);
}

/* Adds a variant of q blocks that runs if `left` is 1 and q >= least, and clears `left` for those
 * sizes. Returns true if `left` is 0 for all sizes. */
static bool add_variant(weft_cuda *cu, weft_cuda_variant v, weft_dim q, int64_t least,
                        weft_dim *left, weft_cuda_variant *out, uint32_t *n)
{
    weft_dim taken = least > 0 ? weft_cuda__enough(cu, q, least) : 1;
    if (taken == 0)
        return false;
    v.taken = weft_cuda__mul(cu, *left, taken);
    v.blocks = weft_cuda__mul(cu, q, v.taken);
    out[(*n)++] = v;
    *left = least > 0 ? weft_cuda__mul(cu, *left, weft_cuda__fewer(cu, q, least)) : 0;
    return *left == 0;
}

uint32_t weft_cuda__tiles(weft_cuda *cu, const weft_cuda_extent *e, weft_dim left,
                          weft_cuda_variant out[WEFT_CUDA_VARIANTS_MAX])
{
    const weft_cuda_tile *tile = e->dtype == WEFT_DTYPE_F32 ? float_tiles : half_tiles;
    uint32_t count = 0;
    for (uint32_t i = 0; i < TILES; i++) {
        weft_cuda_variant v = {.tile = &tile[i], .parts = 1};
        bool last = i + 1 == TILES;
        if (!last && is_wasteful(cu, v.tile, e))
            continue;
        weft_dim q = weft_cuda__mul(cu, weft_cuda__row_tiles(cu, e, v.tile->bm), e->batch);
        q = weft_cuda__mul(cu, q, weft_cuda__ceil_div(cu, e->n, v.tile->bn));
        uint32_t parts = last ? count_parts(e->depth, q) : 1;
        int64_t least = parts > 1 ? FEW_BLOCKS : last ? 0 : FULL_BLOCKS;
        if (add_variant(cu, v, q, least, &left, out, &count))
            return count;
        if (parts > 1) {
            int64_t each = (e->depth + parts - 1) / parts;
            v.each = (uint32_t)(each + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP;
            v.parts = (uint32_t)((e->depth + v.each - 1) / v.each);
            add_variant(cu, v, q, 0, &left, out, &count);
        }
    }
    return count;
}

/* -- Kernels ---------------------------------------------------------------------------------- */

/* Bytes of scratch memory for the partial sums of a variant, for result 0. */
static weft_dim parts_bytes(weft_cuda *cu, const weft_cuda_variant *v)
{
    weft_dim n = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    /* With more elements this variant does not run. */
    if (!weft_dim_is_const(n))
        n = weft_dim_min(weft_cuda__dims(cu), n, (int64_t)FEW_BLOCKS * v->tile->bm * v->tile->bn);
    return weft_cuda__mul(cu, n, (int64_t)v->parts * 4);
}

/* Emits the kernel that adds the partial sums. */
static weft_err sum_parts(weft_cuda *cu, const weft_cuda_variant *v, weft_dim scratch, int32_t axis,
                          bool bias, float alpha, float beta, uint32_t addend)
{
    enum { THREADS = 256 };
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    uint32_t along = axis < 0 ? o->rank - (uint32_t)-axis : (uint32_t)axis;
    const char *post;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "sum_parts", THREADS);
    weft_cuda__include(k, "gemm.cuh");
    weft_cuda__scratch(k, "part", WEFT_DTYPE_F32, scratch, true);
    weft_cuda__out(k, "y", 0);
    if (bias)
        weft_cuda__in(k, "bias", 2);
    const char *parts = weft_cuda__own_number(k, v->parts);
    const char *n = weft_cuda__own_number(k, weft_cuda__numel(cu, o));
    const char *below = weft_cuda__own_number(k, weft_cuda__product(cu, o, along + 1, o->rank));
    const char *size = weft_cuda__own_number(k, o->dim[along]);
    WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, axis, alpha, beta, addend, &post));
    if (bias) {
        weft_buf_printf(weft_cuda__top(k),
                        "struct @_biased {\n"
                        "    const %s *bias;\n"
                        "    @_epilogue post;\n"
                        "    __device__ f32 operator()(f32 acc, size_t at, int c) const\n    {\n"
                        "        return post(acc + to_f32(bias[c]), at, c);\n    }\n};\n",
                        weft_dtype_name((weft_dtype)o->dtype));
        post = weft_arena_printf(weft_cuda__arena(cu), "@_biased{bias, %s}", post);
    }
    weft_buf_printf(weft_cuda__body(k), "    sum_parts<%d>(part, %s, y, %s, %s, %s, %s);\n",
                    PARTS_MAX, parts, n, below, size, post);
    weft_dim blocks = weft_cuda__ceil_div(cu, weft_cuda__numel(cu, o), THREADS);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, v->taken), 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_cuda_tiled weft_cuda__begin_tiled(weft_cuda *cu, const weft_cuda_variant *v,
                                       const weft_cuda_tile *tile, const char *name)
{
    name = weft_arena_printf(weft_cuda__arena(cu), "%s_%ux%u", name, tile->bm, tile->bn);
    uint32_t threads = tile->warps_m * tile->warps_n * 32;
    weft_cuda_tiled t = {.kernel = weft_cuda__kernel(cu, name, threads),
                         .variant = v,
                         .first = "0",
                         .scratch =
                             v->parts > 1 ? weft_cuda__scratch_bytes(cu, parts_bytes(cu, v)) : 0};
    weft_cuda__min_blocks(t.kernel, tile->min_blocks);
    return t;
}

void weft_cuda__add_result(weft_cuda_tiled *t)
{
    weft_cuda *cu = weft_cuda__of(t->kernel);
    if (t->variant->parts <= 1) {
        weft_cuda__out(t->kernel, "y", 0);
        return;
    }
    weft_dim all = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    weft_cuda__scratch(t->kernel, "y", WEFT_DTYPE_F32, t->scratch, false);
    t->first = weft_arena_printf(weft_cuda__arena(cu), "blockIdx.y * (size_t)%s",
                                 weft_cuda__own_number(t->kernel, all));
}

const char *weft_cuda__part_text(const weft_cuda_tiled *t)
{
    return t->variant->parts > 1 ? weft_cuda__own_number(t->kernel, t->variant->each) : "0";
}

weft_err weft_cuda__end_tiled(const weft_cuda_tiled *t, int32_t axis, bool bias, float alpha,
                              float beta, uint32_t addend)
{
    const weft_cuda_variant *v = t->variant;
    weft_cuda__launch(t->kernel, v->blocks, v->parts, 1, 0);
    if (v->parts <= 1)
        return WEFT_ERR_OK;
    return sum_parts(weft_cuda__of(t->kernel), v, t->scratch, axis, bias, alpha, beta, addend);
}
