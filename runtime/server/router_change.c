/* Another plan comes into force while requests flow.
 *
 *   none -> starting: the new workers prepare their models; the old ones serve
 *        -> retiring: all new ones are ready; the old ones that the plan lacks get no more batches,
 *           and end after the one in hand
 *        -> none
 *   starting -> undoing: a new worker ended, or took too long; the new ones end -> none
 *
 * A worker whose slice has the same CPUs and models in both plans stays. At no time does a model
 * have fewer ready workers than before or after the change. A worker that ends in between gives its
 * requests back to their queues, as ever. */
#include "runtime/server/router_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum change_phase {
    CHANGE_NONE,
    CHANGE_STARTING,
    CHANGE_RETIRING,
    CHANGE_UNDOING
} change_phase;

struct router_change {
    change_phase phase;
    weft_arena *arena, *next_arena; /* slices in force (NULL: those of the options), and to come */
    bool *fresh;                    /* by place: a worker of the new plan */
    const weft_serve_slice **keep;  /* by place: its slice in the new plan; NULL: it has none */
    uint64_t begun_ns, until_ns;
    weft_change_status status;
    char error[WORKER_WHY_MAX];
};

static const uint64_t step_ns = 5000000;

/* -- Matching --------------------------------------------------------------------------------- */

static bool has_model(const weft_serve_slice *s, const char *model)
{
    for (uint32_t i = 0; i < s->n_model; i++)
        if (strcmp(s->model[i], model) == 0)
            return true;
    return s->n_model == 0;
}

static bool is_same(const weft_serve_slice *a, const weft_serve_slice *b, const weft_bundle *bundle)
{
    if (a->gpu || b->gpu || a->n_cpu != b->n_cpu ||
        (a->n_cpu && memcmp(a->cpu, b->cpu, a->n_cpu * sizeof *a->cpu) != 0))
        return false;
    for (uint32_t i = 0; i < bundle->n_program; i++)
        if (has_model(a, bundle->program[i].name) != has_model(b, bundle->program[i].name))
            return false;
    return true;
}

static bool is_free(const weft_router *router, uint32_t place)
{
    return place >= router->n_worker || router->worker[place].retired;
}

/* A model that is served and would have no slice; NULL: none. */
static const char *find_lost(const weft_router *router, const weft_serve_slice *slice, uint32_t n)
{
    for (uint32_t m = 0; m < router->bundle->n_program; m++) {
        const char *name = router->bundle->program[m].name;
        bool found = !weft_router__serves(router, m);
        for (uint32_t i = 0; i < n && !found; i++)
            found = has_model(&slice[i], name);
        if (!found)
            return name;
    }
    return NULL;
}

/* -- Workers ---------------------------------------------------------------------------------- */

/* Ends a worker for good. Its place stays, and serves no model. */
static void retire(weft_router *router, router_worker *w)
{
    weft_worker__stop(&w->process);
    memset(w->serves, 0, router->bundle->n_program * sizeof *w->serves);
    w->process.slice = &weft_router__whole;
    w->prepares = w->retiring = false;
    w->retired = true;
}

/* Makes a worker in a free place. On an error the place stays free. */
static weft_err open_place(weft_router *router, uint32_t place, const weft_serve_slice *slice,
                           weft_diag *diag)
{
    router_worker *w = &router->worker[place];
    bool *serves = calloc((size_t)router->bundle->n_program + 1, sizeof *serves);
    if (!serves)
        return WEFT_ERR_NOMEM;
    if (place < router->n_worker)
        weft_router__close_worker(w);
    weft_err err = weft_router__open_worker(router, w, slice, diag);
    if (err == WEFT_ERR_OK) {
        free(serves);
    } else {
        weft_router__close_worker(w);
        *w = (router_worker){.router = router, .serves = serves, .retired = true};
        w->process.fd = w->process.pulse_fd = w->process.channel_fd = -1;
        w->process.start_ns = UINT64_MAX;
        w->process.slice = &weft_router__whole;
    }
    router->n_worker += place == router->n_worker;
    return err;
}

