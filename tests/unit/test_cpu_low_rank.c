/* The CPU's kernel of low_rank_matmul and patched_matmul, against their definition. */
#include "tests/support/session_world.h"

#include "tests/support/low_rank_case.h"

static const weft_op_id operators[] = {WEFT_OP_LOW_RANK_MATMUL, WEFT_OP_PATCHED_MATMUL};

static void add_operands(world *w, const low_rank_case *c, uint32_t *value)
{
    for (uint32_t i = 0; i < c->n_operand; i++) {
        bool rows = i == 0 || (c->gelu && i + 1 == c->n_operand);
        value[i] = !c->operand[i] ? 0
                   : rows         ? add_input(w, c->tensor[i])
                                  : add_weight(w, c->tensor[i]);
    }
}

static void open_case(world *w, const low_rank_case *c, uint32_t threads)
{
    uint32_t value[LOW_RANK_OPERANDS];
    add_operands(w, c, value);
    uint32_t y = add_value(w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, 2, (int64_t[]){c->rows, c->n});
    add_launch(w, c->op, c->attrs, value, c->n_operand, y);
    add_output(w, y);
    open_world(w, threads);
}

/* The larger error of two runs of one session on that problem. */
static double run_case(weft_op_id op, uint32_t seed, uint32_t segments, uint32_t most,
                       uint32_t threads, const char **out_variant)
{
    world w;
    low_rank_case c;
    uint32_t n;
    weft_tensor got;
    double worst = 0;
    init_world(&w);
    low_rank_make(&c, op, w.arena, seed, WEFT_DTYPE_F32, segments, most);
    open_case(&w, &c, threads);
    for (int round = 0; round < 2; round++) {
        weft_session_profile(w.session, true);
        weft_err err = weft_session_run(w.session, w.in, w.program.n_input, w.diag, &got, 1);
        explain(&w);
        assert_int_equal(err, WEFT_ERR_OK);
        worst = fmax(worst, low_rank_error(&c, &got));
        *out_variant = strncmp(weft_session_times(w.session, &n)[0].variant, "low_rank+onednn", 15)
                           ? "other"
                           : "low_rank";
    }
    finish_world(&w);
    return worst;
}

static void test_cpu_low_rank__agrees_with_the_definition(void **state)
{
    (void)state;
    uint32_t by_kernel = 0;
    for (uint32_t seed = 0; seed < 192; seed++) {
        const char *variant;
        double error = run_case(operators[seed % 2], seed, 1 + seed / 2 % WEFT_LOW_RANK_SEGMENTS,
                                seed % 7, 1 + seed % 3, &variant);
        if (!(error <= 1e-5))
            fail_msg("seed %u: error %g", seed, error);
        by_kernel += strcmp(variant, "low_rank") == 0;
    }
    assert_true(by_kernel >= 120); /* the others have an empty operand */
}

static void test_cpu_low_rank__many_rows_are_shared_out(void **state)
{
    (void)state;
    uint32_t by_kernel = 0;
    for (uint32_t round = 0; round < 8; round++) {
        const char *variant;
        uint32_t threads = 1 + round / 2;
        double error = run_case(operators[round % 2], 7 + round, 5, 300, threads, &variant);
        if (!(error <= 1e-5))
            fail_msg("%u threads: error %g", threads, error);
        by_kernel += strcmp(variant, "low_rank") == 0;
    }
    assert_true(by_kernel >= 6);
}

/* Element [tap, col] of the corrected weight of the segment that has the row. */
static double corrected_weight(low_rank_case *c, uint32_t segment, int64_t row, int64_t tap,
                               int64_t col)
{
    const weft_tensor *bias = c->operand[2];
    float kept[128], *x = (float *)c->tensor[0].data + row * c->k;
    memcpy(kept, x, (size_t)c->k * sizeof *x);
    memset(x, 0, (size_t)c->k * sizeof *x);
    x[tap] = 1;
    c->operand[2] = NULL;
    double w = low_rank_element(c, segment, row, col);
    c->operand[2] = bias;
    memcpy(x, kept, (size_t)c->k * sizeof *x);
    return w;
}

/* Plants infinity, -infinity or NaN into a row: the row is as with the corrected weight, all others
 * are as without. Returns the number of elements that are infinite. */
static uint32_t plant(weft_op_id op, uint32_t seed, float special)
{
    world w;
    low_rank_case c;
    weft_tensor got;
    uint32_t segment = 0, infinite = 0;
    init_world(&w);
    low_rank_make(&c, op, w.arena, seed, WEFT_DTYPE_F32, 1 + seed % 4, 6);
    if (c.gelu || c.rows == 0) {
        finish_world(&w);
        return 0;
    }
    int64_t row = seed % c.rows, tap = seed % c.k;
    while (row >= c.start[segment + 1])
        segment++;
    for (int64_t col = 0; col < c.n; col++) {
        double weight = corrected_weight(&c, segment, row, tap, col);
        c.want[row * c.n + col] = fabs(weight) < 1e-5 ? 0 : weight * (double)special;
    }
    ((float *)c.tensor[0].data)[row * c.k + tap] = special;
    open_case(&w, &c, 1 + seed % 2);
    assert_int_equal(weft_session_run(w.session, w.in, w.program.n_input, w.diag, &got, 1),
                     WEFT_ERR_OK);
    for (int64_t i = 0; i < c.rows * c.n; i++) {
        double want = c.want[i], have = weft_tensor_get_f64(&got, i);
        if (i / c.n != row)
            assert_true(fabs(have - want) < 1e-4);
        else if (isnan(special))
            assert_true(isnan(have));
        else if (want != 0) /* where the weight is next to zero, rounding decides */
            assert_true(have == want);
        infinite += isinf(have) != 0;
    }
    finish_world(&w);
    return infinite;
}

static void test_cpu_low_rank__special_rows_see_the_corrected_weight(void **state)
{
    (void)state;
    static const float special[] = {INFINITY, -INFINITY, NAN};
    uint32_t infinite = 0;
    for (uint32_t seed = 0; seed < 120; seed++)
        infinite += plant(operators[seed % 2], seed, special[seed / 2 % 3]);
    assert_true(infinite > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_low_rank__agrees_with_the_definition),
        cmocka_unit_test(test_cpu_low_rank__many_rows_are_shared_out),
        cmocka_unit_test(test_cpu_low_rank__special_rows_see_the_corrected_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
