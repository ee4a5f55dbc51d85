/* Reconciliation of random pairs of plans, checked from outside: room on every device, capacity
 * after every single step, names, ports and the end; each state is simulated, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/device_type.h"
#include "scheduler/scheduler.h"
#include "tests/support/make_plan.h"
#include "tests/support/fixture.h"
#include "tests/support/rand.h"
#include "tests/support/scene.h"

enum { MODELS = 9, WORKERS_MAX = 256, FLEET = 30 /* devices of each type */ };

/* -- The checker ------------------------------------------------------------------------------- */

/* What runs: workers by name, each with its placements. */
typedef struct state_of_all {
    struct {
        const char *name, *node;
        uint32_t gpu;
        const weft_placement *at[4];
        uint32_t n;
    } worker[WORKERS_MAX];
    uint32_t n;
} running;

static void add_placement(running *r, const char *name, const char *node, uint32_t gpu,
                          const weft_placement *p)
{
    uint32_t i = 0;
    while (i < r->n && strcmp(r->worker[i].name, name) != 0)
        i++;
    if (i == r->n) {
        assert_true(r->n < WORKERS_MAX);
        r->worker[r->n].name = name;
        r->worker[r->n].node = node;
        r->worker[r->n].gpu = gpu;
        r->worker[r->n++].n = 0;
    }
    assert_true(r->worker[i].n < 4);
    r->worker[i].at[r->worker[i].n++] = p;
}

static void take_plan(running *r, const weft_plan *plan)
{
    r->n = 0;
    for (size_t i = 0; i < plan->n; i++) {
        assert_non_null(plan->at[i].where.worker);
        add_placement(r, plan->at[i].where.worker, plan->at[i].where.node, plan->at[i].where.gpu,
                      &plan->at[i]);
    }
}

static uint32_t slots_of(const weft_placement *p)
{
    const weft_device_type *type = weft_device_type_find(p->type);
    for (size_t i = 0; i < type->n_mig; i++)
        if (strcmp(type->mig[i].name, p->slice) == 0)
            return ((1u << type->mig[i].slots) - 1) << p->mig_start;
    fail_msg("no MIG profile %s", p->slice);
    return 0;
}

/* Every device has room for what is on it; at most `devices` of each type are in use. */
static void check_room(const running *r, const weft_fleet *fleet)
{
    uint32_t used[SCENE_DEVICES] = {0};
    for (uint32_t i = 0; i < r->n; i++) {
        const weft_placement *p = r->worker[i].at[0];
        uint32_t slots = 0, whole = 0, mig = 0, first = i;
        double share = 0;
        for (uint32_t k = 0; k < r->n; k++) {
            const weft_placement *q = r->worker[k].at[0];
            if (strcmp(r->worker[k].node, r->worker[i].node) != 0 ||
                r->worker[k].gpu != r->worker[i].gpu)
                continue;
            first = k < first ? k : first;
            assert_string_equal(p->type, q->type);
            if (q->mig_start >= 0) {
                assert_int_equal(slots & slots_of(q), 0);
                slots |= slots_of(q);
                mig++;
            } else {
                whole += q->slice[0] == 0;
                share += q->share;
            }
        }
        assert_true(share < 1 + 1e-9 && !(mig && share > 0) && !(whole && share > 1 + 1e-9));
        for (size_t d = 0; first == i && d < fleet->n_device; d++)
            used[d] += strcmp(fleet->device[d].type, p->type) == 0;
    }
    for (size_t d = 0; d < fleet->n_device; d++)
        assert_true(used[d] <= fleet->device[d].count);
}

static double capacity_of(const running *r, const char *model)
{
    double sum = 0;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t k = 0; k < r->worker[i].n; k++)
            if (strcmp(r->worker[i].at[k]->model, model) == 0)
                sum += r->worker[i].at[k]->capacity_per_s;
    return sum;
}

