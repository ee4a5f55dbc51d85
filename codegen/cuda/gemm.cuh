/* GEMM of a block of threads: d[BM][BN] = a b^T for a tile of the result, through shared memory, for
 * sources of any kind. Sources that are matrices in memory are in this file, windows of images in
 * conv.cuh. Where sums are held, and the layout of tiles, depend on the accumulator:
 *
 *   half_sums    f16, bf16: fragments of tensor cores; copies run several tiles ahead
 *   tf32_sums    f32 rounded to TF32: fragments of tensor cores
 *   thread_sums  f32, and GPUs without tensor cores for T: a small matrix per thread, in registers
 *
 * All accumulate in f32. A source holds the rows (or columns) of the result's tile by depth. It has
 *
 *   ALONG_K         tiles are stored as [rows][depth], else as [depth][rows]
 *   fetch(tile, k0) begins to load the depth from k0 on into a tile of shared memory
 *   store(tile)     completes the load: stores the elements that fetch kept in registers
 *   fetch_f32(k0), store_f32<LD>(tile)  the same for tiles [FMA_DEPTH][LD] of f32
 *
 * An earlier tile is multiplied between fetch and store. Elements outside of the matrix are zero in
 * both sources, so that they cannot produce NaN or infinity.
 *
 * Results are passed, singly or in pairs of neighbours, to out(row, col, ...). */
#ifndef WEFT_GEMM_CUH
#define WEFT_GEMM_CUH

#include "mma.cuh"

/* -- Tiles of shared memory ------------------------------------------------------------------- */

/* A tile of 16-bit elements: LINES lines of WIDTH. Groups of eight elements (16 bytes) within a line
 * are permuted (XOR swizzle), so that the eight lines that load_matrices reads at once are in
 * different banks. */
template <int LINES, int WIDTH> struct half_tile {
    static const int GROUPS = WIDTH / 8;
    static const int SHARE = GROUPS < 8 ? 8 / GROUPS : 1; /* lines in 128 bytes */
    static const int TURNS = GROUPS < 8 ? GROUPS : 8;

    /* The offset of a group, in elements. */
    __device__ static int at(int line, int group)
    {
        return line * WIDTH + (group ^ (line / SHARE % TURNS)) * 8;
    }
};

/* Copies the tile at (line0, col0) of a matrix with stride `ld`; elements from line `lines` or column
 * `width` on are zero. `wide`: groups of eight are aligned. Groups from USED on are not copied. */
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

/* Depths of tiles: of half_tile, and of f32. */
#define MMA_DEPTH 32
#define FMA_DEPTH 16

/* -- Matrices --------------------------------------------------------------------------------- */

/* A matrix in memory as a source: rows `from` to `rows - 1`, depth 0 to `depth - 1`. Element (r, k) is
 * x[r * ld + k] if K, else x[k * ld + r]. ALIGNED: the caller knows that groups of eight are aligned. */
