/* Sessions with adapters: adapter_delta on random batches beside its definition, by the CPU's
 * kernel and by the reference implementation, whole and in slices, and what is refused. */
#include "base/file.h"
#include "runtime/adapter/adapter.h"
#include "runtime/server/live_int.h"
#include "runtime/session/session_int.h"
#include "tests/support/session_world.h"

#include <unistd.h>

enum { SITES = 3, ADAPTERS = 4, ROWS_MAX = 24 };

typedef struct problem {
    world w;
    int64_t inner, k, width[SITES], n; /* x [b, inner, k] */
    const char *name[SITES];
    weft_bundle_factor factor[ADAPTERS][SITES];
    weft_bundle_adapter adapter[ADAPTERS];
    const float *a[ADAPTERS][SITES], *b[ADAPTERS][SITES];
    int64_t rank[ADAPTERS][SITES]; /* 0: no factors */
} problem;

static const float *add_factor(problem *p, int64_t rows, int64_t cols, uint32_t *out)
{
    weft_tensor t = make_tensor(&p->w, WEFT_DTYPE_F32, 2, (int64_t[]){rows, cols});
    add_weight(&p->w, t);
    *out = p->w.bundle.n_weight;
    return t.data;
}

static void make_adapters(problem *p, uint64_t *seed)
{
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        weft_bundle_adapter *to = &p->adapter[i];
        *to = (weft_bundle_adapter){.name = (const char *[]){"a", "b", "c", "d"}[i],
                                    .factor = p->factor[i]};
        for (uint32_t s = 0; s < SITES; s++) {
            int64_t rank = rand_below(seed, 4) == 0 ? 0 : 1 + (int64_t)rand_below(seed, 21);
            if (!*p->name[s] || rank == 0)
                continue;
            weft_bundle_factor *f = &p->factor[i][to->n_factor++];
            f->site = p->name[s];
            p->rank[i][s] = rank;
            p->a[i][s] = add_factor(p, rank, p->k, &f->a);
            p->b[i][s] = add_factor(p, rank, p->width[s], &f->b);
        }
    }
    p->w.bundle.adapter = p->adapter;
    p->w.bundle.n_adapter = ADAPTERS;
}

static void make_problem(problem *p, uint64_t *seed)
{
    memset(p, 0, sizeof *p);
    init_world(&p->w);
    world *w = &p->w;
    w->seed = *seed;
    p->inner = 1 + (int64_t)rand_below(seed, 5);
    p->k = 1 + (int64_t)rand_below(seed, 40);
    int64_t *width = weft_arena_array(w->arena, SITES, sizeof *width);
    const char **name = weft_arena_array(w->arena, SITES, sizeof *name);
    for (uint32_t s = 0; s < SITES; s++) {
        p->width[s] = width[s] = 1 + (int64_t)rand_below(seed, 50);
        p->name[s] = name[s] =
            s == 1 && rand_below(seed, 2) ? "" : (const char *[]){"q", "k", "v"}[s];
        p->n += width[s];
    }
    weft_dim b = weft_dim_symbol(w->pool, "b", 0, ROWS_MAX);
    w->symbol[0] = (weft_bundle_symbol){.name = "b", .lo = 0, .hi = ROWS_MAX};
    w->program.n_symbol = 1;
    w->program.batch_symbol = 0;
    weft_attr *attr = weft_arena_array(w->arena, 2, sizeof *attr);
    attr[0] = (weft_attr){
        .key = WEFT_ATTR_SITES, .kind = WEFT_KIND_STRS, .n = SITES, .u = {.strs = name}};
    attr[1] = (weft_attr){
        .key = WEFT_ATTR_WIDTHS, .kind = WEFT_KIND_INTS, .n = SITES, .u = {.ints = width}};
    uint32_t x = add_value(w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, 3, (int64_t[]){b, p->inner, p->k});
    w->input[w->program.n_input++] = (weft_bundle_port){.name = "x", .value = x};
    uint32_t y = add_value(w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, 3, (int64_t[]){b, p->inner, p->n});
    make_adapters(p, seed);
    add_launch(w, WEFT_OP_ADAPTER_DELTA, (weft_attrs){attr, 2}, &x, 1, y);
    add_output(w, y);
}

/* Element `col` of the result for a row x and an adapter, numbered from 1. */
static double definition(const problem *p, uint64_t adapter, const float *x, int64_t col)
{
    uint32_t s = 0;
    for (; col >= p->width[s]; s++)
        col -= p->width[s];
    double sum = 0;
    for (int64_t r = 0; adapter && r < p->rank[adapter - 1][s]; r++) {
        double xa = 0;
        for (int64_t j = 0; j < p->k; j++)
            xa += (double)x[j] * (double)p->a[adapter - 1][s][r * p->k + j];
        sum += xa * (double)p->b[adapter - 1][s][r * p->width[s] + col];
    }
    return sum;
}

