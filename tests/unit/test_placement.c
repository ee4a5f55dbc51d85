/* The load formulas against numbers worked out by hand, the checker against planted violations (one
 * for each rule), and plan.json. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "scheduler/builder/builder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

#define POINT(dev, sl, b, p, us, mem)                                 \
    {                                                                 \
        .device = dev, .slice = sl, .batch = b, .procs = p, .cost = { \
            .time_us = us,                                            \
            .mreq_bytes = mem,                                        \
            .source = "measured"                                      \
        }                                                             \
    }

static const weft_profile_point points[] = {
    POINT("cpu", "1core", 1, 1, 1000, 100),
    POINT("cpu", "1core", 4, 1, 2000, 100),
    POINT("h100", "", 1, 1, 100, 1u << 30),
    POINT("h100", "", 8, 1, 400, 1u << 30),
    POINT("h100", "1g.10gb", 4, 1, 1000, 4u << 20),
    POINT("h100", "3g.40gb", 4, 1, 300, 4u << 20),
    POINT("h100", "40%", 8, 1, 500, 30000000000u),
    POINT("h100", "60%", 8, 1, 450, 30000000000u),
    POINT("h100", "80%", 8, 1, 420, 30000000000u),
    POINT("h100", "1g.10gb", 4, 2, 1800, 4u << 20),
    POINT("h100", "1g.20gb", 4, 1, 1000, 4u << 20),
    POINT("h100", "1g.10gb", 1, 9, 9000, 4u << 20),
    POINT("h100", "10%", 1, 30, 9000, 4u << 20),
    POINT("cpu", "1core", 8, 1, 1500, 100),
    POINT("h100", "1g.10gb", 64, 1, 9000, 4u << 30),
    POINT("h100", "20%", 1, 1, 900, 70000000000u),
    POINT("h100", "3g.40gb/50%", 4, 1, 700, 1u << 30),
    POINT("h100", "3g.40gb/60%", 4, 1, 600, 1u << 30),
    POINT("h100", "3g.40gb/40%", 1, 12, 900, 1u << 30),
    POINT("h100", "4g.40gb/50%", 4, 1, 700, 1u << 30),
    POINT("h100", "3g.40gb/10%", 2, 1, 900, 30000000000u),
};

#define N_POINT (sizeof points / sizeof points[0])

static weft_demand demand_list[] = {
    {.model = "a", .slo_us = 20000, .rate_per_s = 100, .profile = {.point = points, .n = N_POINT}},
    {.model = "b", .slo_us = 20000, .rate_per_s = 100, .profile = {.point = points, .n = N_POINT}},
};

static const weft_demands demands = {demand_list, 2};
static const uint32_t core_slices[] = {1, 1};
static const weft_fleet_device devices[] = {
    {.type = "cpu", .count = 2, .cores = 2, .slice_cores = core_slices, .n_slice = 2},
    {.type = "h100", .count = 3, .price_per_hour = 3, .mig = true, .mps = true},
};
static const weft_fleet fleet = {.file = "fleet", .device = devices, .n_device = 2};
static weft_problem problem = {.demands = &demands, .fleet = &fleet};
static weft_rules rules; /* that derive_fields states */

/* Reference implementations by linear search. */
static const weft_profile_point *find_point(const weft_demand *d, const weft_placement *p)
{
    for (size_t i = 0; i < d->profile.n; i++) {
        const weft_profile_point *q = &d->profile.point[i];
        if (strcmp(q->device, p->type) == 0 && strcmp(q->slice, p->slice) == 0 &&
            q->batch == p->batch && q->procs == p->procs)
            return q;
    }
    return NULL;
}

static double exec_of(const weft_profile *profile, const weft_profile_point *point)
{
    double longest = point->cost.time_us;
    for (size_t i = 0; i < profile->n; i++) {
        const weft_profile_point *q = &profile->point[i];
        if (strcmp(q->device, point->device) == 0 && strcmp(q->slice, point->slice) == 0 &&
            q->batch < point->batch && q->procs == point->procs && q->cost.time_us > longest)
            longest = q->cost.time_us;
    }
    return longest;
}

static double lower_bound(const weft_problem *ask)
{
    weft_arena *scratch = weft_arena_create(0);
    weft_option_table table;
    weft_option_table__build(ask, scratch, &table);
    double bound = weft_option_table__lower_bound(&table);
    weft_arena_destroy(scratch);
    return bound;
}

