/* Together or apart by measured times: on times that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/router_int.h"

#include "tests/support/rand.h"

#include <stdlib.h>

enum { SIZE = 100, CHOICES = 6400 };

/* Chooses and runs as the router does; the share of runs together, and the time of all. */
typedef struct run {
    router_gain own, together;
    uint64_t n_together, n;
    double time, best;
} run;

static void choose(run *r, double together, double apart)
{
    bool chosen = weft_gain__choose(&r->together, SIZE, weft_gain__time(&r->own, SIZE));
    weft_gain__learn(chosen ? &r->together : &r->own, SIZE, chosen ? together : apart);
    r->n_together += chosen;
    r->n++;
    r->time += chosen ? together : apart;
    r->best += together < apart ? together : apart;
}

static run *begin(void)
{
    return calloc(1, sizeof(run));
}

static void test_time_is_interpolated(void **state)
{
    router_gain g = {0};
    (void)state;
    assert_true(weft_gain__time(&g, 10) == 0);
    for (int i = 0; i < 8; i++) {
        weft_gain__learn(&g, 10, i == 0 ? 900 : 100); /* the first run prepares */
        weft_gain__learn(&g, 100, 1000);
    }
    assert_true(weft_gain__time(&g, 10) == 100 && weft_gain__time(&g, 100) == 1000);
    assert_true(weft_gain__time(&g, 55) == 550);
    assert_true(weft_gain__time(&g, 8) == 100 && weft_gain__time(&g, 140) == 1000);
    assert_true(weft_gain__time(&g, 2) == 0 && weft_gain__time(&g, 1000) == 0);
}

static void test_one_disturbed_run_changes_little(void **state)
{
    router_gain g = {0};
    (void)state;
    for (int i = 0; i < 20; i++)
        weft_gain__learn(&g, SIZE, 100);
    weft_gain__learn(&g, SIZE, 1e9);
    assert_true(weft_gain__time(&g, SIZE) < 115);
}

/* Whatever the ratio is: the time is at most 1 % over that of the better way, after the first
 * choices, which learn. */
static void test_never_much_slower(void **state)
{
    static const double ratio[] = {0.2, 0.5, 0.8, 0.9, 0.98, 1.0, 1.02, 1.1, 1.25, 1.5, 2, 4};
    (void)state;
    for (size_t k = 0; k < sizeof ratio / sizeof ratio[0]; k++) {
        run *r = begin();
        for (int i = 0; i < 128; i++)
            choose(r, 100 * ratio[k], 100);
        r->time = r->best = 0;
        for (int i = 0; i < CHOICES; i++)
            choose(r, 100 * ratio[k], 100);
        assert_true(r->time <= 1.01 * r->best);
        free(r);
    }
}

static void test_first_choices_try_apart(void **state)
{
    run *r = begin();
    (void)state;
    for (int i = 0; i < 64; i++)
        choose(r, 200, 100);
    assert_true(r->n_together < 48 && r->n_together > 16);
    assert_true(r->together.gain > 0.49 && r->together.gain < 0.51);
    free(r);
}

/* Times that differ by chance do not make the choice change with each. */
static void test_noise(void **state)
{
    run *r = begin();
    uint64_t seed = 7;
    uint32_t changes = 0;
    (void)state;
    for (int i = 0; i < 2000; i++)
        choose(r, 90 + 20 * rand_unit(&seed), 90 + 20 * rand_unit(&seed));
    for (int i = 0; i < CHOICES; i++) {
        bool before = r->together.choice[13].apart;
        choose(r, 90 + 20 * rand_unit(&seed), 90 + 20 * rand_unit(&seed));
        changes += r->together.choice[13].apart != before;
    }
    assert_true(changes < CHOICES / 100);
    free(r);
}

/* A way that becomes the better one is found by trials. */
static void test_change(void **state)
{
    run *r = begin();
    (void)state;
    for (int i = 0; i < 1000; i++)
        choose(r, 110, 100);
    r->n_together = 0;
    for (int i = 0; i < CHOICES; i++)
        choose(r, 70, 100);
    assert_true(r->n_together > CHOICES / 2);
    free(r);
}

/* The first runs of a program may all be long, where each prepares its sizes. */
static void test_long_first_runs(void **state)
{
    run *r = begin();
    (void)state;
    for (int i = 0; i < 8; i++)
        weft_gain__learn(&r->together, SIZE, 1000);
    for (int i = 0; i < 1000; i++)
        choose(r, 80, 100);
    r->n_together = 0;
    for (int i = 0; i < CHOICES; i++)
        choose(r, 80, 100);
    assert_true(r->n_together > CHOICES * 9 / 10);
    free(r);
}

