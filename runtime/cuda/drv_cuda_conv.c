/* Convolutions, pooling and attention by cuDNN.
 *
 * Each of them runs on cuDNN if the library is there and has a plan for it: the bundle's, made by
 * the same version for the same compute capability, otherwise one by the heuristics for this
 * device. Where there is none, and for addresses that are not aligned, the kernels of the bundle
 * run instead. */
#include "runtime/cuda/drv_cuda_int.h"

#include "runtime/cuda/cudnn_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library on one device; protected by `lock`, as a handle has one stream. */
struct weft_cudev_dnn {
    pthread_mutex_t lock;
    const weft_libcudnn *lib;
    weft_cudnn_handle handle;
    weft_cudnn_device device;
    const weft_bundle_conv_plans *plans; /* of the bundle, for this device; NULL: none */
};

struct weft_cudev_conv {
    weft_cudev *gpu;
    const weft_command_conv *now; /* of the launch's command */
    weft_cudnn_plan *plan;
    float scale;                /* of attention */
    weft_cu_deviceptr scale_at; /* the same on the device; 0: cuDNN takes it from here */
    bool warm;
};

/* -- The library ---------------------------------------------------------------------------- */

static const weft_bundle_conv_plans *find_plans(const weft_cudev *g, const weft_bundle *b,
                                                const weft_libcudnn *lib)
{
    char arch[16];
    snprintf(arch, sizeof arch, "sm_%d", g->cc);
    for (uint32_t i = 0; !g->green && i < b->n_conv_plans; i++)
        if (b->conv_plans[i].version == lib->version &&
            strcmp(b->arch[b->conv_plans[i].arch], arch) == 0)
            return &b->conv_plans[i];
    return NULL;
}