/* Runs a random batch; `n` adapters are given. */
static void run_batch(problem *p, uint64_t *seed, int64_t rows, uint32_t n)
{
    world *w = &p->w;
    uint64_t of[ROWS_MAX] = {0};
    weft_tensor x = make_tensor(w, WEFT_DTYPE_F32, 3, (int64_t[]){rows, p->inner, p->k}), y;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pick = (uint32_t)rand_below(seed, ADAPTERS + 1);
        of[i] = i > 0 && rand_below(seed, 3) == 0 ? of[i - 1] : pick;
    }
    assert_int_equal(weft_session_adapt(w->session, of, n, w->diag), WEFT_ERR_OK);
    weft_err err = weft_session_run(w->session, &x, 1, w->diag, &y, 1);
    explain(w);
    assert_int_equal(err, WEFT_ERR_OK);
    for (int64_t i = 0; i < rows * p->inner * p->n; i++) {
        int64_t row = i / p->n, part = row / p->inner;
        uint64_t adapter = n == 0 ? 0 : of[n == 1 ? 0 : part];
        double want = definition(p, adapter, (const float *)x.data + row * p->k, i % p->n);
        double got = ((const float *)y.data)[i];
        if (fabs(got - want) > 1e-4 * (1 + fabs(want)))
            fail_msg("row %lld column %lld: %g, expected %g", (long long)row, (long long)(i % p->n),
                     got, want);
    }
}

static void test_cpu_adapter__rows_of_a_batch_have_adapters_of_their_own(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t seed = 100 + i;
        problem p;
        make_problem(&p, &seed);
        open_world(&p.w, 1 + (uint32_t)(i % 3));
        assert_int_equal(weft_session_site_count(p.w.session), *p.name[1] ? 3 : 2);
        for (int round = 0; round < 4; round++) {
            int64_t rows = 1 + (int64_t)rand_below(&seed, ROWS_MAX);
            uint32_t n = round == 0 ? 0 : round == 1 ? 1 : (uint32_t)rows;
            run_batch(&p, &seed, rows, n);
        }
        finish_world(&p.w);
    }
}

/* Slices of some rows each, of one row too; the whole batch has its adapters again afterwards. */
static void test_cpu_adapter__slices_keep_their_adapters(void **state)
{
    (void)state;
    for (int64_t slice = 1; slice <= 4; slice++) {
        uint64_t seed = 500 + (uint64_t)slice;
        problem p;
        make_problem(&p, &seed);
        open_world(&p.w, 1);
        weft_slicing *slices = &p.w.session->slices;
        slices->symbol[0] = malloc(sizeof(int64_t));
        *slices->symbol[0] = 9;
        slices->rows[0] = slice;
        slices->next = 1;
        for (int round = 0; round < 3; round++) {
            run_batch(&p, &seed, 9, round == 1 ? 1 : 9);
            assert_int_equal(slices->last, slice);
        }
        finish_world(&p.w);
    }
}

/* The null driver runs the reference implementation. */
static void test_cpu_adapter__the_reference_agrees(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 12; i++) {
        uint64_t seed = 900 + i;
        problem p;
        make_problem(&p, &seed);
        const weft_engine_options options = {.driver = "null"};
        assert_int_equal(weft_engine_open_bundle(&p.w.bundle, &options, p.w.diag, &p.w.engine), 0);
        assert_int_equal(weft_session_open(p.w.engine, "m", p.w.diag, &p.w.session), 0);
        run_batch(&p, &seed, 7, 7);
        run_batch(&p, &seed, 3, 1);
        finish_world(&p.w);
    }
}

static void test_cpu_adapter__other_numbers_of_rows_are_refused(void **state)
{
    (void)state;
    uint64_t seed = 5;
    problem p;
    weft_tensor y;
    make_problem(&p, &seed);
    open_world(&p.w, 1);
    weft_tensor x = make_tensor(&p.w, WEFT_DTYPE_F32, 3, (int64_t[]){4, p.inner, p.k});
    const uint64_t some[] = {0, 1, 2}, none[] = {1, ADAPTERS + 1};
    assert_int_equal(weft_session_adapt(p.w.session, some, 3, p.w.diag), WEFT_ERR_OK);
    assert_int_equal(weft_session_run(p.w.session, &x, 1, p.w.diag, &y, 1), WEFT_ERR_INPUT);
    assert_non_null(strstr(weft_diag_at(p.w.diag, 0)->text, "for 3 rows, the batch has 4"));
    assert_int_equal(weft_session_adapt(p.w.session, none, 2, p.w.diag), WEFT_ERR_INPUT);
    assert_int_equal(weft_session_run(p.w.session, &x, 1, p.w.diag, &y, 1), WEFT_ERR_OK);
    for (int64_t i = 0; i < weft_tensor_numel(&y); i++)
        assert_true(((const float *)y.data)[i] == 0);
    finish_world(&p.w);
}

