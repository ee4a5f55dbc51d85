/* Other slices, or other bundles, come into force while requests flow.
 *
 *   none -> starting: the new workers prepare their models; the old ones serve
 *        -> retiring: all new ones are ready; requests find the new models and no longer those that
 *           leave; a worker that is not needed any more ends when nothing refers to what only it
 *           serves, after the batch in hand
 *        -> none
 *   starting -> undoing: a new worker ended, or took too long; the new ones end -> none
 *
 * A change in steps (weft_router__begin_steps) has all of that for each step: it waits `between`
 * for the slices of the next one, which are made meanwhile. If a step fails, the steps that follow
 * lead back, and the change has failed when the last of them is over.
 *
 *   none -> between -> starting -> retiring -> between -> starting -> retiring -> none
 *                      starting -> undoing  -> between
 *
 * A worker that would have the same bundle, CPUs or GPU, and models stays. At no time does a model
 * have fewer ready workers than before or after the change, but for changes in steps: there a model
 * may have none, and its requests wait. A worker that ends in between gives its
 * requests back to their queues, as ever. A request keeps the model that it was given: it is
 * answered by the bundle in which it was looked up. */
#include "runtime/server/router_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum change_phase {
    CHANGE_NONE,
    CHANGE_STARTING,
    CHANGE_RETIRING,
    CHANGE_UNDOING,
    CHANGE_BETWEEN
} change_phase;

static const uint32_t not_kept = UINT32_MAX;

struct router_change {
    change_phase phase;
    weft_arena *arena, *next_arena; /* slices in force (NULL: those of the options), and to come */
    router_slices next;
    bool *fresh;         /* by place: a worker of the change */
    uint32_t *keep;      /* by place: its slice afterwards; not_kept: it has none */
    bool *leaving;       /* by model: requests do not find it afterwards */
    router_bundle *load; /* comes with the change; NULL: none */
    bool held;           /* does not come into force yet */
    bool steps, last;    /* it has steps; the one under way is the last */
    bool back;           /* a step failed: the others lead back */
    uint32_t n_step;     /* steps that were in force, those back included */
    bool sweeping;       /* some bundle is not wanted any more */
    uint64_t begun_ns, until_ns;
    uint64_t generation;
    char error[WEFT_CHANGE_ERROR_MAX]; /* of the one under way */
    weft_past_change past[WEFT_PAST_CHANGES_MAX];
    uint32_t n_past;
    void (*on_end)(void *user, bool ok);
    void (*on_step)(void *user);
    void *user;
};

static const uint64_t step_ns = 5000000, sweep_ns = 50000000;

/* -- Matching --------------------------------------------------------------------------------- */

static bool is_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Whether both have the same environment, but for the limit of memory, which is a cap that a new
 * division of the device need not take from who runs. */
static bool has_equal_environment(const weft_serve_slice *a, const weft_serve_slice *b)
{
    static const char limit[] = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=";
    uint32_t i = 0, k = 0;
    for (;;) {
        i += i < a->n_env && strncmp(a->env[i], limit, sizeof limit - 1) == 0;
        k += k < b->n_env && strncmp(b->env[k], limit, sizeof limit - 1) == 0;
        if (i >= a->n_env || k >= b->n_env)
            return i >= a->n_env && k >= b->n_env;
        if (strcmp(a->env[i++], b->env[k++]) != 0)
            return false;
    }
}

/* Whether a worker on one slice is as good as one on the other. */
static bool has_equal_place(const weft_serve_slice *a, const weft_serve_slice *b)
{
    if (a == b)
        return true;
    if (a->gpu || b->gpu)
        return is_equal(a->gpu, b->gpu) && is_equal(a->mig, b->mig) && a->sm_first == b->sm_first &&
               a->n_sm == b->n_sm && has_equal_environment(a, b);
    return a->n_cpu == b->n_cpu &&
           (a->n_cpu == 0 || memcmp(a->cpu, b->cpu, a->n_cpu * sizeof *a->cpu) == 0);
}

/* Whether the model is to be served after the change. */
static bool stays(const weft_router *router, uint32_t model)
{
    return router->model[model].wanted && !router->change->leaving[model];
}

