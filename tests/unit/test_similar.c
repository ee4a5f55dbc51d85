/* Similarity of weights: against brute force, on planted structure, and in corner cases. */
#include "base/arena.h"
#include "passes/similarity/similar.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void fill(uint8_t *data, size_t len, uint64_t *seed)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)rand_next(seed);
}

static bool equal_at(const weft_matrix *a, const weft_matrix *b, const weft_rect *r)
{
    for (uint32_t i = 0; i < r->rows; i++)
        if (memcmp(a->data + ((size_t)(r->row_a + i) * a->cols + r->col_a) * a->bytes,
                   b->data + ((size_t)(r->row_b + i) * b->cols + r->col_b) * b->bytes,
                   (size_t)r->cols * a->bytes) != 0)
            return false;
    return true;
}

static uint64_t area(const weft_rect *r)
{
    return (uint64_t)r->rows * r->cols;
}

/* Brute force: every rectangle at one offset. */
static uint64_t brute_area(const weft_matrix *a, const weft_matrix *b, int64_t row, int64_t col)
{
    uint64_t best = 0;
    for (uint32_t r = 0; r < a->rows; r++)
        for (uint32_t c = 0; c < a->cols; c++) {
            uint32_t wide = UINT32_MAX;
            for (uint32_t h = 1; r + h <= a->rows && wide > 0; h++) {
                uint32_t w = 0;
                int64_t y = (int64_t)r + h - 1 - row;
                for (; c + w < a->cols && w < wide; w++) {
                    int64_t x = (int64_t)c + w - col;
                    if (y < 0 || y >= b->rows || x < 0 || x >= b->cols ||
                        a->data[(size_t)(r + h - 1) * a->cols + c + w] !=
                            b->data[(size_t)y * b->cols + x])
                        break;
                }
                wide = w;
                best = (uint64_t)h * wide > best ? (uint64_t)h * wide : best;
            }
        }
    return best;
}

static void test_similar__rectangle_at_an_offset_is_the_largest(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    uint64_t seed = 5;
    (void)state;
    for (int round = 0; round < 400; round++) {
        uint8_t x[144], y[144];
        uint32_t values = 1 + rand_next(&seed) % 3; /* few values: many runs */
        weft_matrix a = {x, 1 + rand_next(&seed) % 12, 1 + rand_next(&seed) % 12, 1};
        weft_matrix b = {y, 1 + rand_next(&seed) % 12, 1 + rand_next(&seed) % 12, 1};
        for (size_t i = 0; i < sizeof x; i++) {
            x[i] = (uint8_t)(rand_next(&seed) % values);
            y[i] = (uint8_t)(rand_next(&seed) % values);
        }
        int64_t row = (int64_t)(rand_next(&seed) % 27) - 13;
        int64_t col = (int64_t)(rand_next(&seed) % 27) - 13;
        weft_rect r = weft_similar__rect_at(&a, &b, row, col, arena);
        assert_int_equal(area(&r), brute_area(&a, &b, row, col));
        assert_true(equal_at(&a, &b, &r));
        assert_true(area(&r) == 0 ||
                    ((int64_t)r.row_a - r.row_b == row && (int64_t)r.col_a - r.col_b == col));
    }
    weft_arena_destroy(arena);
}

static void test_similar__finds_what_was_planted(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    uint64_t seed = 77;
    (void)state;
    for (int round = 0; round < 60; round++) {
        uint32_t bytes = 1u << rand_next(&seed) % 4;
        weft_matrix a = {NULL, 40 + rand_next(&seed) % 90, 40 + rand_next(&seed) % 90, bytes};
        weft_matrix b = {NULL, 40 + rand_next(&seed) % 90, 40 + rand_next(&seed) % 90, bytes};
        uint8_t *x = malloc((size_t)a.rows * a.cols * bytes);
        uint8_t *y = malloc((size_t)b.rows * b.cols * bytes);
        a.data = x;
        b.data = y;
        fill(x, (size_t)a.rows * a.cols * bytes, &seed);
        fill(y, (size_t)b.rows * b.cols * bytes, &seed);
        uint32_t most_rows = a.rows < b.rows ? a.rows : b.rows;
        uint32_t most_cols = a.cols < b.cols ? a.cols : b.cols;
        weft_rect p = {.rows = WEFT_RECT_SIDE + rand_next(&seed) % (most_rows - 30),
                       .cols = WEFT_RECT_SIDE + rand_next(&seed) % (most_cols - 30)};
        p.row_a = rand_next(&seed) % (a.rows - p.rows + 1);
        p.col_a = rand_next(&seed) % (a.cols - p.cols + 1);
        p.row_b = rand_next(&seed) % (b.rows - p.rows + 1);
        p.col_b = rand_next(&seed) % (b.cols - p.cols + 1);
        for (uint32_t i = 0; i < p.rows; i++)
            memcpy(y + ((size_t)(p.row_b + i) * b.cols + p.col_b) * bytes,
                   x + ((size_t)(p.row_a + i) * a.cols + p.col_a) * bytes, (size_t)p.cols * bytes);
        weft_rect r = weft_similar__largest_rect(&a, &b, arena);
        assert_true(area(&r) >= area(&p));
        assert_true(equal_at(&a, &b, &r));
        free(x);
        free(y);
    }
    weft_arena_destroy(arena);
}

