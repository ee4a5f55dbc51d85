/* The simulator: queueing theory, conservation and order, reconfiguration, and the latency rule of
 * the checker replayed with Poisson arrivals. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct world {
    weft_arena *arena;
    weft_diag *diag;
    weft_demand demand[4];
    weft_demands demands;
    weft_fleet_device device[2];
    weft_fleet fleet;
    weft_problem problem;
    weft_placement placement[16];
    weft_plan plan;
    weft_sim_options options;
    weft_sim_report report;
} world;

static int set_up(void **state)
{
    world *w = calloc(1, sizeof *w);
    w->arena = weft_arena_create(0);
    w->diag = weft_diag_create();
    w->demands.at = w->demand;
    w->device[0] = (weft_fleet_device){
        .type = "h100", .count = 8, .mig = true, .mps = true, .price_per_hour = 2};
    w->fleet = (weft_fleet){.file = "fleet", .device = w->device, .n_device = 1};
    w->problem = (weft_problem){.demands = &w->demands, .fleet = &w->fleet};
    w->plan = (weft_plan){.policy = "test", .at = w->placement, .gpus = 1};
    w->options = (weft_sim_options){.plan = &w->plan, .problem = &w->problem};
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    world *w = *state;
    weft_arena_destroy(w->arena);
    weft_diag_destroy(w->diag);
    free(w);
    return 0;
}

static void add_model(world *w, const char *name, double rate_per_s, double slo_us)
{
    w->demand[w->demands.n++] =
        (weft_demand){.model = name, .slo_us = slo_us, .rate_per_s = rate_per_s};
}

static void add_point(world *w, size_t model, const char *slice, uint32_t batch, uint32_t procs,
                      double time_us)
{
    weft_profile *profile = &w->demand[model].profile;
    weft_profile_point *p = weft_arena_array(w->arena, profile->n + 1, sizeof *p);
    if (profile->n)
        memcpy(p, profile->point, profile->n * sizeof *p);
    p[profile->n] = (weft_profile_point){.batch = batch, .procs = procs, .share = 1};
    snprintf(p[profile->n].device, sizeof p->device, "h100");
    snprintf(p[profile->n].slice, sizeof p->slice, "%s", slice);
    p[profile->n].cost.time_us = time_us;
    *profile = (weft_profile){.point = p, .n = profile->n + 1};
}

static weft_placement *place(world *w, const char *model, uint32_t device, const char *slice,
                             int32_t start, uint32_t id, uint32_t batch, uint32_t procs,
                             double rate)
{
    weft_placement *p = &w->placement[w->plan.n++];
    *p = (weft_placement){.model = model,
                          .device = device,
                          .type = "h100",
                          .slice = slice,
                          .mig_start = start,
                          .slice_id = id,
                          .share = 1,
                          .batch = batch,
                          .procs = procs,
                          .rate_per_s = rate,
                          .capacity_per_s = rate};
    return p;
}

static weft_arrivals *generate(world *w, weft_arrival_kind kind, double duration_s, uint64_t seed)
{
    const weft_service *service;
    size_t n;
    weft_arrivals *arrivals = NULL;
    weft_arrivals_options o = {.kind = kind, .duration_s = duration_s, .seed = seed};
    weft_sim_services(&w->problem, w->arena, &service, &n);
    assert_int_equal(weft_arrivals_generate(&o, service, n, w->arena, w->diag, &arrivals),
                     WEFT_ERR_OK);
    return arrivals;
}

static weft_arrivals *trace(world *w, const char *text)
{
    const weft_service *service;
    size_t n;
    weft_arrivals *arrivals = NULL;
    weft_sim_services(&w->problem, w->arena, &service, &n);
    assert_int_equal(
        weft_trace_open_text(text, strlen(text), "t", service, n, 1, w->arena, w->diag, &arrivals),
        WEFT_ERR_OK);
    return arrivals;
}

static void run(world *w, weft_arrivals *arrivals)
{
    weft_err err = weft_simulate(&w->options, arrivals, w->arena, w->diag, &w->report);
    if (err != WEFT_ERR_OK)
        print_error("%s\n", weft_diag_count(w->diag) ? weft_diag_at(w->diag, 0)->text : "?");
    assert_int_equal(err, WEFT_ERR_OK);
    weft_arrivals_close(arrivals);
}

static void check_close(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * want))
        fail_msg("%s: %.6g, the formula says %.6g", what, got, want);
}

/* -- Queueing theory -------------------------------------------------------------------------- */

