/* The CPU's kernel of routed_matmul, against its definition in double: each row times the weight of
 * its model, which is w + u_m v_m, rows with infinities and NaN too. */
#include "tests/support/session_world.h"

#include "tests/support/rand.h"

enum { MODELS_MOST = 5, RANKS_MOST = MODELS_MOST * 3 };

typedef struct routed_case {
    int64_t rows, k, n, ranks;
    uint32_t models;
    bool trans_b;
    int64_t start[MODELS_MOST + 1];
    weft_tensor x, w, bias, model, u, v;
    weft_attr attr[2];
} routed_case;

static weft_tensor fill(world *w, uint64_t *seed, int64_t rows, int64_t cols)
{
    weft_tensor t = make_tensor(w, WEFT_DTYPE_F32, 2, (int64_t[]){rows, cols});
    for (int64_t i = 0; i < rows * cols; i++)
        ((float *)t.data)[i] = (float)rand_below(seed, 2001) / 1000 - 1;
    return t;
}

static void make_case(world *w, routed_case *c, uint64_t seed)
{
    *c = (routed_case){.rows = 1 + rand_below(&seed, 40),
                       .k = 1 + rand_below(&seed, 40),
                       .n = 1 + rand_below(&seed, 40),
                       .models = 1 + rand_below(&seed, MODELS_MOST),
                       .trans_b = rand_below(&seed, 2)};
    for (uint32_t m = 0; m < c->models; m++) {
        c->start[m] = c->ranks;
        c->ranks += rand_below(&seed, 4);
    }
    c->start[c->models] = c->ranks;
    c->x = fill(w, &seed, c->rows, c->k);
    c->w = c->trans_b ? fill(w, &seed, c->n, c->k) : fill(w, &seed, c->k, c->n);
    c->bias = fill(w, &seed, 1, c->n);
    c->u = fill(w, &seed, c->k, c->ranks);
    c->v = fill(w, &seed, c->ranks, c->n);
    c->model = make_tensor(w, WEFT_DTYPE_I64, 1, &c->rows);
    for (int64_t i = 0; i < c->rows; i++)
        ((int64_t *)c->model.data)[i] = i > 0 && rand_below(&seed, 3)
                                            ? ((int64_t *)c->model.data)[i - 1]
                                            : rand_below(&seed, c->models);
    c->attr[0] = (weft_attr){.key = WEFT_ATTR_STARTS, .kind = WEFT_KIND_INTS, .n = c->models};
    c->attr[0].u.ints = c->start;
    c->attr[1] = (weft_attr){.key = WEFT_ATTR_TRANS_B, .kind = WEFT_KIND_INT, .u.i = c->trans_b};
}

static double weight_of(const routed_case *c, int64_t row, int64_t tap, int64_t col)
{
    int64_t m = ((int64_t *)c->model.data)[row];
    double sum = weft_tensor_get_f64(&c->w, c->trans_b ? col * c->k + tap : tap * c->n + col);
    for (int64_t r = c->start[m]; r < c->start[m + 1]; r++)
        sum += weft_tensor_get_f64(&c->u, tap * c->ranks + r) *
               weft_tensor_get_f64(&c->v, r * c->n + col);
    return sum;
}

/* Runs the case; returns the code of the run. */
static weft_err run_case(world *w, const routed_case *c, uint32_t threads, weft_tensor *got)
{
    uint32_t y = add_value(w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, 2, (int64_t[]){c->rows, c->n});
    const uint32_t in[] = {add_input(w, c->x),     add_weight(w, c->w), add_weight(w, c->bias),
                           add_input(w, c->model), add_weight(w, c->u), add_weight(w, c->v)};
    add_launch(w, WEFT_OP_ROUTED_MATMUL, (weft_attrs){c->attr, 2}, in, 6, y);
    add_output(w, y);
    open_world(w, threads);
    weft_session_profile(w->session, true);
    return weft_session_run(w->session, w->in, w->program.n_input, w->diag, got, 1);
}

static void check_row(const routed_case *c, const weft_tensor *got, int64_t row)
{
    for (int64_t col = 0; col < c->n; col++) {
        double want = weft_tensor_get_f64(&c->bias, col), have;
        bool open = false; /* the sign of a weight next to zero is that of its rounding */
        for (int64_t tap = 0; tap < c->k; tap++) {
            double x = weft_tensor_get_f64(&c->x, row * c->k + tap);
            double weight = weight_of(c, row, tap, col);
            want += x * weight;
            open = open || (isinf(x) && fabs(weight) < 1e-5);
        }
        have = weft_tensor_get_f64(got, row * c->n + col);
        if (!open && !(isfinite(want) ? fabs(have - want) < 1e-4
                                      : have == want || (isnan(have) && isnan(want))))
            fail_msg("row %d, column %d: %g, expected %g", (int)row, (int)col, have, want);
    }
}

static void test_cpu_routed__agrees_with_the_definition(void **state)
{
    (void)state;
    static const float special[] = {INFINITY, -INFINITY, NAN};
    uint32_t by_kernel = 0, n;
    for (uint32_t seed = 0; seed < 160; seed++) {
        world w;
        routed_case c;
        weft_tensor got;
        init_world(&w);
        make_case(&w, &c, seed);
        for (uint32_t i = 0; i < seed % 3; i++)
            ((float *)c.x.data)[(seed * 31 + i * 17) % (c.rows * c.k)] = special[(seed + i) % 3];
        assert_int_equal(run_case(&w, &c, 1 + seed % 2, &got), WEFT_ERR_OK);
        by_kernel += !strncmp(weft_session_times(w.session, &n)[0].variant, "routed+onednn", 13);
        for (int64_t row = 0; row < c.rows; row++)
            check_row(&c, &got, row);
        finish_world(&w);
    }
    assert_true(by_kernel >= 40); /* runs with infinities are repeated without it */
}

static void test_cpu_routed__unknown_models_are_refused(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 8; seed++) {
        world w;
        routed_case c;
        weft_tensor got;
        init_world(&w);
        make_case(&w, &c, seed);
        ((int64_t *)c.model.data)[c.rows - 1] = seed % 2 ? -1 : (int64_t)c.models;
        assert_int_equal(run_case(&w, &c, 1, &got), WEFT_ERR_INPUT);
        finish_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_routed__agrees_with_the_definition),
        cmocka_unit_test(test_cpu_routed__unknown_models_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
