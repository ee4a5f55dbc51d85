/* Admission: what is refused and dropped, and what an overloaded server still answers in time,
 * by an event simulation with the router's own rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/router_int.h"
#include "tests/support/rand.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4, REQUESTS = 20000, MODELS = 2 };

static const int64_t bucket_rows[BUCKETS] = {1, 2, 4, 8};
static const uint64_t ms = 1000000;

typedef struct world {
    weft_bundle_bucket bucket[BUCKETS];
    weft_bundle_program program[MODELS];
    router_model model[MODELS];
    router_batch part;
    router_worker worker;
    bool serves[MODELS], shares[MODELS];
    weft_line line[MODELS];
    weft_serve_options options;
    weft_router router;
    uint64_t seed;
} world;

static void begin(world *w, double slo_ms)
{
    memset(w, 0, sizeof *w);
    w->seed = 5;
    for (int i = 0; i < BUCKETS; i++)
        w->bucket[i].symbol = &bucket_rows[i];
    for (int m = 0; m < MODELS; m++) {
        w->program[m] = (weft_bundle_program){.name = "m",
                                              .n_symbol = 1,
                                              .bucket = w->bucket,
                                              .n_bucket = BUCKETS,
                                              .slo_us = slo_ms * 1e3,
                                              .admit_by_slo = true};
        w->model[m] = (router_model){.program = &w->program[m], .largest_bucket = 8};
        w->serves[m] = true;
    }
    w->worker = (router_worker){
        .router = &w->router, .serves = w->serves, .part = &w->part, .process.state = WORKER_IDLE};
    w->router = (weft_router){.options = &w->options,
                              .model = w->model,
                              .n_model = MODELS,
                              .worker = &w->worker,
                              .n_worker = 1,
                              .shares = w->shares,
                              .line = w->line};
}

/* True time of a batch: half of that of a full one is fixed. */
static uint64_t batch_ns(int64_t rows, uint64_t full_ns)
{
    return full_ns / 2 + full_ns * (uint64_t)rows / 16;
}

static void learn_all(world *w, uint64_t full_ns)
{
    for (int m = 0; m < MODELS; m++)
        for (int i = 0; i < BUCKETS; i++)
            for (int k = 0; k < 20; k++)
                weft_admission__learn(&w->model[m], bucket_rows[i],
                                      batch_ns(bucket_rows[i], full_ns));
}

static void arrive(world *w, weft_request *r, uint32_t model, uint64_t at_ns)
{
    *r = (weft_request){
        .model = model, .rows = 1, .arrived_ns = at_ns, .deadline_ns = at_ns + 30000 * ms};
    weft_admission__promise(&w->router, r);
}

/* -- Parts ------------------------------------------------------------------------------------ */

static void test_admission__times_are_learned(void **state)
{
    world w;
    (void)state;
    begin(&w, 100);
    assert_int_equal(weft_admission__batch_ns(&w.model[0], 3), 0);
    weft_admission__learn(&w.model[0], 4, 900 * ms); /* the first run is slow */
    weft_admission__learn(&w.model[0], 4, 40 * ms);
    assert_in_range(weft_admission__batch_ns(&w.model[0], 3), 39 * ms, 41 * ms); /* padded */
    assert_in_range(weft_admission__batch_ns(&w.model[0], 8), 78 * ms, 82 * ms);
    for (int i = 0; i < 60; i++)
        weft_admission__learn(&w.model[0], 4, 80 * ms);
    assert_in_range(weft_admission__batch_ns(&w.model[0], 4), 79 * ms, 81 * ms);
}

static void test_admission__promises(void **state)
{
    static const struct {
        weft_admission_mode mode;
        bool asks;
        uint64_t timeout_us;
        bool promised;
        uint64_t due_ms;
    } cases[] = {{WEFT_ADMISSION_MODEL, true, 0, true, 100},
                 {WEFT_ADMISSION_MODEL, false, 0, false, 100},
                 {WEFT_ADMISSION_SLO, false, 0, true, 100},
                 {WEFT_ADMISSION_NONE, true, 0, false, 100},
                 {WEFT_ADMISSION_MODEL, true, 50000, true, 50},
                 {WEFT_ADMISSION_MODEL, true, 300000, true, 100},
                 {WEFT_ADMISSION_MODEL, false, 50000, true, 50},
                 {WEFT_ADMISSION_MODEL, false, 300000, true, 300},
                 {WEFT_ADMISSION_NONE, false, 50000, false, 50},
                 {WEFT_ADMISSION_NONE, false, 300000, false, 100}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world w;
        begin(&w, 100);
        w.options.admission = cases[i].mode;
        w.program[0].admit_by_slo = cases[i].asks;
        weft_request r = {.arrived_ns = 7, .timeout_us = cases[i].timeout_us};
        r.deadline_ns = 7 + (r.timeout_us ? r.timeout_us * 1000 : 30000 * ms);
        weft_admission__promise(&w.router, &r);
        assert_int_equal(r.promised, cases[i].promised);
        assert_int_equal(r.due_ns, 7 + cases[i].due_ms * ms);
        w.program[0].profile.host_us = 2000;
        weft_admission__promise(&w.router, &r);
        assert_int_equal(r.promised, cases[i].promised);
        assert_int_equal(r.due_ns, 7 + (cases[i].due_ms - 2) * ms);
    }
}

