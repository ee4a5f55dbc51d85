/* Courses between random pairs of plans on MIG instances, shares and whole GPUs, checked from
 * outside: each step's plan has room on every device, capacity holds unless a dip says so, and the
 * last step is the new plan. */
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
#include "base/slice_name.h"
#include "base/str.h"
#include "scheduler/scheduler.h"
#include "tests/support/fixture.h"
#include "tests/support/rand.h"

enum { MODELS = 4, PLACES_MAX = 64 };

static const char *const names[MODELS] = {"a", "b", "c", "d"};

typedef struct made {
    weft_placement at[PLACES_MAX];
    weft_plan plan;
} made;

static void add(made *m, uint32_t device, const char *slice, int32_t start, uint32_t model,
                uint32_t batch, double share, double capacity, double rate)
{
    assert_true(m->plan.n < PLACES_MAX);
    m->at[m->plan.n] = (weft_placement){.model = names[model],
                                        .device = device,
                                        .type = "h200",
                                        .slice = slice,
                                        .mig_start = start,
                                        .slice_id = (uint32_t)m->plan.n,
                                        .share = share,
                                        .batch = batch,
                                        .procs = 1,
                                        .capacity_per_s = capacity,
                                        .rate_per_s = rate,
                                        .mem_bytes = 1u << 30};
    m->plan.n++;
    m->plan.at = m->at;
    m->plan.gpus = device + 1;
    m->plan.policy = "made";
}

static uint32_t slots_of(const weft_placement *p)
{
    const weft_device_type *type = weft_device_type_find(p->type);
    weft_slice_name name;
    assert_true(weft_slicename_parse(p->slice, &name));
    for (size_t i = 0; p->mig_start >= 0 && i < type->n_mig; i++)
        if (strcmp(type->mig[i].name, name.profile) == 0)
            return ((1u << type->mig[i].slots) - 1) << p->mig_start;
    return 0;
}

/* No two instances overlap, no device is split in two ways, and memory suffices. */
static void check_room(const weft_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        uint64_t bytes = 0;
        for (size_t k = 0; k < plan->n; k++) {
            const weft_placement *q = &plan->at[k];
            if (p->device != q->device)
                continue;
            assert_int_equal(p->mig_start >= 0, q->mig_start >= 0);
            bool same = p->mig_start == q->mig_start &&
                        (p->mig_start < 0 || strcmp(p->slice, q->slice) == 0);
            assert_true(same || !(slots_of(p) & slots_of(q)));
            bytes += same ? q->mem_bytes : 0;
        }
        assert_true(bytes <= (uint64_t)141 << 30);
    }
}

static double capacity_of(const weft_plan *plan, const char *model)
{
    double sum = 0;
    for (size_t i = 0; i < plan->n; i++)
        sum += strcmp(plan->at[i].model, model) == 0 ? plan->at[i].capacity_per_s : 0;
    return sum;
}

static double rate_of(const weft_plan *plan, const char *model)
{
    double sum = 0;
    for (size_t i = 0; i < plan->n; i++)
        sum += strcmp(plan->at[i].model, model) == 0 ? plan->at[i].rate_per_s : 0;
    return sum;
}

static bool has_dip(const weft_plan_course *c, const char *model)
{
    for (uint32_t i = 0; i < c->n_dip; i++)
        if (strcmp(c->dip[i].model, model) == 0)
            return true;
    return false;
}

static void check_course(const weft_plan *before, const weft_plan *after, const weft_plan_course *c)
{
    for (uint32_t k = 0; k < c->n_step; k++) {
        check_room(c->step[k].plan);
        for (int m = 0; m < MODELS; m++) {
            double had = capacity_of(before, names[m]), gets = capacity_of(after, names[m]);
            double need = fmin(rate_of(after, names[m]), fmin(had, gets)) * (1 - 1e-9);
            if (!has_dip(c, names[m]))
                assert_true(capacity_of(c->step[k].plan, names[m]) >= need);
        }
    }
    const weft_plan *last = c->n_step ? c->step[c->n_step - 1].plan : before;
    assert_int_equal(last->n, after->n);
    for (size_t i = 0; i < after->n; i++) {
        bool found = false;
        for (size_t k = 0; k < last->n; k++)
            found = found || (last->at[k].device == after->at[i].device &&
                              last->at[k].mig_start == after->at[i].mig_start &&
                              last->at[k].batch == after->at[i].batch &&
                              strcmp(last->at[k].slice, after->at[i].slice) == 0 &&
                              strcmp(last->at[k].model, after->at[i].model) == 0);
        assert_true(found);
    }
}

