/* How similar two weights are: equal rows and columns, the largest common rectangle, and whether
 * the difference has low rank.
 *
 * Rows and columns. One 64-bit hash for each row; rows that b has anywhere are counted by a join
 * over the hashes, each row of b once. Columns likewise. The bytes are not compared: two of n
 * different rows collide with probability n^2 / 2^64.
 *
 * Low rank. A fine-tune by low-rank adaptation leaves W + B A. Adaptive cross approximation
 * (Bebendorf, "Approximation of boundary element matrices", 2000) finds B and A from few rows and
 * columns of the difference: take a row of the remainder, its largest element as the pivot, and the
 * column through the pivot; subtract the product of both from the remainder; continue with the row
 * in which that column is largest. It ends when the current row and PROBES others have almost no
 * remainder. Then each row of B is recomputed as the least-squares fit to its row of the
 * difference, because the crosses are taken from values that were rounded like W, and their pivots
 * propagate that rounding. Every element is checked in the end, so a wrong guess costs time, not
 * correctness. */
#include "passes/similarity/similar.h"

#include "base/map.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { PROBES = 8, ROOK_PIVOTS = 4, NEAR = 16, SPREAD = 8, CLEAR = 1000, BLOCK = 8 };

/* -- Rows and columns ------------------------------------------------------------------------- */

static const uint8_t *element(const weft_matrix *m, uint32_t row, uint32_t col)
{
    return m->data + ((size_t)row * m->cols + col) * m->bytes;
}

static uint64_t *hash_rows(const weft_matrix *m, weft_arena *arena)
{
    uint64_t *hash = weft_arena_array(arena, (size_t)m->rows + 1, sizeof *hash);
    weft_hash_rows(m->data, m->rows, m->cols, m->bytes, hash);
    return hash;
}

static uint64_t *hash_cols(const weft_matrix *m, weft_arena *arena)
{
    uint64_t *hash = weft_arena_array(arena, (size_t)m->cols + 1, sizeof *hash);
    weft_hash_cols(m->data, m->rows, m->cols, m->bytes, hash);
    return hash;
}

uint32_t weft_similar__count_common(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b,
                                    weft_arena *scratch)
{
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    weft_map *left = weft_map_create(scratch);
    uint32_t common = 0;
    for (size_t i = 0; i < n_b; i++) {
        uint64_t count = 0;
        weft_map_get(left, b[i], &count);
        weft_map_put(left, b[i], count + 1);
    }
    for (size_t i = 0; i < n_a; i++) {
        uint64_t count = 0;
        if (!weft_map_get(left, a[i], &count) || count == 0)
            continue;
        weft_map_put(left, a[i], count - 1);
        common++;
    }
    weft_arena_reset(scratch, mark);
    return common;
}

/* Counts the entries of `a` that `b` has at the same index (*same) and at any index (*common). */
static void join(const uint64_t *a, uint32_t n_a, const uint64_t *b, uint32_t n_b,
                 weft_arena *scratch, uint32_t *same, uint32_t *common)
{
    *same = 0;
    for (uint32_t i = 0; i < n_a && i < n_b; i++)
        *same += a[i] == b[i];
    *common = weft_similar__count_common(a, n_a, b, n_b, scratch);
}

static uint64_t count_differing(const weft_matrix *a, const weft_matrix *b)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < a->rows; r++) {
        const uint8_t *x = element(a, r, 0), *y = element(b, r, 0);
        if (memcmp(x, y, (size_t)a->cols * a->bytes) == 0)
            continue;
        for (uint32_t c = 0; c < a->cols; c++)
            n += memcmp(x + (size_t)c * a->bytes, y + (size_t)c * a->bytes, a->bytes) != 0;
    }
    return n;
}

static uint64_t size_of(const weft_matrix *m)
{
    return (uint64_t)m->rows * m->cols;
}