/* Fills in the derived fields of a plan, so that a test plants exactly one violation. */
static weft_plan derive_fields(weft_placement *at, size_t n)
{
    weft_plan plan = {.policy = "hand", .at = at, .n = n, .rules = rules};
    weft_problem judged = problem;
    judged.rules = rules;
    plan.lower_bound = lower_bound(&judged);
    plan.goodput_per_s = 0;
    for (size_t i = 0; i < n; i++)
        plan.goodput_per_s += at[i].rate_per_s;
    for (size_t i = 0; i < n; i++) {
        weft_placement *p = &at[i];
        const weft_fleet_device *row = weft_fleet__row(&fleet, p->type);
        const weft_demand *d = strcmp(p->model, "a") == 0 ? &demand_list[0] : &demand_list[1];
        const weft_profile_point *point = find_point(d, p);
        weft_fleet_slice spec = {0};
        const char *why;
        double cycle = 0;
        uint32_t mates = 0;
        bool first = true;
        for (size_t j = 0; j < n; j++) {
            if (at[j].device != p->device)
                continue;
            first = first && j >= i;
            if (at[j].slice_id != p->slice_id)
                continue;
            const weft_profile_point *other = find_point(d, &at[j]);
            cycle += other ? exec_of(&d->profile, other) : 0;
            mates++;
        }
        if (first) {
            plan.gpus++;
            plan.cost_per_hour += row ? weft_fleet__price(row) : 0;
        }
        if (row && weft_fleet_slice__resolve(row, p->slice, &spec, &why))
            p->share = spec.share;
        if (!point)
            continue;
        weft_slo_load_in in = {.rules = &rules,
                               .demand = d,
                               .point = point,
                               .exec_us = exec_of(&d->profile, point),
                               .cycle_us = cycle,
                               .alone = mates == 1,
                               .rate_per_s = p->rate_per_s};
        weft_slo_load load = weft_slo__load(&in);
        p->capacity_per_s = load.capacity_per_s;
        p->latency_us = load.latency_us;
        p->mem_bytes = weft_point__mem_bytes(point);
        p->expected_error = point->cost.expected_error;
        p->source = point->cost.source;
    }
    return plan;
}

#define PLACE(m, dev, ty, sl, id, start, b, p, rate)                                            \
    (weft_placement)                                                                            \
    {                                                                                           \
        .model = m, .device = dev, .type = ty, .slice = sl, .slice_id = id, .mig_start = start, \
        .batch = b, .procs = p, .rate_per_s = rate                                              \
    }

static void expect_legal(weft_plan plan)
{
    weft_diag_clear(diag);
    weft_err err = weft_plan_check(&plan, &problem, diag);
    if (err != WEFT_ERR_OK)
        fail_msg("%s: %s", weft_err_name(err),
                 weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "");
}

/* The checker refuses the plan, and some message starts with this rule and contains this text. */
static void expect_violation(weft_plan plan, const char *rule, const char *text)
{
    weft_diag_clear(diag);
    assert_int_equal(weft_plan_check(&plan, &problem, diag), WEFT_ERR_INPUT);
    for (size_t i = 0; i < weft_diag_count(diag); i++) {
        const char *got = weft_diag_at(diag, i)->text;
        if (strncmp(got, rule, strlen(rule)) == 0 && strstr(got, text))
            return;
    }
    fail_msg("no '%s: %s', but: %s", rule, text, weft_diag_at(diag, 0)->text);
}

/* -- Formulas --------------------------------------------------------------------------------- */

static weft_slo_load load_of(size_t i, double slo_us, double rate, double others_us)
{
    weft_demand d = {.model = "m", .slo_us = slo_us, .profile = {.point = points, .n = N_POINT}};
    double exec = exec_of(&d.profile, &points[i]);
    weft_slo_load_in in = {.rules = &rules,
                           .demand = &d,
                           .point = &points[i],
                           .exec_us = exec,
                           .cycle_us = exec + others_us,
                           .alone = others_us == 0,
                           .rate_per_s = rate};
    return weft_slo__load(&in);
}

static void test_placement__load_alone(void **state)
{
    (void)state;
    /* Batch 4 in 2 ms is 2000/s. At 1500/s three more requests arrive in 2 ms, as long as the
     * batch in execution: 2 + 2 ms. */
    weft_slo_load l = load_of(1, 20000, 1500, 0);
    assert_true(l.capacity_per_s == 2000);
    assert_true(l.latency_us == 4000);
    /* At 500/s they arrive in 6 ms: latency 6 + 2 ms. */
    assert_true(fabs(load_of(1, 20000, 500, 0).latency_us - 8000) < 1e-6);
    /* At 10/s the batch is closed after 20 - 2 - 1 (5 %) = 17 ms: 17 + 2 ms. */
    assert_true(fabs(load_of(1, 20000, 10, 0).latency_us - 19000) < 1e-6);
    /* Without a rate or an SLO a batch is closed at once, and waits only for the one in execution.
     */
    assert_true(load_of(1, 0, 10, 0).latency_us == 4000);
    assert_true(load_of(1, 20000, 0, 0).latency_us == 4000);
}