static void test_similar__zeros_do_not_hide_a_block(void **state)
{
    enum { N = 128 };
    weft_arena *arena = weft_arena_create(0);
    uint8_t *x = calloc(N, N), *y = calloc(N, N);
    uint64_t seed = 3;
    (void)state;
    /* Mostly zeros, a block of content moved by (20, -30). */
    for (int i = 0; i < 40; i++)
        for (int j = 0; j < 40; j++)
            x[(30 + i) * N + 50 + j] = y[(50 + i) * N + 20 + j] =
                (uint8_t)(1 + rand_next(&seed) % 255);
    weft_matrix a = {x, N, N, 1}, b = {y, N, N, 1};
    weft_rect r = weft_similar__largest_rect(&a, &b, arena);
    assert_true(equal_at(&a, &b, &r) && area(&r) >= 40 * 40);
    /* All zeros: the rectangle at offset (0, 0) is found. */
    memset(x, 0, N * N);
    memset(y, 0, N * N);
    r = weft_similar__largest_rect(&a, &b, arena);
    assert_int_equal(area(&r), N * N);
    free(x);
    free(y);
    weft_arena_destroy(arena);
}

static void test_similar__bits_decide(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    float x[4] = {NAN, 0.0f, 1, 2}, y[4] = {NAN, -0.0f, 1, 2};
    weft_matrix a = {(const uint8_t *)x, 1, 4, 4}, b = {(const uint8_t *)y, 1, 4, 4};
    (void)state;
    weft_similarity s = weft_similar__measure(&a, &b, arena);
    assert_false(s.identical);
    assert_int_equal(s.differing, 1);
    assert_int_equal(s.same_cols, 3);
    assert_int_equal(s.rect.cols, 2);
    assert_true(fabs(s.metric - 2 * 2 / 8.0) < 1e-12);
    y[1] = 0.0f;
    s = weft_similar__measure(&a, &b, arena);
    assert_true(s.identical && s.metric == 1);
    /* Nothing at all. */
    weft_matrix none = {(const uint8_t *)x, 0, 4, 4};
    s = weft_similar__measure(&none, &none, arena);
    assert_true(s.metric == 0 && s.rect.rows == 0);
    weft_arena_destroy(arena);
}

static void test_similar__rows_and_columns_that_moved(void **state)
{
    enum { ROWS = 50, COLS = 30 };
    weft_arena *arena = weft_arena_create(0);
    uint16_t x[ROWS * COLS], y[(ROWS + 7) * COLS];
    uint64_t seed = 9;
    (void)state;
    fill((uint8_t *)x, sizeof x, &seed);
    fill((uint8_t *)y, sizeof y, &seed);
    /* Seven rows more; all others but row 0 in reverse order. */
    for (int i = 0; i < ROWS; i++)
        memcpy(y + (size_t)(i == 0 ? 0 : ROWS + 7 - i) * COLS, x + (size_t)i * COLS,
               COLS * sizeof *x);
    weft_matrix a = {(const uint8_t *)x, ROWS, COLS, 2},
                b = {(const uint8_t *)y, ROWS + 7, COLS, 2};
    weft_similarity s = weft_similar__measure(&a, &b, arena);
    assert_int_equal(s.common_rows, ROWS);
    assert_true(s.same_rows >= 1 && s.same_rows < ROWS);
    assert_int_equal(s.common_cols, 0); /* rows of other lengths */
    /* A row that occurs twice in a counts as often as it occurs in b. */
    memcpy(x + COLS, x, COLS * sizeof *x);
    s = weft_similar__measure(&a, &b, arena);
    assert_int_equal(s.common_rows, ROWS - 1);
    weft_arena_destroy(arena);
}

static float uniform(uint64_t *seed)
{
    return (float)(rand_next(seed) % 20001) / 10000 - 1;
}

