/* What transports and metrics ask the router: its models, workers and counters. */
#include "runtime/server/router_int.h"

#include <string.h>

const weft_bundle *weft_router__bundle(const weft_router *router)
{
    return router->bundle;
}

uint32_t weft_router__find(const weft_router *router, const char *name, size_t len)
{
    for (uint32_t i = 0; i < router->bundle->n_program; i++) {
        const char *model = router->bundle->program[i].name;
        if (strlen(model) == len && memcmp(model, name, len) == 0)
            return i;
    }
    return UINT32_MAX;
}

/* The process has prepared its models. */
static bool is_up(const worker_process *w)
{
    return w->state == WORKER_IDLE || w->state == WORKER_BUSY;
}

bool weft_router__is_ready(const weft_router *router, uint32_t model)
{
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const router_worker *w = &router->worker[i];
        if (w->serves[model] && is_up(&w->process))
            return true;
    }
    return false;
}

bool weft_router__all_ready(const weft_router *router)
{
    for (uint32_t i = 0; i < router->bundle->n_program; i++)
        if (!weft_router__is_ready(router, i))
            return false;
    return true;
}

const char *weft_router__failure(const weft_router *router)
{
    return router->failure[0] ? router->failure : NULL;
}

const weft_model_stats *weft_router__stats(const weft_router *router, uint32_t model)
{
    return &router->model[model].stats;
}

uint32_t weft_router__worker_count(const weft_router *router)
{
    return router->n_worker;
}

weft_worker_status weft_router__worker_status(const weft_router *router, uint32_t worker)
{
    const worker_process *w = &router->worker[worker].process;
    return (weft_worker_status){.name = w->slice->name,
                                .gpu = w->slice->gpu,
                                .mig = w->slice->mig,
                                .ready = is_up(w),
                                .lost = w->lost,
                                .why = w->why,
                                .restarts = w->restarts,
                                .losses = w->losses};
}

uint64_t weft_router__joint_executions(const weft_router *router)
{
    return router->joint_executions;
}

uint64_t weft_router__restarts(const weft_router *router)
{
    return router->restarts;
}

bool weft_router__is_draining(const weft_router *router)
{
    return router->draining;
}

bool weft_router__is_idle(const weft_router *router)
{
    return router->n_pending == 0;
}