/* Whether slice i needs a worker of the bundle after the change. */
static bool is_needed(const weft_router *router, uint32_t i, const router_bundle *b)
{
    for (uint32_t k = b->first; k < b->first + b->bundle->n_program; k++)
        if (stays(router, k) && weft_router__is_placed(router, &router->change->next, i, k))
            return true;
    return false;
}

/* Whether the worker is what slice i needs of its bundle. */
static bool is_same(const weft_router *router, const router_worker *w, uint32_t i)
{
    const router_slices *next = &router->change->next;
    const router_bundle *b = w->bundle;
    if (!has_equal_place(w->process.slice, &next->at[i]))
        return false;
    for (uint32_t k = b->first; k < b->first + b->bundle->n_program; k++)
        if (stays(router, k) && w->serves[k] != weft_router__is_placed(router, next, i, k))
            return false;
    return true;
}

static bool is_free(const weft_router *router, uint32_t place)
{
    return place >= router->n_worker || router->worker[place].retired;
}

/* The worker that stays for slice i and the bundle; worker_room: none does. */
static uint32_t find_kept(const weft_router *router, uint32_t i, const router_bundle *b)
{
    const struct router_change *c = router->change;
    uint32_t at = 0;
    while (at < router->n_worker &&
           (router->worker[at].retired || router->worker[at].bundle != b ||
            c->keep[at] != not_kept || !is_same(router, &router->worker[at], i)))
        at++;
    return at < router->n_worker ? at : router->worker_room;
}

/* Whether some slice has the model after the change. */
static bool has_slice(const weft_router *router, uint32_t model)
{
    const struct router_change *c = router->change;
    for (uint32_t i = 0; i < c->next.n; i++)
        if (stays(router, model) && weft_router__is_placed(router, &c->next, i, model))
            return true;
    return false;
}

/* A model that is served, stays, and would have no slice; NULL: none. */
static const char *find_lost(const weft_router *router)
{
    const struct router_change *c = router->change;
    for (uint32_t m = 0; m < router->n_model; m++) {
        const router_model *at = &router->model[m];
        bool asked = at->shown && !c->leaving[m] && weft_router__serves(router, m);
        if (asked &&
            !(at->app ? weft_served_app__any(router, m, has_slice)
                      : has_slice(router, m) || weft_served_app__can_lose(router, m, has_slice)))
            return at->program->name;
    }
    return NULL;
}

/* -- Workers ---------------------------------------------------------------------------------- */

/* Frees what the worker of a place has, its shared memory too; the place stays, and serves no
 * model.
 */
static void clear_place(weft_router *router, router_worker *w, bool *serves)
{
    weft_router__close_worker(w);
    *w = (router_worker){.router = router, .serves = serves, .retired = true};
    w->process.fd = w->process.pulse_fd = w->process.channel_fd = -1;
    w->process.start_ns = UINT64_MAX;
    w->process.slice = &weft_router__whole;
}

/* Ends a worker for good. */
static void retire(weft_router *router, router_worker *w)
{
    bool *serves = w->serves;
    w->serves = NULL;
    memset(serves, 0, router->model_room * sizeof *serves);
    clear_place(router, w, serves);
}

/* Makes a worker in a free place. On an error the place stays free. */
static weft_err open_place(weft_router *router, uint32_t place, uint32_t slice, router_bundle *b,
                           weft_diag *diag)
{
    router_worker *w = &router->worker[place];
    bool *serves = calloc((size_t)router->model_room + 1, sizeof *serves);
    if (!serves)
        return WEFT_ERR_NOMEM;
    if (place < router->n_worker)
        weft_router__close_worker(w);
    weft_err err = weft_router__open_worker(router, w, &router->change->next, slice, b, diag);
    if (err == WEFT_ERR_OK)
        free(serves);
    else
        clear_place(router, w, serves);
    router->n_worker += place == router->n_worker;
    return err;
}

/* It runs no request and owes no answer. */
static bool is_quiet(const router_worker *w)
{
    return w->n_answered == 0 &&
           (w->prepares || (w->n_part == 0 && w->process.state != WORKER_BUSY));
}

