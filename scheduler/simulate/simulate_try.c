/* A trial of a plan: a short simulation from queues that are there, with Poisson arrivals. */
#include "scheduler/simulate/simulate_int.h"

#include <string.h>

enum { TRIAL_REQUESTS_MAX = 20000 };

/* Requests that wait at time 0, then those of another stream. */
typedef struct backlog {
    struct weft_arrivals base;
    weft_arrivals *rest;
    const uint64_t *queue; /* by service */
    uint32_t service, n_service;
    uint64_t k; /* next request of the service */
} backlog;

static weft_err next_request(weft_arrivals *self, weft_arrival *out, bool *more)
{
    backlog *b = (backlog *)self;
    while (b->service < b->n_service && b->k == b->queue[b->service]) {
        b->service++;
        b->k = 0;
    }
    if (b->service == b->n_service)
        return weft_arrivals_next(b->rest, out, more);
    b->k++;
    *out = (weft_arrival){.time_ns = 0, .service = b->service};
    *more = true;
    return WEFT_ERR_OK;
}

/* Waiting requests of a service: of a model, of all models of a family, or of an app. */
static uint64_t waiting(const weft_trial *trial, const char *name)
{
    const weft_problem *problem = trial->problem;
    uint64_t sum = 0;
    for (size_t i = 0; i < problem->demands->n; i++)
        if (strcmp(name, problem->demands->at[i].model) == 0 ||
            weft_family_has(name, problem->demands->at[i].model))
            sum += trial->queue[i];
    for (size_t i = 0; i < problem->n_app; i++)
        if (strcmp(problem->app[i].name, name) == 0)
            sum += trial->queue[problem->demands->n + i];
    return sum;
}

static bool has_models(const weft_problem *problem, const weft_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        size_t k = 0;
        while (k < problem->demands->n &&
               strcmp(problem->demands->at[k].model, plan->at[i].model) != 0)
            k++;
        if (k == problem->demands->n)
            return false;
    }
    return true;
}

weft_err weft_sim_try(const weft_trial *trial, weft_arena *arena, weft_diag *diag,
                      weft_trial_result *out)
{
    const weft_service *service;
    size_t n;
    double sum = 0;
    weft_problem problem;
    weft_sim_report report;
    /* Plans that group models into other families are no services of each other: the trial of the
     * new one then begins with it, without a transition. */
    const weft_plan *end = trial->next ? trial->next : trial->now;
    weft_families_of_plan(end, trial->problem, arena, &problem);
    bool later = trial->next && has_models(&problem, trial->now);
    weft_sim_services(&problem, arena, &service, &n);
    uint64_t *queue = weft_arena_array(arena, n + 1, sizeof *queue), room = TRIAL_REQUESTS_MAX;
    for (size_t i = 0; i < n; i++) {
        queue[i] = waiting(trial, service[i].name);
        queue[i] = queue[i] < room ? queue[i] : room;
        room -= queue[i];
        sum += service[i].rate_per_s;
    }
    double seconds = trial->seconds;
    if (sum * seconds > TRIAL_REQUESTS_MAX)
        seconds = TRIAL_REQUESTS_MAX / sum;
    weft_arrivals_options generate = {.duration_s = seconds, .seed = 1};
    backlog b = {.base = {.next = next_request}, .queue = queue, .n_service = (uint32_t)n};
    WEFT_TRY(weft_arrivals_generate(&generate, service, n, arena, diag, &b.rest));
    weft_sim_later change = {.plan = end};
    weft_sim_options options = {.plan = later ? trial->now : end,
                                .problem = &problem,
                                .later = &change,
                                .n_later = later,
                                .start_s = trial->start_s,
                                .mig_s = trial->mig_s,
                                .queue_max = 2 * TRIAL_REQUESTS_MAX};
    weft_err err = weft_simulate(&options, &b.base, arena, diag, &report);
    weft_arrivals_close(b.rest);
    WEFT_TRY(err);
    *out = (weft_trial_result){report.total.count.requests, report.total.count.good, seconds};
    return WEFT_ERR_OK;
}