template <class T, bool K, int ROWS, int THREADS, bool ALIGNED = false> struct matrix {
    static const bool ALONG_K = K;
    static const int LINES = K ? ROWS : MMA_DEPTH, WIDTH = K ? MMA_DEPTH : ROWS;
    typedef half_tile<LINES, WIDTH> tile;
    /* Groups of four contiguous elements: per f32 tile, and per thread. */
    static const int TILE = ROWS * FMA_DEPTH / 4, FOURS = (TILE + THREADS - 1) / THREADS;

    const T *x;
    size_t ld;
    int from, rows, depth;
    bool wide; /* groups of eight are aligned */
    f32 kept[FOURS][4];

    __device__ matrix(const T *x, size_t ld, int from, int rows, int depth)
        : x(x), ld(ld), from(from), rows(rows), depth(depth),
          wide(ALIGNED || (is_aligned<T, 8>(x) && ld % 8 == 0))
    {
    }

    /* The number of elements of a group of `n` at (line, col) that are inside the matrix. */
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

    __device__ void fetch_f32(int k0)
    {
        const int per_line = (K ? FMA_DEPTH : ROWS) / 4;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            int id = i * THREADS + threadIdx.x;
            if (TILE % THREADS && id >= TILE)
                break;
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
            if (TILE % THREADS && id >= TILE)
                break;
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

/* Loads fragments of 16 rows by 16 depth (one of the left factor, or two of the right one) at row
 * `row` and depth `k` of a tile. */
template <class Source, bool LEFT, class T>
__device__ inline void load_fragment(u32 (&r)[4], const T *tile, int row, int k)
{
    int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    /* The second 8 x 8 matrix is 8 rows further for the left factor, 8 depth further for the right. */
    int rows_on = (LEFT ? matrix % 2 : matrix / 2) * 8, depth_on = (LEFT ? matrix / 2 : matrix % 2) * 8;
    if (Source::ALONG_K)
        load_matrices<false>(
            r, tile + Source::tile::at(row + rows_on + line, (k + depth_on) / 8));
    else
        load_matrices<true>(r, tile + Source::tile::at(k + depth_on + line, (row + rows_on) / 8));
}

/* -- Sums in registers ------------------------------------------------------------------------- */

/* d[BM][BN] in fragments of 16 x 8, distributed over WARPS_M x WARPS_N warps. Every accumulator has
 *
 *   put(out)         calls out.pair(row, column, d, d of the next column) for every other column
 *   add(sa, sb)      d += product of f32 tiles [FMA_DEPTH][BM + 4] and [FMA_DEPTH][BN + 4], in f32
 *   advance(sa, sb)  d += product of tiles of `cell` (LEFT and RIGHT cells each), STAGES in flight */
template <int BM, int BN, int WARPS_M, int WARPS_N> struct warp_sums {
    static const int TM = BM / WARPS_M / 16, TN = BN / WARPS_N / 8;
    f32 acc[TM][TN][4] = {};
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int row0 = threadIdx.x / 32 / WARPS_N * (BM / WARPS_M);
    int col0 = threadIdx.x / 32 % WARPS_N * (BN / WARPS_N);

    __device__ void add(const f32 *sa, const f32 *sb)
    {
#pragma unroll 4
        for (int k = 0; k < FMA_DEPTH; k++) {
            const f32 *a = sa + k * (BM + 4) + row0 + g, *b = sb + k * (BN + 4) + col0 + 2 * t;
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
#pragma unroll
                    for (int r = 0; r < 4; r++)
                        acc[i][j][r] += a[16 * i + r / 2 * 8] * b[8 * j + r % 2];
        }
    }

    template <class Out> __device__ void put(const Out &out) const
    {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                int row = row0 + 16 * i + g, col = col0 + 8 * j + 2 * t;
                out.pair(row, col, acc[i][j][0], acc[i][j][1]);
                out.pair(row + 8, col, acc[i][j][2], acc[i][j][3]);
            }
    }
};

/* Accumulates f16 or bf16 on tensor cores. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int TILES>
struct half_sums : warp_sums<BM, BN, WARPS_M, WARPS_N> {
    typedef warp_sums<BM, BN, WARPS_M, WARPS_N> warps;
    typedef T cell;
    static const bool AHEAD = true;
    static const int STAGES = TILES, LEFT = BM * MMA_DEPTH, RIGHT = BN * MMA_DEPTH;

    template <class A, class B> __device__ void advance(const T *sa, const T *sb)
    {
        const int TM = warps::TM, TN = warps::TN;
#pragma unroll
        for (int k = 0; k < MMA_DEPTH; k += 16) {
            u32 fa[TM][4], fb[TN / 2][4];
#pragma unroll
            for (int i = 0; i < TM; i++)
                load_fragment<A, true>(fa[i], sa, this->row0 + 16 * i, k);
#pragma unroll
            for (int j = 0; j < TN / 2; j++)
                load_fragment<B, false>(fb[j], sb, this->col0 + 16 * j, k);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) {
                    u32 pair[2] = {fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]};
                    mma(this->acc[i][j], fa[i], pair, T());
                }
        }
    }
};

/* Accumulates f32 rounded to TF32 on tensor cores. Lines of tiles are padded by eight elements, so
 * that the four lines and eight rows of a fragment are in different banks. */
template <int BM, int BN, int WARPS_M, int WARPS_N>
struct tf32_sums : warp_sums<BM, BN, WARPS_M, WARPS_N> {
    typedef warp_sums<BM, BN, WARPS_M, WARPS_N> warps;
    typedef f32 cell;
    static const bool AHEAD = false;
    static const int STAGES = 2, LA = BM + 8, LB = BN + 8;
    static const int LEFT = FMA_DEPTH * LA, RIGHT = FMA_DEPTH * LB;

    template <class A, class B> __device__ void advance(const f32 *sa, const f32 *sb)
    {
        const int TM = warps::TM, TN = warps::TN;
#pragma unroll
        for (int k = 0; k < FMA_DEPTH; k += 8) {
            u32 fa[TM][4], fb[TN][2];
            const f32 *a = sa + (k + this->t) * LA + this->row0 + this->g;
            const f32 *b = sb + (k + this->t) * LB + this->col0 + this->g;
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    fa[i][r] = to_tf32(a[r / 2 * 4 * LA + 16 * i + r % 2 * 8]);
#pragma unroll
            for (int j = 0; j < TN; j++)
#pragma unroll
                for (int r = 0; r < 2; r++)
                    fb[j][r] = to_tf32(b[r * 4 * LB + 8 * j]);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    mma_tf32(this->acc[i][j], fa[i], fb[j]);
        }
    }
};

/* Each thread accumulates TM x TN elements, in groups of four rows and ACROSS columns. */
template <int BM, int BN, int THREADS> struct thread_sums {
    typedef f32 cell;
    static const bool AHEAD = false;
    static const int STAGES = 2, LA = BM + 4, LB = BN + 4;
    static const int LEFT = FMA_DEPTH * LA, RIGHT = FMA_DEPTH * LB;
    static const int EACH = BM * BN / THREADS, TM = EACH >= 32 ? 8 : 4, TN = EACH / TM;
    static const int GROUP = TN < 4 ? TN : 4, ACROSS = BN / TN;
    f32 acc[TM][TN] = {};
    int ty = threadIdx.x / ACROSS, tx = threadIdx.x % ACROSS;

    __device__ void add(const f32 *sa, const f32 *sb)
    {
#pragma unroll
        for (int k = 0; k < FMA_DEPTH; k++) {
            f32 x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4) {
                pack<f32, 4> p = *(const pack<f32, 4> *)&sa[k * LA + i * (BM / TM) + ty * 4];
#pragma unroll
                for (int n = 0; n < 4; n++)
                    x[i + n] = p.at[n];
            }
#pragma unroll
            for (int j = 0; j < TN; j += GROUP) {
                pack<f32, GROUP> p =
                    *(const pack<f32, GROUP> *)&sb[k * LB + j * ACROSS + tx * GROUP];
#pragma unroll
                for (int n = 0; n < GROUP; n++)
                    y[j + n] = p.at[n];
            }
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    acc[i][j] += x[i] * y[j];
        }
    }

    template <class A, class B> __device__ void advance(const f32 *sa, const f32 *sb)
    {
        add(sa, sb);
    }

    template <class Out> __device__ void put(const Out &out) const
    {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j += 2)
                out.pair(i / 4 * 4 * (BM / TM) + ty * 4 + i % 4,
                         j / GROUP * GROUP * ACROSS + tx * GROUP + j % GROUP, acc[i][j],
                         acc[i][j + 1]);
    }
};