/* A request in front of an idle worker is always admitted, however slow the model seems. */
static void test_admission__an_idle_worker_is_tried(void **state)
{
    world w;
    weft_request r;
    uint64_t late_ns = 0;
    (void)state;
    begin(&w, 100);
    learn_all(&w, 5000 * ms);
    arrive(&w, &r, 0, 0);
    assert_true(weft_admission__can_meet(&w.router, &r, 0, &late_ns));
    w.worker.process.state = WORKER_BUSY;
    assert_false(weft_admission__can_meet(&w.router, &r, 0, &late_ns));
    assert_true(late_ns > 1000 * ms);
    w.worker.process.state = WORKER_STARTING; /* nothing is known */
    assert_true(weft_admission__can_meet(&w.router, &r, 0, &late_ns));
}

/* Of random queues: dropped are promises that a full batch and every smaller one that leaves the
 * rest in time would break; one request is always kept. */
static void test_admission__random_queues(void **state)
{
    uint32_t dropped = 0, cut = 0;
    (void)state;
    world w;
    begin(&w, 100);
    learn_all(&w, 40 * ms);
    for (int round = 0; round < 3000; round++) {
        weft_request r[24];
        uint32_t n = 1 + rand_below(&w.seed, 24);
        w.model[0].head = w.model[0].tail = NULL;
        w.model[0].n_queued = 0;
        for (uint32_t i = 0; i < n; i++) {
            r[i] = (weft_request){.rows = 1 + rand_below(&w.seed, 3),
                                  .due_ns = 1000 * ms + rand_below(&w.seed, 120) * ms - 20 * ms,
                                  .arrived_ns = i,
                                  .promised = rand_below(&w.seed, 8) != 0};
            weft_batch__push(&w.model[0], &r[i]);
        }
        uint64_t now_ns = 1000 * ms;
        weft_line_choice c = weft_admission__choose(&w.model[0], 8, now_ns);
        const weft_request *at = w.model[0].head;
        assert_true(c.drop <= n);
        for (uint32_t i = 0; i < c.drop; i++, at = at->next) {
            assert_true(at->promised);
            assert_true(at->due_ns < now_ns + 41 * ms); /* a full batch would end later */
        }
        if (at && at->promised && (at->next || c.drop == 0) && c.most < 8) {
            assert_true(now_ns + weft_admission__batch_ns(&w.model[0], c.most) <= at->due_ns);
            cut++;
        }
        dropped += c.drop > 0;
    }
    assert_true(dropped > 300 && cut > 30);
}

/* -- Overload --------------------------------------------------------------------------------- */

typedef struct outcome {
    uint32_t good, late, refused;
    uint32_t asked[MODELS], in_time[MODELS];
    double longest_ms[MODELS]; /* from arrival to answer */
} outcome;

/* What the models of a run are like; zeroed: both promise, and are asked in turn. */
typedef struct variant {
    bool no_promise[MODELS];
    double slo_ms[MODELS]; /* 0: that of the run */
    uint32_t every;        /* only one of so many requests is model 1's */
} variant;

/* One worker, Poisson arrivals at `load` times the rate of full batches, alternating models of
 * which the first `n_model` get requests. Times of batches vary by `noise`. */
