/* What transports and metrics ask the router: its models, workers and counters. */
#include "runtime/server/router_int.h"

#include <stdio.h>
#include <string.h>

void weft_router__set_spans(weft_router *router, weft_spans *spans)
{
    router->spans = spans;
}

bool weft_router__serves(const weft_router *router, uint32_t model)
{
    if (router->model[model].app)
        return weft_served_app__any(router, model, weft_router__serves);
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (router->worker[i].serves[model])
            return true;
    return router->model[model].awaited;
}

/* The process has prepared its models, and its pulse beats. */
static bool is_up(const worker_process *w)
{
    return (w->state == WORKER_IDLE || w->state == WORKER_BUSY) && w->stall_ns == 0;
}

void weft_router__explain(const weft_router *router, uint32_t model, char *out, size_t size)
{
    uint64_t now_ns = weft_clock__now_ns();
    size_t at = 0;
    out[0] = '\0';
    if (router->model[model].app) {
        if (!weft_router__is_ready(router, model))
            snprintf(out, size, "no variant of the app is ready");
        return;
    }
    if (router->model[model].awaited && !weft_router__is_ready(router, model))
        at = (size_t)snprintf(out, size, "its slices are being changed");
    for (uint32_t i = 0; i < router->n_worker && !weft_router__is_ready(router, model); i++) {
        const worker_process *w = &router->worker[i].process;
        if (!router->worker[i].serves[model] || at >= size)
            continue;
        const char *state = w->stall_ns                   ? "shows no sign of life"
                            : w->state == WORKER_STARTING ? "prepares its models"
                                                          : "waits to be started";
        double left_s = w->start_ns > now_ns ? (double)(w->start_ns - now_ns) * 1e-9 : 0;
        at += (size_t)snprintf(out + at, size - at, "%sworker %u %s", at ? "; " : "", i, state);
        if (at < size && w->state == WORKER_WAITING)
            at += (size_t)snprintf(out + at, size - at, " in %.1f s", left_s);
        if (at < size && w->why[0])
            at += (size_t)snprintf(out + at, size - at, " (%s)", w->why);
    }
}

bool weft_router__is_ready(const weft_router *router, uint32_t model)
{
    if (router->model[model].app)
        return weft_served_app__any(router, model, weft_router__is_ready);
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const router_worker *w = &router->worker[i];
        if (w->serves[model] && is_up(&w->process))
            return true;
    }
    return false;
}

bool weft_router__all_ready(const weft_router *router)
{
    for (uint32_t i = 0; i < router->n_model; i++)
        if (router->model[i].shown && weft_router__serves(router, i) &&
            !weft_router__is_ready(router, i))
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

uint32_t weft_router__live_workers(const weft_router *router)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < router->n_worker; i++)
        n += !router->worker[i].retired;
    return n;
}

uint32_t weft_router__worker_room(const weft_router *router)
{
    return router->worker_room;
}

weft_worker_status weft_router__worker_status(const weft_router *router, uint32_t worker)
{
    static const char *const state[] = {"waiting", "starting", "idle", "busy"};
    const router_worker *at = &router->worker[worker];
    const worker_process *w = &at->process;
    if (at->retired)
        return (weft_worker_status){.retired = true, .why = "", .state = "retired"};
    return (weft_worker_status){.name = w->slice->name,
                                .gpu = w->slice->gpu,
                                .mig = w->slice->mig,
                                .ready = is_up(w),
                                .lost = w->lost,
                                .why = w->why,
                                .restarts = w->restarts,
                                .losses = w->losses,
                                .retiring = at->retiring,
                                .pid = w->pid,
                                .state = state[w->state],
                                .slice = w->slice,
                                .bundle = at->bundle->path};
}

uint64_t weft_router__packed_executions(const weft_router *router)
{
    return router->packed_executions;
}

uint64_t weft_router__heads_executions(const weft_router *router)
{
    return router->heads_executions;
}

bool weft_router__together(const weft_router *router, uint32_t i, weft_together *out)
{
    for (uint32_t k = 0; k < router->n_worker; k++) {
        const router_worker *w = &router->worker[k];
        const weft_bundle *b = w->bundle ? w->bundle->bundle : NULL;
        if (!b || i >= b->n_joint) {
            i -= b ? b->n_joint : 0;
            continue;
        }
        const router_gain *g = &w->gain[b->n_program + i];
        *out = (weft_together){.program = b->program[b->n_program + i].name,
                               .worker = k,
                               .gain = g->gain,
                               .apart = g->n_apart,
                               .trials = g->n_trial};
        return true;
    }
    return false;
}

uint64_t weft_router__joint_rows(const weft_router *router)
{
    return router->joint_rows;
}

struct weft_live *weft_router__live(const weft_router *router)
{
    return router->live;
}

uint64_t weft_router__adapter_reads(const weft_router *router)
{
    return router->adapter_reads;
}

const weft_bundle *weft_router__bundle_of(const weft_router *router, uint32_t model,
                                          uint32_t *out_program)
{
    const router_model *m = &router->model[model];
    *out_program = (uint32_t)(m->program - m->bundle->bundle->program);
    return m->bundle->bundle;
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
    return router->leaving || router->draining;
}

uint32_t weft_router__queued(const weft_router *router, uint32_t model)
{
    return router->model[model].n_queued;
}

bool weft_router__is_idle(const weft_router *router)
{
    return router->n_pending == 0;
}
