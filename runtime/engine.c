/* Engines: life, verified weights, and the memory limit. Drivers and sessions use these functions.
 */
#include "runtime/driver_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_err init_engine(weft_engine *e, weft_bundle *bundle, const weft_engine_options *options,
                            weft_diag *diag)
{
    static const weft_engine_options defaults;
    const weft_engine_options *o = options ? options : &defaults;

    e->mem_limit_bytes = o->mem_limit_bytes;
    e->time_limit_s = o->time_limit_s;
    e->gpu = o->gpu;
    e->sm_first = o->sm_first;
    e->n_sm = o->n_sm;
    e->share_memory = o->share_memory && !e->driver->device_ops;
    e->share_cpus = o->share_cpus;
    e->n_cpu = o->cpu ? o->n_cpu : 0;
    e->threads = o->threads;
    if (e->n_cpu) {
        e->cpu = malloc(e->n_cpu * sizeof *e->cpu);
        if (!e->cpu)
            return WEFT_ERR_NOMEM;
        memcpy(e->cpu, o->cpu, e->n_cpu * sizeof *e->cpu);
    }
    e->checked = calloc((size_t)bundle->n_weight + 1, 1);
    if (!e->checked)
        return WEFT_ERR_NOMEM;
    return e->driver->open(e, diag);
}

weft_err weft_engine__create(weft_bundle *bundle, const weft_driver *driver,
                             const weft_engine_options *options, weft_diag *diag, weft_engine **out)
{
    static _Atomic uint64_t last_serial;
    weft_engine *e = calloc(1, sizeof *e);
    if (!e)
        return WEFT_ERR_NOMEM;
    e->serial = ++last_serial;
    e->bundle = bundle;
    e->driver = driver;
    pthread_mutex_init(&e->lock, NULL);
    weft_err err = init_engine(e, bundle, options, diag);
    if (err != WEFT_ERR_OK) {
        weft_engine_close(e);
        return err;
    }
    *out = e;
    return WEFT_ERR_OK;
}

void weft_engine_close(weft_engine *engine)
{
    if (!engine)
        return;
    weft_engine__release(engine, &engine->memory);
    if (engine->device)
        engine->driver->close(engine);
    if (engine->owns_bundle)
        weft_bundle_close(engine->bundle);
    pthread_mutex_destroy(&engine->lock);
    free(engine->kernels.first);
    free(engine->checked);
    free(engine->cpu);
    free(engine);
}

const weft_bundle *weft_engine_bundle(const weft_engine *engine)
{
    return engine->bundle;
}

const char *weft_engine_lost(const weft_engine *engine)
{
    return engine->driver->device_ops ? engine->driver->device_ops->lost(engine) : NULL;
}

static void note_peak(weft_weight_count *c, uint64_t bytes)
{
    c->peak_bytes = bytes > c->peak_bytes ? bytes : c->peak_bytes;
}

static void count_check(weft_engine *engine, uint32_t w)
{
    weft_weight_count *c = engine->count;
    if (engine->checked[w])
        return;
    engine->checked[w] = 1;
    c->in_file[w] = true;
    c->file_bytes += engine->bundle->weight[w - 1].bytes;
    note_peak(c, c->file_bytes + c->packed_bytes);
}

void weft_engine__count_pack(weft_engine *engine, uint32_t w, uint64_t room, uint64_t beside)
{
    weft_weight_count *c = engine->count;
    uint64_t bytes = engine->bundle->weight[w - 1].bytes;
    if (c->in_file[w])
        c->file_bytes -= bytes;
    c->in_file[w] = false;
    c->packed_bytes += room;
    note_peak(c, c->file_bytes + c->packed_bytes + beside);
}

weft_err weft_engine__check_weight(weft_engine *engine, uint32_t w, weft_diag *diag)
{
    if (engine->count) {
        count_check(engine, w);
        return WEFT_ERR_OK;
    }
    pthread_mutex_lock(&engine->lock);
    bool checked = engine->checked[w];
    pthread_mutex_unlock(&engine->lock);
    if (checked)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_bundle_check_weight(engine->bundle, w, diag));
    pthread_mutex_lock(&engine->lock);
    engine->checked[w] = 1;
    pthread_mutex_unlock(&engine->lock);
    return WEFT_ERR_OK;
}

weft_err weft_engine__take(weft_engine *engine, uint64_t bytes, weft_diag *diag)
{
    uint64_t used = atomic_fetch_add(&engine->mem_bytes, bytes);
    if (engine->mem_limit_bytes == 0 ||
        (used <= engine->mem_limit_bytes && bytes <= engine->mem_limit_bytes - used))
        return WEFT_ERR_OK;
    atomic_fetch_sub(&engine->mem_bytes, bytes);
    return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0},
                           "%llu bytes more than the %llu in use are over the limit of %llu",
                           (unsigned long long)bytes, (unsigned long long)used,
                           (unsigned long long)engine->mem_limit_bytes);
}

void weft_engine__give(weft_engine *engine, uint64_t bytes)
{
    atomic_fetch_sub(&engine->mem_bytes, bytes);
}

void weft_engine__release(weft_engine *engine, weft_memory *memory)
{
    if (memory->at)
        engine->driver->free(engine, memory->at, memory->bytes);
    weft_engine__give(engine, memory->bytes);
    *memory = (weft_memory){0};
}