/* The accumulator for T on this device; TF32: f32 may be rounded to TF32. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32,
          int HOW = has_mma<T>::yes ? 2 : TF32 && has_tf32::yes ? 1 : 0>
struct sums_of {
    typedef thread_sums<BM, BN, WARPS_M * WARPS_N * 32> type;
};
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32>
struct sums_of<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32, 1> {
    typedef tf32_sums<BM, BN, WARPS_M, WARPS_N> type;
};
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32>
struct sums_of<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32, 2> {
    typedef half_sums<T, BM, BN, WARPS_M, WARPS_N, STAGES> type;
};

/* -- Through the depth --------------------------------------------------------------------------- */

/* Columns of the result: the source of the right factor, its STAGES tiles, the accumulator. */
template <class Source, class Sums> struct columns {
    Source &from;
    typename Sums::cell *tile;
    Sums sums;

    __device__ columns(Source &from, typename Sums::cell *tile) : from(from), tile(tile) {}

    __device__ void fetch(int stage, int k0)
    {
        if constexpr (Sums::AHEAD)
            from.fetch(tile + stage * Sums::RIGHT, k0);
        else
            from.fetch_f32(k0);
    }

    __device__ void store(int stage)
    {
        if constexpr (Sums::AHEAD)
            from.store(tile + stage * Sums::RIGHT);
        else
            from.template store_f32<Sums::LB>(tile + stage * Sums::RIGHT);
    }

    template <class A> __device__ void advance(const typename Sums::cell *left, int stage)
    {
        sums.template advance<A, Source>(left, tile + stage * Sums::RIGHT);
    }
};

/* Multiplies depth `begin` to `depth - 1` of `a`, through tiles `sa`, by all columns `c`. Tiles are
 * copied into shared memory while earlier ones are multiplied. */
template <class Sums, class A, class... C>
__device__ inline void multiply_ahead(A &a, typename Sums::cell *sa, int begin, int depth, C &...c)
{
    const int STAGES = Sums::STAGES;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (begin + s * MMA_DEPTH < depth) {
            a.fetch(sa + s * Sums::LEFT, begin + s * MMA_DEPTH);
            (c.fetch(s, begin + s * MMA_DEPTH), ...);
            a.store(sa + s * Sums::LEFT);
            (c.store(s), ...);
        }
        copy_commit();
    }
    int now = 0;
    for (int k0 = begin; k0 < depth; k0 += MMA_DEPTH) {
        int ahead = k0 + (STAGES - 1) * MMA_DEPTH, next = now == 0 ? STAGES - 1 : now - 1;
        copy_wait<STAGES - 2>();
        __syncthreads(); /* this tile is complete, and all threads have read the one before it */
        if (ahead < depth) {
            a.fetch(sa + next * Sums::LEFT, ahead);
            (c.fetch(next, ahead), ...);
        }
        copy_commit();
        (c.template advance<A>(sa + now * Sums::LEFT, now), ...);
        if (ahead < depth) {
            a.store(sa + next * Sums::LEFT);
            (c.store(next), ...);
        }
        now = now == STAGES - 1 ? 0 : now + 1;
    }
    copy_wait<0>();
}