static void close_dnn(weft_cudev_dnn *d)
{
    weft_cudnn__forget(&d->device);
    if (d->handle)
        (void)d->lib->api.cudnnDestroy(d->handle);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* NULL: cuDNN is not here, does not start, or does not take streams of this context, which may be a
 * green one. That is no error. */
static weft_cudev_dnn *open_dnn(weft_cudev *g, const weft_bundle *b)
{
    const weft_libcudnn *lib;
    if (weft_libcudnn__get(NULL, &lib) != WEFT_ERR_OK)
        return NULL;
    weft_cudev_dnn *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    pthread_mutex_init(&d->lock, NULL);
    d->lib = lib;
    if (lib->api.cudnnCreate(&d->handle) != WEFT_CUDNN_STATUS_SUCCESS ||
        lib->api.cudnnSetStream(d->handle, g->load) != WEFT_CUDNN_STATUS_SUCCESS ||
        !weft_cudnn__see(&d->device, lib, d->handle)) {
        close_dnn(d);
        return NULL;
    }
    d->device.sm_target = g->green ? (int32_t)g->sms : 0;
    d->plans = find_plans(g, b, lib);
    return d;
}

void weft_cudev__close_convs(weft_cudev *g)
{
    if (g->dnn)
        close_dnn(g->dnn);
    g->dnn = NULL;
}

/* -- Making --------------------------------------------------------------------------------- */

static bool is_aligned(const weft_command_list *commands, weft_command_ref ref)
{
    return ref.at == WEFT_COMMAND_NO_REF ||
           weft_cudev__alignment(commands, ref) % WEFT_CUDNN_ALIGN == 0;
}

static weft_cudnn_plan *find_plan(weft_cudev_dnn *d, const weft_conv_key *key)
{
    const weft_bundle_conv_plans *stored = d->plans;
    weft_cudnn_plan *plan = NULL;
    for (uint32_t i = 0; !plan && stored && i < stored->n_plan; i++)
        if (memcmp(&stored->plan[i].conv, key, sizeof *key) == 0)
            plan = weft_cudnn__restore(&d->device, stored->plan[i].json);
    return plan ? plan : weft_cudnn__choose(&d->device, key);
}

/* Puts the scale of attention where cuDNN reads it. */
static weft_err set_scale(weft_cudev_conv *c, weft_diag *diag)
{
    weft_cudev *g = c->gpu;
    uint32_t bits = (uint32_t)c->now->key.dim[WEFT_ATTENTION_SCALE];
    memcpy(&c->scale, &bits, sizeof bits);
    if (weft_cudnn__takes_scale(g->dnn->lib->version, c->now->key.flags))
        return WEFT_ERR_OK;
    WEFT_TRY(
        weft_cudev__check(g, g->cu->cuMemAlloc(&c->scale_at, sizeof c->scale), "cuMemAlloc", diag));
    pthread_mutex_lock(&g->lock);
    weft_err err = weft_cudev__check(
        g, g->cu->cuMemcpyHtoDAsync(c->scale_at, &c->scale, sizeof c->scale, g->load),
        "cuMemcpyHtoDAsync", diag);
    weft_err waited = weft_cudev__check(g, g->cu->cuStreamSynchronize(g->load),
                                        "cuStreamSynchronize", err == WEFT_ERR_OK ? diag : NULL);
    pthread_mutex_unlock(&g->lock);
    return err != WEFT_ERR_OK ? err : waited;
}

weft_err weft_cudev__make_conv(weft_cudev *g, const weft_prep *p, const weft_command_list *commands,
                               uint32_t command, weft_cudev_conv **out, uint64_t *workspace)
{
    const weft_command_conv *now = commands->at[command].conv;
    *out = NULL;
    pthread_mutex_lock(&g->lock);
    if (!g->dnn_tried)
        g->dnn = open_dnn(g, p->engine->bundle);
    g->dnn_tried = true;
    pthread_mutex_unlock(&g->lock);
    const weft_command_ref ref[] = {now->x, now->w, now->y, now->z, now->bias};
    for (size_t i = 0; i < sizeof ref / sizeof *ref; i++)
        if (!g->dnn || !is_aligned(commands, ref[i]))
            return WEFT_ERR_OK;
    weft_cudev_conv *c = calloc(1, sizeof *c);
    if (!c)
        return WEFT_ERR_NOMEM;
    c->gpu = g;
    c->now = now;
    pthread_mutex_lock(&g->dnn->lock);
    c->plan = find_plan(g->dnn, &now->key);
    pthread_mutex_unlock(&g->dnn->lock);
    uint64_t bytes = c->plan ? weft_cudnn__workspace(c->plan) : 0;
    if (!c->plan || bytes == UINT64_MAX) {
        weft_cudev__free_conv(c);
        return WEFT_ERR_OK;
    }
    weft_err err = now->key.flags & WEFT_CONV_ATTENTION ? set_scale(c, p->diag) : WEFT_ERR_OK;
    if (err != WEFT_ERR_OK) {
        weft_cudev__free_conv(c);
        return err;
    }
    *workspace = bytes;
    *out = c;
    return WEFT_ERR_OK;
}

void weft_cudev__free_conv(weft_cudev_conv *conv)
{
    if (!conv)
        return;
    weft_cudnn__drop(conv->plan);
    if (conv->scale_at) {
        weft_cudev__enter(conv->gpu);
        (void)conv->gpu->cu->cuMemFree(conv->scale_at);
    }
    free(conv);
}

/* -- Running -------------------------------------------------------------------------------- */

/* cuDNN's statuses do not show that the device is lost; a call of the driver does. */
static weft_err check_dnn(weft_cudev *g, weft_cudnn_status status, const char *call,
                          weft_diag *diag)
{
    char text[160] = "";
    if (status == WEFT_CUDNN_STATUS_SUCCESS)
        return WEFT_ERR_OK;
    WEFT_TRY(
        weft_cudev__check(g, g->cu->cuStreamSynchronize(g->load), "cuStreamSynchronize", diag));
    g->dnn->lib->api.cudnnGetLastErrorString(text, sizeof text - 1);
    bool memory = status == WEFT_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                  status == WEFT_CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return weft_diag_error(diag, memory ? WEFT_ERR_NOMEM : WEFT_ERR_BUG,
                           (weft_where){.file = g->name}, "%s: status %u of cuDNN%s%s", call,
                           status, *text ? ": " : "", text);
}

weft_err weft_cudev__run_conv(weft_cudev_conv *conv, void *const *arg, weft_cu_deviceptr workspace,
                              weft_cu_stream stream, weft_diag *diag)
{
    const weft_command_conv *n = conv->now;
    weft_cudev_dnn *d = conv->gpu->dnn;
    const weft_command_ref ref[] = {n->x, n->w, n->y, n->z, n->bias};
    void *at[WEFT_CUDNN_TENSORS] = {NULL};
    for (int i = 0; i < WEFT_CUDNN_SCALE; i++)
        at[i] = ref[i].at == WEFT_COMMAND_NO_REF
                    ? NULL
                    : (void *)(uintptr_t)weft_cudev__address(arg, ref[i]);
    if (n->key.flags & WEFT_CONV_ATTENTION)
        at[WEFT_CUDNN_SCALE] =
            conv->scale_at ? (void *)(uintptr_t)conv->scale_at : (void *)&conv->scale;
    pthread_mutex_lock(&d->lock);
    weft_cudnn_status status = d->lib->api.cudnnSetStream(d->handle, stream);
    if (status == WEFT_CUDNN_STATUS_SUCCESS)
        status = weft_cudnn__run(conv->plan, d->handle, at, (void *)(uintptr_t)workspace);
    pthread_mutex_unlock(&d->lock);
    return check_dnn(conv->gpu, status, "cudnnBackendExecute", diag);
}

weft_err weft_cudev__warm_conv(weft_cudev_conv *conv, void *const *arg, weft_cu_deviceptr workspace,
                               weft_cu_stream stream, weft_diag *diag)
{
    if (conv->warm)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_cudev__run_conv(conv, arg, workspace, stream, diag));
    conv->warm = true;
    return WEFT_ERR_OK;
}
