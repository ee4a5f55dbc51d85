/* softmax(scale q k^T + mask) v of one head for the rows of a block, without the scores in memory
 * (FlashAttention-2, arXiv 2307.08691). Keys are processed tile by tile. Each row keeps its largest
 * score m and the sum l of exp(score - m) so far; its partial result is rescaled when m grows.
 *
 *   attention_mma   f16, bf16: 16 rows a warp, scores and result in fragments
 *   attention_fma   f32, and what tensor cores lack: 16 threads share a group of rows
 *
 * Rows of q, k, v and y have a stride, so that heads and parts of a wider matrix are ranges of its
 * columns. mask(score, row, key) returns the masked score. A row becomes NaN if all of its scores are
 * -infinity or one of them is NaN, as in the reference; with no keys at all the result is zero. */
#ifndef WEFT_ATTENTION_CUH
#define WEFT_ATTENTION_CUH

#include "gemm.cuh"

struct no_mask {
    __device__ f32 operator()(f32 score, int, int) const
    {
        return score;
    }
};

/* Adds element (row, key) of the head's mask; strides are 0 where the mask is broadcast. */
template <class T> struct added_mask {
    const T *at;
    size_t row_step, key_step;

    __device__ f32 operator()(f32 score, int row, int key) const
    {
        return score + convert<f32>(at[row * row_step + key * key_step]);
    }
};

/* Replaces the score by `fill` where the mask is false. */
struct bool_mask {
    const bool *at;
    size_t row_step, key_step;
    f32 fill;

    __device__ f32 operator()(f32 score, int row, int key) const
    {
        return at[row * row_step + key * key_step] ? score : fill;
    }
};

/* The matrices of one head. */
template <class T> struct attention_head {
    const T *q, *k, *v;
    T *y;
    size_t q_step, k_step, v_step, y_step; /* strides of rows */
    int rows, keys;
    f32 scale;
};

/* The rows, head and batch of a block; the block index advances along rows first. */
struct attention_place {
    int row, head;
    size_t batch;

    __device__ attention_place(int rows, int heads, int block_rows)
    {
        u32 down = (u32)((rows + block_rows - 1) / block_rows), other = blockIdx.x / down;
        row = (int)(blockIdx.x % down) * block_rows;
        head = (int)(other % (u32)heads);
        batch = other / (u32)heads;
    }
};

/* exp(x - top). If top is -infinity, so is x, and the weight is 0. */
__device__ inline f32 weight_of(f32 x, f32 top)
{
    return expf(x - (top == -infinity() ? 0.0f : top));
}

/* -- Tensor cores ----------------------------------------------------------------------------- */

/* The description of a tile of shared memory for load_fragment. */
template <bool K, int LINES, int WIDTH> struct tile_kind {
    static const bool ALONG_K = K;
    typedef half_tile<LINES, WIDTH> tile;
};