static void test_similar__low_rank_deltas(void **state)
{
    enum { N = 60, K = 90, RANK = 5 };
    weft_arena *arena = weft_arena_create(0);
    static float x[N * K], y[N * K];
    uint64_t seed = 21;
    weft_low_rank found;
    weft_matrix a = {(const uint8_t *)x, N, K, 4}, b = {(const uint8_t *)y, N, K, 4};
    (void)state;
    for (int rank = 0; rank <= RANK; rank++) {
        float u[N * RANK], v[K * RANK];
        for (int i = 0; i < N * RANK; i++)
            u[i] = uniform(&seed);
        for (int i = 0; i < K * RANK; i++)
            v[i] = uniform(&seed) * 0.01f;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < K; j++) {
                float delta = 0;
                for (int k = 0; k < rank; k++)
                    delta += u[i * RANK + k] * v[j * RANK + k];
                x[i * K + j] = uniform(&seed);
                y[i * K + j] = x[i * K + j] + delta;
            }
        assert_true(weft_similar__low_rank(&a, &b, 16, 0, arena, &found));
        assert_int_equal(found.rank, rank);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < K; j++) {
                double delta = 0;
                for (uint32_t k = 0; k < found.rank; k++)
                    delta += (double)found.u[k * N + i] * found.v[k * K + j];
                assert_true(fabs((double)x[i * K + j] - y[i * K + j] - delta) < 1e-6);
            }
        assert_true(rank < 2 ||
                    !weft_similar__low_rank(&a, &b, (uint32_t)rank - 1, 0, arena, &found));
    }
    /* A difference of one element has rank 1; noise, NaN and other types have no low rank. */
    memcpy(y, x, sizeof x);
    y[N * K / 2] += 3;
    assert_true(weft_similar__low_rank(&a, &b, 4, 0, arena, &found) && found.rank <= 1);
    for (int i = 0; i < N * K; i++)
        y[i] = uniform(&seed);
    assert_false(weft_similar__low_rank(&a, &b, 16, 0, arena, &found));
    memcpy(y, x, sizeof x);
    y[7] = NAN;
    assert_false(weft_similar__low_rank(&a, &b, 16, 0, arena, &found));
    a.bytes = b.bytes = 2;
    assert_false(weft_similar__low_rank(&a, &b, 16, 0, arena, &found));
    weft_arena_destroy(arena);
}

/* Low-rank factors of similar size whose last pivots are small: the rank is found, and the residual
 * is within the rounding of W. */
static void test_similar__low_rank_is_exact(void **state)
{
    enum { N = 256, RANK = 16, ROUNDS = 12 };
    weft_arena *arena = weft_arena_create(0);
    static float x[N * N], y[N * N];
    uint64_t seed = 5;
    weft_matrix a = {(const uint8_t *)x, N, N, 4}, b = {(const uint8_t *)y, N, N, 4};
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        static float u[N * RANK], v[N * RANK];
        weft_low_rank found;
        for (int i = 0; i < N * RANK; i++) {
            u[i] = uniform(&seed) * 0.05f;
            v[i] = uniform(&seed) * 0.05f;
        }
        for (int i = 0; i < N * N; i++) {
            double delta = 0;
            for (int k = 0; k < RANK; k++)
                delta += (double)u[i / N * RANK + k] * v[i % N * RANK + k];
            x[i] = uniform(&seed);
            y[i] = (float)(x[i] + delta);
        }
        assert_true(weft_similar__low_rank(&a, &b, 64, 0, arena, &found));
        assert_int_equal(found.rank, RANK);
        assert_true(found.residual < 1.2e-7);
    }
    weft_arena_destroy(arena);
}

