/* Workers: one process for each slice and each bundle that has a model on it; and which models each
 * serves, in what batches. */
#include "runtime/server/router_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const weft_serve_slice weft_router__whole = {0};

/* -- Placement -------------------------------------------------------------------------------- */

/* Index of the model among those that the slice names; n_model: it does not. */
static uint32_t index_on(const weft_serve_slice *s, const char *model)
{
    uint32_t i = 0;
    while (i < s->n_model && strcmp(s->model[i], model) != 0)
        i++;
    return i;
}

bool weft_router__names(const router_slices *slices, const char *model)
{
    for (uint32_t i = 0; i < slices->n; i++)
        if (index_on(&slices->at[i], model) < slices->at[i].n_model)
            return true;
    return false;
}

bool weft_router__is_placed(const weft_router *router, const router_slices *slices, uint32_t i,
                            uint32_t model)
{
    const router_model *m = &router->model[model];
    const weft_serve_slice *s = &slices->at[i];
    return s->n_model == 0 || index_on(s, m->program->name) < s->n_model ||
           (m->bundle->spreads && !m->planned && !weft_router__names(slices, m->program->name));
}

bool weft_router__has_place(const weft_router *router, const router_slices *slices, uint32_t i,
                            const router_bundle *b)
{
    for (uint32_t k = b->first; k < b->first + b->bundle->n_program; k++)
        if (router->model[k].wanted && weft_router__is_placed(router, slices, i, k))
            return true;
    return false;
}

/* A batch that is planned needs a bucket: memory is planned for it, and its time was estimated. */
static weft_err check_batch(const router_model *m, uint32_t batch, weft_diag *diag)
{
    const weft_bundle_program *p = m->program;
    const weft_where where = {.file = m->bundle->path, .item = p->name};
    char text[160] = "no batches";
    size_t len = 0;
    bool batched = weft_batch__largest(p) > 0;
    for (uint32_t i = 0; i < p->n_bucket && batched; i++) {
        int64_t rows = p->bucket[i].symbol[p->batch_symbol];
        if (rows == batch)
            return WEFT_ERR_OK;
        if (len < sizeof text - 24)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%lld", len ? ", " : "",
                                    (long long)rows);
    }
    if (batch <= 1)
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                           "the plan has batches of %u, the bundle %s; compile it for this plan: "
                           "weft compile SET --plan PLAN",
                           batch, text);
}

/* Checks model k of a slice against all its versions. */
static weft_err check_model(const weft_router *router, const weft_serve_slice *s, uint32_t k,
                            const router_slices *known, weft_diag *diag)
{
    bool found = false;
    for (uint32_t i = 0; i < router->n_model; i++) {
        const router_model *m = &router->model[i];
        if (!m->wanted || strcmp(m->program->name, s->model[k]) != 0)
            continue;
        found = true;
        WEFT_TRY(check_batch(m, s->batch ? s->batch[k] : 0, diag));
    }
    if (found || (known && weft_router__names(known, s->model[k])))
        return WEFT_ERR_OK;
    const router_bundle *only = router->bundles;
    if (only && !only->next)
        return weft_bundle_refuse_model(only->bundle, s->model[k], (weft_where){.file = only->path},
                                        diag);
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "no bundle has a model '%s'",
                           s->model[k]);
}

weft_err weft_router__check_slices(const weft_router *router, const router_slices *slices,
                                   const router_slices *known, weft_diag *diag)
{
    for (uint32_t i = 0; i < slices->n; i++)
        for (uint32_t k = 0; k < slices->at[i].n_model; k++)
            WEFT_TRY(check_model(router, &slices->at[i], k, known, diag));
    return WEFT_ERR_OK;
}

void weft_router__set_served(weft_router *router, router_worker *w, const router_slices *slices,
                             uint32_t i)
{
    const weft_serve_slice *s = &slices->at[i];
    for (uint32_t k = 0; k < w->bundle->bundle->n_program; k++) {
        uint32_t at = w->bundle->first + k, on;
        const router_model *m = &router->model[at];
        int64_t largest = weft_batch__largest(m->program);
        w->most[at] = largest > 0 ? largest : 1;
        if (!m->wanted)
            continue;
        w->serves[at] = weft_router__is_placed(router, slices, i, at);
        on = index_on(s, m->program->name);
        if (on < s->n_model && s->batch && s->batch[on] > 0 && s->batch[on] < w->most[at])
            w->most[at] = s->batch[on];
    }
}