static bool has_worker(const running *r, const char *name)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (strcmp(r->worker[i].name, name) == 0)
            return true;
    return false;
}

static void start(running *r, const weft_reconcile_worker *w)
{
    assert_false(has_worker(r, w->name));
    for (uint32_t k = 0; k < w->n; k++)
        add_placement(r, w->name, w->node, w->gpu, w->at[k]);
}

static void stop(running *r, const weft_reconcile_worker *w)
{
    uint32_t i = 0;
    while (i < r->n && strcmp(r->worker[i].name, w->name) != 0)
        i++;
    assert_true(i < r->n);
    r->worker[i] = r->worker[--r->n];
}

/* Workers of `to` for which `from` has none with the same placements. */
static uint32_t count_missing(const running *from, const running *to)
{
    bool used[WORKERS_MAX] = {0};
    uint32_t missing = 0;
    for (uint32_t i = 0; i < to->n; i++) {
        uint32_t k = 0;
        for (; k < from->n; k++) {
            bool same = !used[k] && from->worker[k].n == to->worker[i].n;
            for (uint32_t j = 0; same && j < to->worker[i].n; j++) {
                const weft_placement *p = to->worker[i].at[j], *q = from->worker[k].at[j];
                same = strcmp(p->model, q->model) == 0 && strcmp(p->slice, q->slice) == 0 &&
                       strcmp(p->type, q->type) == 0 && p->batch == q->batch &&
                       p->procs == q->procs;
            }
            if (same)
                break;
        }
        missing += k == from->n;
        if (k < from->n)
            used[k] = true;
    }
    return missing;
}

static void check_same(const running *r, const weft_plan *plan)
{
    static running want;
    take_plan(&want, plan);
    assert_int_equal(r->n, want.n);
    for (uint32_t i = 0; i < want.n; i++)
        assert_true(has_worker(r, want.worker[i].name));
    assert_int_equal(count_missing(r, &want), 0);
}

/* The state after a stage serves what is needed in time. */
static void simulate(const weft_plan *plan, const weft_problem *problem, const double *needed)
{
    static weft_demand demand[MODELS];
    const weft_demands demands = {demand, MODELS};
    weft_problem p = *problem;
    weft_sim_options o = {.plan = plan,
                          .problem = &p,
                          .close = WEFT_SIM_CLOSE_FILL,
                          .router = WEFT_SIM_SHARES,
                          .duration_s = 3};
    const weft_service *service;
    weft_arrivals *arrivals;
    weft_sim_report report;
    size_t n;
    for (int m = 0; m < MODELS; m++) {
        demand[m] = problem->demands->at[m];
        demand[m].rate_per_s = 0.99 * needed[m];
    }
    p.demands = &demands;
    weft_sim_services(&p, arena, &service, &n);
    const weft_arrivals_options how = {.kind = WEFT_ARRIVE_CONSTANT, .duration_s = 3, .seed = 7};
    assert_int_equal(weft_arrivals_generate(&how, service, n, arena, diag, &arrivals), WEFT_ERR_OK);
    assert_int_equal(weft_simulate(&o, arrivals, arena, diag, &report), WEFT_ERR_OK);
    weft_arrivals_close(arrivals);
    uint64_t late = 0;
    for (size_t i = 0; i < report.n_service; i++)
        late += report.service[i].count.late + report.service[i].count.dropped;
    assert_true((double)late <= 0.01 * (double)report.total.count.requests);
}

typedef struct totals {
    uint32_t pairs, refused, starts, least, temporary, stages, gaps;
} totals;

