/* Quantised products and quantisation against the formulas of ONNX. Scales are powers of two, so
 * the formulas are exact in f32 and every tie is a tie. */
#include "ir/ir.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 3, INNER = 5, COLS = 4 };

typedef struct problem {
    int64_t a[ROWS][INNER], b[INNER][COLS], bias[COLS];
    int64_t a_zero, b_zero[COLS], y_zero;
    double a_scale, b_scale[COLS], y_scale;
    bool a_signed, b_signed, y_signed, has_bias, float_result;
} problem;

static int64_t random_byte(uint64_t *seed, bool is_signed)
{
    return (int64_t)(rand_next(seed) % 256) - (is_signed ? 128 : 0);
}

static double random_scale(uint64_t *seed)
{
    return ldexp(1, -(int)(rand_next(seed) % 8));
}

static problem random_problem(uint64_t *seed)
{
    problem p = {.a_signed = rand_next(seed) % 2,
                 .b_signed = rand_next(seed) % 2,
                 .y_signed = rand_next(seed) % 2,
                 .has_bias = rand_next(seed) % 2,
                 .float_result = rand_next(seed) % 4 == 0};
    p.a_scale = random_scale(seed);
    p.a_zero = random_byte(seed, p.a_signed);
    p.y_scale = ldexp(1, (int)(rand_next(seed) % 6));
    p.y_zero = random_byte(seed, p.y_signed);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < INNER; k++)
            p.a[i][k] = random_byte(seed, p.a_signed);
    for (int j = 0; j < COLS; j++) {
        p.b_scale[j] = random_scale(seed);
        p.b_zero[j] = random_byte(seed, p.b_signed);
        p.bias[j] = (int64_t)(rand_next(seed) % 20001) - 10000;
        for (int k = 0; k < INNER; k++)
            p.b[k][j] = random_byte(seed, p.b_signed);
    }
    return p;
}

/* Round to nearest even, then the zero point, then saturation. */
static double expected(const problem *p, int row, int col)
{
    int64_t sum = p->has_bias ? p->bias[col] : 0;
    for (int k = 0; k < INNER; k++)
        sum += (p->a[row][k] - p->a_zero) * (p->b[k][col] - p->b_zero[col]);
    double y = (double)sum * p->a_scale * p->b_scale[col];
    if (p->float_result)
        return y;
    double lo = p->y_signed ? -128 : 0;
    return fmin(fmax(rint(y / p->y_scale) + (double)p->y_zero, lo), lo + 255);
}

static void put_list(weft_buf *text, const int64_t *x, int n)
{
    for (int i = 0; i < n; i++)
        weft_buf_printf(text, "%s%lld", i ? ", " : "[", (long long)x[i]);
    weft_buf_puts(text, "]\n");
}

static void print_problem(weft_buf *text, const problem *p)
{
    const char *a = p->a_signed ? "i8" : "u8", *b = p->b_signed ? "i8" : "u8";
    const char *y = p->y_signed ? "i8" : "u8";
    weft_buf_printf(text, "wir 1 graph\nweight $sa : f32[] = dense [%#.17g]\n", p->a_scale);
    weft_buf_printf(text, "weight $za : %s[] = dense [%lld]\n", a, (long long)p->a_zero);
    weft_buf_printf(text, "weight $sb : f32[4] = dense [%#.17g, %#.17g, %#.17g, %#.17g]\n",
                    p->b_scale[0], p->b_scale[1], p->b_scale[2], p->b_scale[3]);
    weft_buf_printf(text, "weight $zb : %s[4] = dense ", b);
    put_list(text, p->b_zero, COLS);
    weft_buf_printf(text, "weight $b : %s[5,4] = dense ", b);
    put_list(text, p->b[0], INNER * COLS);
    weft_buf_printf(text, "weight $sy : f32[] = dense [%#.17g]\n", p->y_scale);
    weft_buf_printf(text, "weight $zy : %s[] = dense [%lld]\n", y, (long long)p->y_zero);
    weft_buf_puts(text, "weight $bias : i32[4] = dense ");
    put_list(text, p->bias, COLS);
    weft_buf_printf(text,
                    "graph @g (%%x : %s[3,5]) {\n  %%1 : %s[3,4] = qlinear_matmul %%x, $sa, $za, "
                    "$b, $sb, $zb, %s%s\n  return \"y\" %%1\n}\n",
                    a, p->float_result ? "f32" : y, p->float_result ? "_, _" : "$sy, $zy",
                    p->has_bias ? ", $bias" : "");
}

static void check_problem(const problem *p)
{
    weft_buf text = {0};
    weft_module *m = NULL;
    weft_tensor in = {
        .dtype = p->a_signed ? WEFT_DTYPE_I8 : WEFT_DTYPE_U8, .rank = 2, .dim = {ROWS, INNER}};
    uint8_t bytes[ROWS * INNER];
    in.data = bytes;
    for (int i = 0; i < ROWS * INNER; i++)
        weft_tensor_set_i64(&in, i, p->a[i / INNER][i % INNER]);
    print_problem(&text, p);
    weft_tensor out;
    weft_err err = weft_module_parse(text.at, text.len, "t", NULL, diag, &m);
    if (err == WEFT_ERR_OK)
        err = weft_graph_eval(weft_graph_at(m, 0), &in, 1, arena, diag, &out, 1);
    if (err != WEFT_ERR_OK)
        fail_msg("%s\n%s", weft_diag_at(diag, 0)->text, text.at);
    for (int i = 0; i < ROWS * COLS; i++) {
        double got = weft_tensor_get_f64(&out, i), want = expected(p, i / COLS, i % COLS);
        if (got != want)
            fail_msg("element %d: %g, expected %g\n%s", i, got, want, text.at);
    }
    weft_buf_finish(&text);
    weft_module_destroy(m);
}

static void test_qlinear__products_follow_the_formula(void **state)
{
    (void)state;
    uint64_t seed = 12;
    for (int i = 0; i < 400; i++) {
        problem p = random_problem(&seed);
        check_problem(&p);
    }
}

/* quantize_linear adds the zero point after rounding, with zero_first before it: halves go to even
 * numbers of different parity. NaN is the lowest number, infinities saturate. */
static void test_qlinear__ties_and_special_values(void **state)
{
    (void)state;
    float x[] = {0.5f, 1.5f, 2.5f, -0.5f, NAN, INFINITY, -INFINITY, 1e9f};
    static const int after[] = {5, 7, 7, 5, 0, 255, 0, 255}, first[] = {6, 6, 8, 4, 0, 255, 0, 255};
    static const char *const attrs[] = {"", " {zero_first = 1}"};
    for (int k = 0; k < 2; k++) {
        char text[512];
        snprintf(text, sizeof text,
                 "wir 1 graph\nweight $s : f32[] = dense [1.0]\nweight $z : u8[] = dense [5]\n"
                 "graph @g (%%x : f32[8]) {\n  %%1 : u8[8] = quantize_linear %%x, $s, $z%s\n"
                 "  return \"y\" %%1\n}\n",
                 attrs[k]);
        weft_module *m = NULL;
        weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {8}, .data = x}, out;
        assert_int_equal(weft_module_parse(text, strlen(text), "t", NULL, diag, &m), WEFT_ERR_OK);
        assert_int_equal(weft_graph_eval(weft_graph_at(m, 0), &in, 1, arena, diag, &out, 1),
                         WEFT_ERR_OK);
        for (int i = 0; i < 8; i++)
            assert_int_equal(((const uint8_t *)out.data)[i], k ? first[i] : after[i]);
        weft_module_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_qlinear__products_follow_the_formula, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_qlinear__ties_and_special_values, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