/* M/D/1: mean wait = rho D / (2 (1 - rho)) (F. Pollaczek 1930, A. Khinchine 1932). */
static void test_simulate__agrees_with_md1(void **state)
{
    static const double rhos[] = {0.3, 0.5, 0.7, 0.85};
    for (size_t i = 0; i < 4; i++) {
        world *w = *state;
        w->demands.n = w->plan.n = 0;
        add_model(w, "m", rhos[i] * 1000, 0);
        add_point(w, 0, "", 1, 1, 1000);
        place(w, "m", 0, "", -1, 0, 1, 1, rhos[i] * 1000);
        w->options.router = i % 2 ? WEFT_SIM_SHARES : WEFT_SIM_PULL;
        w->options.warmup_s = 5;
        w->options.queue_max = 1 << 20;
        run(w, generate(w, WEFT_ARRIVE_POISSON, 600 / rhos[i], 7 + i));
        double wait_us = rhos[i] * 1000 / (2 * (1 - rhos[i]));
        check_close(w->report.service[0].mean_wait_us, wait_us, 0.02, "M/D/1 wait");
        check_close(w->report.service[0].mean_us, wait_us + 1000, 0.02, "M/D/1 time");
        check_close(w->report.busy, rhos[i], 0.01, "M/D/1 use");
    }
}

/* Poisson probabilities of 0 to n - 1 with this mean. */
static void poisson(double mean, double *p, int n)
{
    p[0] = exp(-mean);
    for (int i = 1; i < n; i++)
        p[i] = p[i - 1] * mean / i;
}

enum { STATES = 400 };

/* M/D/c (C. Crommelin 1932). The numbers in the system at times D apart are a Markov chain, N' =
 * max(N - c, 0) + arrivals in D, with the distribution of N at any time. Mean wait = E max(N - c,
 * 0) / rate. */
static double mdc_wait(double rate, double d, int c)
{
    static double p[STATES], q[STATES], a[STATES];
    poisson(rate * d, a, STATES);
    memset(p, 0, sizeof p);
    p[0] = 1;
    for (int round = 0; round < 3000; round++) {
        memset(q, 0, sizeof q);
        for (int n = 0; n < STATES; n++)
            for (int k = 0, left = n > c ? n - c : 0; left + k < STATES && p[n] > 1e-18; k++)
                q[left + k] += p[n] * a[k];
        memcpy(p, q, sizeof p);
    }
    double waiting = 0;
    for (int n = c; n < STATES; n++)
        waiting += (n - c) * p[n];
    return waiting / rate;
}

static void test_simulate__agrees_with_mdc(void **state)
{
    static const struct {
        uint32_t procs;
        double rho;
    } cases[] = {{2, 0.7}, {3, 0.8}, {5, 0.6}};
    world *w = *state;
    for (size_t i = 0; i < 3; i++) {
        double rate = cases[i].rho * cases[i].procs * 1000;
        w->demands.n = w->plan.n = 0;
        add_model(w, "m", rate, 0);
        add_point(w, 0, "", 1, cases[i].procs, 1000);
        place(w, "m", 0, "", -1, 0, 1, cases[i].procs, rate);
        w->options.warmup_s = 5;
        w->options.queue_max = 1 << 20;
        run(w, generate(w, WEFT_ARRIVE_POISSON, 900000 / rate, 70 + i));
        check_close(w->report.service[0].mean_wait_us,
                    mdc_wait(rate, 1e-3, (int)cases[i].procs) * 1e6, 0.02, "M/D/c wait");
    }
}

/* M/D^[1,b]/1 (M. Neuts 1967): a batch takes all that wait, up to b, as soon as there is one
 * request. The numbers left behind by batches are a Markov chain, Q' = max(max(Q, 1) - b, 0) +
 * arrivals in D. By renewal reward, the mean number that waits = E(left D + rate D^2 / 2) / E(D +
 * idle); the mean wait follows by Little's law. */
static double bulk_wait(double rate, double d, int b)
{
    static double p[STATES], q[STATES], a[STATES];
    poisson(rate * d, a, STATES);
    memset(p, 0, sizeof p);
    p[0] = 1;
    for (int round = 0; round < 3000; round++) {
        memset(q, 0, sizeof q);
        for (int n = 0; n < STATES; n++)
            for (int k = 0, left = n > b ? n - b : 0; left + k < STATES && p[n] > 1e-18; k++)
                q[left + k] += p[n] * a[k];
        memcpy(p, q, sizeof p);
    }
    double area = rate * d * d / 2, length = d + p[0] / rate;
    for (int n = b; n < STATES; n++)
        area += (n - b) * d * p[n];
    return area / length / rate;
}