static void check_change(const weft_plan *from, const weft_plan *to, const weft_reconciliation *r,
                         const weft_problem *problem, const weft_reconcile_options *o)
{
    bool dips = o->dip;
    static running now, first, last;
    double needed[MODELS], least[MODELS];
    take_plan(&now, from);
    take_plan(&first, from);
    take_plan(&last, r->plan);
    for (int m = 0; m < MODELS; m++) {
        const char *name = problem->demands->at[m].model;
        double rate = 0;
        for (size_t i = 0; i < to->n; i++)
            rate += strcmp(to->at[i].model, name) == 0 ? to->at[i].rate_per_s : 0;
        needed[m] = fmin(rate, fmin(capacity_of(&now, name), capacity_of(&last, name)));
        least[m] = HUGE_VAL;
    }
    check_room(&now, problem->fleet);
    for (size_t k = 0; k < r->n_stage; k++) {
        for (uint32_t i = 0; i < r->stage[k].n_start; i++)
            start(&now, &r->stage[k].start[i]);
        check_room(&now, problem->fleet);
        for (uint32_t i = 0; i < r->stage[k].n_stop; i++)
            stop(&now, &r->stage[k].stop[i]);
        for (int m = 0; m < MODELS; m++)
            least[m] = fmin(least[m], capacity_of(&now, problem->demands->at[m].model));
        check_same(&now, r->stage[k].plan);
        if (!dips)
            simulate(r->stage[k].plan, problem, needed);
    }
    bool below = false;
    for (int m = 0; m < MODELS && r->n_stage > 0; m++)
        below = below || least[m] < needed[m] * (1 - 1e-6);
    assert_int_equal(below, r->n_dip > 0);
    assert_true(dips || !below);
    check_same(&now, r->plan);
    assert_true(r->n_least >= (o->roll ? last.n : count_missing(&first, &last)));
    for (uint32_t i = 0; i < first.n && o->roll; i++) /* old and new ones can be told apart */
        assert_false(has_worker(&last, first.worker[i].name));
    assert_int_equal(o->roll ? r->n_kept : 0, 0);
    assert_true(r->n_start >= r->n_least + r->n_temporary);
    assert_int_equal(r->n_start - r->n_temporary + r->n_kept, last.n);
    assert_int_equal(weft_plan_check(r->plan, problem, diag), WEFT_ERR_OK);
}

/* -- Random plans ------------------------------------------------------------------------------ */

static uint64_t seed;

static double rand_range(double lo, double hi)
{
    return lo + (hi - lo) * rand_unit(&seed);
}

static void add_points(scene *sc, size_t m, bool mig)
{
    static const char *const slices[] = {"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"};
    static const double part[] = {1.0 / 7, 2.0 / 7, 3.0 / 7, 1};
    double work_us = rand_range(2000, 9000);
    for (int s = 0; s < 4 && mig; s++)
        for (uint32_t b = 1; b <= 8; b *= 4)
            scene_add_point(sc, m, "h100", slices[s], b, work_us * b / pow(part[s], 0.8) / 4, 1e9);
    for (uint32_t percent = 20; percent <= 100 && !mig; percent += 20)
        for (uint32_t b = 1; b <= 8; b *= 4)
            scene_add_share(sc, m, "a100-80", percent, b,
                            work_us * b / pow(percent / 100.0, 0.7) / 4, 1e9);
}

static void make_scene(scene *sc)
{
    scene_start(sc);
    for (size_t m = 0; m < MODELS; m++) {
        scene_add_model(sc, NULL, rand_range(60000, 300000), 0);
        add_points(sc, m, m % 3 != 0);
    }
    scene_add_device(sc, (weft_fleet_device){.type = "h100", .count = FLEET, .mig = true});
    scene_add_device(sc, (weft_fleet_device){.type = "a100-80", .count = FLEET, .mps = true});
}

static uint32_t devices_of(const weft_plan *plan, const char *type)
{
    uint32_t n = 0;
    for (size_t i = 0; i < plan->n; i++) {
        size_t k = 0;
        while (k < i && plan->at[k].device != plan->at[i].device)
            k++;
        n += k == i && strcmp(plan->at[i].type, type) == 0;
    }
    return n;
}

static void random_rates(scene *sc)
{
    for (int m = 0; m < MODELS; m++)
        sc->demand[m].rate_per_s = floor(exp(rand_range(log(5), log(900))));
}