/* It runs no request and owes no answer. */
static bool is_quiet(const router_worker *w)
{
    return w->n_answered == 0 &&
           (w->prepares || (w->n_part == 0 && w->process.state != WORKER_BUSY));
}

/* -- The change ------------------------------------------------------------------------------- */

static void undo(weft_router *router, const char *why)
{
    struct router_change *c = router->change;
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (c->fresh[i] && !router->worker[i].retired)
            router->worker[i].retiring = true;
    snprintf(c->error, sizeof c->error, "%s", why);
    c->phase = CHANGE_UNDOING;
}

static void finish(weft_router *router, bool ok)
{
    struct router_change *c = router->change;
    double took_s = (double)(weft_clock__now_ns() - c->begun_ns) * 1e-9;
    weft_router__limit_batches(router);
    weft_arena_destroy(ok ? c->arena : c->next_arena);
    if (ok)
        c->arena = c->next_arena;
    c->next_arena = NULL;
    c->phase = CHANGE_NONE;
    c->status.last_generation = c->status.generation;
    c->status.last_ok = ok;
    c->status.last_took_s = took_s;
    c->status.generation += !ok; /* the old plan is in force again */
    WEFT_LOG(WEFT_LOG_INFO, ok ? "plan_in_force" : "plan_undone",
             {.key = "generation", .number = (double)c->status.generation},
             {.key = "took_s", .number = took_s}, {.key = "why", .text = ok ? "" : c->error});
}

/* The new workers are ready: the others retire. */
static void commit(weft_router *router)
{
    struct router_change *c = router->change;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        router_worker *w = &router->worker[i];
        if (w->retired || c->fresh[i])
            continue;
        if (!c->keep[i]) {
            w->retiring = true;
            continue;
        }
        w->process.slice = c->keep[i];
        /* It has the same models, but may have other batches. */
        if (weft_router__set_served(router, w, NULL) != WEFT_ERR_OK)
            WEFT_LOG(WEFT_LOG_ERROR, "batches_not_set", {.key = "worker", .number = i});
    }
    c->error[0] = '\0';
    c->phase = CHANGE_RETIRING;
}

static void look_at_new(weft_router *router)
{
    struct router_change *c = router->change;
    bool all = true;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const worker_process *w = &router->worker[i].process;
        if (!c->fresh[i] || router->worker[i].retired)
            continue;
        if (w->restarts > 0) {
            undo(router, w->why[0] ? w->why : "a new worker ended before it was ready");
            return;
        }
        all = all && (w->state == WORKER_IDLE || w->state == WORKER_BUSY);
    }
    if (all)
        commit(router);
    else if (weft_clock__now_ns() > c->until_ns)
        undo(router, "the new workers are not ready in time");
}

static uint64_t step(void *user)
{
    weft_router *router = user;
    struct router_change *c = router->change;
    bool left = false;
    if (c->phase == CHANGE_STARTING)
        look_at_new(router);
    if (c->phase != CHANGE_RETIRING && c->phase != CHANGE_UNDOING)
        return c->phase == CHANGE_NONE ? UINT64_MAX : step_ns;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        router_worker *w = &router->worker[i];
        if (w->retiring && is_quiet(w))
            retire(router, w);
        left = left || w->retiring;
    }
    if (!left)
        finish(router, c->phase == CHANGE_RETIRING);
    return c->phase == CHANGE_NONE ? UINT64_MAX : step_ns;
}

static weft_err open_changes(weft_router *router)
{
    struct router_change *c = calloc(1, sizeof *c);
    if (!c)
        return WEFT_ERR_NOMEM;
    c->fresh = calloc(router->worker_room, sizeof *c->fresh);
    c->keep = calloc(router->worker_room, sizeof *c->keep);
    c->status.generation = 1;
    router->change = c;
    return c->fresh && c->keep && weft_loop__idle(router->loop, step, router) ? WEFT_ERR_OK
                                                                              : WEFT_ERR_NOMEM;
}