static void test_placement__load_shared(void **state)
{
    (void)state;
    /* A cycle of 2 ms and 3 ms of the other model: 4 requests per 5 ms, latency 5 + 2 ms. */
    weft_slo_load l = load_of(1, 20000, 100, 3000);
    assert_true(l.capacity_per_s == 800);
    assert_true(l.latency_us == 7000);
    /* Alone it serves 1500/s by measurement, so in 2 of 5 ms 600/s; more than 2000/s is no batch
     * more in a cycle. */
    weft_profile_point point = points[1];
    weft_demand d = {.model = "m", .slo_us = 20000, .profile = {.point = &point, .n = 1}};
    weft_slo_load_in in = {
        .rules = &rules, .demand = &d, .point = &point, .exec_us = 2000, .cycle_us = 5000};
    for (int queue = 0; queue < 2; queue++) {
        weft_rules r = {.latency = queue ? WEFT_RULE_QUEUE : WEFT_RULE_EXACT,
                        .arrivals = WEFT_ARRIVE_CONSTANT};
        in.rules = &r;
        point.throughput_per_s = 1500;
        assert_float_equal(weft_slo__load(&in).capacity_per_s, 600, 1e-9);
        point.throughput_per_s = 2500;
        assert_float_equal(weft_slo__load(&in).capacity_per_s, 800, 1e-9);
    }
}

static void test_placement__smaller_batch_may_take_longer(void **state)
{
    (void)state;
    weft_option_table table;
    weft_option_table__build(&problem, arena, &table);
    const weft_shape *core = weft_option_table__shape(&table, "cpu", "1core");
    /* Batch 8 takes 1.5 ms but batch 4 takes 2 ms, and the server may close a batch early. */
    assert_true(weft_option_table__find(&table, 0, core, 8, 1)->exec_us == 2000);
    assert_true(weft_option_table__find(&table, 0, core, 1, 1)->exec_us == 1000);
}

static void test_placement__lower_bound_is_worked_out(void **state)
{
    weft_profile_point half = POINT("h100", "", 10, 1, 1000, 0);
    weft_demand d = {.model = "m", .rate_per_s = 25000, .profile = {.point = &half, .n = 1}};
    weft_demands one = {&d, 1}, none = {NULL, 0};
    weft_problem ask = {.demands = &one, .fleet = &fleet};
    weft_problem nothing = {.demands = &none, .fleet = &fleet};
    (void)state;
    /* 10000/s for each device. */
    assert_true(lower_bound(&ask) == 3);
    d.rate_per_s = 20000;
    assert_true(lower_bound(&ask) == 2);
    d.rate_per_s = 0;
    assert_true(lower_bound(&ask) == 1);
    assert_true(lower_bound(&nothing) == 0);
}

/* -- The checker ------------------------------------------------------------------------------ */

static void test_placement__legal_plans_pass(void **state)
{
    (void)state;
    weft_placement cores[] = {PLACE("a", 0, "cpu", "1core", 0, -1, 4, 1, 100),
                              PLACE("b", 0, "cpu", "1core", 1, -1, 4, 1, 100)};
    weft_placement shared[] = {PLACE("a", 0, "cpu", "1core", 1, -1, 4, 1, 100),
                               PLACE("b", 0, "cpu", "1core", 1, -1, 4, 1, 100)};
    weft_placement mig[] = {PLACE("a", 0, "h100", "1g.10gb", 0, 3, 4, 2, 100),
                            PLACE("b", 0, "h100", "3g.40gb", 1, 4, 4, 1, 100)};
    weft_placement mps[] = {PLACE("a", 0, "h100", "40%", 0, -1, 8, 1, 100),
                            PLACE("b", 0, "h100", "60%", 1, -1, 8, 1, 60),
                            PLACE("b", 1, "h100", "", 0, -1, 8, 1, 40)};
    expect_legal(derive_fields(cores, 2));
    expect_legal(derive_fields(shared, 2));
    expect_legal(derive_fields(mig, 2));
    expect_legal(derive_fields(mps, 3));
}