static void print_totals(const char *what, uint32_t more, const totals *t)
{
    print_message("%s%u spare: %u pairs, %u refused, %u starts (at least %u, %u pairs above), %u "
                  "copies, %u stages\n",
                  what, more, t->pairs, t->refused, t->starts, t->least, t->gaps, t->temporary,
                  t->stages);
}

static void reconcile_pair(scene *sc, const weft_plan *from, const weft_plan *to, uint32_t more,
                           bool roll, totals *t)
{
    static const weft_export_options how = {.gpus_per_node = 4};
    weft_reconcile_options o = {.how = how, .problem = &sc->problem, .move_s = 30};
    weft_reconciliation same, r;
    o.how.demands = &sc->demands;
    assert_int_equal(weft_reconcile(from, from, &o, arena, diag, &same), WEFT_ERR_OK);
    assert_int_equal(same.n_stage, 0);
    for (size_t d = 0; d < sc->fleet.n_device; d++) {
        uint32_t a = devices_of(from, sc->device[d].type), b = devices_of(to, sc->device[d].type);
        sc->device[d].count = (a > b ? a : b) + more;
        sc->device[d].count += sc->device[d].count == 0;
    }
    o.roll = roll;
    weft_err err = weft_reconcile(same.plan, to, &o, arena, diag, &r);
    t->pairs++;
    if (err == WEFT_ERR_INFEASIBLE) {
        t->refused++;
        o.dip = true;
        err = weft_reconcile(same.plan, to, &o, arena, diag, &r);
        assert_true(r.n_dip > 0);
    }
    assert_int_equal(err, WEFT_ERR_OK);
    check_change(same.plan, to, &r, &sc->problem, &o);
    t->starts += r.n_start - r.n_temporary;
    t->least += r.n_least;
    t->temporary += r.n_temporary;
    t->stages += (uint32_t)r.n_stage;
    t->gaps += r.n_start - r.n_temporary > r.n_least;
}

static void test_reconcile__never_below_what_is_needed(void **state)
{
    static const char *const policies[] = {"bestfit", "weft"};
    scene *sc = malloc(sizeof *sc);
    (void)state;
    for (uint32_t more = 0; more < 3; more++) {
        totals t = {0};
        for (int round = 0; round < RAND_ROUNDS(100); round++) {
            weft_plan from, to;
            seed = (uint64_t)(7000 + round);
            make_scene(sc);
            random_rates(sc);
            make_plan(policies[round % 2], NULL, &sc->problem, arena, &from);
            random_rates(sc);
            sc->problem.previous = round % 4 < 2 ? &from : NULL;
            make_plan(policies[round % 2], NULL, &sc->problem, arena, &to);
            sc->problem.previous = NULL;
            reconcile_pair(sc, &from, &to, more, false, &t);
        }
        print_totals("", more, &t);
    }
    free(sc);
}

/* The same with a new bundle, with which every worker starts again, to the same plan and to others.
 */
static void test_reconcile__a_new_bundle_reaches_all(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    for (uint32_t more = 0; more < 3; more++) {
        totals t = {0}, other = {0};
        for (int round = 0; round < RAND_ROUNDS(50); round++) {
            weft_plan from, to;
            seed = (uint64_t)(9000 + round);
            make_scene(sc);
            random_rates(sc);
            make_plan("bestfit", NULL, &sc->problem, arena, &from);
            reconcile_pair(sc, &from, &from, more, true, &t);
            random_rates(sc);
            sc->device[0].count = sc->device[1].count = FLEET;
            make_plan("bestfit", NULL, &sc->problem, arena, &to);
            reconcile_pair(sc, &from, &to, more, true, &other);
        }
        print_totals("new bundle, ", more, &t);
        print_totals("new bundle and plan, ", more, &other);
    }
    free(sc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reconcile__never_below_what_is_needed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_reconcile__a_new_bundle_reaches_all, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
