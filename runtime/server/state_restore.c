/* What a server serves when it starts with a state: bundles and adapters that have the contents of
 * then, and the plan if this machine can have its slices. What cannot be had is reported. */
#include "runtime/server/deployment_int.h"
#include "runtime/server/live_int.h"

#include "base/file.h"
#include "scheduler/scheduler.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens a bundle that is signed, where that is required. What is served then is checked again. */
static weft_err open_bundle(const weft_serve_bundle *b, const char *keys, weft_diag *diag,
                            weft_bundle **out)
{
    int fd;
    WEFT_TRY(weft_file_open(b->path, diag, &fd));
    weft_err err = keys ? weft_signature_require(fd, NULL, b->path, keys, diag) : WEFT_ERR_OK;
    if (err == WEFT_ERR_OK)
        err = weft_bundle_open_fd(fd, b->path, diag, out);
    close(fd);
    return err;
}

/* Whether the file has the contents of then. */
static weft_err check_bundle(const weft_serve_bundle *b, const char *keys, weft_diag *diag)
{
    weft_bundle *bundle;
    WEFT_TRY(open_bundle(b, keys, diag, &bundle));
    weft_err err = bundle->identity == b->identity
                       ? WEFT_ERR_OK
                       : weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = b->path},
                                         "has other contents than the bundle that was loaded");
    for (uint32_t i = 0; i < b->n_model && err == WEFT_ERR_OK; i++)
        if (!weft_bundle_find(bundle, b->model[i]))
            err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = b->path},
                                  "the bundle has no model '%s'", b->model[i]);
    weft_bundle_close(bundle);
    return err;
}

static void report_missing(weft_restored *d, const char *event, const weft_serve_bundle *b,
                           const weft_diag *diag)
{
    const char *why = weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "cannot be opened";
    d->missing[d->n_missing++] = (weft_missing_bundle){.path = b->path,
                                                       .version = b->version ? b->version : "",
                                                       .why = weft_arena_strdup(d->arena, why)};
    WEFT_LOG(WEFT_LOG_ERROR, event, {.key = "path", .text = b->path},
             {.key = "version", .text = b->version ? b->version : ""}, {.key = "why", .text = why});
}

static weft_err restore_bundles(weft_restored *d, const weft_state *state,
                                weft_serve_options *options)
{
    weft_serve_bundle *kept = weft_arena_array(d->arena, state->n_bundle + 1, sizeof *kept);
    uint32_t n = 0;
    d->missing =
        weft_arena_array(d->arena, state->n_bundle + state->n_adapter + 1, sizeof *d->missing);
    d->adapter = state->adapter;
    d->n_adapter = state->n_adapter;
    for (uint32_t i = 0; i < state->n_bundle; i++) {
        weft_diag *diag = weft_diag_create();
        if (!diag)
            return WEFT_ERR_NOMEM;
        if (check_bundle(&state->bundle[i], options->require_signature, diag) == WEFT_ERR_OK)
            kept[n++] = state->bundle[i];
        else
            report_missing(d, "bundle_not_served", &state->bundle[i], diag);
        weft_diag_destroy(diag);
    }
    options->bundle = kept;
    options->n_bundle = n;
    return WEFT_ERR_OK;
}

/* The plan of the state, unless this machine cannot have its slices. */
static weft_err restore_plan(weft_restored *d, const char *text, weft_serve_options *options)
{
    const weft_serve_control *o = &options->control;
    weft_plan plan;
    const weft_serve_slice *slice;
    uint32_t n;
    weft_diag *diag = weft_diag_create();
    weft_err err = diag ? weft_plan_from_json(text, strlen(text), "state", d->arena, diag, &plan)
                        : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && o->make_slices)
        err = o->make_slices(o->user, &plan, d->arena, diag, &slice, &n);
    if (err == WEFT_ERR_OK && o->make_slices) {
        options->slice = slice;
        options->n_slice = n;
        d->plan = strdup(text);
        err = d->plan ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    } else if (err != WEFT_ERR_NOMEM) {
        WEFT_LOG(WEFT_LOG_ERROR, "plan_of_state_not_used",
                 {.key = "why",
                  .text = diag && weft_diag_count(diag) ? weft_diag_at(diag, 0)->text
                                                        : "not started with a plan"});
        err = WEFT_ERR_OK;
    }
    weft_diag_destroy(diag);
    return err;
}

weft_err weft_serve_plan_of_state(const char *folder, weft_arena *arena, weft_diag *diag,
                                  const char **out)
{
    weft_state state = {0};
    bool found = false;
    WEFT_TRY(weft_state__read(folder, arena, diag, &state, &found));
    *out = found ? state.plan : NULL;
    return WEFT_ERR_OK;
}

weft_err weft_state__restore(weft_serve_options *options, weft_restored *d, weft_diag *diag)
{
    weft_state state;
    bool found = false;
    d->arena = weft_arena_create(0);
    if (!d->arena)
        return WEFT_ERR_NOMEM;
    WEFT_TRY(weft_state__open(options->state, diag, &d->lock));
    WEFT_TRY(weft_state__read(options->state, d->arena, diag, &state, &found));
    if (!found)
        return WEFT_ERR_OK;
    WEFT_TRY(restore_bundles(d, &state, options));
    return state.plan ? restore_plan(d, state.plan, options) : WEFT_ERR_OK;
}

/* Reads an adapter of the state. false: `diag` has why it cannot be served. */
static bool restore_adapter(const weft_router *router, const weft_state_adapter *from,
                            weft_diag *diag, weft_live_adapter **out)
{
    weft_live *live = weft_router__live(router);
    uint32_t base = weft_router__find(router, from->base, strlen(from->base), NULL, 0);
    if (!from->path)
        return (*out = weft_live__removed(live, from->base, from->name)) != NULL;
    if (base == UINT32_MAX || weft_router__is_app(router, base))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "its base is not served") ==
               WEFT_ERR_OK;
    if (weft_live__read(live, NULL, from->path, from->base, from->name,
                        weft_router__model(router, base).program, diag, out) != WEFT_ERR_OK)
        return false;
    if (weft_hash128_eq((*out)->identity, from->identity))
        return true;
    weft_live__release(*out);
    *out = NULL;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                           "has other contents than the adapter that was loaded from there") ==
           WEFT_ERR_OK;
}

/* Serves the adapters of the state again. The names of those that cannot be had answer nothing: not
 * by what the bundle has under the same name. */
weft_err weft_state__restore_adapters(weft_restored *d, const weft_router *router)
{
    weft_live *live = weft_router__live(router);
    for (uint32_t i = 0; i < d->n_adapter; i++) {
        const weft_state_adapter *from = &d->adapter[i];
        weft_live_adapter *next = NULL, *before = NULL;
        weft_diag *own = weft_diag_create();
        if (!own)
            return WEFT_ERR_NOMEM;
        if (!restore_adapter(router, from, own, &next)) {
            char *name = weft_arena_printf(d->arena, "%s@%s", from->base, from->name);
            const weft_serve_bundle b = {.path = from->path ? from->path : name, .version = name};
            report_missing(d, "adapter_not_served", &b, own);
            next = weft_live__removed(live, from->base, from->name);
        }
        weft_diag_destroy(own);
        if (!next || !weft_live__exchange(live, from->base, from->name, next, &before)) {
            weft_live__release(next);
            return WEFT_ERR_NOMEM;
        }
        weft_live__release(before);
    }
    return WEFT_ERR_OK;
}