#define LEGAL                                               \
    {                                                       \
        PLACE("a", 0, "cpu", "1core", 0, -1, 4, 1, 100),    \
            PLACE("b", 0, "cpu", "1core", 1, -1, 4, 1, 100) \
    }

static void test_placement__structure(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    weft_plan plan = derive_fields(at, 2);
    at[1].model = "c";
    expect_violation(plan, "structure", "no such model");
    expect_violation(plan, "structure", "has no placement");
    at[1].model = "b";
    at[1].device = 2;
    expect_violation(plan, "structure", "device 2 follows 1");
    at[1].device = 0;
    at[1].slice_id = 0;
    at[1].model = "a";
    expect_violation(plan, "structure", "twice on device 0 slice 0");
    at[1].model = "b";
    at[1].slice = "2core";
    expect_violation(plan, "structure", "stated as two slices");
    at[1].slice = "1core";
    at[1].type = "h100";
    expect_violation(plan, "structure", "both cpu and h100");
    expect_violation(derive_fields(at, 0), "structure", "has no placement");
}

static void test_placement__fleet(void **state)
{
    (void)state;
    weft_placement at[] = {PLACE("a", 0, "cpu", "1core", 0, -1, 4, 1, 100),
                           PLACE("b", 1, "cpu", "1core", 0, -1, 4, 1, 50),
                           PLACE("b", 2, "cpu", "1core", 0, -1, 4, 1, 50)};
    expect_violation(derive_fields(at, 3), "fleet", "3 devices of type cpu");
    at[2].type = "t4";
    at[2].slice = "";
    expect_violation(derive_fields(at, 3), "fleet", "no device of type 't4'");
}

static void test_placement__slice(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    at[1].slice = "2core";
    expect_violation(derive_fields(at, 2), "slice", "2core");
    at[1].slice = "1core";
    at[1].slice_id = 2;
    expect_violation(derive_fields(at, 2), "slice", "slice 2 of the cpu");
    weft_placement mixed[] = {PLACE("a", 0, "h100", "1g.10gb", 0, 0, 4, 1, 100),
                              PLACE("b", 0, "h100", "40%", 1, -1, 8, 1, 100)};
    expect_violation(derive_fields(mixed, 2), "slice", "more than one way");
    weft_placement whole[] = {PLACE("a", 0, "h100", "", 0, -1, 8, 1, 100),
                              PLACE("b", 0, "h100", "", 1, -1, 8, 1, 100)};
    expect_violation(derive_fields(whole, 2), "slice", "used as a whole by 2 slices");
    weft_placement procs[] = {PLACE("a", 0, "h100", "1g.10gb", 0, 0, 4, 2, 100),
                              PLACE("b", 0, "h100", "1g.10gb", 0, 0, 4, 1, 100)};
    expect_violation(derive_fields(procs, 2), "slice", "2 processes on a shared slice");
}

static void test_placement__mig(void **state)
{
    (void)state;
    weft_placement at[] = {PLACE("a", 0, "h100", "3g.40gb", 0, 0, 4, 1, 100),
                           PLACE("b", 0, "h100", "1g.10gb", 1, 3, 4, 1, 100)};
    expect_violation(derive_fields(at, 2), "mig", "overlaps");
    at[0].mig_start = 2;
    expect_violation(derive_fields(at, 2), "mig", "cannot start at slot 2");
    at[0].mig_start = -1;
    expect_violation(derive_fields(at, 2), "mig", "cannot start at slot -1");
    at[0].mig_start = 31;
    expect_violation(derive_fields(at, 2), "mig", "cannot start at slot 31");
    at[0].mig_start = 4;
    at[1].slice = "1g.20gb";
    at[1].mig_start = 6;
    expect_violation(derive_fields(at, 2), "mig", "overlaps");
    weft_placement none[] = LEGAL;
    none[1].mig_start = 0;
    expect_violation(derive_fields(none, 2), "mig", "not a MIG instance");
}

static void test_placement__mps(void **state)
{
    (void)state;
    weft_placement at[] = {PLACE("a", 0, "h100", "40%", 0, -1, 8, 1, 100),
                           PLACE("b", 0, "h100", "80%", 1, -1, 8, 1, 100)};
    expect_violation(derive_fields(at, 2), "mps", "sum to 120 %");
    weft_placement many[] = {PLACE("a", 0, "h100", "10%", 0, -1, 1, 30, 100),
                             PLACE("b", 0, "h100", "10%", 1, -1, 1, 30, 100)};
    expect_violation(derive_fields(many, 2), "mps", "60 processes");
    weft_placement small[] = {PLACE("a", 0, "h100", "1g.10gb", 0, 0, 1, 9, 100),
                              PLACE("b", 0, "h100", "1g.10gb", 1, 1, 4, 1, 100)};
    expect_violation(derive_fields(small, 2), "mps", "9 processes on one 1g.10gb");
}