/* No queue waits for a batch that no worker takes. */
void weft_router__limit_batches(weft_router *router)
{
    for (uint32_t i = 0; i < router->n_model; i++) {
        int64_t most = 0;
        for (uint32_t k = 0; k < router->n_worker; k++)
            if (router->worker[k].serves[i] && router->worker[k].most[i] > most)
                most = router->worker[k].most[i];
        if (most > 0)
            router->model[i].largest_bucket = most;
    }
}

/* -- Life ------------------------------------------------------------------------------------- */

/* Allocates what the worker needs while it runs, for the largest joint program. */
static weft_err allocate_worker(const weft_router *router, const weft_bundle *b, router_worker *w)
{
    uint32_t parts = 1, inputs = 0;
    size_t places = 0;
    bool measures = b->n_joint > 0;
    for (uint32_t i = 0; i < b->n_program; i++) {
        parts = b->program[i].n_head > parts ? b->program[i].n_head : parts;
        measures = measures || b->program[i].n_head > 0;
    }
    for (uint32_t i = 0; i < b->n_joint; i++) {
        const weft_bundle_program *p = &b->program[b->n_program + i];
        parts = p->n_part > parts ? p->n_part : parts;
        inputs = p->n_input > inputs ? p->n_input : inputs;
        if (p->is_packed && weft_batch__count_places(p) > places)
            places = weft_batch__count_places(p);
    }
    w->serves = calloc((size_t)router->model_room + 1, sizeof *w->serves);
    w->most = calloc((size_t)router->model_room + 1, sizeof *w->most);
    w->part = calloc(parts, sizeof *w->part);
    w->answered = calloc(parts, sizeof *w->answered);
    w->ahead = calloc(parts, sizeof *w->ahead);
    w->prepare_in = calloc((size_t)inputs + 1, sizeof *w->prepare_in);
    w->places = calloc(places + 1, sizeof *w->places);
    if (measures)
        w->gain = calloc((size_t)b->n_program + b->n_joint, sizeof *w->gain);
    bool ok = w->serves && w->most && w->part && w->answered && w->ahead && w->prepare_in &&
              w->places && (w->gain || !measures);
    return ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

weft_err weft_router__open_worker(weft_router *router, router_worker *w,
                                  const router_slices *slices, uint32_t slice,
                                  router_bundle *bundle, weft_diag *diag)
{
    const weft_serve_options *o = router->options;
    double start_s = o->start_timeout_s > 0 ? o->start_timeout_s : 300;
    double stall_s = o->stall_timeout_s > 0 ? o->stall_timeout_s : 0.3;
    *w = (router_worker){.router = router, .bundle = bundle};
    w->process = (worker_process){.events = router->events,
                                  .user = w,
                                  .loop = router->loop,
                                  .options = o,
                                  .slice = &slices->at[slice],
                                  .bundle = bundle->bundle,
                                  .bundle_path = bundle->path,
                                  .start_timeout_ns = (uint64_t)(start_s * 1e9),
                                  .stall_timeout_ns = (uint64_t)(stall_s * 1e9),
                                  .bundle_fd = bundle->fd,
                                  .adapters_fd = weft_live__fd(router->live),
                                  .pulse_fd = -1,
                                  .channel_fd = -1,
                                  .fd = -1};
    WEFT_TRY(allocate_worker(router, bundle->bundle, w));
    w->process.serves = w->serves + bundle->first;
    w->process.pulse = weft_pulse__create(&w->process.pulse_fd);
    if (!w->process.pulse)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0},
                               "no memory to share with a worker: %s", strerror(errno));
    weft_router__set_served(router, w, slices, slice);
    weft_worker__open_channel(&w->process);
    return WEFT_ERR_OK;
}

void weft_router__close_worker(router_worker *w)
{
    weft_worker__stop(&w->process);
    for (uint32_t k = 0; k < weft_router__count_batches(w); k++)
        weft_batch__end(weft_router__batch(w, k));
    weft_pulse__destroy(w->process.pulse);
    if (w->process.pulse_fd >= 0)
        close(w->process.pulse_fd);
    weft_worker__close_channel(&w->process);
    free(w->serves);
    free(w->most);
    free(w->part);
    free(w->answered);
    free(w->ahead);
    free(w->prepare_in);
    free(w->places);
    free(w->gain);
}
