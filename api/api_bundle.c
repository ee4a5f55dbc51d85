/* Bundles: opening, and the slice on which their sessions run. */
#include "api/api_int.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_status take_options(api_bundle *b, const weft_options *o, weft_error *error)
{
    for (size_t i = 0; i < sizeof o->reserved / sizeof o->reserved[0]; i++)
        if (o->reserved[i])
            return weft_embed__say(error, WEFT_INPUT,
                                   "weft_options.reserved[%zu] is set, but this is weft %s", i,
                                   weft_version());
    if (!(o->time_limit_s >= 0))
        return weft_embed__say(error, WEFT_INPUT, "the time limit is %g s", o->time_limit_s);
    if (o->n_cpu > 0 && !o->cpu)
        return weft_embed__say(error, WEFT_INPUT, "a list of %u CPUs is NULL", o->n_cpu);
    if (o->n_cpu > 0) {
        b->cpu = malloc(o->n_cpu * sizeof *b->cpu);
        if (!b->cpu)
            return weft_embed__fail(error, WEFT_ERR_NOMEM, NULL);
        memcpy(b->cpu, o->cpu, o->n_cpu * sizeof *b->cpu);
    }
    if (o->driver) {
        if (!weft_driver_find(o->driver))
            return weft_embed__say(error, WEFT_NO_DEVICE, "no driver is named %s", o->driver);
        b->driver = strdup(o->driver);
        if (!b->driver)
            return weft_embed__fail(error, WEFT_ERR_NOMEM, NULL);
    }
    b->options = (weft_engine_options){.driver = b->driver,
                                       .threads = o->threads,
                                       .cpu = b->cpu,
                                       .n_cpu = o->n_cpu,
                                       .gpu = o->gpu,
                                       .sm_first = o->sm_first,
                                       .n_sm = o->n_sm,
                                       .time_limit_s = o->time_limit_s,
                                       .mem_limit_bytes = o->memory_limit_bytes};
    return WEFT_OK;
}

/* Takes `b` apart again when it fails. */
static api_bundle *open_with(api_bundle *b, const weft_options *options, weft_error *error)
{
    weft_status status = options ? take_options(b, options, error) : WEFT_OK;
    if (status == WEFT_OK)
        status = weft_embed__fail(error, weft_embed__describe(b), NULL);
    if (status == WEFT_OK)
        return b;
    weft_embed__release(b);
    return NULL;
}

static api_bundle *open_any(int fd, const char *path, const weft_options *options,
                            weft_error *error)
{
    api_bundle *b = calloc(1, sizeof *b);
    weft_diag *diag = weft_diag_create();
    weft_err err = b && diag ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = fd >= 0 ? weft_bundle_open_fd(fd, path, diag, &b->bundle)
                      : weft_bundle_open(path, diag, &b->bundle);
    if (err != WEFT_ERR_OK) {
        weft_embed__fail(error, err, diag);
        weft_diag_destroy(diag);
        free(b);
        return NULL;
    }
    weft_diag_destroy(diag);
    pthread_mutex_init(&b->lock, NULL);
    b->users = 1;
    return open_with(b, options, error);
}

api_bundle *weft_open(const char *path, const weft_options *options, weft_error *error)
{
    if (!path) {
        weft_embed__say(error, WEFT_INPUT, "the path is NULL");
        return NULL;
    }
    return open_any(-1, path, options, error);
}

api_bundle *weft_open_fd(int fd, const char *name, const weft_options *options, weft_error *error)
{
    if (fd < 0) {
        weft_embed__say(error, WEFT_INPUT, "the descriptor is %d", fd);
        return NULL;
    }
    return open_any(fd, name ? name : "bundle", options, error);
}

api_bundle *weft_open_memory(const void *bytes, size_t len, const weft_options *options,
                             weft_error *error)
{
    if (!bytes && len > 0) {
        weft_embed__say(error, WEFT_INPUT, "%zu bytes are at NULL", len);
        return NULL;
    }
    int fd = weft_file_make("weft-bundle", bytes, len);
    if (fd < 0) {
        weft_embed__say(error, WEFT_NO_MEMORY, "no memory for a copy of %zu bytes", len);
        return NULL;
    }
    api_bundle *b = weft_open_fd(fd, "bundle in memory", options, error);
    close(fd);
    return b;
}

void weft_embed__release(api_bundle *b)
{
    if (atomic_fetch_sub(&b->users, 1) > 1)
        return;
    weft_engine_close(b->engine);
    weft_bundle_close(b->bundle);
    pthread_mutex_destroy(&b->lock);
    free(b->info_memory);
    free(b->driver);
    free(b->cpu);
    free(b);
}

void weft_close(api_bundle *bundle)
{
    if (bundle)
        weft_embed__release(bundle);
}

const weft_model_info *weft_describe(const api_bundle *bundle, uint32_t i)
{
    return i < bundle->bundle->n_program ? &bundle->info[i] : NULL;
}

const weft_model_info *weft_find(const api_bundle *bundle, const char *model)
{
    for (uint32_t i = 0; model && i < bundle->bundle->n_program; i++)
        if (strcmp(bundle->info[i].name, model) == 0)
            return &bundle->info[i];
    return NULL;
}

const char *weft_built_for(const api_bundle *bundle)
{
    return bundle->bundle->target ? bundle->bundle->target : "";
}

const char *weft_planned(const api_bundle *bundle)
{
    return bundle->bundle->plan_json;
}
