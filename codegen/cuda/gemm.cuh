/* Matrix products of a block of threads: d[BM][BN] = a b^T of a tile, through shared memory, for
 * sources of any kind. Matrices of memory are here, windows of images in conv.cuh.
 *
 *   product_mma   f16, bf16: fragments of shared tiles on tensor cores, copies several tiles ahead
 *   product_tf32  f32 where less precise factors will do: the same, through the tiles of product_fma
 *   product_fma   f32, and what tensor cores lack: a little matrix of each thread, in registers
 *
 * All sum in f32. A source is a tile's rows (of the result, or its columns) by depth. It has
 *
 *   ALONG_K         tiles lie in memory as [rows][depth], else as [depth][rows]
 *   fetch(tile, k0) starts to bring the depth from k0 on into a tile of shared memory
 *   store(tile)     ends it: what fetch kept in registers
 *
 * Between fetch and store is the product of an earlier tile. What lies outside the matrix is zero in
 * both sources, so that no NaN or infinity comes from there.
 *
 * The result goes, element by element or in pairs of neighbours, to out(row, col, ...). */
#ifndef WEFT_GEMM_CUH
#define WEFT_GEMM_CUH

#include "mma.cuh"

/* -- Tiles of shared memory ------------------------------------------------------------------- */

/* Of 16-bit elements: LINES lines of WIDTH. Groups of eight elements (16 bytes) of a line change
 * places, so that the eight lines that load_matrices reads at once lie in different banks. */
template <int LINES, int WIDTH> struct half_tile {
    static const int GROUPS = WIDTH / 8;
    static const int SHARE = GROUPS < 8 ? 8 / GROUPS : 1; /* lines in 128 bytes */
    static const int TURNS = GROUPS < 8 ? GROUPS : 8;

    /* Offset of a group in elements. */
    __device__ static int at(int line, int group)
    {
        return line * WIDTH + (group ^ (line / SHARE % TURNS)) * 8;
    }
};

/* Copies the tile from (line0, col0) of a matrix whose lines are `ld` apart; zero from line `lines`
 * and column `width` on. `wide`: groups of eight are aligned. Groups from USED on are left out. */
template <class T, int LINES, int WIDTH, int USED, int THREADS>
__device__ inline void copy_tile(T *to, const T *x, size_t ld, int line0, int col0, int lines,
                                 int width, bool wide)
{
    const int TOTAL = LINES * USED;
#pragma unroll 4
    for (int i = 0; i < (TOTAL + THREADS - 1) / THREADS; i++) {
        int id = i * THREADS + threadIdx.x, line = id / USED, group = id % USED;
        if (TOTAL % THREADS && id >= TOTAL)
            break;
        int l = line0 + line, c = col0 + group * 8, n = l < lines ? width - c : 0;
        n = n < 0 ? 0 : n < 8 ? n : 8;
        const T *src = x + (n ? (size_t)l * ld + c : 0);
        T *dst = to + half_tile<LINES, WIDTH>::at(line, group);
        if (wide) {
            copy_async(dst, src, 2 * n);
        } else {
            pack<T, 8> p;
#pragma unroll
            for (int j = 0; j < 8; j++)
                p.at[j].bits = j < n ? src[j].bits : 0;
            *(pack<T, 8> *)dst = p;
        }
    }
}

/* Depth of a tile of half_tile, of product_fma. */
#define MMA_DEPTH 32
#define FMA_DEPTH 16

/* -- Matrices --------------------------------------------------------------------------------- */

/* Rows `from` .. `rows` - 1, depth 0 .. depth - 1; element (r, k) at x[r * ld + k] (K) or
 * x[k * ld + r]. */