static bool has_staying_worker(const weft_router *router, uint32_t model)
{
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (router->worker[i].serves[model] && !router->worker[i].outgoing)
            return true;
    return false;
}

/* Whether no request needs the worker: its models have other workers, or no requests. */
static bool may_stop(const weft_router *router, const router_worker *w)
{
    const router_bundle *b = w->bundle;
    for (uint32_t k = b->first; k < b->first + b->bundle->n_program; k++) {
        const router_model *m = &router->model[k];
        if (w->serves[k] && (m->n_use || m->stats.pending) && !has_staying_worker(router, k) &&
            !m->awaited)
            return false;
    }
    /* Requests to an app that are being read will choose a variant. */
    for (uint32_t k = b->first + b->bundle->n_program; k < b->first + weft_bundle_faces(b->bundle);
         k++)
        if (router->model[k].n_use && !router->change->steps && !weft_served_app__stays(router, k))
            return false;
    return true;
}

/* -- The change ------------------------------------------------------------------------------- */

/* The bundle that came with the change is not served. */
static void drop_load(weft_router *router)
{
    struct router_change *c = router->change;
    const router_bundle *b = c->load;
    for (uint32_t k = 0; b && k < weft_bundle_faces(b->bundle); k++)
        router->model[b->first + k].wanted = false;
    c->load = NULL;
    c->sweeping = true;
}

static void undo(weft_router *router, const char *why)
{
    struct router_change *c = router->change;
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (c->fresh[i] && !router->worker[i].retired)
            router->worker[i].outgoing = router->worker[i].retiring = true;
    drop_load(router);
    if (!c->back)
        snprintf(c->error, sizeof c->error, "%s", why);
    memset(c->leaving, 0, router->model_room * sizeof *c->leaving);
    c->held = false;
    c->phase = CHANGE_UNDOING;
}

static void keep_past(weft_router *router, bool ok, double took_s)
{
    struct router_change *c = router->change;
    weft_past_change past = {
        .generation = c->generation, .ok = ok, .took_s = took_s, .ended_ms = weft_clock__wall_ms()};
    for (uint32_t i = 0; i < router->n_worker; i++)
        past.n_started += c->fresh[i];
    if (!ok)
        memcpy(past.error, c->error, sizeof past.error);
    c->n_past += c->n_past < WEFT_PAST_CHANGES_MAX;
    memmove(&c->past[1], &c->past[0], (c->n_past - 1) * sizeof c->past[0]);
    c->past[0] = past;
}

/* The slices of a step are those in force; those before it are not referred to any more. */
static void take_slices(struct router_change *c)
{
    if (c->next_arena)
        weft_arena_destroy(c->arena);
    c->arena = c->next_arena ? c->next_arena : c->arena;
    c->next_arena = NULL;
}

/* A model that was to have a worker and has none stays known: its requests wait. */
static void forget_awaited(weft_router *router)
{
    for (uint32_t m = 0; m < router->n_model; m++) {
        router_model *at = &router->model[m];
        at->planned = false;
        at->awaited = at->awaited && at->wanted && !has_staying_worker(router, m);
    }
}

static void finish(weft_router *router, bool ok)
{
    struct router_change *c = router->change;
    double took_s = (double)(weft_clock__now_ns() - c->begun_ns) * 1e-9;
    weft_router__limit_batches(router);
    c->phase = CHANGE_NONE;
    if (c->steps)
        forget_awaited(router);
    c->steps = c->back = false;
    keep_past(router, ok, took_s);
    c->generation += !ok; /* what was before is in force again */
    WEFT_LOG(WEFT_LOG_INFO, ok ? "plan_in_force" : "plan_undone",
             {.key = "generation", .number = (double)c->generation},
             {.key = "took_s", .number = took_s}, {.key = "why", .text = ok ? "" : c->error});
    if (c->on_end)
        c->on_end(c->user, ok);
}