/* HEAD columns; tiles are WIDTH wide (16, 32 or a multiple of 64) and have KEYS keys. */
template <class T, int HEAD, int WIDTH, int WARPS, int KEYS, class Mask>
__device__ inline void attention_mma(const attention_head<T> &h, int row0, const Mask &mask)
{
    const int ROWS = 16 * WARPS, THREADS = 32 * WARPS, USED = (HEAD + 15) / 16 * 2;
    const int TK = KEYS / 8, TD = USED; /* fragments of 8 columns: of scores, of the result */
    typedef tile_kind<true, ROWS, WIDTH> q_tile;
    typedef tile_kind<true, KEYS, WIDTH> k_tile;
    typedef tile_kind<false, KEYS, WIDTH> v_tile;
    __shared__ __align__(16) T sq[ROWS * WIDTH], sk[KEYS * WIDTH], sv[KEYS * WIDTH];
    bool wide_q = is_aligned<T, 8>(h.q) && h.q_step % 8 == 0;
    bool wide_k = is_aligned<T, 8>(h.k) && h.k_step % 8 == 0;
    bool wide_v = is_aligned<T, 8>(h.v) && h.v_step % 8 == 0;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = row0 + warp * 16 + lane / 4; /* and row + 8 */
    f32 result[TD][4] = {}, top[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};

    copy_tile<T, ROWS, WIDTH, USED, THREADS>(sq, h.q, h.q_step, row0, 0, h.rows, HEAD, wide_q);
    copy_tile<T, KEYS, WIDTH, USED, THREADS>(sk, h.k, h.k_step, 0, 0, h.keys, HEAD, wide_k);
    copy_commit();
    for (int key0 = 0; key0 < h.keys; key0 += KEYS) {
        copy_tile<T, KEYS, WIDTH, USED, THREADS>(sv, h.v, h.v_step, key0, 0, h.keys, HEAD, wide_v);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        f32 score[TK][4] = {};
#pragma unroll
        for (int d = 0; d < TD / 2; d++) {
            u32 fq[4];
            load_fragment<q_tile, true>(fq, sq, warp * 16, d * 16);
#pragma unroll
            for (int j = 0; j < TK / 2; j++) {
                u32 fk[4];
                load_fragment<k_tile, false>(fk, sk, j * 16, d * 16);
                u32 lo[2] = {fk[0], fk[1]}, hi[2] = {fk[2], fk[3]};
                mma(score[2 * j], fq, lo, T());
                mma(score[2 * j + 1], fq, hi, T());
            }
        }
        __syncthreads(); /* all warps have read the keys */
        if (key0 + KEYS < h.keys)
            copy_tile<T, KEYS, WIDTH, USED, THREADS>(sk, h.k, h.k_step, key0 + KEYS, 0, h.keys, HEAD,
                                                     wide_k);
        copy_commit();

        f32 next[2] = {top[0], top[1]};
#pragma unroll
        for (int j = 0; j < TK; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = key0 + 8 * j + lane % 4 * 2 + i % 2, r = row + i / 2 * 8;
                f32 s = -infinity();
                if (key < h.keys && r < h.rows)
                    s = mask(score[j][i] * h.scale, r, key);
                score[j][i] = s;
                next[i / 2] = op_max::of(next[i / 2], s);
            }
        f32 part[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2; i++) { /* four threads share a row */
            next[i] = op_max::of(next[i], __shfl_xor_sync(WARP_ALL, next[i], 1));
            next[i] = op_max::of(next[i], __shfl_xor_sync(WARP_ALL, next[i], 2));
        }
#pragma unroll
        for (int j = 0; j < TK; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                part[i / 2] += score[j][i] = weight_of(score[j][i], next[i / 2]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            f32 keep = weight_of(top[i], next[i]);
            part[i] += __shfl_xor_sync(WARP_ALL, part[i], 1);
            part[i] += __shfl_xor_sync(WARP_ALL, part[i], 2);
            sum[i] = sum[i] * keep + part[i];
            top[i] = next[i];
#pragma unroll
            for (int d = 0; d < TD; d++) {
                result[d][2 * i] *= keep;
                result[d][2 * i + 1] *= keep;
            }
        }

        copy_wait<1>();
        __syncthreads(); /* the values are in shared memory */
#pragma unroll
        for (int j = 0; j < TK / 2; j++) {
            u32 fp[4] = {pair_of<T>(score[2 * j][0], score[2 * j][1]),
                         pair_of<T>(score[2 * j][2], score[2 * j][3]),
                         pair_of<T>(score[2 * j + 1][0], score[2 * j + 1][1]),
                         pair_of<T>(score[2 * j + 1][2], score[2 * j + 1][3])};
#pragma unroll
            for (int d = 0; d < TD / 2; d++) {
                u32 fv[4];
                load_fragment<v_tile, false>(fv, sv, d * 16, j * 16);
                u32 lo[2] = {fv[0], fv[1]}, hi[2] = {fv[2], fv[3]};
                mma(result[2 * d], fp, lo, T());
                mma(result[2 * d + 1], fp, hi, T());
            }
        }
        __syncthreads(); /* all have read the values */
    }
    copy_wait<0>();
#pragma unroll
    for (int d = 0; d < TD; d++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = row + i / 2 * 8, col = 8 * d + lane % 4 * 2 + i % 2;
            f32 y = h.keys > 0 ? result[d][i] / sum[i / 2] : 0.0f;
            if (r < h.rows && col < HEAD)
                h.y[r * h.y_step + col] = convert<T>(y);
        }
}

/* -- Plain arithmetic --------------------------------------------------------------------------- */

/* Loads an f32 tile [LINES][WIDTH + 4] from row `first` of a matrix of HEAD columns; zero outside. */
template <int HEAD, int WIDTH, int LINES, int THREADS, class T>
__device__ inline void read_tile(f32 *to, const T *x, size_t step, int first, int rows)
{
    const int FOURS = WIDTH / 4;
    for (int id = threadIdx.x; id < LINES * FOURS; id += THREADS) {
        int line = id / FOURS, col = id % FOURS * 4;
        f32 v[4] = {0, 0, 0, 0};
        if (first + line < rows && col < HEAD)
            load_pack(v, x, (size_t)(first + line) * step + col, HEAD - col);
        store_pack(to, line * (WIDTH + 4) + col, v, 4);
    }
}

/* 16 threads share ROWS / (THREADS / 16) of the ROWS rows. Each thread computes KEYS / 16 columns of
 * the scores and four of every 64 columns of the result. WIDTH: a multiple of 8. */
template <class T, int HEAD, int WIDTH, int THREADS, int ROWS, int KEYS, class Mask>
__device__ inline void attention_fma(const attention_head<T> &h, int row0, const Mask &mask)
{
    const int R = ROWS * 16 / THREADS, C = KEYS / 16, D = (HEAD + 63) / 64, LD = WIDTH + 4;
    const int LP = KEYS + 4;
    __shared__ __align__(16) f32 sq[ROWS * LD], sk[KEYS * LD], sp[ROWS * LP];
    int tx = threadIdx.x % 16, first = threadIdx.x / 16 * R;
    f32 result[R][D][4] = {}, top[R], sum[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        top[i] = -infinity();
        sum[i] = 0;
    }

    read_tile<HEAD, WIDTH, ROWS, THREADS>(sq, h.q, h.q_step, row0, h.rows);
    for (int key0 = 0; key0 < h.keys; key0 += KEYS) {
        read_tile<HEAD, WIDTH, KEYS, THREADS>(sk, h.k, h.k_step, key0, h.keys);
        __syncthreads();
        f32 score[R][C] = {};
        for (int d = 0; d < HEAD; d += 4) {
            pack<f32, 4> q[R], k[C];
#pragma unroll
            for (int i = 0; i < R; i++)
                q[i] = *(pack<f32, 4> *)&sq[(first + i) * LD + d];
#pragma unroll
            for (int j = 0; j < C; j++)
                k[j] = *(pack<f32, 4> *)&sk[(tx + 16 * j) * LD + d];
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < C; j++)
#pragma unroll
                    for (int n = 0; n < 4; n++)
                        score[i][j] += q[i].at[n] * k[j].at[n];
        }
        __syncthreads(); /* all threads have read the keys, which the values replace */
        read_tile<HEAD, WIDTH, KEYS, THREADS>(sk, h.v, h.v_step, key0, h.keys);
#pragma unroll
        for (int i = 0; i < R; i++) {
            int row = row0 + first + i;
            f32 next = top[i], part = 0;
#pragma unroll
            for (int j = 0; j < C; j++) {
                int key = key0 + tx + 16 * j;
                f32 s = -infinity();
                if (key < h.keys && row < h.rows)
                    s = mask(score[i][j] * h.scale, row, key);
                score[i][j] = s;
                next = op_max::of(next, s);
            }
#pragma unroll
            for (int lane = 8; lane > 0; lane >>= 1)
                next = op_max::of(next, __shfl_xor_sync(WARP_ALL, next, lane));
#pragma unroll
            for (int j = 0; j < C; j++) {
                f32 w = weight_of(score[i][j], next);
                sp[(first + i) * LP + tx + 16 * j] = w;
                part += w;
            }
#pragma unroll
            for (int lane = 8; lane > 0; lane >>= 1)
                part += __shfl_xor_sync(WARP_ALL, part, lane);
            f32 keep = weight_of(top[i], next);
            sum[i] = sum[i] * keep + part;
            top[i] = next;
#pragma unroll
            for (int d = 0; d < D; d++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    result[i][d][n] *= keep;
        }
        __syncthreads(); /* values and weights are in shared memory */
        for (int key = 0; key < KEYS; key += 4) {
            pack<f32, 4> w[R];
#pragma unroll
            for (int i = 0; i < R; i++)
                w[i] = *(pack<f32, 4> *)&sp[(first + i) * LP + key];
#pragma unroll
            for (int d = 0; d < D; d++) {
                if (d * 64 + tx * 4 >= WIDTH)
                    break;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    pack<f32, 4> v = *(pack<f32, 4> *)&sk[(key + j) * LD + d * 64 + tx * 4];
#pragma unroll
                    for (int i = 0; i < R; i++)
#pragma unroll
                        for (int n = 0; n < 4; n++)
                            result[i][d][n] += w[i].at[j] * v.at[n];
                }
            }
        }
        __syncthreads(); /* all have read the values */
    }
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int d = 0; d < D; d++) {
            int row = row0 + first + i, col = d * 64 + tx * 4;
            f32 y[4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                y[n] = h.keys > 0 ? result[i][d][n] / sum[i] : 0.0f;
            if (row < h.rows && col < HEAD)
                store_pack(h.y, row * h.y_step + col, y, HEAD - col);
        }
}

/* The rows from row0 on by a block of 32 WARPS threads: 16 WARPS rows for 16-bit elements, ROWS for
 * f32. */
template <class T, int HEAD, int WIDTH, int WARPS, int ROWS, int KEYS, class Mask>
__device__ inline void attention(const attention_head<T> &h, int row0, const Mask &mask)
{
    /* Fewer keys if f32 tiles would exceed 48 KiB. */
    const int LD = WIDTH + 4, ROOM = (48 << 10) / (int)sizeof(f32) - ROWS * LD;
    const int FEWER = KEYS * LD + ROWS * (KEYS + 4) <= ROOM           ? KEYS
                      : KEYS > 32 && 32 * LD + ROWS * (32 + 4) <= ROOM ? 32
                                                                      : 16;
    if constexpr (has_mma<T>::yes)
        attention_mma<T, HEAD, WIDTH, WARPS, KEYS>(h, row0, mask);
    else
        attention_fma<T, HEAD, WIDTH, 32 * WARPS, ROWS, FEWER>(h, row0, mask);
}

#endif