weft_similarity weft_similar__measure(const weft_matrix *a, const weft_matrix *b,
                                      weft_arena *scratch)
{
    weft_similarity s = {.differing = size_of(a)};
    bool same_shape = a->rows == b->rows && a->cols == b->cols;
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    if (same_shape)
        s.differing = count_differing(a, b);
    s.identical = same_shape && s.differing == 0;
    if (a->cols == b->cols)
        join(hash_rows(a, scratch), a->rows, hash_rows(b, scratch), b->rows, scratch, &s.same_rows,
             &s.common_rows);
    if (a->rows == b->rows)
        join(hash_cols(a, scratch), a->cols, hash_cols(b, scratch), b->cols, scratch, &s.same_cols,
             &s.common_cols);
    weft_arena_reset(scratch, mark);
    s.rect = weft_similar__largest_rect(a, b, scratch);
    uint64_t both = size_of(a) + size_of(b);
    if (both > 0)
        s.metric = 2 * ((double)s.rect.rows * s.rect.cols) / (double)both;
    return s;
}

/* -- Low rank --------------------------------------------------------------------------------- */

static float value(const weft_matrix *m, uint32_t row, uint32_t col)
{
    float x;
    memcpy(&x, element(m, row, col), sizeof x);
    return x;
}

/* The approximation u v of a - b, of rank `rank` so far; the remainder is a - b - u v. */
typedef struct cross {
    const weft_matrix *a, *b;
    float *u, *v; /* u: `rank` columns, v: `rank` rows, one after the other */
    uint32_t rank;
    double *row, *col; /* the remainder of the current row and column */
    double *turned;    /* v by columns, [cols, rank]: what fit_row reads */
    /* Least squares: the Cholesky factor of the normal equations, rows max_rank apart; right-hand
     * sides [rank, cols]; one right-hand side [rank]. */
    double *root, *sum, *one;
    uint32_t max_rank;
    bool *used; /* rows that were pivots */
} cross;

static void whole_row(cross *x, uint32_t row)
{
    for (uint32_t c = 0; c < x->a->cols; c++)
        x->row[c] = (double)value(x->a, row, c) - value(x->b, row, c);
}

/* Computes the remainder of a row; returns its largest absolute element, at *out_col. */
static double rest_of_row(cross *x, uint32_t row, uint32_t *out_col)
{
    double most = 0;
    whole_row(x, row);
    for (uint32_t k = 0; k < x->rank; k++) {
        double f = x->u[(size_t)k * x->a->rows + row];
        const float *v = x->v + (size_t)k * x->a->cols;
        for (uint32_t c = 0; c < x->a->cols; c++)
            x->row[c] -= f * v[c];
    }
    for (uint32_t c = 0; c < x->a->cols; c++) {
        if (!isfinite(x->row[c]))
            return INFINITY; /* no approximation has such an element */
        if (fabs(x->row[c]) > most) {
            most = fabs(x->row[c]);
            *out_col = c;
        }
    }
    return most;
}

static void rest_of_col(cross *x, uint32_t col)
{
    for (uint32_t r = 0; r < x->a->rows; r++)
        x->col[r] = (double)value(x->a, r, col) - value(x->b, r, col);
    for (uint32_t k = 0; k < x->rank; k++) {
        double f = x->v[(size_t)k * x->a->cols + col];
        const float *u = x->u + (size_t)k * x->a->rows;
        for (uint32_t r = 0; r < x->a->rows; r++)
            x->col[r] -= f * u[r];
    }
}

/* Finds a row with a remainder above the tolerance: `from`, else one of PROBES others. false: there
 * is none. *most: the largest element of the row that was tried last. */
static bool find_pivot(cross *x, uint32_t from, double tolerance, uint32_t *row, uint32_t *col,
                       double *most)
{
    uint32_t rows = x->a->rows;
    for (uint32_t i = 0; i <= PROBES; i++) {
        uint32_t r = (uint32_t)((from + (uint64_t)i * (rows / PROBES + 1)) % rows);
        *row = r;
        *most = x->used[r] ? 0 : rest_of_row(x, r, col);
        if (!(*most <= tolerance))
            return true;
    }
    return false;
}

/* Replaces the lower triangle at `root` by its Cholesky factor. false: the matrix is not positive
 * definite, because rows depend on each other. */