static void test_simulate__agrees_with_bulk_service(void **state)
{
    static const struct {
        uint32_t batch;
        double rho;
    } cases[] = {{4, 0.7}, {8, 0.5}, {8, 0.9}, {32, 0.8}};
    world *w = *state;
    for (size_t i = 0; i < 4; i++) {
        double rate = cases[i].rho * cases[i].batch * 100;
        w->demands.n = w->plan.n = 0;
        add_model(w, "m", rate, 0);
        add_point(w, 0, "", cases[i].batch, 1, 10000);
        place(w, "m", 0, "", -1, 0, cases[i].batch, 1, rate);
        w->options.warmup_s = 5;
        w->options.queue_max = 1 << 20;
        run(w, generate(w, WEFT_ARRIVE_POISSON, 1200000 / rate, 30 + i));
        check_close(w->report.service[0].mean_wait_us,
                    bulk_wait(rate, 1e-2, (int)cases[i].batch) * 1e6, 0.02, "M/D[b]/1 wait");
    }
}

/* -- Conservation and order ------------------------------------------------------------------- */

typedef struct order {
    int64_t last_start[64], last_arrival[64], now;
    uint64_t n;
    bool wrong;
} order;

/* Answers come in the order of time, after the start of their batch, which is after their arrival;
 * each replica takes requests in the order of their arrival (FIFO). */
static void look(void *user, uint32_t replica, uint32_t service, int64_t arrived_ns,
                 int64_t started_ns, int64_t answered_ns)
{
    order *o = user;
    (void)service;
    o->n++;
    o->wrong =
        o->wrong || answered_ns < o->now || started_ns < arrived_ns || answered_ns <= started_ns;
    o->now = answered_ns;
    if (started_ns > o->last_start[replica]) {
        o->wrong = o->wrong || arrived_ns < o->last_arrival[replica];
        o->last_start[replica] = started_ns;
    }
    if (arrived_ns > o->last_arrival[replica])
        o->last_arrival[replica] = arrived_ns;
}

/* Random slices, alone and shared, with execution times that are not monotone in the batch, often
 * overloaded. */
static void make_scene(world *w, uint64_t seed)
{
    static const char *const names[] = {"a", "b", "c"};
    w->demands.n = w->plan.n = 0;
    memset(w->demand, 0, sizeof w->demand);
    w->options = (weft_sim_options){.plan = &w->plan, .problem = &w->problem};
    for (size_t m = 0; m < 3; m++) {
        add_model(w, names[m], 20 + (double)(rand_next(&seed) % 3000),
                  (double)(rand_next(&seed) % 4 * 20000));
        for (uint32_t batch = 1; batch <= 16; batch *= 2)
            for (uint32_t procs = 1; procs <= 3; procs++)
                add_point(w, m, "", batch, procs, 300 + (double)(rand_next(&seed) % 6000));
    }
    for (uint32_t device = 0; device < 4; device++) {
        uint32_t n = 1 + (uint32_t)(rand_next(&seed) % 3);
        uint32_t procs = n == 1 ? 1 + (uint32_t)(rand_next(&seed) % 3) : 1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t m = (device + i) % 3, batch = 1u << rand_next(&seed) % 5;
            place(w, names[m], device, "", -1, 0, batch, procs, w->demand[m].rate_per_s / 3);
        }
    }
    w->plan.gpus = 4;
    w->options.router = (weft_sim_router)(rand_next(&seed) % 3);
    w->options.close = (weft_sim_close)(rand_next(&seed) % 3);
    w->options.queue_max = 16 << rand_next(&seed) % 10;
    w->options.timeout_s = rand_next(&seed) % 2 ? 0.05 : 0;
    w->options.duration_s = rand_next(&seed) % 2 ? 2 : 0;
    w->options.warmup_s = rand_next(&seed) % 2 ? 0.5 : 0;
    w->options.bucket_s = 0.3;
    w->options.queue_delay_us = rand_next(&seed) % 3 ? 0 : 3000;
}