/* One H200, two instances become one: the new one waits for both, and nothing else has room. */
static void test_plan_course__tells_what_cannot_be_avoided(void **state)
{
    (void)state;
    made before = {0}, after = {0};
    weft_plan_course c;
    add(&before, 0, "3g.71gb", 0, 0, 1, .45, 100, 80);
    add(&before, 0, "3g.71gb", 4, 1, 1, .45, 50, 40);
    add(&after, 0, "7g.141gb", 0, 0, 1, 1, 300, 80);
    after.at[0].slice_id = 0;
    add(&after, 0, "7g.141gb", 0, 1, 1, 1, 100, 40);
    after.at[1].slice_id = 0;
    weft_plan_find_course(&before.plan, &after.plan, NULL, 0, arena, &c);
    check_course(&before.plan, &after.plan, &c);
    assert_int_equal(c.n_step, 2);
    assert_int_equal(c.step[0].n_start, 0);
    assert_int_equal(c.step[0].n_stop, 2);
    assert_int_equal(c.step[1].n_mig, 1);
    assert_int_equal(c.n_dip, 2);
    assert_string_equal(c.dip[0].model, "a");
    assert_true(c.dip[0].left_per_s < 1e-9 && fabs(c.dip[0].needed_per_s - 80) < 1e-9);
    weft_buf text = {0};
    weft_plan_tell_course(&c, 2, 5, &text);
    assert_string_equal(text.at, " in 2 steps, 1 new MIG instance; h200 0 is changed where its "
                                 "slices run and nothing else has room: a falls to 0/s of 80/s "
                                 "for about 7 s; h200 0 is changed where its slices run and "
                                 "nothing else has room: b falls to 0/s of 40/s for about 7 s");
    weft_buf_finish(&text);
    /* With a GPU that nothing uses copies run there meanwhile: no dip. */
    const weft_plan_spare spare = {.device = 1, .type = "h200", .is_mig = true};
    weft_plan_find_course(&before.plan, &after.plan, &spare, 1, arena, &c);
    check_course(&before.plan, &after.plan, &c);
    assert_int_equal(c.n_dip, 0);
    assert_int_equal(c.n_copy, 2);
    assert_int_equal(c.copy[0].at->device, 1);
    /* Half of the GPU changes: the other half goes on. */
    after.plan.n = 0;
    add(&after, 0, "3g.71gb", 0, 0, 1, .45, 100, 80);
    add(&after, 0, "2g.35gb", 4, 1, 1, .25, 45, 40);
    weft_plan_find_course(&before.plan, &after.plan, NULL, 0, arena, &c);
    check_course(&before.plan, &after.plan, &c);
    assert_int_equal(c.n_step, 2);
    assert_int_equal(c.n_dip, 1);
    assert_string_equal(c.dip[0].model, "b");
    assert_int_equal(c.begins[0], WEFT_STEP_NONE);
    assert_int_equal(c.begins[1], 1);
    assert_int_equal(c.ends[1], 0);
}

/* Shares run side by side for the time of a change; only memory keeps them apart. */
static void test_plan_course__changes_shares_in_one_step(void **state)
{
    (void)state;
    made before = {0}, after = {0};
    weft_plan_course c;
    add(&before, 0, "40%", -1, 0, 1, .4, 100, 80);
    add(&before, 0, "60%", -1, 1, 1, .6, 100, 80);
    add(&after, 0, "70%", -1, 0, 1, .7, 170, 150);
    add(&after, 0, "30%", -1, 1, 1, .3, 50, 40);
    weft_plan_find_course(&before.plan, &after.plan, NULL, 0, arena, &c);
    check_course(&before.plan, &after.plan, &c);
    assert_int_equal(c.n_step, 1);
    assert_int_equal(c.step[0].n_start, 2);
    assert_int_equal(c.step[0].n_stop, 2);
    assert_int_equal(c.n_dip, 0);
    for (size_t i = 0; i < 2; i++)
        before.at[i].mem_bytes = after.at[i].mem_bytes = (uint64_t)60 << 30;
    weft_plan_find_course(&before.plan, &after.plan, NULL, 0, arena, &c);
    check_course(&before.plan, &after.plan, &c);
    assert_true(c.n_step > 1 && c.n_dip > 0);
}