/* The factors that adapter `from` of the problem has, as those of one that is not in the bundle. */
static uint32_t list_parts(const problem *p, uint32_t from, weft_adapter_part part[SITES])
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < SITES; s++)
        if (p->rank[from][s])
            part[n++] = (weft_adapter_part){.site = p->name[s],
                                            .factors = {.rank = p->rank[from][s],
                                                        .k = p->k,
                                                        .n = p->width[s],
                                                        .a = p->a[from][s],
                                                        .b = p->b[from][s]}};
    return n;
}

/* Adapters that come and go beside those of the bundle, which have the same factors. */
static void test_cpu_adapter__adapters_come_and_go(void **state)
{
    (void)state;
    enum { ROWS = 6 };
    const uint64_t first = (uint64_t)1 << 40;
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t seed = 1300 + i;
        problem p;
        weft_adapter_part part[SITES];
        weft_tensor y, z;
        make_problem(&p, &seed);
        open_world(&p.w, 1);
        world *w = &p.w;
        weft_tensor x = make_tensor(w, WEFT_DTYPE_F32, 3, (int64_t[]){ROWS, p.inner, p.k});
        uint64_t own[ROWS], added[ROWS];
        for (uint32_t r = 0; r < ROWS; r++) {
            own[r] = rand_below(&seed, ADAPTERS + 1);
            added[r] = own[r] && rand_below(&seed, 2) ? first + own[r] : own[r];
        }
        for (uint32_t k = 0; k < ADAPTERS; k++)
            assert_int_equal(weft_session_add_adapter(w->session, first + k + 1, part,
                                                      list_parts(&p, k, part), w->diag),
                             WEFT_ERR_OK);
        assert_int_equal(weft_session_adapt(w->session, own, ROWS, w->diag), WEFT_ERR_OK);
        assert_int_equal(weft_session_run(w->session, &x, 1, w->diag, &y, 1), WEFT_ERR_OK);
        size_t bytes = weft_tensor_bytes(&y);
        void *want = malloc(bytes);
        memcpy(want, y.data, bytes);
        weft_session_forget_adapter(w->session, own[0]); /* it is found again */
        assert_int_equal(weft_session_adapt(w->session, added, ROWS, w->diag), WEFT_ERR_OK);
        assert_int_equal(weft_session_run(w->session, &x, 1, w->diag, &z, 1), WEFT_ERR_OK);
        assert_memory_equal(z.data, want, bytes);
        free(want);
        weft_session_forget_adapter(w->session, first + 2);
        weft_session_forget_adapter(w->session, first + 2);
        assert_int_equal(weft_session_adapt(w->session, (uint64_t[]){first + 2}, 1, w->diag),
                         WEFT_ERR_INPUT);
        uint32_t n = list_parts(&p, 0, part);
        if (n > 0) {
            part[n - 1].factors.k++;
            assert_int_equal(weft_session_add_adapter(w->session, first + 9, part, n, w->diag),
                             WEFT_ERR_INPUT);
            part[n - 1].factors.k--;
            part[n - 1].site = "nowhere";
            assert_int_equal(weft_session_add_adapter(w->session, first + 9, part, n, w->diag),
                             WEFT_ERR_INPUT);
        }
        finish_world(w);
    }
}

/* -- In a worker ------------------------------------------------------------------------------ */

static uint32_t count_mappings(void)
{
    char *text;
    size_t len;
    uint32_t n = 0;
    assert_int_equal(weft_file_read("/proc/self/maps", 1 << 26, NULL, &text, &len), WEFT_ERR_OK);
    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    free(text);
    return n;
}

/* Adapters of few bytes do not use up the mappings that a process may have. */
static void test_cpu_adapter__small_adapters_take_a_limited_number_of_mappings(void **state)
{
    (void)state;
    enum { MANY = 17000, MOST = 16384, APART = 1 << 16, WIDTH_MAX = 64 };
    static const float zeros[WIDTH_MAX];
    const uint64_t first = (uint64_t)1 << 32;
    uint64_t seed = 7, number = 0;
    uint32_t n_read = 0, before = count_mappings();
    uint8_t *bytes;
    size_t len;
    problem p;
    make_problem(&p, &seed);
    open_world(&p.w, 1);
    const weft_peft_module module = {
        .path = "q", .rank = 1, .k = p.k, .n = p.width[0], .a = zeros, .b = zeros};
    const weft_peft peft = {.module = &module, .n = 1};
    assert_int_equal(weft_peft_pack(&peft, p.name, &bytes, &len), WEFT_ERR_OK);
    int fd = weft_file_make("store", "", 0);
    weft_resident *r = weft_resident__create(fd, UINT64_MAX / 2);
    for (uint64_t i = 0; i < MANY; i++) {
        number = first + i * APART;
        assert_int_equal(weft_file_put_at(fd, bytes, len, number), 0);
        assert_int_equal(
            weft_resident__need(r, p.w.session, &p.w.bundle, &number, 1, p.w.diag, &n_read),
            WEFT_ERR_OK);
        assert_int_equal(n_read, 1);
    }
    assert_in_range(count_mappings(), MOST, before + MOST + 64);
    assert_int_equal(weft_session_adapt(p.w.session, &number, 1, p.w.diag), WEFT_ERR_OK);
    assert_int_equal(weft_session_adapt(p.w.session, &first, 1, p.w.diag), WEFT_ERR_INPUT);
    weft_resident__destroy(r);
    finish_world(&p.w);
    free(bytes);
}