static void check_report(const weft_sim_report *r)
{
    for (size_t i = 0; i <= r->n_service; i++) {
        const weft_sim_service *s = i < r->n_service ? &r->service[i] : &r->total;
        const weft_sim_counts *c = &s->count;
        assert_int_equal(c->requests, c->answered + c->dropped + s->in_flight);
        assert_int_equal(c->answered, c->good + c->late);
        assert_true(s->p50_us <= s->p95_us && s->p95_us <= s->p99_us);
        assert_true(s->p99_us <= s->max_us * 1.01 && s->mean_wait_us <= s->mean_us);
    }
    assert_true(r->busy >= 0 && r->busy <= 1 + 1e-9);
    for (size_t i = 0; i < r->n_slice; i++)
        assert_true(r->slice[i].busy >= 0 && r->slice[i].busy <= 1);
    double device_s = 0, busy = 0;
    for (size_t i = 0; i < r->n_device; i++) {
        assert_true(r->device[i].busy >= 0 && r->device[i].busy <= 1);
        device_s += r->device[i].used_s;
        busy += r->device[i].used_s * r->device[i].busy;
    }
    assert_true(fabs(device_s - r->device_s) <= 1e-6 * (1 + device_s));
    if (r->n_slice == r->n_device) /* each device has one slice of share 1 */
        assert_true(fabs(busy - r->busy * device_s) <= 1e-6 * (1 + busy));
    weft_sim_counts sum = {0};
    double energy = 0;
    for (size_t i = 0; i < r->n_bucket; i++) {
        energy += r->bucket[i].energy_j;
        assert_true(r->bucket[i].busy >= 0 && r->bucket[i].busy <= 1 + 1e-9);
        for (size_t k = 0; k < r->n_service; k++) {
            sum.requests += r->bucket[i].count[k].requests;
            sum.answered += r->bucket[i].count[k].answered;
            sum.late += r->bucket[i].count[k].late;
        }
    }
    if (r->n_bucket > 0) {
        assert_int_equal(sum.requests, r->total.count.requests);
        assert_int_equal(sum.answered, r->total.count.answered);
        assert_int_equal(sum.late, r->total.count.late);
        assert_true(fabs(energy - r->energy_j) <= 1e-9 * (1 + r->energy_j));
    }
}

static void test_simulate__keeps_every_request_in_order(void **state)
{
    static const weft_sim_power power = {"h100", 100, 700};
    for (uint64_t round = 1; round <= 300; round++) {
        world *w = *state;
        order seen = {.now = 0};
        make_scene(w, round * 7919);
        w->options.on_answer = look;
        w->options.user = &seen;
        w->options.power = &power;
        w->options.n_power = 1;
        run(w, generate(w, (weft_arrival_kind)(round % 3), 2, round));
        check_report(&w->report);
        /* With one queue a model, too, a replica takes requests in the order of their arrival. */
        assert_false(seen.wrong);
        if (w->options.duration_s == 0)
            assert_int_equal(w->report.total.in_flight, 0);
        if (w->options.warmup_s == 0)
            assert_int_equal(seen.n, w->report.total.count.answered);
    }
}

static void test_simulate__equal_seeds_give_equal_bytes(void **state)
{
    world *w = *state;
    char *text[3], *csv[3];
    for (int i = 0; i < 3; i++) {
        make_scene(w, 12345);
        if (i == 1) { /* the order of the demands must not change the result */
            weft_demand first = w->demand[0];
            w->demand[0] = w->demand[2];
            w->demand[2] = first;
        }
        run(w, generate(w, WEFT_ARRIVE_BURSTY, 3, i == 2 ? 8 : 7));
        assert_int_equal(weft_sim_to_json(&w->report, &text[i]), WEFT_ERR_OK);
        assert_int_equal(weft_sim_to_csv(&w->report, &csv[i]), WEFT_ERR_OK);
    }
    assert_string_equal(text[0], text[1]);
    assert_string_equal(csv[0], csv[1]);
    assert_string_not_equal(text[0], text[2]);
    for (int i = 0; i < 3; i++) {
        free(text[i]);
        free(csv[i]);
    }
}

/* -- Worked by hand --------------------------------------------------------------------------- */