static void test_plan_course__settles_on_devices_that_have_most(void **state)
{
    (void)state;
    made before = {0}, after = {0};
    add(&before, 3, "40%", -1, 0, 1, .4, 100, 80);
    add(&before, 5, "60%", -1, 1, 1, .6, 100, 80);
    add(&after, 0, "60%", -1, 1, 1, .6, 100, 80);
    add(&after, 1, "40%", -1, 0, 1, .4, 100, 80);
    add(&after, 2, "50%", -1, 2, 1, .5, 100, 80);
    weft_plan settled = weft_plan_settle(&before.plan, &after.plan, NULL, 0, arena);
    assert_int_equal(settled.at[0].device, 5);
    assert_int_equal(settled.at[1].device, 3);
    assert_int_equal(settled.at[2].device, 6);
    const weft_plan_spare spare = {.device = 9, .type = "h200"};
    settled = weft_plan_settle(&before.plan, &after.plan, &spare, 1, arena);
    assert_int_equal(settled.at[2].device, 9);
}

/* Instances of random profiles at free starts. */
static void make_random(made *m, uint32_t devices, bool mig, uint64_t *seed)
{
    const weft_device_type *type = weft_device_type_find("h200");
    *m = (made){0};
    for (uint32_t d = 0; d < devices; d++) {
        uint32_t taken = 0;
        for (uint32_t i = 0; i < 8; i++) {
            const weft_mig_profile *p = &type->mig[rand_below(seed, (uint32_t)type->n_mig)];
            uint32_t start = rand_below(seed, 8), mask = ((1u << p->slots) - 1) << start;
            uint32_t model = rand_below(seed, MODELS), batch = 1 + rand_below(seed, 2);
            if (!mig && i < 3)
                add(m, d, i == 0 ? "50%" : i == 1 ? "30%" : "20%", -1, model, batch, .3, 10, 5);
            if (!mig || !(p->starts >> start & 1) || (mask & taken))
                continue;
            taken |= mask;
            add(m, d, p->name, (int32_t)start, model, batch, p->share, 40 * p->share,
                40 * p->share * rand_below(seed, 100) / 100);
        }
    }
}

static void test_plan_course__keeps_room_and_capacity(void **state)
{
    (void)state;
    uint32_t n_dip = 0, n_copy = 0, n_step = 0;
    uint64_t seed = 7;
    for (int i = 0; i < 400; i++) {
        made before, after;
        weft_plan_course c;
        bool mig = i % 4 != 0;
        uint32_t devices = 1 + rand_below(&seed, 3);
        make_random(&before, devices, mig, &seed);
        make_random(&after, devices, mig, &seed);
        const weft_plan_spare spare = {.device = 7, .type = "h200", .is_mig = mig};
        weft_plan_find_course(&before.plan, &after.plan, &spare, i % 3 == 0, arena, &c);
        check_course(&before.plan, &after.plan, &c);
        n_dip += c.n_dip > 0;
        n_copy += c.n_copy > 0;
        n_step = c.n_step > n_step ? c.n_step : n_step;
        weft_plan_find_course(&after.plan, &after.plan, NULL, 0, arena, &c);
        assert_int_equal(c.n_step, 0);
    }
    if (!(n_dip > 20 && n_copy > 20 && n_step > 2))
        fail_msg("%u dips, %u copies, %u steps", n_dip, n_copy, n_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plan_course__tells_what_cannot_be_avoided, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_plan_course__changes_shares_in_one_step, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_plan_course__settles_on_devices_that_have_most, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_plan_course__keeps_room_and_capacity, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