template <class T, bool K, int ROWS, int THREADS> struct matrix {
    static const bool ALONG_K = K;
    static const int LINES = K ? ROWS : MMA_DEPTH, WIDTH = K ? MMA_DEPTH : ROWS;
    typedef half_tile<LINES, WIDTH> tile;
    /* Elements of a thread in product_fma, in fours along memory. */
    static const int FOURS = ROWS * FMA_DEPTH / 4 / THREADS;

    const T *x;
    size_t ld;
    int from, rows, depth;
    bool wide; /* groups of eight are aligned */
    f32 kept[FOURS > 0 ? FOURS : 1][4];

    __device__ matrix(const T *x, size_t ld, int from, int rows, int depth)
        : x(x), ld(ld), from(from), rows(rows), depth(depth),
          wide(is_aligned<T, 8>(x) && ld % 8 == 0)
    {
    }

    /* Elements of a group of `n` at (line, col of the line) that lie in the matrix. */
    __device__ int inside(int line, int col, int n) const
    {
        int lines = K ? rows : depth, width = K ? depth : rows;
        int left = line < lines ? width - col : 0;
        return left < 0 ? 0 : left < n ? left : n;
    }

    __device__ void fetch(T *to, int k0)
    {
        copy_tile<T, LINES, WIDTH, tile::GROUPS, THREADS>(to, x, ld, K ? from : k0, K ? k0 : from,
                                                          K ? rows : depth, K ? depth : rows, wide);
    }

    __device__ void store(T *) {}

    /* The same for product_fma and product_tf32: tiles are [FMA_DEPTH][LD] of f32. */
    __device__ void fetch_f32(int k0)
    {
        const int per_line = (K ? FMA_DEPTH : ROWS) / 4;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            int id = i * THREADS + threadIdx.x;
            int l = id / per_line + (K ? from : k0), c = id % per_line * 4 + (K ? k0 : from);
            int n = inside(l, c, 4);
            kept[i][0] = kept[i][1] = kept[i][2] = kept[i][3] = 0;
            if (n > 0)
                load_pack(kept[i], x, (size_t)l * ld + c, n);
        }
    }

    template <int LD> __device__ void store_f32(f32 *to)
    {
        const int per_line = (K ? FMA_DEPTH : ROWS) / 4;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            int id = i * THREADS + threadIdx.x, line = id / per_line, c = id % per_line * 4;
            if (K) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    to[(c + j) * LD + line] = kept[i][j];
            } else {
                store_pack(to, line * LD + c, kept[i], 4);
            }
        }
    }
};

/* -- Tensor cores ----------------------------------------------------------------------------- */

/* Fragments of 16 rows and 16 of depth (one of the left factor, or two of the right one) from row
 * `row` and depth `k` of a tile. */
template <class Source, bool LEFT, class T>
__device__ inline void load_fragment(u32 (&r)[4], const T *tile, int row, int k)
{
    int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    /* The left factor has its second matrix 8 rows on, the right one 8 of depth on. */
    int rows_on = (LEFT ? matrix % 2 : matrix / 2) * 8, depth_on = (LEFT ? matrix / 2 : matrix % 2) * 8;
    if (Source::ALONG_K)
        load_matrices<false>(
            r, tile + Source::tile::at(row + rows_on + line, (k + depth_on) / 8));
    else
        load_matrices<true>(r, tile + Source::tile::at(k + depth_on + line, (row + rows_on) / 8));
}

/* WARPS_M x WARPS_N warps, STAGES tiles at once in shared memory. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, class A, class B, class Out>
__device__ inline void product_mma(A &a, B &b, int begin, int depth, const Out &out)
{
    const int TM = BM / WARPS_M / 16, TN = BN / WARPS_N / 8;
    __shared__ __align__(16) T sa[STAGES][BM * MMA_DEPTH], sb[STAGES][BN * MMA_DEPTH];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row0 = warp / WARPS_N * (BM / WARPS_M), col0 = warp % WARPS_N * (BN / WARPS_N);
    f32 acc[TM][TN][4] = {};

#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (begin + s * MMA_DEPTH < depth) {
            a.fetch(sa[s], begin + s * MMA_DEPTH);
            b.fetch(sb[s], begin + s * MMA_DEPTH);
            a.store(sa[s]);
            b.store(sb[s]);
        }
        copy_commit();
    }
    int now = 0;
    for (int k0 = begin; k0 < depth; k0 += MMA_DEPTH) {
        int ahead = k0 + (STAGES - 1) * MMA_DEPTH, next = now == 0 ? STAGES - 1 : now - 1;
        copy_wait<STAGES - 2>();
        __syncthreads(); /* this tile has come, and the one before it has been read by all */
        if (ahead < depth) {
            a.fetch(sa[next], ahead);
            b.fetch(sb[next], ahead);
        }
        copy_commit();