/* The same, with the next tile in registers. */
template <class Sums, class A, class... C>
__device__ inline void multiply_f32(A &a, f32 *sa, int begin, int depth, C &...c)
{
    int now = 0;
    if (begin < depth) {
        a.fetch_f32(begin);
        (c.fetch(0, begin), ...);
        a.template store_f32<Sums::LA>(sa);
        (c.store(0), ...);
    }
    for (int k0 = begin; k0 < depth; k0 += FMA_DEPTH, now ^= 1) {
        int next = k0 + FMA_DEPTH;
        __syncthreads();
        if (next < depth) {
            a.fetch_f32(next);
            (c.fetch(now ^ 1, next), ...);
        }
        (c.template advance<A>(sa + now * Sums::LEFT, now), ...);
        if (next < depth) {
            a.template store_f32<Sums::LA>(sa + (now ^ 1) * Sums::LEFT);
            (c.store(now ^ 1), ...);
        }
    }
}

/* Sums: the accumulator type of the columns. `begin` is a multiple of MMA_DEPTH. */
template <class Sums, class A, class... C>
__device__ inline void multiply(A &a, typename Sums::cell *sa, int begin, int depth, C &...c)
{
    if constexpr (Sums::AHEAD)
        multiply_ahead<Sums>(a, sa, begin, depth, c...);
    else
        multiply_f32<Sums>(a, sa, begin, depth, c...);
}

/* out = a b^T over depth `begin` to `depth - 1`. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32, class A, class B,
          class Out>
__device__ inline void product(A &a, B &b, int begin, int depth, const Out &out)
{
    typedef typename sums_of<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32>::type Sums;
    __shared__ __align__(16) typename Sums::cell sa[Sums::STAGES * Sums::LEFT],
        sb[Sums::STAGES * Sums::RIGHT];
    columns<B, Sums> c(b, sb);
    multiply<Sums>(a, sa, begin, depth, c);
    c.sums.put(out);
}

/* -- Parts of the depth ------------------------------------------------------------------------- */

/* The part of the depth `total` for blockIdx.y: `each` elements, or all if `each` is 0. */
struct depth_part {
    int begin, end;

    __device__ depth_part(int total, int each)
    {
        begin = each ? (int)blockIdx.y * each : 0;
        end = each && begin + each < total ? begin + each : total;
    }
};

/* No epilogue: partial sums go to scratch memory unchanged. */
struct no_post {
    __device__ f32 operator()(f32 acc, size_t, int) const
    {
        return acc;
    }
};

/* Adds at most MOST partial sums, one thread per element: y[at] = post(sum of part[s][at], at, c), where
 * `c` is the coordinate of `at` along a dim of `size` with stride `below`. */
template <int MOST, class T, class Post>
__device__ inline void sum_parts(const f32 *part, int parts, T *y, u32 n, u32 below, u32 size,
                                 const Post &post)
{
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n)
        return;
    f32 acc = 0;
#pragma unroll
    for (int s = 0; s < MOST; s++)
        if (s < parts)
            acc += part[(size_t)s * n + at];
    y[at] = convert<T>(post(acc, at, (int)(at / below % size)));
}

/* y = post(y) for n elements in rows of `columns`, four per thread: the pass after a library GEMM. */
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

/* -- GEMMs of matrices in memory ----------------------------------------------------------------- */

/* The tile of a block. The block index advances along the rows of the result first, then its columns,
 * then the batch, so that concurrent blocks share columns of the right factor. */
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

/* y[row][col] = post(acc, index in y, col); rows of n elements, the first one at index `first`. */
template <class T, class Post> struct gemm_out {
    T *y;
    Post post;
    size_t first;
    int row0, col0, m, n;
    bool even; /* a pair of columns that starts at an even one is aligned */

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

/* y = post(op(a) op(b)), op(a) m x k and op(b) k x n, of the matrices that the place's batch has. each:
 * the depth of a part, if blocks have parts (Y is then f32, and `first` that of the part), else 0. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32, bool TRANS_A,
          bool TRANS_B, class Y, class Post>
__device__ inline void gemm(const T *a, size_t lda, const T *b, size_t ldb, Y *y, size_t first,
                            const gemm_place &place, int m, int n, int k, int each, const Post &post)
{
    const int THREADS = WARPS_M * WARPS_N * 32;
    const depth_part part(k, each);
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