static outcome run_variant(double load, double slo_ms, double noise, uint32_t n_model,
                           bool admission, variant v)
{
    static weft_request request[REQUESTS];
    const uint64_t full_ns = 40 * ms;
    outcome o = {0};
    world w;
    begin(&w, slo_ms);
    learn_all(&w, full_ns);
    if (!admission)
        w.options.admission = WEFT_ADMISSION_NONE;
    for (int m = 0; m < MODELS; m++) {
        w.program[m].admit_by_slo = !v.no_promise[m];
        w.program[m].slo_us = v.slo_ms[m] > 0 ? v.slo_ms[m] * 1e3 : slo_ms * 1e3;
    }
    double at_ns = 0, rate = load * 8 / (double)full_ns;
    uint64_t end_ns = 0;
    for (uint32_t i = 0; i <= REQUESTS;) {
        double next_ns = i < REQUESTS ? at_ns : HUGE_VAL;
        bool busy = w.worker.process.state == WORKER_BUSY;
        if (!busy || next_ns < (double)end_ns) { /* the next event is an arrival */
            if (i == REQUESTS)
                break;
            weft_request *r = &request[i++];
            uint64_t late_ns;
            uint32_t model = v.every ? rand_below(&w.seed, v.every) == 0 : i % n_model;
            arrive(&w, r, model, (uint64_t)at_ns);
            o.asked[model]++;
            at_ns -= log(1 - rand_unit(&w.seed)) / rate;
            if (r->promised && !weft_admission__can_meet(&w.router, r, r->arrived_ns, &late_ns))
                o.refused++;
            else {
                weft_admission__enter(&w.router, &w.model[r->model]);
                weft_batch__push(&w.model[r->model], r);
            }
        } else { /* an answer */
            router_batch *b = &w.part;
            weft_admission__learn(&w.model[b->model], b->padded_rows, end_ns - b->sent_ns);
            for (uint32_t k = 0; k < b->n; k++) {
                double took_ms = (double)(end_ns - b->request[k]->arrived_ns) / 1e6;
                bool good = took_ms <= w.program[b->model].slo_us / 1e3;
                o.good += good;
                o.late += !good;
                o.in_time[b->model] += good;
                if (took_ms > o.longest_ms[b->model])
                    o.longest_ms[b->model] = took_ms;
            }
            w.worker.process.state = WORKER_IDLE;
            w.worker.n_part = 0;
        }
        if (w.worker.process.state == WORKER_BUSY)
            continue;
        uint64_t now_ns = busy ? end_ns : request[i - 1].arrived_ns;
        for (;;) {
            router_model *m = NULL;
            for (uint32_t k = 0; k < n_model; k++)
                if (w.model[k].head && (!m || weft_admission__goes_first(&w.model[k], m, now_ns)))
                    m = &w.model[k];
            if (!m)
                break;
            weft_line_choice c = weft_admission__choose(m, 8, now_ns);
            for (; c.drop > 0; c.drop--, o.refused++)
                weft_batch__remove(m, m->head);
            if (!m->head)
                continue;
            w.part = (router_batch){.model = (uint32_t)(m - w.model), .sent_ns = now_ns};
            weft_batch__take(m, c.most, &w.part);
            weft_admission__charge(&w.router, m, w.part.padded_rows);
            double factor = 1 + noise * (2 * rand_unit(&w.seed) - 1);
            end_ns = now_ns + (uint64_t)((double)batch_ns(w.part.padded_rows, full_ns) * factor);
            w.worker.process.state = WORKER_BUSY;
            w.worker.n_part = 1;
            break;
        }
    }
    return o;
}

static outcome run(double load, double slo_ms, double noise, uint32_t n_model, bool admission)
{
    return run_variant(load, slo_ms, noise, n_model, admission, (variant){.every = 0});
}

/* Good answers per second over what full batches give. */
static double goodput(outcome o, double load)
{
    return (double)o.good * load / REQUESTS;
}

static void test_admission__overload(void **state)
{
    static const struct {
        double load, least[MODELS];
    } goals[] = {{0.7, {0.69, 0.69}},
                 {1, {0.92, 0.87}},
                 {1.5, {0.87, 0.8}},
                 {3, {0.87, 0.8}},
                 {20, {0.88, 0.8}}};
    (void)state;
    for (size_t i = 0; i < sizeof goals / sizeof goals[0]; i++)
        for (uint32_t n_model = 1; n_model <= MODELS; n_model++)
            for (int noisy = 0; noisy < 2; noisy++) {
                outcome o = run(goals[i].load, 160, noisy ? 0.2 : 0, n_model, true);
                assert_true(goodput(o, goals[i].load) >= goals[i].least[n_model - 1]);
                assert_true(o.late <= (o.good + o.late) / (noisy ? 30 : 100));
            }
    /* Without it next to nothing is in time. */
    outcome without = run(1.5, 160, 0, 1, false);
    assert_true(goodput(without, 1.5) < 0.1 && without.refused == 0);
}

/* Model 0 is overloaded and promises nothing, so that its queue only grows; nearly all of model 1's
 * few requests are in time. The other way around, model 1's wait a little longer than they should.
 */
static void test_admission__no_model_starves(void **state)
{
    static const double loads[] = {0.8, 1, 1.2, 1.5, 3};
    (void)state;
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++)
        for (int kind = 0; kind < 3; kind++) {
            variant v = {.no_promise = {true, false},
                         .slo_ms = {kind == 2 ? 1000 : 160, kind == 1 ? 640 : 160},
                         .every = 20};
            outcome o = run_variant(loads[i], 160, 0.1, MODELS, true, v);
            assert_true(o.asked[1] > 800);
            assert_true(o.in_time[1] >= o.asked[1] * 97 / 100);
            v.no_promise[0] = false;
            v.no_promise[1] = true;
            o = run_variant(loads[i], 160, 0.1, MODELS, true, v);
            assert_true(o.longest_ms[1] <= v.slo_ms[1] + 150);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_admission__times_are_learned),
        cmocka_unit_test(test_admission__promises),
        cmocka_unit_test(test_admission__an_idle_worker_is_tried),
        cmocka_unit_test(test_admission__random_queues),
        cmocka_unit_test(test_admission__overload),
        cmocka_unit_test(test_admission__no_model_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