#pragma unroll
        for (int k = 0; k < MMA_DEPTH; k += 16) {
            u32 fa[TM][4], fb[TN / 2][4];
#pragma unroll
            for (int i = 0; i < TM; i++)
                load_fragment<A, true>(fa[i], sa[now], row0 + 16 * i, k);
#pragma unroll
            for (int j = 0; j < TN / 2; j++)
                load_fragment<B, false>(fb[j], sb[now], col0 + 16 * j, k);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) {
                    u32 pair[2] = {fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]};
                    mma(acc[i][j], fa[i], pair, T());
                }
        }
        if (ahead < depth) {
            a.store(sa[next]);
            b.store(sb[next]);
        }
        now = now == STAGES - 1 ? 0 : now + 1;
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            int row = row0 + 16 * i + lane / 4, col = col0 + 8 * j + lane % 4 * 2;
            out.pair(row, col, acc[i][j][0], acc[i][j][1]);
            out.pair(row + 8, col, acc[i][j][2], acc[i][j][3]);
        }
}

/* -- Plain arithmetic --------------------------------------------------------------------------- */

/* Each thread has TM x TN elements, in groups of four rows and four columns. */
template <int BM, int BN, int THREADS, class A, class B, class Out>
__device__ inline void product_fma(A &a, B &b, int begin, int depth, const Out &out)
{
    const int EACH = BM * BN / THREADS, TM = EACH >= 32 ? 8 : 4, TN = EACH / TM;
    const int ACROSS = BN / TN, LA = BM + 4, LB = BN + 4;
    __shared__ __align__(16) f32 sa[2][FMA_DEPTH * LA], sb[2][FMA_DEPTH * LB];
    int ty = threadIdx.x / ACROSS, tx = threadIdx.x % ACROSS;
    f32 acc[TM][TN] = {};

    if (begin < depth) {
        a.fetch_f32(begin);
        b.fetch_f32(begin);
        a.template store_f32<LA>(sa[0]);
        b.template store_f32<LB>(sb[0]);
    }
    int now = 0;
    for (int k0 = begin; k0 < depth; k0 += FMA_DEPTH, now ^= 1) {
        bool more = k0 + FMA_DEPTH < depth;
        __syncthreads();
        if (more) {
            a.fetch_f32(k0 + FMA_DEPTH);
            b.fetch_f32(k0 + FMA_DEPTH);
        }
#pragma unroll
        for (int k = 0; k < FMA_DEPTH; k++) {
            f32 x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4) {
                pack<f32, 4> p = *(pack<f32, 4> *)&sa[now][k * LA + i * (BM / TM) + ty * 4];
#pragma unroll
                for (int n = 0; n < 4; n++)
                    x[i + n] = p.at[n];
            }
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                pack<f32, 4> p = *(pack<f32, 4> *)&sb[now][k * LB + j * ACROSS + tx * 4];
#pragma unroll
                for (int n = 0; n < 4; n++)
                    y[j + n] = p.at[n];
            }
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    acc[i][j] += x[i] * y[j];
        }
        if (more) {
            a.template store_f32<LA>(sa[now ^ 1]);
            b.template store_f32<LB>(sb[now ^ 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j += 2)
            out.pair(i / 4 * 4 * (BM / TM) + ty * 4 + i % 4, j / 4 * 4 * ACROSS + tx * 4 + j % 4,
                     acc[i][j], acc[i][j + 1]);
}

/* -- TF32 --------------------------------------------------------------------------------------- */

/* Lines of tiles are eight elements longer than their rows: the four lines and eight rows that a
 * fragment is read from lie in different banks. */
template <int BM, int BN, int WARPS_M, int WARPS_N, class A, class B, class Out>
__device__ inline void product_tf32(A &a, B &b, int begin, int depth, const Out &out)
{
    const int TM = BM / WARPS_M / 16, TN = BN / WARPS_N / 8, LA = BM + 8, LB = BN + 8;
    __shared__ __align__(16) f32 sa[2][FMA_DEPTH * LA], sb[2][FMA_DEPTH * LB];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int row0 = warp / WARPS_N * (BM / WARPS_M), col0 = warp % WARPS_N * (BN / WARPS_N);
    f32 acc[TM][TN][4] = {};

    if (begin < depth) {
        a.fetch_f32(begin);
        b.fetch_f32(begin);
        a.template store_f32<LA>(sa[0]);
        b.template store_f32<LB>(sb[0]);
    }
    int now = 0;
    for (int k0 = begin; k0 < depth; k0 += FMA_DEPTH, now ^= 1) {
        bool more = k0 + FMA_DEPTH < depth;
        __syncthreads();
        if (more) {
            a.fetch_f32(k0 + FMA_DEPTH);
            b.fetch_f32(k0 + FMA_DEPTH);
        }
#pragma unroll
        for (int k = 0; k < FMA_DEPTH; k += 8) {
            u32 fa[TM][4], fb[TN][2];
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    fa[i][r] = to_tf32(
                        sa[now][(k + t + r / 2 * 4) * LA + row0 + 16 * i + g + r % 2 * 8]);
#pragma unroll
            for (int j = 0; j < TN; j++)
#pragma unroll
                for (int r = 0; r < 2; r++)
                    fb[j][r] = to_tf32(sb[now][(k + t + r * 4) * LB + col0 + 8 * j + g]);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    mma_tf32(acc[i][j], fa[i], fb[j]);
        }
        if (more) {
            a.template store_f32<LA>(sa[now ^ 1]);
            b.template store_f32<LB>(sb[now ^ 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            int row = row0 + 16 * i + g, col = col0 + 8 * j + 2 * t;
            out.pair(row, col, acc[i][j][0], acc[i][j][1]);
            out.pair(row + 8, col, acc[i][j][2], acc[i][j][3]);
        }
}

/* Over depth begin .. depth - 1 (that of the sources), by whichever this device has for T; TF32: f32
 * may be rounded to it. `begin` is a multiple of MMA_DEPTH. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32, class A, class B,
          class Out>
__device__ inline void product(A &a, B &b, int begin, int depth, const Out &out)
{
    if constexpr (has_mma<T>::yes)
        product_mma<T, BM, BN, WARPS_M, WARPS_N, STAGES>(a, b, begin, depth, out);
    else if constexpr (TF32 && has_tf32::yes)
        product_tf32<BM, BN, WARPS_M, WARPS_N>(a, b, begin, depth, out);
    else
        product_fma<BM, BN, WARPS_M * WARPS_N * 32>(a, b, begin, depth, out);
}

/* -- Parts of the depth ------------------------------------------------------------------------- */

/* The depth that blockIdx.y has of `total`: EACH, or all of it (0). */
template <int EACH> struct depth_part {
    int begin, end;

    __device__ depth_part(int total)
    {
        begin = EACH ? (int)blockIdx.y * EACH : 0;
        end = EACH && begin + EACH < total ? begin + EACH : total;
    }
};

/* Sums of parts go to scratch memory as they are... */
struct no_post {
    __device__ f32 operator()(f32 acc, size_t, int) const
    {
        return acc;
    }
};

/* ...and are added here, a thread an element: y[at] = post(sum of part[s][at], at, c), `c` the
 * coordinate of `at` along a dim of `size` with `below` elements behind each. */
template <int PARTS, class T, class Post>
__device__ inline void sum_parts(const f32 *part, T *y, u32 n, u32 below, u32 size, const Post &post)
{
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n)
        return;
    f32 acc = 0;
#pragma unroll
    for (int s = 0; s < PARTS; s++)
        acc += part[(size_t)s * n + at];
    y[at] = convert<T>(post(acc, at, (int)(at / below % size)));
}

/* y = post(y) of n elements in rows of `columns`, four a thread: behind a product of the library's. */
template <class T, class Post>
__device__ inline void finish_rows(T *y, size_t n, u32 columns, const Post &post)
{
    size_t at = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 4;
    if (at >= n)
        return;
    int left = n - at < 4 ? (int)(n - at) : 4;
    u32 c = (u32)(at % columns);
    f32 v[4] = {0, 0, 0, 0};
    load_pack(v, y, at, left);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i < left)
            v[i] = post(v[i], at + i, (int)c);
        c = c + 1 == columns ? 0 : c + 1;
    }
    store_pack(y, at, v, left);
}

/* -- Products of matrices ----------------------------------------------------------------------- */

/* Where a block works: blocks count along the rows of the result first, then its columns, then the
 * batch, so that those that run at once share columns of the right factor. */
struct gemm_place {
    int row, col;
    size_t batch;

    __device__ gemm_place(int m, int n, int bm, int bn)
    {
        u32 down = (u32)((m + bm - 1) / bm), across = (u32)((n + bn - 1) / bn);
        u32 tile = blockIdx.x % (down * across);
        batch = blockIdx.x / (down * across);
        row = (int)(tile % down) * bm;
        col = (int)(tile / down) * bn;
    }
};

/* y[row][col] = post(acc, index in y, col), rows of n elements from `first` on. */
template <class T, class Post> struct gemm_out {
    T *y;
    Post post;
    size_t first;
    int row0, col0, m, n;
    bool even; /* two neighbours from an even column on may be written at once */

    __device__ gemm_out(T *y, const Post &post, size_t first, int row0, int col0, int m, int n)
        : y(y), post(post), first(first), row0(row0), col0(col0), m(m), n(n),
          even(is_aligned<T, 2>(y + first) && n % 2 == 0)
    {
    }

    __device__ void pair(int row, int col, f32 lo, f32 hi) const
    {
        row += row0;
        col += col0;
        if (row >= m || col >= n)
            return;
        size_t at = first + (size_t)row * n + col;
        if (even) {
            pack<T, 2> p;
            p.at[0] = convert<T>(post(lo, at, col));
            p.at[1] = convert<T>(post(hi, at + 1, col + 1));
            *(pack<T, 2> *)(y + at) = p;
            return;
        }
        y[at] = convert<T>(post(lo, at, col));
        if (col + 1 < n)
            y[at + 1] = convert<T>(post(hi, at + 1, col + 1));
    }
};

/* y = post(op(a) op(b)), op(a) m x k and op(b) k x n, of the matrices that the place's batch has. EACH:
 * the depth of a part, if blocks have parts (Y is then f32, and `first` that of the part). */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32, bool TRANS_A,
          bool TRANS_B, int EACH, class Y, class Post>
__device__ inline void gemm(const T *a, size_t lda, const T *b, size_t ldb, Y *y, size_t first,
                            const gemm_place &place, int m, int n, int k, const Post &post)
{
    const int THREADS = WARPS_M * WARPS_N * 32;
    const depth_part<EACH> part(k);
    matrix<T, !TRANS_A, BM, THREADS> left(a, lda, place.row, m, part.end);
    matrix<T, TRANS_B, BN, THREADS> right(b, ldb, place.col, n, part.end);
    gemm_out<Y, Post> out(y, post, first, place.row, place.col, m, n);
    product<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32>(left, right, part.begin, part.end, out);
}

/* One element of the result by each thread, in arithmetic of T: for element types without anything
 * faster. */
template <class T>
__device__ inline void gemm_plain(const T *a, size_t a_m, size_t a_k, const T *b, size_t b_k,
                                  size_t b_n, T *y, size_t first, size_t index, int m, int n, int k)
{
    if (index >= (size_t)m * n)
        return;
    size_t row = index / (size_t)n, col = index % (size_t)n;
    T sum = 0;
    for (int i = 0; i < k; i++)
        sum += a[row * a_m + i * a_k] * b[i * b_k + col * b_n];
    y[first + index] = sum;
}

#endif