static void test_simulate__batches_as_the_runtime_does(void **state)
{
    world *w = *state;
    add_model(w, "m", 1, 25000);
    add_point(w, 0, "", 1, 1, 10000);
    add_point(w, 0, "", 4, 1, 20000);
    add_point(w, 0, "", 8, 1, 30000);
    place(w, "m", 0, "", -1, 0, 8, 1, 1);
    /* 1 request runs alone from 0 to 10 ms; 3 wait and are padded to 4, 10 to 30; 5 wait and are
     * cut to 4, 30 to 50; 1 is left and runs from 50 to 60. */
    run(w, trace(w, "time_s\n0\n0.001\n0.002\n0.003\n0.011\n0.012\n0.013\n0.014\n0.015\n"));
    const weft_sim_service *s = &w->report.service[0];
    assert_int_equal(s->batches, 4);
    assert_int_equal(s->padded_rows, 1);
    assert_true(fabs(s->max_us - 45000) < 1e-6);
    assert_true(fabs(s->mean_us - (10 + 29 + 28 + 27 + 39 + 38 + 37 + 36 + 45) * 1000 / 9.0) <
                1e-6);
    assert_int_equal(s->count.good, 1);
    assert_int_equal(s->count.late, 8);
    assert_true(fabs(w->report.simulated_s - 0.06) < 1e-9 && w->report.busy > 0.999);
    /* With `fill`, the batch of 2 leaves when its oldest request has waited slo - exec - 5 % =
     * 18.75 ms. */
    w->demands.n = w->plan.n = 0;
    add_model(w, "m", 1, 25000);
    w->demand[0].profile.n = 0;
    add_point(w, 0, "", 4, 1, 5000);
    place(w, "m", 0, "", -1, 0, 4, 1, 1);
    w->options.router = WEFT_SIM_SHARES;
    run(w, trace(w, "gap_s\n0\n0.004\n"));
    assert_true(fabs(w->report.service[0].max_us - 23750) < 1e-6);
    /* A batch that is full at once does not wait. */
    run(w, trace(w, "gap_s\n0\n0\n0\n0\n"));
    assert_true(fabs(w->report.service[0].max_us - 5000) < 1e-6);
}

/* Without a profile, the execution time follows from the capacity and the latency of the plan. */
static void test_simulate__takes_times_from_the_plan(void **state)
{
    world *w = *state;
    add_model(w, "a", 1, 0);
    add_model(w, "b", 1, 0);
    weft_placement *p = place(w, "a", 0, "", -1, 0, 4, 2, 1);
    p->capacity_per_s = 800; /* 8 requests in 10 ms */
    run(w, trace(w, "time_s,model\n0,a\n"));
    assert_true(fabs(w->report.total.max_us - 10000) < 1);
    w->plan.n = 0;
    p = place(w, "a", 0, "", -1, 0, 2, 1, 1);
    p->capacity_per_s = 100; /* cycle 20 ms: a 5, b 15 */
    p->latency_us = 25000;
    p = place(w, "b", 0, "", -1, 0, 2, 1, 1);
    p->capacity_per_s = 100;
    p->latency_us = 35000;
    run(w, trace(w, "time_s,model\n0,a\n0,b\n"));
    assert_true(fabs(w->report.service[0].max_us - 5000) < 1);
    assert_true(fabs(w->report.service[1].max_us - 20000) < 1);
    p->capacity_per_s = 0;
    weft_arrivals *arrivals = trace(w, "time_s,model\n0,a\n");
    assert_int_equal(weft_simulate(&w->options, arrivals, w->arena, w->diag, &w->report),
                     WEFT_ERR_INPUT);
    weft_arrivals_close(arrivals);
    assert_string_equal(weft_diag_at(w->diag, 0)->item, "b");
}

static void test_simulate__drops_what_is_too_much(void **state)
{
    world *w = *state;
    add_model(w, "m", 1, 0);
    add_point(w, 0, "", 1, 1, 100000);
    place(w, "m", 0, "", -1, 0, 1, 1, 1);
    w->options.queue_max = 2;
    run(w, trace(w, "time_s\n0\n0\n0\n0\n0\n"));
    assert_int_equal(w->report.total.count.answered, 3);
    assert_int_equal(w->report.total.count.dropped, 2);
    w->options.queue_max = 0;
    w->options.timeout_s = 0.25;
    run(w, trace(w, "time_s\n0\n0\n0\n0\n0\n"));
    assert_int_equal(w->report.total.count.answered, 3);
    assert_int_equal(w->report.total.count.dropped, 2);
}

static void test_simulate__counts_energy_and_carbon(void **state)
{
    static const weft_sim_power power = {"h100", 100, 700};
    static const double grams[] = {500, 100};
    static const weft_carbon carbon = {grams, 2, 3600};
    world *w = *state;
    add_model(w, "m", 1, 0);
    add_point(w, 0, "", 1, 1, 1e6);
    place(w, "m", 0, "", -1, 0, 1, 1, 1)->share = 0.5;
    w->options.power = &power;
    w->options.n_power = 1;
    w->options.carbon = &carbon;
    w->options.duration_s = 7200;
    w->options.pue = 1.5;
    /* 10 s busy on half a device in the first hour: (700 - 100) / 2 * 10 J over 100 W for 2 h. */
    run(w, trace(w, "second,m\n0,10\n"));
    double first = 1.5 * (3000 + 360000), second = 1.5 * 360000;
    assert_true(fabs(w->report.energy_j - first - second) < 1e-3);
    assert_true(fabs(w->report.carbon_g - (first * 500 + second * 100) / 3.6e6) < 1e-6);
    assert_true(fabs(w->report.cost - 4) < 1e-9);
    /* The energy of an execution by the profile includes the idle power of its part. */
    ((weft_profile_point *)w->demand[0].profile.point)->cost.energy_j = 200;
    run(w, trace(w, "second,m\n0,10\n"));
    assert_true(fabs(w->report.energy_j - 1.5 * (720000 + 10 * (200 - 50))) < 1e-3);
    /* A device of unknown power: the energy is not known, not zero. */
    w->options.n_power = 0;
    run(w, trace(w, "second,m\n0,10\n"));
    assert_false(w->report.has_energy);
}