/* Finds the workers that stay; *out_new: slices that need one. */
static void match(weft_router *router, const weft_serve_slice *slice, uint32_t n, bool *taken,
                  uint32_t *out_new)
{
    struct router_change *c = router->change;
    *out_new = n;
    for (uint32_t i = 0; i < router->worker_room; i++) {
        c->fresh[i] = false;
        c->keep[i] = NULL;
        for (uint32_t k = 0; k < n && !is_free(router, i) && !c->keep[i]; k++)
            if (!taken[k] && is_same(router->worker[i].process.slice, &slice[k], router->bundle)) {
                c->keep[i] = &slice[k];
                taken[k] = true;
                --*out_new;
            }
    }
}

static weft_err start_new(weft_router *router, const weft_serve_slice *slice, uint32_t n,
                          const bool *taken, weft_diag *diag)
{
    struct router_change *c = router->change;
    for (uint32_t k = 0, place = 0; k < n; k++) {
        if (taken[k])
            continue;
        while (!is_free(router, place))
            place++;
        WEFT_TRY(open_place(router, place, &slice[k], diag));
        c->fresh[place] = true;
    }
    return WEFT_ERR_OK;
}

weft_err weft_router__change(weft_router *router, const weft_serve_slice *slice, uint32_t n,
                             weft_arena *arena, weft_diag *diag)
{
    const weft_where where = {0};
    if (!router->change)
        WEFT_TRY(open_changes(router));
    struct router_change *c = router->change;
    if (c->phase != CHANGE_NONE || router->draining)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               c->phase != CHANGE_NONE ? "a change is under way"
                                                       : "the server is shutting down");
    for (uint32_t k = 0; k < n; k++)
        WEFT_TRY(weft_router__check_slice(router, &slice[k], diag));
    const char *lost = find_lost(router, slice, n);
    if (lost)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "the plan has no slice for model '%s'",
                               lost);
    bool *taken = calloc((size_t)n + 1, sizeof *taken);
    uint32_t fresh, free_places = 0;
    if (!taken)
        return WEFT_ERR_NOMEM;
    match(router, slice, n, taken, &fresh);
    for (uint32_t i = 0; i < router->worker_room; i++)
        free_places += is_free(router, i);
    weft_err err = fresh <= free_places
                       ? start_new(router, slice, n, taken, diag)
                       : weft_diag_error(diag, WEFT_ERR_NOMEM, where,
                                         "the plan needs %u new workers, there is room for %u",
                                         fresh, free_places);
    free(taken);
    if (err != WEFT_ERR_OK) {
        for (uint32_t i = 0; i < router->n_worker; i++)
            if (c->fresh[i])
                retire(router, &router->worker[i]);
        return err;
    }
    double start_s = router->options->start_timeout_s > 0 ? router->options->start_timeout_s : 300;
    c->begun_ns = weft_clock__now_ns();
    c->until_ns = c->begun_ns + (uint64_t)(start_s * 1e9);
    weft_router__limit_batches(router);
    c->next_arena = arena;
    c->phase = CHANGE_STARTING;
    c->status.generation++;
    return WEFT_ERR_OK;
}

weft_change_status weft_router__change_status(const weft_router *router)
{
    const struct router_change *c = router->change;
    if (!c)
        return (weft_change_status){.generation = 1, .last_error = ""};
    weft_change_status s = c->status;
    s.changing = c->phase != CHANGE_NONE;
    s.last_error = c->error;
    return s;
}

void weft_router__end_changes(weft_router *router)
{
    struct router_change *c = router ? router->change : NULL;
    if (!c)
        return;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        weft_worker__stop(&router->worker[i].process);
        router->worker[i].process.slice = &weft_router__whole;
    }
    weft_arena_destroy(c->arena);
    weft_arena_destroy(c->next_arena);
    free(c->fresh);
    free(c->keep);
    free(c);
    router->change = NULL;
}
