/* runtime/cpu: threads that share the parts of jobs, and oneDNN's view of them. */
#include "runtime/cpu/cpu_int.h"
#include "runtime/cpu/cpu_team.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 96, THREADS = 3 };

/* Declared by omp.h, which clang does not have. */
int omp_get_max_threads(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
int omp_in_parallel(void);
void GOMP_parallel(void (*fn)(void *), void *data, unsigned n, unsigned flags);
void GOMP_parallel_start(void (*fn)(void *), void *data, unsigned n);
void GOMP_parallel_end(void);
void GOMP_barrier(void);
bool GOMP_loop_static_start(long start, long end, long step, long chunk, long *first, long *last);
bool GOMP_loop_static_next(long *first, long *last);
void GOMP_loop_end_nowait(void);

typedef struct counts {
    _Atomic uint32_t calls[PARTS];
    _Atomic uint32_t wrong;
} counts;

static void count_part(void *cx, uint32_t part)
{
    counts *c = cx;
    c->calls[part]++;
    if (weft_team_self() >= THREADS || weft_team_threads() != 1)
        c->wrong++;
}

/* Every part is executed once, whatever the number of parts. */
static void test_each_part_runs_once(void **state)
{
    (void)state;
    weft_team_begin(THREADS);
    for (uint32_t turn = 0; turn < 20000; turn++) {
        counts c = {0};
        uint32_t parts = 1 + turn % PARTS;
        assert_true(weft_team_run(count_part, &c, parts, THREADS));
        for (uint32_t i = 0; i < PARTS; i++)
            assert_int_equal(c.calls[i], i < parts);
        assert_int_equal(c.wrong, 0);
    }
    weft_team_end();
    assert_int_equal(weft_team_threads(), 0);
}

static void run_inner(void *cx, uint32_t part)
{
    (void)part;
    assert_true(weft_team_run(count_part, cx, 4, THREADS));
}

static void test_job_within_a_job(void **state)
{
    (void)state;
    counts c = {0};
    weft_team_begin(THREADS);
    assert_true(weft_team_run(run_inner, &c, 8, THREADS));
    weft_team_end();
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(c.calls[i], 8);
}

/* -- Loops ---------------------------------------------------------------------------------- */

enum { N = 1000 };

static void add_range(void *cx, int64_t begin, int64_t end)
{
    _Atomic uint32_t *seen = cx;
    for (int64_t i = begin; i < end; i++)
        seen[i]++;
}

static void test_loop_covers_its_range(void **state)
{
    static const double cost_ns[] = {0, 10, 100, 10000};
    (void)state;
    weft_team_begin(THREADS);
    for (int64_t n = 0; n < N; n += 7)
        for (int c = 0; c < 4; c++) {
            _Atomic uint32_t seen[N] = {0};
            weft_par_for(THREADS, n, cost_ns[c], add_range, seen);
            for (int64_t i = 0; i < N; i++)
                assert_int_equal(seen[i], i < n);
        }
    weft_team_end();
}

static void count_range(void *cx, int64_t begin, int64_t end)
{
    (void)begin, (void)end;
    ++*(_Atomic uint32_t *)cx;
}

/* 100 elements of 100 ns each. */
static uint32_t ranges_with(double least_ns)
{
    _Atomic uint32_t n = 0;
    weft_par_begin(least_ns);
    weft_par_for(THREADS, 100, 100, count_range, &n);
    return n;
}

static void test_little_work_stays_on_the_caller(void **state)
{
    (void)state;
    weft_team_begin(THREADS);
    assert_int_equal(ranges_with(30000), 1);
    assert_true(weft_team_is_busy() || ranges_with(4000) > 1);
    weft_team_end();
}

/* -- The flag of invalid operations --------------------------------------------------------- */

/* Part *cx makes NaN: compilers may compare with an instruction that does not raise the flag. */
static void make_nan(void *cx, uint32_t part)
{
    volatile float x = part == *(uint32_t *)cx ? INFINITY : 1;
    volatile float difference = x - x;
    (void)difference;
}

static void test_flag_of_every_thread(void **state)
{
    (void)state;
    if (!weft_team_has_invalid())
        skip();
    weft_team_begin(THREADS);
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t part = i % (2 * THREADS);
        weft_team_clear_invalid();
        assert_true(weft_team_run(make_nan, &part, 2 * THREADS, THREADS));
        assert_true(weft_team_is_invalid());
        part = UINT32_MAX;
        weft_team_clear_invalid();
        assert_true(weft_team_run(make_nan, &part, 2 * THREADS, THREADS));
        assert_false(weft_team_is_invalid());
    }
    weft_team_end();
}

/* -- OpenMP's entry points ------------------------------------------------------------------ */