/* -- Apps ------------------------------------------------------------------------------------- */

static void test_simulate__serves_apps_by_their_variants(void **state)
{
    static const weft_set_variant variant[] = {{"a", 70}, {"b", 80}};
    static const weft_set_app app = {
        .name = "task", .rate_per_s = 400, .variant = variant, .n_variant = 2};
    world *w = *state;
    add_model(w, "a", 0, 0);
    add_model(w, "b", 0, 0);
    add_point(w, 0, "", 1, 1, 1000);
    add_point(w, 1, "", 1, 1, 1000);
    w->problem.app = &app;
    w->problem.n_app = 1;
    place(w, "a", 0, "", -1, 0, 1, 1, 300);
    place(w, "b", 1, "", -1, 0, 1, 1, 100);
    w->options.router = WEFT_SIM_SHARES;
    run(w, generate(w, WEFT_ARRIVE_CONSTANT, 10, 1));
    assert_int_equal(w->report.service[0].count.requests, 0);
    assert_int_equal(w->report.service[2].count.answered, 4000);
    assert_true(fabs(w->report.service[2].accuracy - 72.5) < 0.01);
    w->options.router = WEFT_SIM_PULL;
    run(w, trace(w, "time_s,model\n0,task\n0,task\n0,b\n"));
    assert_true(fabs(w->report.service[2].accuracy - 75) < 1e-9);
    assert_int_equal(w->report.service[1].count.answered, 1);
}

/* Good answers a second at a load, relative to the throughput of full batches; a request costs
 * `host_us` besides. */
static double part_in_time(double load, weft_sim_admission admission, double host_us)
{
    void *state;
    assert_int_equal(set_up(&state), 0);
    world *w = state;
    const double peak = 8 / 0.024;
    add_model(w, "m", load * peak, 120000 + host_us);
    w->demand[0].admit_by_slo = true;
    for (uint32_t b = 1; b <= 8; b *= 2)
        add_point(w, 0, "1g.10gb", b, 1, 8000 + 2000.0 * b);
    w->demand[0].profile.host_us = host_us;
    place(w, "m", 0, "1g.10gb", 0, 0, 8, 1, peak);
    w->options.admission = admission;
    w->options.duration_s = 60;
    run(w, generate(w, WEFT_ARRIVE_POISSON, 60, 7));
    const weft_sim_counts *c = &w->report.total.count;
    assert_int_equal(c->answered, c->good + c->late);
    assert_true(admission == WEFT_SIM_ADMIT_ALL || c->late == 0);
    double part = (double)c->good / 60 / peak;
    tear_down(&state);
    return part;
}

/* Without refusals an overloaded server answers all late; with them it keeps its throughput. */
static void test_simulate__keeps_its_throughput_when_overloaded(void **state)
{
    static const double loads[] = {1.0, 1.5, 3.0, 10}, least[] = {0.9, 0.85, 0.8, 0.75};
    (void)state;
    for (int i = 0; i < 4; i++) {
        double by_model = part_in_time(loads[i], WEFT_SIM_ADMIT_MODEL, 0);
        assert_true(by_model >= least[i] && by_model <= 1);
        assert_true(part_in_time(loads[i], WEFT_SIM_ADMIT_SLO, 0) == by_model);
        /* An SLO that is longer by the host cost leaves queue and batch the same time. */
        assert_true(part_in_time(loads[i], WEFT_SIM_ADMIT_SLO, 5000) == by_model);
    }
    assert_true(part_in_time(3, WEFT_SIM_ADMIT_ALL, 0) < 0.05);
}

/* A large variant of an accuracy of 80 and a small one of 70, each on a slice of its own, and 100 s
 * of requests to their app, whose rate and accuracy are given. */
