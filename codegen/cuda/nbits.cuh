/* matmul_nbits (ops/nbits.h): weights of 2, 4 or 8 bits stay packed in memory and become f32 in
 * registers. Element k of row n is (q - zero) * scale of its block k / block; low bits first. */
#ifndef WEFT_NBITS_CUH
#define WEFT_NBITS_CUH

#include "gemm.cuh"

/* The packed weights: rows of `blocks` blocks, each of `block` elements in whole words; `zero` is NULL if
 * all zero points are 2^(BITS - 1). */
template <int BITS> struct packed_weights {
    const u8 *b;
    const f32 *scale, *zero;
    int block, blocks;

    __device__ const u8 *row(int n) const
    {
        return b + (size_t)n * blocks * (block * BITS / 8);
    }

    /* Scale and zero point of the block with element k of row n. */
    __device__ void params(int n, int k, f32 &s, f32 &z) const
    {
        size_t at = (size_t)n * blocks + k / block;
        s = scale[at];
        z = zero ? zero[at] : (f32)(1 << (BITS - 1));
    }
};

/* Element i of the elements in `word`. */
template <int BITS> __device__ inline f32 unpacked(u32 word, int i)
{
    return (f32)(word >> (i * BITS) & ((1u << BITS) - 1));
}

/* The four bytes at p. */
__device__ inline u32 load_word(const u8 *p, bool whole)
{
    if (whole)
        return *(const u32 *)p;
    return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

/* One column for up to ROWS rows x[rows][k] by a warp, whose threads take a word of the weights each.
 * Every thread gets all sums. */
template <int ROWS, int BITS>
__device__ inline void multiply_packed(f32 (&sum)[ROWS], const f32 *x, const packed_weights<BITS> &w,
                                       int n, int rows, int k)
{
    const int EACH = 32 / BITS;
    const u8 *b = w.row(n);
    const bool whole = is_aligned<u8, 4>(b);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = 0;
    for (int c = threadIdx.x % 32 * EACH; c < k; c += 32 * EACH) {
        f32 s, z;
        w.params(n, c, s, z);
        const u32 word = load_word(b + c * BITS / 8, whole);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const f32 y = (unpacked<BITS>(word, i) - z) * s;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (r < rows && c + i < k)
                    sum[r] += x[(size_t)r * k + c + i] * y;
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = warp_reduce<op_sum>(sum[r]);
}

/* Rows of packed weights as a source (gemm.cuh) of f32. */
template <int BITS, int ROWS, int THREADS> struct packed_rows {
    static const bool ALONG_K = true;
    static const int TILE = ROWS * FMA_DEPTH / 4, FOURS = (TILE + THREADS - 1) / THREADS;
    static const int PER_LINE = FMA_DEPTH / 4;

    const packed_weights<BITS> &w;
    int from, rows, depth;
    f32 kept[FOURS][4];

    __device__ packed_rows(const packed_weights<BITS> &w, int from, int rows, int depth)
        : w(w), from(from), rows(rows), depth(depth)
    {
    }

    __device__ void fetch_f32(int k0)
    {
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            int id = i * THREADS + threadIdx.x;
            if (TILE % THREADS && id >= TILE)
                break;
            int n = id / PER_LINE + from, k = id % PER_LINE * 4 + k0;
            kept[i][0] = kept[i][1] = kept[i][2] = kept[i][3] = 0;
            if (n >= rows || k >= depth)
                continue;
            f32 s, z;
            w.params(n, k, s, z);
            const u8 *b = w.row(n) + k * BITS / 8;
            u32 word = b[0];
#pragma unroll
            for (int j = 1; j < BITS / 2; j++)
                word |= (u32)b[j] << (8 * j);
#pragma unroll
            for (int j = 0; j < 4; j++)
                kept[i][j] = k + j < depth ? (unpacked<BITS>(word, j) - z) * s : 0;
        }
    }

    template <int LD> __device__ void store_f32(f32 *to)
    {
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            int id = i * THREADS + threadIdx.x, line = id / PER_LINE, c = id % PER_LINE * 4;
            if (TILE % THREADS && id >= TILE)
                break;
#pragma unroll
            for (int j = 0; j < 4; j++)
                to[(c + j) * LD + line] = kept[i][j];
        }
    }
};

/* y = x w^T in tiles; parameters as of gemm(). */
template <int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32, int BITS>
__device__ inline void gemm_packed(const f32 *x, const packed_weights<BITS> &w, f32 *y, size_t first,
                                   const gemm_place &place, int m, int n, int k, int each)
{
    const int THREADS = WARPS_M * WARPS_N * 32;
    const depth_part part(k, each);
    matrix<f32, true, BM, THREADS> left(x, k, place.row, m, part.end);
    packed_rows<BITS, BN, THREADS> right(w, place.col, n, part.end);
    gemm_out<f32, no_post> out(y, no_post{}, first, place.row, place.col, m, n);
    product<f32, BM, BN, WARPS_M, WARPS_N, STAGES, TF32>(left, right, part.begin, part.end, out);
}

#endif