/* A step is over, as it was to be or, if not `done`, as it was before. */
static void end_step(weft_router *router, bool done)
{
    struct router_change *c = router->change;
    if (done)
        take_slices(c);
    else
        weft_arena_destroy(c->next_arena);
    c->next_arena = NULL;
    c->n_step += done && c->steps;
    if (!c->steps || (c->last && done)) {
        finish(router, done && !c->back);
        return;
    }
    c->back = c->back || !done;
    c->phase = CHANGE_BETWEEN;
    c->on_step(c->user);
}

/* Requests find the new models, and those that leave no longer. */
static void switch_models(weft_router *router)
{
    struct router_change *c = router->change;
    for (uint32_t i = 0; i < router->n_model; i++) {
        router_model *m = &router->model[i];
        c->sweeping = c->sweeping || c->leaving[i];
        if (c->leaving[i])
            m->wanted = m->shown = false;
        m->credit = 0;
    }
    for (uint32_t k = 0; c->load && k < weft_bundle_faces(c->load->bundle); k++) {
        router_model *m = &router->model[c->load->first + k];
        m->shown = m->wanted;
    }
    memset(c->leaving, 0, router->model_room * sizeof *c->leaving);
    c->load = NULL;
}

/* The new workers are ready: what is new is in force. */
static void commit(weft_router *router)
{
    struct router_change *c = router->change;
    switch_models(router);
    router->slices = c->next;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        router_worker *w = &router->worker[i];
        if (w->retired || c->fresh[i])
            continue;
        w->outgoing = c->keep[i] == not_kept;
        if (w->outgoing)
            continue;
        w->process.slice = &c->next.at[c->keep[i]];
        /* It has the same models, but may have other batches. */
        weft_router__set_served(router, w, &c->next, c->keep[i]);
    }
    if (!c->back)
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
    if (all && !c->held)
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
    bool ends = c->phase == CHANGE_RETIRING || c->phase == CHANGE_UNDOING;
    for (uint32_t i = 0; i < router->n_worker && ends; i++) {
        router_worker *w = &router->worker[i];
        if (!w->outgoing)
            continue;
        w->retiring = w->retiring || may_stop(router, w);
        if (w->retiring && is_quiet(w) && weft_worker__let_go(&w->process))
            retire(router, w);
        left = left || w->outgoing;
    }
    if (ends && !left)
        end_step(router, c->phase == CHANGE_RETIRING);
    if (c->sweeping)
        c->sweeping = weft_router__remove_unused(router);
    return c->phase != CHANGE_NONE ? step_ns : c->sweeping ? sweep_ns : UINT64_MAX;
}

/* -- Beginning -------------------------------------------------------------------------------- */

static weft_err open_changes(weft_router *router)
{
    struct router_change *c = router->change ? router->change : calloc(1, sizeof *c);
    if (!c)
        return WEFT_ERR_NOMEM;
    if (router->change)
        return WEFT_ERR_OK;
    c->fresh = calloc(router->worker_room, sizeof *c->fresh);
    c->keep = calloc(router->worker_room, sizeof *c->keep);
    c->leaving = calloc(router->model_room, sizeof *c->leaving);
    c->generation = 1;
    router->change = c;
    return c->fresh && c->keep && c->leaving && weft_loop__idle(router->loop, step, router)
               ? WEFT_ERR_OK
               : WEFT_ERR_NOMEM;
}

/* Whether a change may begin now. */
static weft_err open_change(weft_router *router, weft_diag *diag)
{
    WEFT_TRY(open_changes(router));
    const struct router_change *c = router->change;
    if (c->phase == CHANGE_NONE && !router->draining)
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                           c->phase != CHANGE_NONE ? "a change is under way"
                                                   : "the server is shutting down");
}

/* Visits what each slice needs: marks the workers that stay and, `start`, starts the others.
 * *out_new: how many others. */
static weft_err match(weft_router *router, bool start, weft_diag *diag, uint32_t *out_new)
{
    struct router_change *c = router->change;
    uint32_t place = 0;
    *out_new = 0;
    for (uint32_t i = 0; i < router->worker_room; i++) {
        c->fresh[i] = false;
        c->keep[i] = not_kept;
    }
    for (uint32_t i = 0; i < c->next.n; i++)
        for (router_bundle *b = router->bundles; b; b = b->next) {
            uint32_t kept = is_needed(router, i, b) ? find_kept(router, i, b) : not_kept;
            if (kept == not_kept)
                continue;
            if (kept < router->worker_room) {
                c->keep[kept] = i;
                continue;
            }
            ++*out_new;
            while (start && !is_free(router, place))
                place++;
            if (!start)
                continue;
            WEFT_TRY(open_place(router, place, i, b, diag));
            c->fresh[place] = true;
        }
    return WEFT_ERR_OK;
}