/* -- Packed batches --------------------------------------------------------------------------- */

/* A model whose runs take 100 + elements, its packed program and that of its family. */
enum { OWN, PACKED, FAMILY, PROGRAMS };
typedef struct subject {
    weft_bundle_program program[PROGRAMS];
    weft_bundle bundle;
    router_bundle open;
    router_model model;
    router_gain gain[2][PROGRAMS]; /* by worker */
    router_batch part[1];
    weft_request request[4];
    weft_tensor in[4];
    weft_router router;
    router_worker worker[2];
} subject;

/* Four requests, of lengths 4 and 6 in turn. */
static subject *begin_packed(void)
{
    static const weft_serve_options options = {0};
    static const int64_t rows[1] = {32};
    static const weft_bundle_bucket bucket = {.symbol = (int64_t *)rows};
    subject *s = calloc(1, sizeof *s);
    s->bundle = (weft_bundle){.program = s->program, .n_program = 1, .n_joint = 2};
    s->open.bundle = &s->bundle;
    s->program[OWN].n_input = 1;
    s->program[PACKED] = (weft_bundle_program){.bucket = &bucket, .n_bucket = 1};
    s->model = (router_model){.program = &s->program[OWN], .packed = &s->program[PACKED]};
    s->part[0].n = 4;
    s->part[0].packed_rows = 32;
    for (uint32_t i = 0; i < 4; i++) {
        int64_t length = i % 2 ? 6 : 4;
        s->in[i] = (weft_tensor){.rank = 2, .dim = {1, length}};
        s->request[i] = (weft_request){.rows = 1, .in = &s->in[i]};
        s->part[0].request[i] = &s->request[i];
        s->part[0].request_rows[i] = 1;
        s->part[0].request_length[i] = length;
    }
    s->router = (weft_router){.options = &options, .model = &s->model};
    for (uint32_t w = 0; w < 2; w++)
        s->worker[w] =
            (router_worker){.bundle = &s->open, .gain = s->gain[w], .part = s->part, .n_part = 1};
    return s;
}

static void measure(subject *s, uint32_t worker, uint32_t program, int64_t size, double time)
{
    for (int i = 0; i < 8; i++)
        weft_gain__learn(&s->gain[worker][program], size, time);
}

/* How many of 64 choices are to run packed. */
static uint32_t count_packed(subject *s, uint32_t worker, uint32_t program)
{
    uint32_t n = 0;
    s->worker[worker].packed = &s->program[program];
    for (int i = 0; i < 64; i++)
        n += weft_gain__keeps_packed(&s->router, &s->worker[worker]);
    assert_int_equal(s->worker[worker].size, 32);
    return n;
}

/* Requests of one length are one run, wherever they stand; each worker has its own times. */
static void test_packed_by_length(void **state)
{
    subject *s = begin_packed();
    (void)state;
    for (uint32_t w = 0; w < 2; w++) {
        measure(s, w, OWN, 4, 104);
        measure(s, w, OWN, 6, 106);
        measure(s, w, OWN, 8, 108);
        measure(s, w, OWN, 12, 112);
        measure(s, w, PACKED, 32, w == 0 ? 250 : 200);
    }
    assert_in_range(count_packed(s, 0, PACKED), 0, 1);
    assert_in_range(count_packed(s, 1, PACKED), 63, 64);
    free(s);
}

/* What a family takes apart is known from the packed program of its model as well. */
static void test_family_by_packed(void **state)
{
    subject *s = begin_packed();
    (void)state;
    measure(s, 0, PACKED, 32, 200);
    measure(s, 0, FAMILY, 32, 220);
    assert_in_range(count_packed(s, 0, FAMILY), 0, 1);
    measure(s, 0, OWN, 8, 50);
    measure(s, 0, OWN, 12, 50);
    assert_true(s->gain[0][FAMILY].gain > 0.9 && s->gain[0][FAMILY].gain < 0.92);
    count_packed(s, 0, FAMILY);
    assert_true(s->gain[0][FAMILY].gain < 0.5);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_is_interpolated),
        cmocka_unit_test(test_one_disturbed_run_changes_little),
        cmocka_unit_test(test_never_much_slower),
        cmocka_unit_test(test_first_choices_try_apart),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_long_first_runs),
        cmocka_unit_test(test_packed_by_length),
        cmocka_unit_test(test_family_by_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