typedef struct region {
    _Atomic uint32_t before, after, wrong;
    _Atomic uint32_t at[THREADS];
    _Atomic uint32_t seen[N];
    long chunk;
} region;

/* All threads add before the barrier; each checks the sum behind it. */
static void cross_barrier(void *data)
{
    region *r = data;
    uint32_t threads = (uint32_t)omp_get_num_threads();
    r->at[omp_get_thread_num()]++;
    for (uint32_t round = 1; round <= 5; round++) {
        r->before++;
        GOMP_barrier();
        if (r->before != round * threads)
            r->wrong++;
        GOMP_barrier();
    }
    if (!omp_in_parallel() || threads != THREADS)
        r->wrong++;
}

static void test_region_with_barriers(void **state)
{
    (void)state;
    weft_team_begin(THREADS);
    assert_true(weft_omp_is_ours());
    assert_int_equal(omp_get_max_threads(), THREADS);
    assert_int_equal(omp_in_parallel(), 0);
    for (int i = 0; i < 2000; i++) {
        region r = {0};
        GOMP_parallel(cross_barrier, &r, THREADS, 0);
        for (int t = 0; t < THREADS; t++)
            assert_int_equal(r.at[t], 1);
        assert_int_equal(r.wrong, 0);
        /* As gcc 4 called it: the caller executes its part itself. */
        region old = {0};
        GOMP_parallel_start(cross_barrier, &old, THREADS);
        cross_barrier(&old);
        GOMP_parallel_end();
        for (int t = 0; t < THREADS; t++)
            assert_int_equal(old.at[t], 1);
        assert_int_equal(old.wrong, 0);
    }
    weft_team_end();
}

static void share_loop(void *data)
{
    region *r = data;
    long first, last;
    for (bool more = GOMP_loop_static_start(5, 995, 3, r->chunk, &first, &last); more;
         more = GOMP_loop_static_next(&first, &last))
        for (long i = first; i < last; i += 3)
            r->seen[i]++;
    GOMP_loop_end_nowait();
}

static void test_loop_with_static_schedule(void **state)
{
    static const long chunks[] = {0, 1, 7, 1000};
    (void)state;
    weft_team_begin(THREADS);
    for (int c = 0; c < 4; c++) {
        region r = {.chunk = chunks[c]};
        GOMP_parallel(share_loop, &r, THREADS, 0);
        for (long i = 0; i < N; i++)
            assert_int_equal(r.seen[i], i >= 5 && i < 995 && (i - 5) % 3 == 0);
    }
    weft_team_end();
}

static void count_threads(void *data)
{
    (*(_Atomic uint32_t *)data)++;
}

/* A thread that runs no model is served by libgomp. */
static void test_others_use_libgomp(void **state)
{
    (void)state;
    _Atomic uint32_t n = 0;
    assert_true(omp_get_max_threads() >= 1);
    assert_int_equal(omp_get_thread_num(), 0);
    GOMP_parallel(count_threads, &n, 2, 0);
    assert_in_range(n, 1, 2);
}

/* -- Life ----------------------------------------------------------------------------------- */

static void *run_jobs(void *arg)
{
    weft_team_begin(THREADS);
    for (int i = 0; i < 200; i++)
        (void)weft_team_run(count_part, arg, PARTS, THREADS);
    weft_team_end();
    return NULL;
}

static void test_threads_with_teams_of_their_own(void **state)
{
    (void)state;
    pthread_t thread[4];
    static counts c[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_jobs, &c[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        for (uint32_t k = 0; k < PARTS; k++)
            assert_int_equal(c[i].calls[k], 200);
    }
}

static void test_child_of_a_fork(void **state)
{
    (void)state;
    counts c = {0};
    weft_team_begin(THREADS);
    assert_true(weft_team_run(count_part, &c, PARTS, THREADS));
    pid_t child = fork();
    if (child == 0)
        _exit(weft_team_run(count_part, &c, PARTS, THREADS) && c.calls[PARTS - 1] == 2 ? 0 : 1);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    weft_team_reset();
    assert_true(weft_team_run(count_part, &c, PARTS, THREADS));
    weft_team_end();
    weft_team_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_part_runs_once),
        cmocka_unit_test(test_job_within_a_job),
        cmocka_unit_test(test_loop_covers_its_range),
        cmocka_unit_test(test_little_work_stays_on_the_caller),
        cmocka_unit_test(test_flag_of_every_thread),
        cmocka_unit_test(test_region_with_barriers),
        cmocka_unit_test(test_loop_with_static_schedule),
        cmocka_unit_test(test_others_use_libgomp),
        cmocka_unit_test(test_threads_with_teams_of_their_own),
        cmocka_unit_test(test_child_of_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
