/* A GEMM of the rows of several models by one weight, plus each model's own low-rank delta:
 *
 *     y[rows of a segment] = post(x w + (x u) v)        u [k, rank], v [rank, n] of the segment
 *
 * A block computes a tile: rows of one segment by columns of the result. In the main loop each tile of
 * x in shared memory is multiplied by w and by u, so that x u costs `rank` more columns. Then x u is
 * stored as f32 in the shared memory of the tiles, multiplied by v in f32 and added to x w. The result
 * is linear in x: if the depth is split, each part adds the low-rank product of its part of x.
 *
 * One kernel for the adapters of many requests: Chen et al., "Punica", 2023. */
#ifndef WEFT_LOW_RANK_CUH
#define WEFT_LOW_RANK_CUH
#include "gemm.cuh"

/* The tile and the factors of a block. The block index advances along tiles of rows first, segment by
 * segment, then along columns, so that concurrent blocks share columns of w. */
template <class T> struct low_rank_place {
    int col, row = 0, end = 0, rank = 0; /* first row of the tile; end of the segment */
    const T *u = 0, *v = 0;
    int tile; /* index among the tiles of the remaining segments; negative: found */

    __device__ low_rank_place(int down, int bn)
        : col((int)(blockIdx.x / (u32)down) * bn), tile((int)(blockIdx.x % (u32)down))
    {
    }

    /* Visits the next segment, rows [first, last). */
    __device__ void segment(int bm, int first, int last, const T *own_u, const T *own_v,
                            int own_rank)
    {
        int tiles = (last - first + bm - 1) / bm;
        if (tile >= 0 && tile < tiles) {
            row = first + tile * bm;
            end = last;
            u = own_u;
            v = own_v;
            rank = own_rank;
        }
        tile -= tiles;
    }
};

/* Stores x u as tiles [depth][LD]. Columns beyond the rank are stored as zero, whatever was computed
 * there (infinity times zero is NaN). */
template <int LD> struct padded_out {
    f32 *to;
    int rank;

    __device__ void pair(int row, int col, f32 lo, f32 hi) const
    {
        to[col * LD + row] = col < rank ? lo : 0;
        to[(col + 1) * LD + row] = col + 1 < rank ? hi : 0;
    }
};

/* x: rows of k elements; w: k x n, or n x k if TRANS_B. PADDED: the padded rank, 16, 32 or 64. each: the
 * depth of a part if the depth is split, else 0. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32, bool TRANS_B,
          int PADDED, class Y, class Post>
__device__ inline void low_rank(const T *x, const T *w, Y *y, size_t first,
                                const low_rank_place<T> &at, int n, int k, int each,
                                const Post &post)
{
    const int THREADS = WARPS_M * WARPS_N * 32, LA = BM + 4, LB = BN + 4;
    typedef typename sums_of<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32>::type Sums;
    typedef typename sums_of<T, BM, PADDED, WARPS_M * WARPS_N, 1, STAGES, TF32>::type Thin;
    typedef typename Sums::cell cell;
    const int LEFT = Sums::STAGES * Sums::LEFT, RIGHT = Sums::STAGES * Sums::RIGHT;
    const int TILES = (LEFT + RIGHT + Sums::STAGES * Thin::RIGHT) * sizeof(cell);
    const int AFTER = (PADDED * LA + FMA_DEPTH * LB) * sizeof(f32);
    __shared__ __align__(16) unsigned char memory[TILES > AFTER ? TILES : AFTER];
    cell *tile = (cell *)memory;
    f32 *padded = (f32 *)memory, *slab = padded + PADDED * LA;

    const depth_part part(k, each);
    matrix<T, true, BM, THREADS> left(x, k, at.row, at.end, part.end);
    matrix<T, TRANS_B, BN, THREADS> right(w, TRANS_B ? k : n, at.col, n, part.end);
    matrix<T, false, PADDED, THREADS> down(at.u, at.rank, 0, at.rank, part.end);
    matrix<T, false, BN, THREADS> up(at.v, n, at.col, n, at.rank);
    columns<decltype(right), Sums> wide(right, tile + LEFT);
    columns<decltype(down), Thin> narrow(down, tile + LEFT + RIGHT);
    multiply<Sums>(left, tile, part.begin, part.end, wide, narrow);
    __syncthreads(); /* all threads have read the tiles */
    narrow.sums.put(padded_out<LA>{padded, at.rank});
    for (int r = 0; r < at.rank; r += FMA_DEPTH) {
        up.fetch_f32(r);
        __syncthreads(); /* x u is complete, and all threads have read the previous tile */
        up.template store_f32<LB>(slab);
        __syncthreads();
        wide.sums.add(padded + r * LA, slab);
    }
    wide.sums.put(gemm_out<Y, Post>(y, post, first, at.row, at.col, at.end, n));
}

#endif