static bool find_root(cross *x)
{
    for (uint32_t i = 0; i < x->rank; i++)
        for (uint32_t j = 0; j <= i; j++) {
            double *to = x->root + (size_t)i * x->max_rank;
            const double *other = x->root + (size_t)j * x->max_rank;
            for (uint32_t k = 0; k < j; k++)
                to[j] -= to[k] * other[k];
            if (i == j && !(to[j] > 0))
                return false;
            to[j] = i == j ? sqrt(to[j]) : to[j] / other[j];
        }
    return true;
}

/* Solves (L L^T) y = `sum` in place, where L is the Cholesky factor. */
static void solve(const cross *x, double *sum)
{
    for (uint32_t k = 0; k < x->rank; k++) {
        const double *root = x->root + (size_t)k * x->max_rank;
        for (uint32_t j = 0; j < k; j++)
            sum[k] -= root[j] * sum[j];
        sum[k] /= root[k];
    }
    for (uint32_t k = x->rank; k-- > 0;) {
        for (uint32_t j = k + 1; j < x->rank; j++)
            sum[k] -= x->root[(size_t)j * x->max_rank + k] * sum[j];
        sum[k] /= x->root[(size_t)k * x->max_rank + k];
    }
}

static bool find_root_of_v(cross *x)
{
    for (uint32_t i = 0; i < x->rank; i++)
        for (uint32_t j = 0; j <= i; j++) {
            const float *a = x->v + (size_t)i * x->a->cols, *b = x->v + (size_t)j * x->a->cols;
            double sum = 0;
            for (uint32_t c = 0; c < x->a->cols; c++)
                sum += (double)a[c] * b[c];
            x->root[(size_t)i * x->max_rank + j] = sum;
        }
    return find_root(x);
}

static void turn_v(cross *x)
{
    for (uint32_t k = 0; k < x->rank; k++)
        for (uint32_t c = 0; c < x->a->cols; c++)
            x->turned[(size_t)c * x->rank + k] = x->v[(size_t)k * x->a->cols + c];
}

/* Sets a row of u to the least-squares fit to that row of the difference. The sums of BLOCK rows of
 * v run beside each other: each alone waits for its last addition. */
static void fit_row(cross *x, uint32_t row)
{
    uint32_t k = 0, n = x->rank;
    whole_row(x, row);
    for (; k + BLOCK <= n; k += BLOCK) {
        double sum[BLOCK] = {0};
        const double *v = x->turned + k;
        for (uint32_t c = 0; c < x->a->cols; c++, v += n)
            for (uint32_t i = 0; i < BLOCK; i++)
                sum[i] += x->row[c] * v[i];
        memcpy(x->one + k, sum, sizeof sum);
    }
    for (; k < n; k++) {
        double sum = 0;
        for (uint32_t c = 0; c < x->a->cols; c++)
            sum += x->row[c] * x->turned[(size_t)c * n + k];
        x->one[k] = sum;
    }
    solve(x, x->one);
    for (k = 0; k < n; k++)
        x->u[(size_t)k * x->a->rows + row] = (float)x->one[k];
}

/* Recomputes v by least squares from rows spread over the difference: its pivots may have been
 * small. */
static bool fit_v(cross *x)
{
    uint32_t rows = x->a->rows, cols = x->a->cols, n = SPREAD * (x->rank + 1);
    n = n < rows ? n : rows;
    memset(x->root, 0, (size_t)x->max_rank * x->max_rank * sizeof *x->root);
    memset(x->sum, 0, (size_t)x->rank * cols * sizeof *x->sum);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = (uint32_t)((uint64_t)i * rows / n);
        whole_row(x, row);
        for (uint32_t k = 0; k < x->rank; k++) {
            double f = x->u[(size_t)k * rows + row], *to = x->sum + (size_t)k * cols;
            for (uint32_t c = 0; c < cols; c++)
                to[c] += f * x->row[c];
            for (uint32_t j = 0; j <= k; j++)
                x->root[(size_t)k * x->max_rank + j] += f * x->u[(size_t)j * rows + row];
        }
    }
    if (!find_root(x))
        return false;
    for (uint32_t c = 0; c < cols; c++) {
        for (uint32_t k = 0; k < x->rank; k++)
            x->one[k] = x->sum[(size_t)k * cols + c];
        solve(x, x->one);
        for (uint32_t k = 0; k < x->rank; k++)
            x->v[(size_t)k * cols + c] = (float)x->one[k];
    }
    return true;
}