/* Elements of all magnitudes: b plus the single elements, in their order, is a bit by bit. */
static void test_similar__elements_give_the_weight_back(void **state)
{
    enum { ROWS = 40, COLS = 56, SIZE = ROWS * COLS, ROUNDS = 200 };
    weft_arena *arena = weft_arena_create(0);
    static float a[SIZE], b[SIZE], sum[SIZE];
    const weft_matrix x = {(const uint8_t *)a, ROWS, COLS, 4},
                      y = {(const uint8_t *)b, ROWS, COLS, 4};
    uint64_t seed = 7, parts = 0, changed = 0;
    weft_elements found;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        bool by_feature = round % 2;
        size_t taps = by_feature ? COLS : ROWS, features = by_feature ? ROWS : COLS;
        for (int i = 0; i < SIZE; i++)
            a[i] = b[i] = uniform(&seed) * powf(10, -(float)(rand_next(&seed) % 12));
        a[0] = b[0] = 1;
        for (int i = 0; i < 50; i++) {
            size_t at = 1 + rand_next(&seed) % (SIZE - 1);
            a[at] = rand_next(&seed) % 4
                        ? uniform(&seed) * powf(10, -(float)(rand_next(&seed) % 12))
                        : 0;
        }
        assert_true(weft_similar__elements(&x, &y, by_feature, arena, &found));
        memcpy(sum, b, sizeof sum);
        assert_int_equal(found.start[0], 0);
        for (size_t f = 0; f < features; f++)
            for (int32_t i = found.start[f]; i < found.start[f + 1]; i++) {
                size_t t = (size_t)found.tap[i];
                assert_true(t < taps);
                sum[by_feature ? f * taps + t : t * features + f] += found.value[i];
            }
        assert_int_equal(found.start[features], found.n);
        for (int i = 0; i < SIZE; i++) {
            assert_true(sum[i] == a[i]);
            changed += memcmp(&a[i], &b[i], sizeof a[i]) != 0;
        }
        parts += found.n;
    }
    assert_true(parts > changed); /* some take two */
    /* Nothing differs; more than 5 %; a NaN; a base with much larger elements. */
    memcpy(a, b, sizeof a);
    assert_false(weft_similar__elements(&x, &y, false, arena, &found));
    for (int i = 0; i < SIZE / 16; i++)
        a[i] += 1;
    assert_false(weft_similar__elements(&x, &y, false, arena, &found));
    memcpy(a, b, sizeof a);
    a[9] = NAN;
    assert_false(weft_similar__elements(&x, &y, false, arena, &found));
    a[9] = 1;
    b[9] = 1e6f;
    assert_false(weft_similar__elements(&x, &y, false, arena, &found));
    weft_arena_destroy(arena);
}

/* NaN counts for nothing but is reported; the sign counts for nothing. */
static void test_similar__largest_element(void **state)
{
    float x[] = {0.5f, -3, 2, 1e-40f, 0, -0.0f, 1, 2};
    const weft_matrix m = {(const uint8_t *)x, 2, 4, 4};
    bool nan = true;
    (void)state;
    assert_true(weft_similar__largest(&m, &nan) == 3 && !nan);
    x[1] = -NAN;
    assert_true(weft_similar__largest(&m, &nan) == 2 && nan);
    x[6] = -INFINITY;
    assert_true(isinf(weft_similar__largest(&m, &nan)) && nan);
}

/* Factors of both storage orders. */
static void test_similar__factors_fit_gemms(void **state)
{
    enum { ROWS = 48, COLS = 64, RANK = 3 };
    weft_arena *arena = weft_arena_create(0);
    static float a[ROWS * COLS], b[ROWS * COLS];
    float u[ROWS * RANK], v[RANK * COLS];
    const weft_matrix x = {(const uint8_t *)a, ROWS, COLS, 4},
                      y = {(const uint8_t *)b, ROWS, COLS, 4};
    uint64_t seed = 8;
    (void)state;
    for (int i = 0; i < ROWS * RANK; i++)
        u[i] = uniform(&seed);
    for (int i = 0; i < RANK * COLS; i++)
        v[i] = uniform(&seed) * 0.01f;
    for (int i = 0; i < ROWS * COLS; i++) {
        a[i] = b[i] = uniform(&seed);
        for (int k = 0; k < RANK; k++)
            a[i] += u[i / COLS * RANK + k] * v[k * COLS + i % COLS];
    }
    for (int by_feature = 0; by_feature < 2; by_feature++) {
        weft_factors found;
        int taps = by_feature ? COLS : ROWS, features = by_feature ? ROWS : COLS;
        assert_true(weft_similar__factors(&x, &y, by_feature, arena, &found));
        assert_int_equal(found.rank, RANK);
        for (int t = 0; t < taps; t++)
            for (int f = 0; f < features; f++) {
                int i = by_feature ? f * COLS + t : t * COLS + f;
                double sum = b[i];
                for (uint32_t k = 0; k < found.rank; k++)
                    sum += (double)found.first[t * RANK + (int)k] *
                           (double)found.second[(int)k * features + f];
                assert_true(fabs(sum - a[i]) < 1e-6);
            }
    }
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_similar__rectangle_at_an_offset_is_the_largest),
        cmocka_unit_test(test_similar__finds_what_was_planted),
        cmocka_unit_test(test_similar__zeros_do_not_hide_a_block),
        cmocka_unit_test(test_similar__bits_decide),
        cmocka_unit_test(test_similar__rows_and_columns_that_moved),
        cmocka_unit_test(test_similar__low_rank_deltas),
        cmocka_unit_test(test_similar__low_rank_is_exact),
        cmocka_unit_test(test_similar__elements_give_the_weight_back),
        cmocka_unit_test(test_similar__largest_element),
        cmocka_unit_test(test_similar__factors_fit_gemms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
