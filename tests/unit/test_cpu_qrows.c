/* Rows quantised by their range, times factors of bytes: every vector table against sums of 64
 * bits. */
#include "runtime/cpu/cpu_qrows.h"

#include "runtime/cpu/cpu_memory.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARTS_MAX = 3, COLS_MAX = 70, INNER_MAX = 67, ROWS_MAX = 41 };

typedef struct product {
    int64_t parts, cols, inner, rows;
    bool is_signed;
    uint8_t w[PARTS_MAX * COLS_MAX * INNER_MAX], zero[PARTS_MAX * COLS_MAX];
    float col_s[PARTS_MAX * COLS_MAX], x[ROWS_MAX * INNER_MAX];
    float want[ROWS_MAX * PARTS_MAX * COLS_MAX];
} product;

static int64_t byte_at(const product *p, const uint8_t *at)
{
    return p->is_signed ? (int8_t)*at : *at;
}

static void make_product(product *p, uint64_t *seed)
{
    p->parts = 1 + rand_below(seed, PARTS_MAX);
    p->cols = 1 + rand_below(seed, COLS_MAX);
    p->inner = 1 + rand_below(seed, INNER_MAX);
    p->rows = 1 + rand_below(seed, ROWS_MAX);
    p->is_signed = rand_below(seed, 2);
    bool extreme = rand_below(seed, 4) == 0, one_sided = rand_below(seed, 4) == 0;
    for (size_t i = 0; i < sizeof p->w; i++)
        p->w[i] = extreme ? (p->is_signed ? 0x80 : 0xff) : (uint8_t)rand_next(seed);
    for (size_t i = 0; i < sizeof p->zero; i++) {
        p->zero[i] = (uint8_t)rand_next(seed);
        p->col_s[i] = 0.5f + (float)rand_unit(seed);
    }
    for (size_t i = 0; i < sizeof p->x / sizeof p->x[0]; i++)
        p->x[i] = one_sided ? fabsf(rand_signed(seed)) : rand_signed(seed);
}

/* By the definition, from the numbers as they are quantised. */
static void define(product *p, const weft_cpu_vec *vec, float scale, int32_t zero)
{
    static uint8_t q[ROWS_MAX * INNER_MAX];
    vec->quantize(q, p->x, scale, (float)zero, 0, 255, (size_t)(p->rows * p->inner));
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < p->parts * p->cols; c++) {
            int64_t sum = 0;
            for (int64_t i = 0; i < p->inner; i++)
                sum += (q[r * p->inner + i] - zero) *
                       (byte_at(p, &p->w[c * p->inner + i]) - byte_at(p, &p->zero[c]));
            p->want[r * p->parts * p->cols + c] = (float)sum * (scale * p->col_s[c]);
        }
}

static void check_product(product *p, const weft_cpu_vec *vec)
{
    int64_t columns = p->parts * p->cols, panels = p->parts * ((p->cols + 31) / 32);
    const weft_slot zero = {.present = true,
                            .tensor = {.dtype = p->is_signed ? WEFT_DTYPE_I8 : WEFT_DTYPE_U8,
                                       .rank = 1,
                                       .dim = {columns},
                                       .data = p->zero}};
    const weft_cpu_format f = weft_cpu__qrows_format(vec, p->parts, p->cols, p->inner, &zero);
    static float got[ROWS_MAX * PARTS_MAX * COLS_MAX];
    void *w = malloc(f.bytes), *x = malloc(weft_cpu__qrows_room(vec, p->rows, p->inner));
    assert_non_null(w);
    assert_non_null(x);
    f.fill(w, p->w, &f);
    weft_cpu_qrows q = {.vec = vec,
                        .x = x,
                        .rows = p->rows,
                        .inner = p->inner,
                        .cols = p->cols,
                        .w = w,
                        .col_s = p->col_s,
                        .out = got,
                        .stride = columns,
                        .part = p->cols};
    weft_cpu__qrows_quantise(&q, p->x);
    /* Tasks apart, as threads take them. */
    for (int64_t i = 0; i < panels; i++)
        weft_cpu__qrows_multiply(&q, i, i + 1);
    define(p, vec, q.scale, q.zero);
    assert_memory_equal(got, p->want, (size_t)(p->rows * columns) * sizeof got[0]);
    free(w);
    free(x);
}

static void test_cpu_qrows__are_exact(void **state)
{
    (void)state;
    static const uint32_t lanes[] = {1, 4, 8, 16};
    static product p;
    uint64_t seed = 1;
    for (int round = 0; round < RAND_ROUNDS(400); round++) {
        make_product(&p, &seed);
        for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++)
            check_product(&p, weft_cpu__vec(lanes[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu_qrows__are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