/* Recomputes v, then u row by row. false: row *row has a remainder above the tolerance. */
static bool fit_all(cross *x, double tolerance, uint32_t *row, double *residual)
{
    uint32_t col;
    *row = *residual = 0;
    if (!fit_v(x) || !find_root_of_v(x))
        return false;
    turn_v(x);
    for (; *row < x->a->rows; ++*row) {
        fit_row(x, *row);
        double rest = rest_of_row(x, *row, &col);
        *residual = fmax(*residual, rest);
        if (!(rest <= tolerance))
            return false;
    }
    return true;
}

static uint32_t largest_of_col(const cross *x)
{
    uint32_t found = 0;
    for (uint32_t r = 1; r < x->a->rows; r++)
        if (fabs(x->col[r]) > fabs(x->col[found]))
            found = r;
    return found;
}

/* Rook pivoting: moves from the largest element of a row to the largest of its column and so on,
 * until the pivot is both. A small pivot would amplify the rounding of the difference. */
static void improve_pivot(cross *x, uint32_t *row, uint32_t *col)
{
    for (int i = 0; i < ROOK_PIVOTS; i++) {
        rest_of_col(x, *col);
        uint32_t better = largest_of_col(x), at = *col;
        if (better == *row || x->used[better])
            return;
        rest_of_row(x, better, &at);
        *row = better;
        if (at == *col)
            return;
        *col = at;
    }
    rest_of_col(x, *col);
}

/* Adds the cross through (row, col), the current row and column, to the approximation. *next: the
 * row to continue with. */
static void add_cross(cross *x, uint32_t row, uint32_t col, uint32_t *next)
{
    double pivot = x->row[col], most = -1;
    float *u = x->u + (size_t)x->rank * x->a->rows, *v = x->v + (size_t)x->rank * x->a->cols;
    for (uint32_t c = 0; c < x->a->cols; c++)
        v[c] = (float)(x->row[c] / pivot);
    x->used[row] = true;
    for (uint32_t r = 0; r < x->a->rows; r++) {
        u[r] = (float)x->col[r];
        if (!x->used[r] && fabs(x->col[r]) > most) {
            most = fabs(x->col[r]);
            *next = r;
        }
    }
    x->rank++;
}

double weft_similar__largest(const weft_matrix *m, bool *out_nan)
{
    static const int32_t infinite = 0x7f800000;
    int32_t most = 0, nan = 0;
    float found;
    for (size_t i = 0; i < (size_t)size_of(m); i++) {
        int32_t x;
        memcpy(&x, m->data + i * sizeof x, sizeof x);
        x &= INT32_MAX;
        nan |= x > infinite;
        x = x > infinite ? 0 : x;
        most = x > most ? x : most;
    }
    memcpy(&found, &most, sizeof found);
    *out_nan = nan;
    return found;
}

/* Moves the largest element that is not eliminated yet to (k, k) by swapping rows and columns. */
static double take_pivot(double *at, uint32_t n, uint32_t k)
{
    uint32_t row = k, col = k;
    for (uint32_t r = k; r < n; r++)
        for (uint32_t c = k; c < n; c++)
            if (!(fabs(at[r * n + c]) <= fabs(at[row * n + col]))) {
                row = r;
                col = c;
            }
    for (uint32_t c = 0; c < n; c++) {
        double x = at[k * n + c];
        at[k * n + c] = at[row * n + c];
        at[row * n + c] = x;
    }
    for (uint32_t r = 0; r < n; r++) {
        double x = at[r * n + k];
        at[r * n + k] = at[r * n + col];
        at[r * n + col] = x;
    }
    return at[k * n + k];
}

/* Whether a sub-matrix of the difference, of max_rank + 1 rows and columns, has full rank: Gaussian
 * elimination with complete pivoting leaves an element clearly above the tolerance. This rejects
 * most pairs at little cost. */