static const weft_sim_service *run_app(world *w, weft_set_app *app)
{
    static const weft_set_variant variant[] = {{"large", 80}, {"small", 70}};
    add_model(w, "large", 0, 0);
    add_model(w, "small", 0, 0);
    add_point(w, 0, "3g.40gb", 1, 1, 20000);
    add_point(w, 1, "3g.40gb", 1, 1, 5000);
    app->name = "app";
    app->slo_us = 100000;
    app->variant = variant;
    app->n_variant = 2;
    w->problem.app = app;
    w->problem.n_app = 1;
    place(w, "large", 0, "3g.40gb", 0, 0, 1, 1, 50);
    place(w, "small", 0, "3g.40gb", 4, 1, 1, 1, 200);
    w->options.duration_s = 100;
    run(w, generate(w, WEFT_ARRIVE_POISSON, 100, 3));
    return &w->report.service[2];
}

/* The accurate variant is asked while it is idle; beyond its capacity the other one helps. */
static void test_simulate__chooses_variants_by_load(void **state)
{
    static const double rates[] = {20, 80};
    double accuracy[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        void *own;
        assert_int_equal(set_up(&own), 0);
        weft_set_app app = {.rate_per_s = rates[i]};
        const weft_sim_service *s = run_app(own, &app);
        assert_string_equal(s->name, "app");
        assert_true(s->count.requests > 90 * rates[i]);
        accuracy[i] = s->accuracy;
        assert_true(s->count.good == s->count.answered && s->count.dropped == 0);
        tear_down(&own);
    }
    assert_true(accuracy[0] > 77 && accuracy[1] < 77 && accuracy[1] > 72);
}

/* Under overload most requests to the accurate variant are refused; the mean is that of answers. */
static void test_simulate__keeps_the_mean_accuracy_of_answers(void **state)
{
    static const double loads[] = {0.5, 1.5, 4};
    (void)state;
    for (int i = 0; i < 3; i++) {
        void *own;
        assert_int_equal(set_up(&own), 0);
        world *w = own;
        weft_set_app app = {.rate_per_s = 250 * loads[i], .accuracy = 78};
        w->options.admission = WEFT_SIM_ADMIT_SLO;
        const weft_sim_service *s = run_app(w, &app);
        assert_true(s->count.answered > 5000 && s->count.dropped > 1000);
        assert_true(s->accuracy >= 78 - 1e-9 && s->accuracy < 79);
        tear_down(&own);
    }
}

/* -- Reconfiguration -------------------------------------------------------------------------- */

static void test_simulate__switches_without_a_gap_beside_the_old(void **state)
{
    world *w = *state;
    weft_placement next[2];
    weft_plan plan2 = {.policy = "next", .at = next, .n = 2, .gpus = 2};
    weft_sim_later later = {10, &plan2};
    add_model(w, "m", 100, 0);
    add_point(w, 0, "3g.40gb", 1, 1, 5000);
    add_point(w, 0, "4g.40gb", 1, 1, 5000);
    place(w, "m", 0, "3g.40gb", 4, 0, 1, 1, 100);
    next[0] = w->placement[0];
    next[1] = w->placement[0];
    next[1].device = 1;
    w->options.later = &later;
    w->options.n_later = 1;
    w->options.start_s = 2;
    w->options.mig_s = 5;
    run(w, generate(w, WEFT_ARRIVE_CONSTANT, 30, 1));
    assert_int_equal(w->report.n_change, 1);
    assert_int_equal(w->report.change[0].kept, 1);
    assert_int_equal(w->report.change[0].started, 1);
    assert_int_equal(w->report.change[0].stopped, 0);
    assert_true(fabs(w->report.change[0].ready_s - 17) < 1e-9);
    assert_true(w->report.total.max_us < 5001);
    assert_true(fabs(w->report.cost - (10 + 2 * 20) * 2 / 3600.0) < 1e-3);
    /* In the same slots: no slice serves for 7 s, and all requests that come in this time wait. */
    plan2.n = 1;
    w->placement[0].slice = "4g.40gb";
    w->placement[0].mig_start = 0;
    next[0].mig_start = 0;
    run(w, generate(w, WEFT_ARRIVE_CONSTANT, 30, 1));
    check_report(&w->report);
    assert_int_equal(w->report.change[0].stopped, 1);
    assert_true(w->report.total.max_us > 6.9e6 && w->report.total.max_us < 7.1e6);
    /* In other slots: the old slice serves until the new one does. */
    next[0].mig_start = 4;
    run(w, generate(w, WEFT_ARRIVE_CONSTANT, 30, 1));
    check_report(&w->report);
    assert_int_equal(w->report.change[0].stopped, 1);
    assert_true(w->report.total.max_us < 20000);
    for (int router = 0; router < 3; router++) {
        w->options.router = (weft_sim_router)router;
        next[0].mig_start = 0;
        run(w, generate(w, WEFT_ARRIVE_POISSON, 30, 1));
        check_report(&w->report);
        assert_int_equal(w->report.total.count.answered, w->report.total.count.requests);
    }
}

