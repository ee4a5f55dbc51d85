/* The null driver: a simulated device, and the template for a new driver.
 *
 * Kernels are the reference implementation of ops/, so results are correct and slow. Time is
 * virtual: each kernel adds the time of its work on a device of 1 TFLOP/s and 100 GB/s. The driver
 * checks every rule of the driver interface; a violation makes the run fail with BUG:
 *
 *   - begin and end are called in pairs, and kernels run between them;
 *   - activations are in memory of alloc, which is freed with the size it was allocated with;
 *   - results are never in a weight, and are aligned to 64 bytes;
 *   - the commands of a bundle for GPUs access only their operands and respect the limits of the
 *     architectures that the bundle is for (command.c). */
#include "base/pack.h"
#include "runtime/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

/* An allocated block: [base, base + bytes). */
typedef struct null_block {
    struct null_block *next;
    char *base;
    uint64_t bytes;
} null_block;

typedef struct null_device {
    null_block *block; /* allocated blocks; protected by the engine's lock */
    _Atomic int running;
    double clock_us; /* virtual time */
} null_device;

typedef struct null_kernel {
    weft_engine *engine;
    weft_kernel_fn run;
    void *state;
    void (*destroy)(void *state);
    uint32_t n_in, n_out;
    uint64_t out_bytes[8];
    double time_us;
} null_kernel;

/* -- Device --------------------------------------------------------------------------------- */

static weft_err open_null(weft_engine *e, weft_diag *diag)
{
    (void)diag;
    e->device = calloc(1, sizeof(null_device));
    return e->device ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

static void close_null(weft_engine *e)
{
    null_device *d = e->device;
    while (d->block) {
        null_block *next = d->block->next;
        free(d->block->base);
        free(d->block);
        d->block = next;
    }
    free(d);
    e->device = NULL;
}

static weft_err alloc_null(weft_engine *e, uint64_t bytes, weft_diag *diag, void **out)
{
    (void)diag;
    null_device *d = e->device;
    null_block *block = calloc(1, sizeof *block);
    if (bytes > SIZE_MAX / 2 || !block) {
        free(block);
        return WEFT_ERR_NOMEM;
    }
    size_t room = (size_t)(bytes + WEFT_ARENA_ALIGN) / WEFT_ARENA_ALIGN * WEFT_ARENA_ALIGN;
    block->base = aligned_alloc(WEFT_ARENA_ALIGN, room);
    if (!block->base) {
        free(block);
        return WEFT_ERR_NOMEM;
    }
    memset(block->base, 0, room);
    block->bytes = bytes;
    pthread_mutex_lock(&e->lock);
    block->next = d->block;
    d->block = block;
    pthread_mutex_unlock(&e->lock);
    *out = block->base;
    return WEFT_ERR_OK;
}

/* An address that was never allocated, or a wrong size, frees nothing: the leak shows at close. */
static void free_null(weft_engine *e, void *data, uint64_t bytes)
{
    null_device *d = e->device;
    pthread_mutex_lock(&e->lock);
    null_block **at = &d->block;
    while (*at && (*at)->base != data)
        at = &(*at)->next;
    null_block *block = *at;
    if (block && block->bytes == bytes) {
        *at = block->next;
        free(block->base);
        free(block);
    }
    pthread_mutex_unlock(&e->lock);
}

static void begin_null(weft_engine *e)
{
    null_device *d = e->device;
    d->running++;
}

static void end_null(weft_engine *e)
{
    null_device *d = e->device;
    d->running--;
}

/* -- Kernels -------------------------------------------------------------------------------- */

static bool lies_in_weight(const weft_engine *e, const char *at)
{
    for (uint32_t w = 0; w < e->bundle->n_weight; w++) {
        const char *data = (const char *)e->bundle->weight[w].data;
        if (at >= data && at < data + e->bundle->weight[w].bytes)
            return true;
    }
    return false;
}

static weft_err run_null(void *state, void *const *arg)
{
    null_kernel *k = state;
    null_device *d = k->engine->device;
    if (d->running <= 0)
        return WEFT_ERR_BUG;
    for (uint32_t i = 0; i < k->n_out; i++) {
        const char *at = arg[k->n_in + i];
        if (at && k->out_bytes[i] > 0 &&
            ((uintptr_t)at % WEFT_ARENA_ALIGN != 0 || lies_in_weight(k->engine, at)))
            return WEFT_ERR_BUG;
    }
    pthread_mutex_lock(&k->engine->lock);
    d->clock_us += k->time_us;
    pthread_mutex_unlock(&k->engine->lock);
    return k->run(k->state, arg);
}

static void destroy_null(void *state)
{
    null_kernel *k = state;
    if (k->destroy)
        k->destroy(k->state);
    else
        free(k->state);
    free(k);
}

static double time_of(const weft_prep *p)
{
    static const double flops_per_us = 1e6, bytes_per_us = 1e5;
    weft_work w;
    if (weft_prep__work(p, &w) != WEFT_ERR_OK)
        return 0;
    double compute = w.flops / flops_per_us;
    double memory = (w.bytes_read + w.bytes_written + w.weight_bytes) / bytes_per_us;
    return compute > memory ? compute : memory;
}

/* Checks the commands of a bundle for GPUs against the limits of each architecture in the bundle.
 */
static weft_err check_commands(const weft_prep *p)
{
    const weft_bundle *b = p->engine->bundle;
    weft_command_list *commands;
    if (b->n_arch == 0)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_command__make_list(p, &commands));
    weft_err err = WEFT_ERR_OK;
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < b->n_arch; i++) {
        weft_command_limits limits = weft_command__limits(b->arch[i]);
        limits.arch = i;
        err = weft_command__check_limits(p, commands, &limits);
    }
    free(commands);
    return err;
}

static weft_err prepare_null(weft_prep *p)
{
    WEFT_TRY(check_commands(p));
    WEFT_TRY(weft_ref__prepare(p));
    null_kernel *k = calloc(1, sizeof *k);
    if (!k) {
        p->destroy(p->state);
        return WEFT_ERR_NOMEM;
    }
    *k = (null_kernel){.engine = p->engine,
                       .run = p->run,
                       .state = p->state,
                       .destroy = p->destroy,
                       .n_in = p->n_in,
                       .n_out = p->n_out < 8 ? p->n_out : 8,
                       .time_us = time_of(p)};
    for (uint32_t i = 0; i < k->n_out; i++)
        k->out_bytes[i] = p->out[i].present ? weft_tensor_bytes(&p->out[i].tensor) : 0;
    p->run = run_null;
    p->state = k;
    p->destroy = destroy_null;
    p->variant = "null";
    return WEFT_ERR_OK;
}

const weft_driver weft_driver_null = {
    .name = "null",
    .brief = "simulated device: reference kernels on a virtual clock, all rules checked",
    .open = open_null,
    .close = close_null,
    .alloc = alloc_null,
    .free = free_null,
    .prepare = prepare_null,
    .begin = begin_null,
    .end = end_null,
};