/* -- In bundles ------------------------------------------------------------------------------- */

static weft_err write_and_read(problem *p, weft_bundle **out)
{
    char path[] = "/tmp/weft-adapter-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    p->w.bundle.tool = "weft";
    p->w.bundle.target = "cpu";
    uint32_t *users = weft_arena_array(p->w.arena, VALUES, sizeof *users);
    weft_bundle_count_users(&p->w.bundle, p->w.arena, users);
    for (uint32_t i = 0; i < p->w.bundle.n_weight; i++)
        p->w.weight[i].n_users = users[i];
    weft_err err = weft_bundle_write(&p->w.bundle, path, p->w.diag);
    if (err == WEFT_ERR_OK)
        err = weft_bundle_open(path, p->w.diag, out);
    unlink(path);
    return err;
}

static void refuse_bundle(problem *p, const char *why)
{
    weft_bundle *b = NULL;
    weft_diag_clear(p->w.diag);
    assert_int_equal(write_and_read(p, &b), WEFT_ERR_INPUT);
    assert_non_null(strstr(weft_diag_at(p->w.diag, 0)->text, why));
}

static void test_cpu_adapter__bundles_keep_adapters(void **state)
{
    (void)state;
    uint64_t seed = 12;
    problem p;
    weft_bundle *b = NULL;
    make_problem(&p, &seed);
    weft_err err = write_and_read(&p, &b);
    explain(&p.w);
    assert_int_equal(err, WEFT_ERR_OK);
    assert_int_equal(b->n_adapter, ADAPTERS);
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        const weft_bundle_adapter *got = &b->adapter[i], *want = &p.adapter[i];
        assert_int_equal(weft_bundle_find_adapter(b, 0, want->name), i + 1);
        assert_int_equal(got->n_factor, want->n_factor);
        for (uint32_t k = 0; k < got->n_factor; k++) {
            assert_string_equal(got->factor[k].site, want->factor[k].site);
            assert_int_equal(got->factor[k].a, want->factor[k].a);
            assert_int_equal(got->factor[k].b, want->factor[k].b);
        }
    }
    assert_int_equal(weft_bundle_find_adapter(b, 0, "e"), 0);
    weft_bundle_close(b);
    finish_world(&p.w);
}

static void test_cpu_adapter__factors_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    uint64_t seed = 12;
    problem p;
    make_problem(&p, &seed);
    uint32_t i = 0;
    while (p.adapter[i].n_factor < 2)
        i++;
    weft_bundle_factor kept = p.factor[i][0];
    p.factor[i][0].site = "somewhere";
    refuse_bundle(&p, "factors 0 do not fit");
    p.factor[i][0] = kept;
    p.factor[i][0].site = p.factor[i][1].site;
    refuse_bundle(&p, "do not fit");
    p.factor[i][0] = kept;
    p.factor[i][0].b = kept.a;
    refuse_bundle(&p, "factors 0 do not fit");
    p.factor[i][0] = kept;
    p.adapter[1].name = p.adapter[0].name;
    refuse_bundle(&p, "adapter 1 has no name of its own");
    p.adapter[1].name = "b/c";
    refuse_bundle(&p, "adapter 1 has no name of its own");
    p.adapter[1].name = "b";
    p.adapter[1].program = 1;
    refuse_bundle(&p, "adapter 1 has no name of its own");
    finish_world(&p.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_adapter__rows_of_a_batch_have_adapters_of_their_own),
        cmocka_unit_test(test_cpu_adapter__slices_keep_their_adapters),
        cmocka_unit_test(test_cpu_adapter__the_reference_agrees),
        cmocka_unit_test(test_cpu_adapter__other_numbers_of_rows_are_refused),
        cmocka_unit_test(test_cpu_adapter__adapters_come_and_go),
        cmocka_unit_test(test_cpu_adapter__small_adapters_take_a_limited_number_of_mappings),
        cmocka_unit_test(test_cpu_adapter__bundles_keep_adapters),
        cmocka_unit_test(test_cpu_adapter__factors_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
