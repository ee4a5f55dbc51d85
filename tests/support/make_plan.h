/* Plans for tests of policies. Include cmocka before this header. */
#ifndef WEFT_TESTS_SUPPORT_MAKE_PLAN_H
#define WEFT_TESTS_SUPPORT_MAKE_PLAN_H

#include "base/diag.h"
#include "scheduler/scheduler.h"

/* Makes a plan with the named policy; the test fails with the policy's message if there is none.
 * memory: the policy's state between plans, or NULL. */
static inline void make_plan(const char *policy, void *memory, const weft_problem *problem,
                             weft_arena *arena, weft_plan *out)
{
    weft_diag *diag = weft_diag_create();
    if (weft_plan_make(weft_policy_find(policy), memory, problem, arena, diag, out) != WEFT_ERR_OK)
        fail_msg("%s: %s", policy,
                 weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "no message");
    weft_diag_destroy(diag);
}

#endif
