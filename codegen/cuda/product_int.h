/* Private to emitters of products (emit_gemm.c, emit_low_rank.c, emit_conv.c, emit_attention.c):
 * tiles of gemm.cuh and their choice. */
#ifndef WEFT_CODEGEN_CUDA_PRODUCT_INT_H
#define WEFT_CODEGEN_CUDA_PRODUCT_INT_H

#include "codegen/cuda/cuda_int.h"

/* A block's part of the result and how its warps divide it (template parameters of gemm.cuh). */
typedef struct weft_cuda_tile {
    uint32_t bm, bn, warps_m, warps_n, stages;
    uint32_t min_blocks; /* of a multiprocessor, 0: as it comes */
} weft_cuda_tile;

/* One of the kernels that a product becomes: at run time just one has blocks. */
typedef struct weft_cuda_variant {
    const weft_cuda_tile *tile;
    weft_dim blocks; /* of a part */
    weft_dim taken;  /* 1 where this is the one, else 0; in `blocks` already */
    /* The depth is divided: `parts` sums over `each` of it go to scratch memory, where another
     * kernel adds them (sum_parts). 1 and 0: it is not. */
    uint32_t parts, each;
} weft_cuda_variant;

enum { WEFT_CUDA_VARIANTS_MAX = 4 };

/* 1 where q >= n, else 0; 1 where q < n, else 0. */
weft_dim weft_cuda__enough(weft_cuda *cu, weft_dim q, int64_t n);
weft_dim weft_cuda__fewer(weft_cuda *cu, weft_dim q, int64_t n);

/* `batch` products of rows x n over `depth`. Rows come in runs that share no tile, most often one.
 */
typedef struct weft_cuda_extent {
    weft_dtype dtype;
    const weft_dim *rows;
    uint32_t n_run;
    weft_dim n, batch, depth;
} weft_cuda_extent;

/* Tiles for it: the largest that give a GPU enough blocks. Which one that is may depend on symbols:
 * then there are several. `left`: 1 where one is to be taken at all, else 0. Returns their number.
 */
uint32_t weft_cuda__tiles(weft_cuda *cu, const weft_cuda_extent *e, weft_dim left,
                          weft_cuda_variant out[WEFT_CUDA_VARIANTS_MAX]);
/* Tiles of `bm` rows, of all runs. */
weft_dim weft_cuda__row_tiles(weft_cuda *cu, const weft_cuda_extent *e, uint32_t bm);
/* Scratch memory for the parts of a variant, for result 0. */
weft_dim weft_cuda__parts_bytes(weft_cuda *cu, const weft_cuda_variant *v);
/* The kernel that adds them: `bias` names a parameter for operand 2, one number for each coordinate
 * along `axis`; NULL: there is none. The rest as in weft_cuda__sum_epilogue. */
WEFT_MUST_USE weft_err weft_cuda__sum_parts(weft_cuda *cu, const weft_cuda_variant *v,
                                            weft_dim scratch, int32_t axis, bool bias, float alpha,
                                            float beta, uint32_t addend);
static inline uint32_t weft_cuda__tile_threads(const weft_cuda_tile *t)
{
    return t->warps_m * t->warps_n * 32;
}
/* "128, 128, 2, 4, 3, false": BM to TF32 of a template's arguments. */
const char *weft_cuda__tile_text(weft_cuda *cu, const weft_cuda_tile *t);

#endif