static bool is_of_high_rank(const weft_matrix *a, const weft_matrix *b, uint32_t max_rank,
                            double tolerance, weft_arena *scratch)
{
    uint32_t n = max_rank + 1;
    if (n > a->rows || n > a->cols)
        return false;
    double *at = weft_arena_array(scratch, (size_t)n * n, sizeof *at);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t c = 0; c < n; c++) {
            uint32_t row = (uint32_t)((uint64_t)r * a->rows / n);
            uint32_t col = (uint32_t)((uint64_t)c * a->cols / n);
            at[r * n + c] = (double)value(a, row, col) - value(b, row, col);
        }
    for (uint32_t k = 0; k < max_rank; k++) {
        double pivot = take_pivot(at, n, k);
        if (!isfinite(pivot))
            return true;
        if (fabs(pivot) <= tolerance)
            return false;
        for (uint32_t r = k + 1; r < n; r++) {
            double f = at[r * n + k] / pivot;
            for (uint32_t c = k; c < n; c++)
                at[r * n + c] -= f * at[k * n + c];
        }
    }
    return !(fabs(at[max_rank * n + max_rank]) <= CLEAR * tolerance);
}

static bool find_crosses(cross *x, double tolerance, double *residual)
{
    uint32_t row = 0, col = 0, next = 0;
    for (;;) {
        double most = 0;
        bool more = find_pivot(x, next, tolerance, &row, &col, &most);
        if (most <= NEAR * tolerance) {
            uint32_t left;
            if (fit_all(x, tolerance, &left, residual))
                return true;
            row = more ? row : left;
            most = rest_of_row(x, row, &col);
        }
        if (!(most > tolerance) || !isfinite(most) || x->rank == x->max_rank || x->used[row])
            return false;
        improve_pivot(x, &row, &col);
        add_cross(x, row, col, &next);
    }
}

bool weft_similar__low_rank(const weft_matrix *a, const weft_matrix *b, uint32_t max_rank,
                            double tolerance, weft_arena *arena, weft_low_rank *out)
{
    if (a->bytes != sizeof(float) || b->bytes != a->bytes || a->rows != b->rows ||
        a->cols != b->cols || size_of(a) == 0)
        return false;
    /* Two roundings: of W + B A when the weight was made, and of the division by the pivot here. */
    if (!(tolerance > 0)) {
        bool nan;
        double most = weft_similar__largest(a, &nan);
        tolerance = 4 * FLT_EPSILON * fmax(most, weft_similar__largest(b, &nan));
    }
    weft_arena_mark mark = weft_arena_get_mark(arena);
    if (is_of_high_rank(a, b, max_rank, tolerance, arena)) {
        weft_arena_reset(arena, mark);
        return false;
    }
    cross x = {.a = a, .b = b, .max_rank = max_rank};
    x.u = weft_arena_array(arena, (size_t)a->rows * max_rank + 1, sizeof *x.u);
    x.v = weft_arena_array(arena, (size_t)a->cols * max_rank + 1, sizeof *x.v);
    x.row = weft_arena_array(arena, a->cols, sizeof *x.row);
    x.col = weft_arena_array(arena, a->rows, sizeof *x.col);
    x.root = weft_arena_array(arena, (size_t)max_rank * max_rank + 1, sizeof *x.root);
    x.turned = weft_arena_array(arena, (size_t)a->cols * max_rank + 1, sizeof *x.turned);
    x.sum = weft_arena_array(arena, (size_t)max_rank * a->cols + 1, sizeof *x.sum);
    x.one = weft_arena_array(arena, (size_t)max_rank + 1, sizeof *x.one);
    x.used = weft_arena_array(arena, a->rows, sizeof *x.used);
    memset(x.used, 0, a->rows * sizeof *x.used);
    double residual = 0;
    if (!find_crosses(&x, tolerance, &residual)) {
        weft_arena_reset(arena, mark);
        return false;
    }
    *out = (weft_low_rank){.rank = x.rank, .u = x.u, .v = x.v, .residual = residual};
    return true;
}