static weft_err check_lost(const weft_router *router, weft_diag *diag)
{
    const char *lost = find_lost(router);
    return lost ? weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                                  "the plan has no slice for model '%s'", lost)
                : WEFT_ERR_OK;
}

static weft_err start_workers(weft_router *router, weft_diag *diag)
{
    struct router_change *c = router->change;
    uint32_t fresh = 0, free_places = 0;
    WEFT_TRY(weft_router__check_slices(
        router, &c->next, router->options->plans_ahead ? &c->next : &router->slices, diag));
    if (!c->steps) /* of a change in steps its last slices were checked */
        WEFT_TRY(check_lost(router, diag));
    for (uint32_t i = 0; i < router->worker_room; i++)
        free_places += is_free(router, i);
    WEFT_TRY(match(router, false, diag, &fresh));
    if (fresh > free_places)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0},
                               "the change needs %u new workers, there is room for %u", fresh,
                               free_places);
    weft_err err = match(router, true, diag, &fresh);
    for (uint32_t i = 0; i < router->n_worker && err != WEFT_ERR_OK; i++)
        if (c->fresh[i])
            retire(router, &router->worker[i]);
    return err;
}

/* Begins the change to c->next, without the models that leave. */
static weft_err begin(weft_router *router, weft_diag *diag)
{
    struct router_change *c = router->change;
    weft_err err = start_workers(router, diag);
    if (err != WEFT_ERR_OK) {
        memset(c->leaving, 0, router->model_room * sizeof *c->leaving);
        drop_load(router);
        c->sweeping = weft_router__remove_unused(router);
        return err;
    }
    double start_s = router->options->start_timeout_s > 0 ? router->options->start_timeout_s : 300;
    uint64_t now_ns = weft_clock__now_ns();
    c->until_ns = now_ns + (uint64_t)(start_s * 1e9);
    weft_router__limit_batches(router);
    c->phase = CHANGE_STARTING;
    if (c->steps)
        return WEFT_ERR_OK;
    c->begun_ns = now_ns;
    c->generation++;
    return WEFT_ERR_OK;
}

weft_err weft_router__begin_steps(weft_router *router, const weft_serve_slice *last, uint32_t n,
                                  weft_diag *diag)
{
    WEFT_TRY(open_change(router, diag));
    struct router_change *c = router->change;
    c->next = (router_slices){.at = last, .n = n};
    WEFT_TRY(weft_router__check_slices(
        router, &c->next, router->options->plans_ahead ? &c->next : &router->slices, diag));
    WEFT_TRY(check_lost(router, diag));
    for (uint32_t m = 0; m < router->n_model; m++) {
        router_model *at = &router->model[m];
        if (!at->shown || at->app)
            continue;
        at->planned = weft_router__names(&c->next, at->program->name);
        at->awaited = weft_router__serves(router, m) && has_slice(router, m);
    }
    c->steps = true;
    c->error[0] = '\0';
    c->back = c->last = false;
    c->n_step = 0;
    c->begun_ns = weft_clock__now_ns();
    c->phase = CHANGE_BETWEEN;
    c->generation++;
    return WEFT_ERR_OK;
}

weft_err weft_router__begin_step(weft_router *router, const weft_serve_slice *slice, uint32_t n,
                                 bool last, weft_arena *arena, weft_diag *diag)
{
    struct router_change *c = router->change;
    c->next = (router_slices){.at = slice, .n = n};
    WEFT_TRY(begin(router, diag));
    c->last = last;
    c->next_arena = arena;
    return WEFT_ERR_OK;
}

void weft_router__turn_back(weft_router *router, const char *why)
{
    struct router_change *c = router->change;
    if (!c->back)
        snprintf(c->error, sizeof c->error, "%s", why);
    c->back = true;
}