static void test_placement__profile(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    weft_plan plan = derive_fields(at, 2);
    at[1].batch = 5;
    expect_violation(plan, "profile", "batch 5");
    at[1].batch = 4;
    at[1].procs = 2;
    expect_violation(plan, "profile", "2 processes");
}

static void test_placement__memory(void **state)
{
    (void)state;
    /* Two models that fit on the slice one by one do not fit together... */
    weft_profile_point big[N_POINT];
    memcpy(big, points, sizeof big);
    big[4].cost.mreq_bytes = 6000000000u;
    demand_list[0].profile.point = demand_list[1].profile.point = big;
    weft_placement slice[] = {PLACE("a", 0, "h100", "1g.10gb", 0, 0, 4, 1, 100),
                              PLACE("b", 0, "h100", "1g.10gb", 0, 0, 4, 1, 100)};
    expect_violation(derive_fields(slice, 2), "memory", "slice 0 needs 12000000000");
    /* ... and neither do two MPS shares. */
    weft_placement device[] = {PLACE("a", 0, "h100", "40%", 0, -1, 8, 1, 100),
                               PLACE("b", 0, "h100", "20%", 1, -1, 1, 1, 100)};
    expect_violation(derive_fields(device, 2), "memory", "device 0 needs 100000000000");
    demand_list[0].profile.point = demand_list[1].profile.point = points;
}

static void test_placement__rate(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    at[1].rate_per_s = 90;
    expect_violation(derive_fields(at, 2), "rate", "90/s are assigned");
    at[1].rate_per_s = -100;
    expect_violation(derive_fields(at, 2), "rate", "is not a rate");
    at[1].rate_per_s = (double)NAN;
    expect_violation(derive_fields(at, 2), "rate", "");
    demand_list[1].rate_per_s = at[1].rate_per_s = 2001;
    expect_violation(derive_fields(at, 2), "rate", "can serve 2000/s");
    demand_list[1].rate_per_s = at[1].rate_per_s = 100;
    expect_legal(derive_fields(at, 2));
}

static void test_placement__latency(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    demand_list[0].slo_us = 3999;
    expect_violation(derive_fields(at, 2), "latency", "the SLO is 3999");
    demand_list[0].slo_us = 4000;
    expect_legal(derive_fields(at, 2));
    /* Both on one slice: latency is a cycle of 4 ms and 2 ms of execution. */
    demand_list[0].slo_us = 5999;
    at[1].slice_id = 0;
    expect_violation(derive_fields(at, 2), "latency", "6000 us");
    demand_list[0].slo_us = 20000;
    expect_legal(derive_fields(at, 2));
}

static void test_placement__objective(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    weft_plan good = derive_fields(at, 2), plan = good;
    plan.gpus = 2;
    expect_violation(plan, "objective", "2 devices are stated");
    plan = good;
    plan.cost_per_hour = 1;
    expect_violation(plan, "objective", "cost 1 is stated");
    plan = good;
    plan.lower_bound = 0;
    expect_violation(plan, "objective", "lower bound 0");
    plan.lower_bound = (double)NAN;
    expect_violation(plan, "objective", "lower bound");
    at[0].capacity_per_s += 1;
    expect_violation(good, "objective", "capacity 2001/s is stated");
    at[0].capacity_per_s -= 1;
    at[0].latency_us = 1;
    expect_violation(good, "objective", "latency 1 us");
    good = derive_fields(at, 2);
    at[1].share = 0.25;
    expect_violation(good, "objective", "share 0.25");
    good = derive_fields(at, 2);
    at[1].mem_bytes = 1;
    expect_violation(good, "objective", "1 bytes are stated");
}