/* The policy itself, with its state, is given the load and follows it. */
static void test_simulate__asks_the_policy_every_period(void **state)
{
    world *w = *state;
    weft_plan start;
    add_model(w, "m", 100, 200000);
    add_point(w, 0, "", 1, 1, 8000);
    add_point(w, 0, "", 8, 1, 20000);
    assert_int_equal(
        weft_plan_make(weft_policy_find("bestfit"), NULL, &w->problem, w->arena, w->diag, &start),
        WEFT_ERR_OK);
    assert_int_equal(start.gpus, 1);
    w->options.plan = &start;
    w->options.policy = weft_policy_find("bestfit");
    w->options.period_s = 10;
    w->options.start_s = 1;
    /* 100/s for a minute, then 1500/s, which take four devices, then 8000/s, which are more than
     * there are. */
    run(w, trace(w, "minute,m\n0,6000\n1,90000\n2,480000\n"));
    check_report(&w->report);
    uint32_t most = 0, refused = 0;
    for (size_t i = 0; i < w->report.n_change; i++) {
        most = w->report.change[i].gpus > most ? w->report.change[i].gpus : most;
        refused += w->report.change[i].refused;
    }
    assert_true(w->report.n_change >= 17);
    assert_true(most >= 4 && most <= 8);
    assert_true(refused >= 5);
    assert_int_equal(w->report.slice[0].device, 0);
}

/* -- Bad input -------------------------------------------------------------------------------- */

static void expect_refusal(world *w, const char *text)
{
    weft_sim_report report;
    weft_arrivals *arrivals = trace(w, "time_s,model\n0,m\n");
    weft_diag_clear(w->diag);
    assert_int_equal(weft_simulate(&w->options, arrivals, w->arena, w->diag, &report),
                     WEFT_ERR_INPUT);
    weft_arrivals_close(arrivals);
    if (!strstr(weft_diag_at(w->diag, 0)->text, text))
        fail_msg("'%s' is not in '%s'", text, weft_diag_at(w->diag, 0)->text);
}

static void test_simulate__refuses_what_makes_no_sense(void **state)
{
    world *w = *state;
    add_model(w, "m", 1, 0);
    add_point(w, 0, "", 4, 1, 1000);
    weft_placement *p = place(w, "m", 0, "", -1, 0, 4, 1, 1);
    p->batch = 3;
    expect_refusal(w, "no point for this slice");
    p->batch = 257;
    expect_refusal(w, "256");
    p->batch = 4;
    p->procs = 49;
    expect_refusal(w, "48");
    p->procs = 1;
    p->model = "other";
    expect_refusal(w, "no such model");
    p->model = "m";
    *place(w, "m", 0, "", -1, 0, 4, 1, 1) = *p;
    expect_refusal(w, "twice");
    w->plan.n = 1;
    w->options.duration_s = -1;
    expect_refusal(w, "-1 s");
    w->options.duration_s = 1e8;
    w->options.bucket_s = 1e-3;
    expect_refusal(w, "buckets");
    w->options.bucket_s = 0;
    w->options.policy = weft_policy_find("bestfit");
    expect_refusal(w, "period");
    w->options.period_s = 1;
    w->options.warmup_s = 2e8;
    expect_refusal(w, "warm-up");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_simulate__agrees_with_md1, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__agrees_with_mdc, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__agrees_with_bulk_service, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__keeps_every_request_in_order, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__equal_seeds_give_equal_bytes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__batches_as_the_runtime_does, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__takes_times_from_the_plan, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__drops_what_is_too_much, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__counts_energy_and_carbon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__serves_apps_by_their_variants, set_up,
                                        tear_down),
        cmocka_unit_test(test_simulate__keeps_its_throughput_when_overloaded),
        cmocka_unit_test(test_simulate__chooses_variants_by_load),
        cmocka_unit_test(test_simulate__keeps_the_mean_accuracy_of_answers),
        cmocka_unit_test_setup_teardown(test_simulate__switches_without_a_gap_beside_the_old,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__asks_the_policy_every_period, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_simulate__refuses_what_makes_no_sense, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