void weft_router__end_steps(weft_router *router, const char *why)
{
    struct router_change *c = router->change;
    size_t len = strlen(c->error);
    if (why)
        snprintf(c->error + len, sizeof c->error - len, "%s%s", len ? "; " : "", why);
    finish(router, !c->back);
}

weft_err weft_router__change(weft_router *router, const weft_serve_slice *slice, uint32_t n,
                             weft_arena *arena, weft_diag *diag)
{
    WEFT_TRY(open_change(router, diag));
    struct router_change *c = router->change;
    c->next = (router_slices){.at = slice, .n = n};
    WEFT_TRY(begin(router, diag));
    c->next_arena = arena;
    return WEFT_ERR_OK;
}

weft_err weft_router__load(weft_router *router, router_bundle *b, const weft_serve_bundle *as,
                           bool alone, weft_diag *diag)
{
    weft_err err = open_change(router, diag);
    b->spreads = true;
    if (err == WEFT_ERR_OK)
        err = weft_router__add_bundle(router, b, as, diag);
    if (err != WEFT_ERR_OK) {
        weft_router__free_bundle(router, b);
        return err;
    }
    struct router_change *c = router->change;
    c->load = b;
    c->next = router->slices;
    for (uint32_t k = b->first; k < b->first + weft_bundle_faces(b->bundle); k++)
        for (uint32_t i = 0; i < router->n_model && router->model[k].wanted; i++) {
            const router_model *m = &router->model[i], *new = &router->model[k];
            if (m->shown && router->key[i] == router->key[k] &&
                strcmp(weft_bundle_served(m->program), weft_bundle_served(new->program)) == 0 &&
                (alone || strcmp(m->version, new->version) == 0))
                c->leaving[i] = true;
        }
    return begin(router, diag);
}

weft_err weft_router__unload(weft_router *router, const char *path, const char *name,
                             const char *version, weft_diag *diag)
{
    WEFT_TRY(open_change(router, diag));
    struct router_change *c = router->change;
    uint32_t n = 0;
    c->next = router->slices;
    for (uint32_t i = 0; i < router->n_model; i++) {
        const router_model *m = &router->model[i];
        c->leaving[i] =
            m->shown && (!version || strcmp(m->version, version) == 0) &&
            (path ? strcmp(m->bundle->path, path) == 0 || strcmp(m->bundle->file, path) == 0
                  : strcmp(weft_bundle_served(m->program), name) == 0);
        n += c->leaving[i];
    }
    if (n == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               version ? "no model '%s' of version %s is served"
                                       : "no model '%s' is served",
                               path ? path : name, version);
    return begin(router, diag);
}

weft_err weft_router__on_change(weft_router *router, void (*on_end)(void *user, bool ok),
                                void (*on_step)(void *user), void *user)
{
    WEFT_TRY(open_changes(router));
    router->change->on_end = on_end;
    router->change->on_step = on_step;
    router->change->user = user;
    return WEFT_ERR_OK;
}

void weft_router__hold_change(weft_router *router, bool held)
{
    router->change->held = held;
}

void weft_router__cancel_change(weft_router *router, const char *why)
{
    if (router->change->phase == CHANGE_STARTING)
        undo(router, why);
    else if (router->change->phase == CHANGE_BETWEEN)
        weft_router__turn_back(router, why);
}

bool weft_router__is_coming(const weft_router *router, uint32_t model)
{
    const router_model *m = &router->model[model];
    return m->wanted && !(router->change && router->change->leaving[model]);
}

weft_change_status weft_router__change_status(const weft_router *router)
{
    const struct router_change *c = router->change;
    if (!c)
        return (weft_change_status){.generation = 1};
    return (weft_change_status){.generation = c->generation,
                                .changing = c->phase != CHANGE_NONE,
                                .in_steps = c->phase != CHANGE_NONE && c->steps,
                                .is_back = c->phase != CHANGE_NONE && c->steps && c->back,
                                .n_step = c->n_step,
                                .n_past = c->n_past,
                                .past = c->past};
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
    free(c->leaving);
    free(c);
    router->change = NULL;
}