static void test_placement__shares_of_an_instance(void **state)
{
    (void)state;
    weft_placement at[] = {PLACE("a", 0, "h100", "3g.40gb/50%", 0, 4, 4, 1, 100),
                           PLACE("b", 0, "h100", "3g.40gb/50%", 1, 4, 4, 1, 100)};
    weft_placement beside[] = {PLACE("a", 0, "h100", "3g.40gb/50%", 0, 4, 4, 1, 100),
                               PLACE("b", 0, "h100", "1g.10gb", 1, 3, 4, 1, 100)};
    weft_placement turns[] = {PLACE("a", 0, "h100", "3g.40gb/50%", 0, 0, 4, 1, 100),
                              PLACE("b", 0, "h100", "3g.40gb/50%", 0, 0, 4, 1, 100)};
    expect_legal(derive_fields(at, 2));
    expect_legal(derive_fields(beside, 2));
    expect_legal(derive_fields(turns, 2));
    beside[1].mig_start = 4;
    expect_violation(derive_fields(beside, 2), "mig", "overlaps");
    at[1].slice = "3g.40gb/60%";
    expect_violation(derive_fields(at, 2), "mps", "an instance of device 0 sum to 110 %");
    at[1].slice = "4g.40gb/50%";
    at[0].mig_start = at[1].mig_start = 0;
    expect_violation(derive_fields(at, 2), "mig", "both start at slot 0");
    at[1].slice = "3g.40gb/50%";
    at[1].mig_start = 4;
    expect_legal(derive_fields(at, 2));
    at[1].mig_start = 3;
    expect_violation(derive_fields(at, 2), "mig", "cannot start at slot 3");
    /* 3/7 of 48 clients is 20. */
    weft_placement many[] = {PLACE("a", 0, "h100", "3g.40gb/40%", 0, 4, 1, 12, 100),
                             PLACE("b", 0, "h100", "3g.40gb/40%", 1, 4, 1, 12, 100)};
    expect_violation(derive_fields(many, 2), "mps", "24 processes on one 3g.40gb, at most 20");
    weft_placement big[] = {PLACE("a", 0, "h100", "3g.40gb/10%", 0, 4, 2, 1, 100),
                            PLACE("b", 0, "h100", "3g.40gb/10%", 1, 4, 2, 1, 100)};
    expect_violation(derive_fields(big, 2), "memory", "60000000000 bytes");
}

static void test_placement__oversubscribe(void **state)
{
    (void)state;
    weft_placement at[] = {PLACE("a", 0, "h100", "40%", 0, -1, 8, 1, 100),
                           PLACE("b", 0, "h100", "80%", 1, -1, 8, 1, 100)};
    rules.oversubscribe = true;
    expect_legal(derive_fields(at, 2));
    rules.oversubscribe = false;
    expect_violation(derive_fields(at, 2), "mps", "sum to 120 %");
}

static void test_placement__reserve(void **state)
{
    (void)state;
    weft_placement at[] = {PLACE("a", 0, "h100", "40%", 0, -1, 8, 1, 100),
                           PLACE("b", 0, "h100", "60%", 1, -1, 8, 1, 100)};
    expect_legal(derive_fields(at, 2));
    rules.mem_reserve = 0.3; /* 60 GB fit in 84 GB, but not in 70 % of them */
    expect_violation(derive_fields(at, 2), "memory", "device 0 needs 60000000000");
    rules.mem_reserve = 1;
    weft_plan plan = derive_fields(at, 2);
    assert_int_equal(weft_plan_check(&plan, &problem, NULL), WEFT_ERR_INPUT);
    rules.mem_reserve = 0;
}

static void test_placement__isolation(void **state)
{
    (void)state;
    weft_placement turns[] = {PLACE("a", 0, "cpu", "1core", 1, -1, 4, 1, 100),
                              PLACE("b", 0, "cpu", "1core", 1, -1, 4, 1, 100)};
    weft_placement shares[] = {PLACE("a", 0, "h100", "3g.40gb/50%", 0, 4, 4, 1, 100),
                               PLACE("b", 0, "h100", "3g.40gb/50%", 1, 4, 4, 1, 100)};
    weft_placement apart[] = {PLACE("a", 0, "h100", "3g.40gb/50%", 0, 4, 4, 1, 100),
                              PLACE("b", 0, "h100", "3g.40gb/50%", 1, 0, 4, 1, 100)};
    rules.isolated = true;
    expect_violation(derive_fields(turns, 2), "isolation", "2 models on device 0 slice 1");
    expect_violation(derive_fields(shares, 2), "isolation", "an instance of device 0");
    expect_legal(derive_fields(apart, 2));
    rules.isolated = false;
    expect_legal(derive_fields(shares, 2));
}

