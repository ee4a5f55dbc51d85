/* Batches in slices of a few rows: the rule, the divided workload, and that the estimator and the
 * session that runs the model divide alike. */
#include "codegen/codegen.h"
#include "ops/batch_rows.h"
#include "runtime/runtime.h"
#include "tests/support/network.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* -- The rule --------------------------------------------------------------------------------- */

/* A program of one launch. */
typedef struct program {
    double row_bytes, weights;
} program;

static weft_rows_traffic one_launch(void *user, int64_t rows)
{
    const program *p = user;
    weft_rows_traffic sum = {.weights = p->weights};
    weft_rows_add(&sum, WEFT_OP_CONV, p->row_bytes * (double)rows);
    return sum;
}

static weft_rows_traffic body_launch(void *user, int64_t rows)
{
    weft_rows_traffic sum = one_launch(user, rows);
    weft_rows_add(&sum, WEFT_OP_LOOP, 0);
    return sum;
}

static void test_batch_rows__slices_fit_the_cache(void **state)
{
    program mib = {.row_bytes = 1 << 20}, wide = {.row_bytes = 9 << 20};
    (void)state;
    assert_int_equal(weft_rows_choose(8, 1, one_launch, &mib), 0);   /* all fit */
    assert_int_equal(weft_rows_choose(16, 1, one_launch, &mib), 8);  /* 8 MiB */
    assert_int_equal(weft_rows_choose(16, 3, one_launch, &mib), 6);  /* a row a thread, doubled */
    assert_int_equal(weft_rows_choose(16, 16, one_launch, &mib), 0); /* as many threads as rows */
    assert_int_equal(weft_rows_choose(8, 1, one_launch, &wide), 2);  /* none fits: the fewest */
    assert_int_equal(weft_rows_choose(8, 1, body_launch, &wide), 0);
}

/* 72 MiB are spilled, weights are read three times more. */
static void test_batch_rows__weights_are_read_again(void **state)
{
    program few = {.row_bytes = 9 << 20, .weights = 11 << 20};
    program many = {.row_bytes = 9 << 20, .weights = 13 << 20};
    (void)state;
    assert_int_equal(weft_rows_choose(8, 1, one_launch, &few), 2);
    assert_int_equal(weft_rows_choose(8, 1, one_launch, &many), 0);
}

/* -- A network -------------------------------------------------------------------------------- */

typedef struct world {
    weft_module *m;
    weft_graph *g;
    weft_arena *arena;
    weft_diag *diag;
    weft_bundle bundle;
} world;

static void open_world(world *w, const char *name)
{
    static const int64_t batches[] = {1, 8, 32};
    *w = (world){.arena = weft_arena_create(0), .diag = weft_diag_create()};
    w->m = network_load_for(name, "cpu", batches, 3);
    w->g = weft_graph_at(w->m, 0);
    assert_int_equal(weft_codegen_bundle(w->m, weft_backend_find("cpu"), NULL, NULL, w->arena,
                                         w->diag, &w->bundle),
                     WEFT_ERR_OK);
}

static void close_world(world *w)
{
    weft_module_destroy(w->m);
    weft_arena_destroy(w->arena);
    weft_diag_destroy(w->diag);
}

/* The whole workload and, on the slice, the divided one; *out_symbol: the sizes. */
static void divide(world *w, uint32_t batch, const char *device, const char *slice,
                   int64_t *out_symbol, weft_workload *out_whole, weft_workload *out)
{
    weft_slice on;
    assert_int_equal(weft_estimate_symbols(w->g, batch, w->diag, out_symbol), WEFT_ERR_OK);
    assert_int_equal(weft_workload_make(w->g, out_symbol, NULL, w->arena, w->diag, out_whole),
                     WEFT_ERR_OK);
    assert_int_equal(weft_slice_make(device, slice, w->diag, &on), WEFT_ERR_OK);
    assert_int_equal(weft_workload_divide(out_whole, &on, w->arena, w->diag, out), WEFT_ERR_OK);
}

static double sum_flops(const weft_workload *work)
{
    double sum = 0;
    for (size_t i = 0; i < work->n; i++)
        sum += work->kernel[i].kernel.work.flops * work->kernel[i].launches;
    return sum;
}

static void test_batch_rows__kernels_of_slices(void **state)
{
    world w;
    int64_t symbol[8];
    weft_workload whole, divided;
    weft_estimate e;
    weft_slice cpu;
    (void)state;
    open_world(&w, "mobilenet_v2");
    divide(&w, 8, "cpu", "1core", symbol, &whole, &divided);
    assert_int_equal(divided.n, whole.n);
    assert_int_equal(divided.kernel[0].launches, 4);
    assert_true(fabs(sum_flops(&divided) / sum_flops(&whole) - 1) < 1e-9);
    assert_true(divided.arena_bytes < whole.arena_bytes / 3);
    /* Three slices of two rows, and one row. */
    divide(&w, 7, "cpu", "1core", symbol, &whole, &divided);
    assert_int_equal(divided.n, 2 * whole.n);
    assert_int_equal(divided.n_node, 2 * whole.n_node);
    assert_int_equal(divided.kernel[0].launches, 3);
    assert_int_equal(divided.kernel[whole.n].launches, 1);
    assert_true(fabs(sum_flops(&divided) / sum_flops(&whole) - 1) < 1e-9);
    /* An estimate is that of the divided workload, whose parts run one after the other. */
    assert_int_equal(weft_slice_make("cpu", "1core", w.diag, &cpu), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_workload(&whole, &cpu, NULL, w.arena, w.diag, &e), WEFT_ERR_OK);
    assert_int_equal(e.n, divided.n);
    assert_true(e.kernel[whole.n].start_us >= e.kernel[whole.n - 1].end_us);
    divide(&w, 8, "h100", "", symbol, &whole, &divided);
    assert_ptr_equal(divided.kernel, whole.kernel);
    close_world(&w);
}

/* The arena that the driver would allocate, and the outputs that it gathers. */
static void test_batch_rows__as_sessions_run(void **state)
{
    static const char *const names[] = {"mobilenet_v2", "resnet18"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        world w;
        open_world(&w, names[i]);
        for (uint32_t threads = 1; threads <= 4; threads *= 2)
            for (uint32_t batch = 1; batch <= 32; batch = batch * 2 + 1) {
                int64_t symbol[8];
                weft_workload whole, divided;
                weft_memory_plan plan;
                char cores[WEFT_SLICE_NAME_MAX];
                const weft_engine_options options = {.threads = threads};
                snprintf(cores, sizeof cores, "%ucore", threads);
                divide(&w, batch, "cpu", cores, symbol, &whole, &divided);
                assert_int_equal(weft_memory_plan_make(&w.bundle, w.bundle.program[0].name, symbol,
                                                       &options, 0, w.diag, &plan),
                                 WEFT_ERR_OK);
                bool is_whole = divided.kernel == whole.kernel;
                assert_int_equal(plan.arena_bytes,
                                 divided.arena_bytes - (is_whole ? 0 : whole.out_bytes));
            }
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_rows__slices_fit_the_cache),
        cmocka_unit_test(test_batch_rows__weights_are_read_again),
        cmocka_unit_test(test_batch_rows__kernels_of_slices),
        cmocka_unit_test(test_batch_rows__as_sessions_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
