/* Plans, and differences of plans, for tests of policies. Include cmocka before this header. */
#ifndef WEFT_TESTS_SUPPORT_MAKE_PLAN_H
#define WEFT_TESTS_SUPPORT_MAKE_PLAN_H

#include "base/diag.h"
#include "scheduler/scheduler.h"

#include <stdlib.h>
#include <string.h>

/* Makes a plan with the named policy; the test fails with the policy's message if there is none.
 * memory: the policy's state between plans, or NULL. */
static inline void make_plan(const char *policy, void *memory, const weft_problem *problem,
                             weft_arena *room, weft_plan *out)
{
    weft_diag *own = weft_diag_create();
    if (weft_plan_make(weft_policy_find(policy), memory, problem, room, own, out) != WEFT_ERR_OK)
        fail_msg("%s: %s", policy,
                 weft_diag_count(own) ? weft_diag_at(own, 0)->text : "no message");
    weft_diag_destroy(own);
}

static inline bool same_segment(const weft_placement *a, const weft_placement *b)
{
    return strcmp(a->model, b->model) == 0 && strcmp(a->slice, b->slice) == 0 &&
           a->mig_start == b->mig_start && a->batch == b->batch && a->procs == b->procs;
}

/* Segments of `after` that `before` does not have, whatever the numbers of their devices, except
 * those of the model `changed`. */
static inline uint32_t count_moved(const weft_plan *before, const weft_plan *after,
                                   const char *changed)
{
    bool *used = calloc(before->n + 1, sizeof *used);
    uint32_t moved = 0;
    for (size_t i = 0; i < after->n; i++) {
        size_t j = 0;
        if (strcmp(after->at[i].model, changed) == 0)
            continue;
        while (j < before->n && (used[j] || !same_segment(&after->at[i], &before->at[j])))
            j++;
        if (j < before->n)
            used[j] = true;
        else
            moved++;
    }
    free(used);
    return moved;
}

#endif
