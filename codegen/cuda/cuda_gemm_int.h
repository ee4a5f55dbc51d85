/* Private to emitters of GEMMs (emit_gemm.c, emit_low_rank.c, emit_conv.c, emit_attention.c):
 * tiles of gemm.cuh and their choice. */
#ifndef WEFT_CODEGEN_CUDA_PRODUCT_INT_H
#define WEFT_CODEGEN_CUDA_PRODUCT_INT_H

#include "codegen/cuda/cuda_int.h"

/* The tile of the result that a block computes, and its division among warps (template parameters
 * of gemm.cuh). */
typedef struct weft_cuda_tile {
    uint32_t bm, bn, warps_m, warps_n, stages;
    uint32_t min_blocks; /* per multiprocessor; 0: no limit on registers */
} weft_cuda_tile;

/* One of the alternative kernels of a GEMM. At run time exactly one of them has blocks. */
typedef struct weft_cuda_variant {
    const weft_cuda_tile *tile;
    weft_dim blocks; /* for one part of the depth */
    weft_dim taken;  /* 1 if this variant runs, else 0; `blocks` contains this factor */
    /* Split-K: `parts` partial sums over `each` elements of the depth go to scratch memory, and
     * another kernel adds them (sum_parts). 1 and 0: the depth is not split. */
    uint32_t parts, each;
} weft_cuda_variant;

enum { WEFT_CUDA_VARIANTS_MAX = 4 };

/* weft_cuda__enough: 1 if q >= n, else 0. weft_cuda__fewer: 1 if q < n, else 0. */
weft_dim weft_cuda__enough(weft_cuda *cu, weft_dim q, int64_t n);
weft_dim weft_cuda__fewer(weft_cuda *cu, weft_dim q, int64_t n);

/* The size of a batched GEMM: `batch` results of rows x n, each a sum over `depth`. Rows are
 * divided into runs, most often one; no tile contains rows of two runs. */
typedef struct weft_cuda_extent {
    weft_dtype dtype;
    const weft_dim *rows;
    uint32_t n_run;
    weft_dim n, batch, depth;
} weft_cuda_extent;

/* Chooses the largest tile that gives a GPU enough blocks. If the choice depends on symbols, there
 * are several variants. `left`: 1 if any variant is to run, else 0. Returns the number of variants.
 */
uint32_t weft_cuda__tiles(weft_cuda *cu, const weft_cuda_extent *e, weft_dim left,
                          weft_cuda_variant out[WEFT_CUDA_VARIANTS_MAX]);
/* The number of tiles of `bm` rows in all runs. */
weft_dim weft_cuda__row_tiles(weft_cuda *cu, const weft_cuda_extent *e, uint32_t bm);

/* A kernel of a variant under construction. Its parameter y is result 0, or scratch memory for
 * the partial sums. */
typedef struct weft_cuda_tiled {
    weft_cuda_kernel *kernel;
    const weft_cuda_variant *variant;
    const char *first; /* index of the first element of y that a block's part writes */
    weft_dim scratch;
} weft_cuda_tiled;

/* `tile`: that of the variant, or a form of it; `name` is completed by the tile's size. */
weft_cuda_tiled weft_cuda__begin_tiled(weft_cuda *cu, const weft_cuda_variant *v,
                                       const weft_cuda_tile *tile, const char *name);
/* Adds the parameter y, behind the operands. */
void weft_cuda__add_result(weft_cuda_tiled *t);
/* The depth of a part, a parameter; "0": there is one part. */
const char *weft_cuda__part_text(const weft_cuda_tiled *t);
/* Launches the kernel and, if the depth is split, emits the kernel that adds the partial sums.
 * `bias`: operand 2 has one element for each coordinate along `axis`, which is added too. Other
 * parameters as in weft_cuda__sum_epilogue. */
WEFT_MUST_USE weft_err weft_cuda__end_tiled(const weft_cuda_tiled *t, int32_t axis, bool bias,
                                            float alpha, float beta, uint32_t addend);
/* What a library can do of the epilogue: a sum with an operand of the result's shape, then an
 * activation. */
typedef struct weft_cuda_tail {
    uint32_t residual; /* the operand; UINT32_MAX: none */
    uint8_t act;       /* weft_gemm_act */
    bool is_all;       /* nothing else is left to do */
} weft_cuda_tail;

/* `adds`: the library can add an operand. */
WEFT_MUST_USE weft_err weft_cuda__read_tail(weft_cuda *cu, bool adds, weft_cuda_tail *out);
/* The template arguments BM to TF32 as text: "128, 128, 2, 4, 3, false". */
const char *weft_cuda__tile_text(weft_cuda *cu, const weft_cuda_tile *t);

#endif
