/* Weft's own policy: the optimum of the published scenarios, never worse than another policy,
 * never above exclusive use, few moves when one model changes. */
#include "../support/parvagpu_sets.h"

#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/search_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static parvagpu_data data;
static weft_arena *data_arena;

static void need_data(void)
{
    static int state;
    if (state == 0) {
        data_arena = weft_arena_create(0);
        state = parvagpu_load(data_arena, &data) ? 1 : 2;
        if (state == 2)
            print_message("no parvagpu folder in WEFT_DATA\n");
    }
    if (state == 2)
        skip();
}

static void make(const char *policy, const weft_problem *problem, weft_arena *arena, weft_plan *out)
{
    weft_diag *diag = weft_diag_create();
    if (weft_plan_make(weft_policy_find(policy), NULL, problem, arena, diag, out) != WEFT_ERR_OK)
        fail_msg("%s: %s", policy, weft_diag_at(diag, 0)->text);
    weft_diag_destroy(diag);
}

/* -- Published numbers ------------------------------------------------------------------------ */

static void test_policy_weft__optimum_of_the_scenarios(void **state)
{
    static const uint32_t optimum[2][PARVAGPU_SCENARIOS] = {{2, 3, 5, 7, 12, 16},
                                                            {2, 3, 5, 7, 12, 15}};
    (void)state;
    need_data();
    for (uint32_t five = 0; five < 2; five++)
        for (size_t s = 0; s < PARVAGPU_SCENARIOS; s++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            weft_plan plan;
            parvagpu_scenario(&data, s, 1, five ? 5 : 3, arena, &set);
            make("weft", &set.problem, arena, &plan);
            assert_int_equal(plan.gpus, optimum[five][s]);
            assert_true(plan.proven && plan.lower_bound == plan.gpus);
            set.problem.effort = 1;
            make("weft", &set.problem, arena, &plan);
            assert_int_equal(plan.gpus, optimum[five][s]);
            weft_arena_destroy(arena);
        }
}

static void test_policy_weft__multiples_of_s5(void **state)
{
    static const uint32_t times[] = {1, 2, 4, 6, 8, 10}, optimum[] = {12, 24, 47, 71, 94, 118};
    (void)state;
    need_data();
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        for (uint64_t effort = 0; effort < 2; effort++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            weft_plan plan;
            parvagpu_scenario(&data, 4, times[i], 5, arena, &set);
            set.problem.effort = effort;
            make("weft", &set.problem, arena, &plan);
            print_message("S5 x %u, effort %llu: %u, bound %.0f\n", times[i],
                          (unsigned long long)effort, plan.gpus, plan.lower_bound);
            if (effort == 0)
                assert_int_equal(plan.gpus, optimum[i]);
            else
                assert_in_range(plan.gpus, optimum[i], optimum[i] + 1);
            weft_arena_destroy(arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_weft__optimum_of_the_scenarios),
        cmocka_unit_test(test_policy_weft__multiples_of_s5),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_arena_destroy(data_arena);
    return failed;
}