/* a and b use half of the bandwidth each. With c3 = 1 and c4 = 1 each is slowed down by 1.5. */
static void test_placement__interference(void **state)
{
    (void)state;
    weft_profile_point busy[] = {POINT("h100", "40%", 8, 1, 500, 100),
                                 POINT("h100", "60%", 8, 1, 450, 100)};
    weft_fleet_device row = devices[1];
    weft_fleet one = {.file = "fleet", .device = &row, .n_device = 1};
    weft_problem saved = problem;
    weft_plan plan;
    busy[0].cost.bandwidth_gbps = busy[1].cost.bandwidth_gbps = 1000;
    row.bandwidth_gbps = 2000;
    for (int i = 0; i < 2; i++)
        demand_list[i].profile = (weft_profile){.point = busy, .n = 2};
    problem.fleet = &one;
    weft_placement at[] = {PLACE("a", 0, "h100", "40%", 0, -1, 8, 1, 100),
                           PLACE("b", 0, "h100", "60%", 1, -1, 8, 1, 100)};
    plan = derive_fields(at, 2);
    expect_legal(plan);
    plan.rules.interference = problem.rules.interference =
        (weft_interference){.c = {0, 0, 0, 1, 1}};
    expect_violation(plan, "objective", "capacity 16000/s is stated, 10666.6667/s");
    at[0].capacity_per_s /= 1.5;
    at[1].capacity_per_s /= 1.5;
    /* wait = min(7/100 s, 20 - 1 - exec): latency = 19 ms whatever exec is */
    expect_legal(plan);
    /* Both are fast enough alone, and too slow beside each other. */
    demand_list[0].slo_us = demand_list[1].slo_us = 1200;
    expect_violation(plan, "interference", "slice 0 has a latency of 1500 us");
    expect_violation(plan, "interference", "slice 1 has a latency of 1350 us");
    demand_list[0].slo_us = 900;
    expect_violation(plan, "latency", "the SLO is 900 us");
    /* Models that time-share a slice do not run at the same time. */
    demand_list[0].slo_us = demand_list[1].slo_us = 20000;
    at[1].slice = "40%";
    at[1].slice_id = 0;
    expect_legal(derive_fields(at, 2));
    problem = saved;
    for (int i = 0; i < 2; i++)
        demand_list[i].profile = (weft_profile){.point = points, .n = N_POINT};
}

static void test_placement__estimates_are_marked(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    weft_plan plan = derive_fields(at, 2);
    at[0].source = "analytic";
    expect_violation(plan, "profile", "analytic with an error of");
    plan = derive_fields(at, 2);
    at[1].expected_error = 0.3;
    expect_violation(plan, "profile", "measured with an error of 0.3");
}

static void test_placement__power(void **state)
{
    (void)state;
    weft_profile_point joules[N_POINT];
    memcpy(joules, points, sizeof joules);
    joules[1].cost.energy_j = 0.5; /* batch 4 on a core */
    demand_list[0].profile.point = demand_list[1].profile.point = joules;
    weft_placement at[] = LEGAL;
    weft_plan plan = derive_fields(at, 2);
    expect_violation(plan, "objective", "0 W are stated, 25 W are computed");
    plan.power_w = 25; /* 2 * 100/s / 4 * 0.5 J */
    expect_legal(plan);
    demand_list[0].profile.point = demand_list[1].profile.point = points;
    expect_violation(plan, "objective", "25 W are stated, 0 W are computed");
}

/* -- plan.json -------------------------------------------------------------------------------- */

static void test_placement__json_reads_back(void **state)
{
    (void)state;
    weft_placement at[] = {PLACE("a", 0, "h100", "1g.10gb", 0, 3, 4, 2, 100),
                           PLACE("b", 0, "h100", "3g.40gb", 1, 4, 4, 1, 100)};
    weft_plan plan = derive_fields(at, 2), back;
    plan.decision_ms = 0.125;
    char *text, *again;
    assert_int_equal(weft_plan_to_json(&plan, &demands, &text), WEFT_ERR_OK);
    assert_int_equal(weft_plan_from_json(text, strlen(text), "p", arena, diag, &back), WEFT_ERR_OK);
    assert_int_equal(back.n, 2);
    assert_string_equal(back.policy, "hand");
    assert_true(back.decision_ms == 0.125 && back.gpus == 1 && back.cost_per_hour == 3);
    assert_int_equal(back.at[0].mig_start, 3);
    expect_legal(back);
    assert_int_equal(weft_plan_to_json(&back, &demands, &again), WEFT_ERR_OK);
    assert_string_equal(text, again);
    static const char *const keys[] = {"gpus",        "cost_per_hour", "lower_bound",
                                       "decision_ms", "placements",    "policy"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        assert_non_null(strstr(text, keys[i]));
    free(text);
    free(again);
}

static void expect_bad_json(const char *text, const char *from, const char *to, const char *message)
{
    char bad[8192];
    weft_plan plan;
    const char *hit = strstr(text, from);
    assert_non_null(hit);
    snprintf(bad, sizeof bad, "%.*s%s%s", (int)(hit - text), text, to, hit + strlen(from));
    weft_diag_clear(diag);
    assert_int_equal(weft_plan_from_json(bad, strlen(bad), "p", arena, diag, &plan),
                     WEFT_ERR_INPUT);
    if (!strstr(weft_diag_at(diag, 0)->text, message))
        fail_msg("'%s' is not in '%s'", message, weft_diag_at(diag, 0)->text);
}

static void test_placement__json_checks_every_field(void **state)
{
    (void)state;
    weft_placement at[] = LEGAL;
    weft_plan plan = derive_fields(at, 2);
    char *text;
    assert_int_equal(weft_plan_to_json(&plan, &demands, &text), WEFT_ERR_OK);
    expect_bad_json(text, "weft-plan", "other", "format");
    expect_bad_json(text, "\"version\": 3", "\"version\": 2", "make the plan anew");
    expect_bad_json(text, "\"policy\": \"hand\"", "\"policy\": 1", "policy");
    expect_bad_json(text, "\"gpus\": 1", "\"gpus\": -1", "gpus");
    expect_bad_json(text, "\"gpus\": 1", "\"gpus\": 1.5", "gpus");
    expect_bad_json(text, "\"gpus\": 1", "\"gpus\": 99999999999", "gpus");
    expect_bad_json(text, "\"gpus\": 1,", "", "gpus");
    expect_bad_json(text, "\"gpus\": 1", "\"gpus\": 1, \"gpus\": 1", "JSON");
    expect_bad_json(text, "\"gpus\": 1", "\"gpus\": 1, \"x\": 1", "unknown key 'x'");
    expect_bad_json(text, "\"decision_ms\": 0", "\"decision_ms\": -1", "decision_ms");
    expect_bad_json(text, "\"slo_us\": 20000", "\"slo_us\": \"\"", "slo_us");
    expect_bad_json(text, "\"models\": [", "\"models\": [3,", "must be an object");
    assert_string_equal(weft_diag_at(diag, 0)->item, "models[0]");
    expect_bad_json(text, "\"models\": [\n    {\n      \"model\": \"",
                    "\"models\": [\n    {\n      \"model\": \"../", "is not a model name");
    expect_bad_json(text, "\"placements\": [", "\"placements\": [1,", "object");
    expect_bad_json(text, "\"device\": 0", "\"device\": null", "device");
    expect_bad_json(text, "\"type\": \"cpu\"", "\"type\": \"c\\u0000\"", "JSON");
    expect_bad_json(text, "\"batch\": 4", "\"batch\": 0", "batch");
    expect_bad_json(text, "\"procs\": 1", "\"procs\": 0", "procs");
    expect_bad_json(text, "\"mig_start\": null", "\"mig_start\": 32", "mig_start");
    expect_bad_json(text, "\"slice\": \"1core\"",
                    "\"slice\": \"1111111111111111111111111111111111\"", "slice");
    expect_bad_json(text, "\"share\": 0.5", "\"share\": \"0.5\"", "share");
    expect_bad_json(text, "\"mem_bytes\": 100", "\"mem_bytes\": 1e3", "mem_bytes");
    expect_bad_json(text, "{", "", "JSON");
    for (size_t len = 0; len < strlen(text) - 1; len++)
        assert_int_equal(weft_plan_from_json(text, len, "p", arena, NULL, &plan), WEFT_ERR_INPUT);
    free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_placement__load_alone),
        TEST(test_placement__load_shared),
        TEST(test_placement__smaller_batch_may_take_longer),
        TEST(test_placement__lower_bound_is_worked_out),
        TEST(test_placement__legal_plans_pass),
        TEST(test_placement__structure),
        TEST(test_placement__fleet),
        TEST(test_placement__slice),
        TEST(test_placement__mig),
        TEST(test_placement__mps),
        TEST(test_placement__profile),
        TEST(test_placement__memory),
        TEST(test_placement__rate),
        TEST(test_placement__latency),
        TEST(test_placement__objective),
        TEST(test_placement__shares_of_an_instance),
        TEST(test_placement__oversubscribe),
        TEST(test_placement__reserve),
        TEST(test_placement__isolation),
        TEST(test_placement__interference),
        TEST(test_placement__estimates_are_marked),
        TEST(test_placement__power),
        TEST(test_placement__json_reads_back),
        TEST(test_placement__json_checks_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
