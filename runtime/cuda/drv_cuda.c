/* The CUDA driver: a GPU, a MIG instance visible to this process, or a green context (a partition
 * of a GPU's multiprocessors), through libcuda.so.1, cuBLASLt and cuDNN. */
#include "runtime/cuda/drv_cuda_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *lost_cuda(const weft_engine *e)
{
    const weft_cudev *g = weft_cudev__of(e);
    return g && g->is_lost ? g->lost : NULL;
}

/* -- Devices -------------------------------------------------------------------------------- */

static weft_err find_device(weft_cudev *g, uint32_t ordinal, weft_diag *diag)
{
    int n = 0, major = 0, minor = 0, value = 0;
    const weft_cu_api *cu = g->cu;
    weft_cu_result result = cu->cuInit(0);
    if (result != WEFT_CUDA_SUCCESS && result != WEFT_CUDA_ERROR_NO_DEVICE)
        return weft_cudev__check(g, result, "cuInit", diag);
    if (result == WEFT_CUDA_SUCCESS)
        WEFT_TRY(weft_cudev__check(g, cu->cuDeviceGetCount(&n), "cuDeviceGetCount", diag));
    if (n <= 0 || ordinal >= (uint32_t)n)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                               n <= 0 ? "the CUDA driver finds no GPU (or CUDA_VISIBLE_DEVICES "
                                        "hides it)"
                                      : "GPU %u is requested; GPUs visible to this process: %d",
                               ordinal, n);
    WEFT_TRY(weft_cudev__check(g, cu->cuDeviceGet(&g->device, (int)ordinal), "cuDeviceGet", diag));
    WEFT_TRY(weft_cudev__check(g, cu->cuDeviceGetName(g->name, sizeof g->name - 1, g->device),
                               "cuDeviceGetName", diag));
    const struct {
        unsigned attribute;
        int *to;
    } row[] = {{WEFT_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
               {WEFT_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
               {WEFT_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &n},
               {WEFT_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &value}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        WEFT_TRY(weft_cudev__check(g,
                                   cu->cuDeviceGetAttribute(row[i].to, row[i].attribute, g->device),
                                   "cuDeviceGetAttribute", diag));
    size_t bytes = 0;
    WEFT_TRY(
        weft_cudev__check(g, cu->cuDeviceTotalMem(&bytes, g->device), "cuDeviceTotalMem", diag));
    g->mem_bytes = bytes;
    g->cc = major * 10 + minor;
    g->sms = (uint32_t)n;
    g->limits = (weft_command_limits){
        .device = g->name, .shared_bytes = (uint32_t)value, .register_count = 65536};
    return WEFT_ERR_OK;
}

/* -- Partitions ----------------------------------------------------------------------------- */

/* Number of multiprocessors in one group of a partition. Drivers before 13.0 do not report it; for
 * them it is the value in the documentation of cuDevSmResourceSplitByCount. */
static uint32_t group_size(const weft_cudev *g, const weft_cu_resource *all)
{
    uint32_t size = all->u.sm.minSmPartitionSize;
    if (g->lib->version < 13000 || size == 0)
        size = g->cc >= 90 ? 8 : g->cc >= 80 ? 4 : 2;
    if (g->lib->version >= 13000 && all->u.sm.smCoscheduledAlignment > size)
        size = all->u.sm.smCoscheduledAlignment;
    return size;
}

static weft_err make_green(weft_cudev *g, weft_cu_resource *group, uint32_t n_sm, uint32_t count,
                           weft_diag *diag)
{
    weft_cu_resource_desc desc;
    const weft_cu_api *cu = g->cu;
    WEFT_TRY(weft_cudev__check(g, cu->cuDevResourceGenerateDesc(&desc, group, count),
                               "cuDevResourceGenerateDesc", diag));
    WEFT_TRY(weft_cudev__check(
        g, cu->cuGreenCtxCreate(&g->green, desc, g->device, WEFT_CU_GREEN_CTX_DEFAULT_STREAM),
        "cuGreenCtxCreate", diag));
    WEFT_TRY(
        weft_cudev__check(g, cu->cuCtxFromGreenCtx(&g->ctx, g->green), "cuCtxFromGreenCtx", diag));
    g->sms = n_sm;
    return WEFT_ERR_OK;
}

/* Takes groups of one split in the driver's order. The order is the same for every engine, so
 * partitions with disjoint numbers are disjoint on the device. */
static weft_err take_partition(weft_cudev *g, uint32_t first, uint32_t n_sm, weft_diag *diag)
{
    weft_cu_resource all, rest;
    const weft_cu_api *cu = g->cu;
    if (!g->lib->green)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.file = g->name},
                               "partitions of multiprocessors need a driver for CUDA 12.5, this "
                               "driver supports %d.%d",
                               g->lib->version / 1000, g->lib->version % 1000 / 10);
    memset(&all, 0, sizeof all);
    WEFT_TRY(weft_cudev__check(
        g, cu->cuDeviceGetDevResource(g->device, &all, WEFT_CU_DEV_RESOURCE_TYPE_SM),
        "cuDeviceGetDevResource", diag));
    uint32_t size = group_size(g, &all), from = first / size;
    uint32_t to = (uint32_t)(((uint64_t)first + n_sm + size - 1) / size);
    unsigned n_group = 0;
    WEFT_TRY(weft_cudev__check(g,
                               cu->cuDevSmResourceSplitByCount(NULL, &n_group, &all, NULL, 0, size),
                               "cuDevSmResourceSplitByCount", diag));
    if (to > n_group)
        return weft_diag_error(
            diag, WEFT_ERR_INPUT, (weft_where){.file = g->name},
            "multiprocessors %u to %u are requested, the GPU has %u groups of %u", first,
            first + n_sm - 1, n_group, size);
    weft_cu_resource *group = calloc(n_group, sizeof *group);
    if (!group)
        return WEFT_ERR_NOMEM;
    weft_err err =
        weft_cudev__check(g, cu->cuDevSmResourceSplitByCount(group, &n_group, &all, &rest, 0, size),
                          "cuDevSmResourceSplitByCount", diag);
    if (err == WEFT_ERR_OK && to > n_group)
        err = weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.file = g->name},
                              "multiprocessors %u to %u are requested, the driver returned only %u "
                              "groups of %u",
                              first, first + n_sm - 1, n_group, size);
    uint32_t got = 0;
    for (uint32_t i = from; err == WEFT_ERR_OK && i < to; i++)
        got += group[i].u.sm.smCount;
    if (err == WEFT_ERR_OK)
        err = make_green(g, group + from, got, to - from, diag);
    free(group);
    return err;
}

/* -- Life ----------------------------------------------------------------------------------- */

static void begin_cuda(weft_engine *e)
{
    weft_cudev__enter(weft_cudev__of(e));
}

static weft_err open_device(weft_engine *e, weft_cudev *g, weft_diag *diag)
{
    WEFT_TRY(find_device(g, e->gpu, diag));
    WEFT_TRY(weft_cudev__choose_images(e, diag));
    WEFT_TRY(weft_cudev__check(g, g->cu->cuDevicePrimaryCtxRetain(&g->primary, g->device),
                               "cuDevicePrimaryCtxRetain", diag));
    g->ctx = g->primary;
    WEFT_TRY(weft_cudev__check(g, g->cu->cuCtxSetCurrent(g->primary), "cuCtxSetCurrent", diag));
    if (e->n_sm)
        WEFT_TRY(take_partition(g, e->sm_first, e->n_sm, diag));
    return weft_cudev__open_stream(g, diag, &g->load);
}

static weft_err open_cuda(weft_engine *e, weft_diag *diag)
{
    const weft_libcuda *lib;
    WEFT_TRY(weft_libcuda__get(diag, &lib));
    weft_cudev *g = calloc(1, sizeof *g);
    if (!g)
        return WEFT_ERR_NOMEM;
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->lost_lock, NULL);
    g->lib = lib;
    g->cu = &lib->api;
    e->device = g;
    g->kernel = calloc((size_t)e->bundle->n_kernel + 1, sizeof *g->kernel);
    g->weight = calloc((size_t)e->bundle->n_weight + 1, sizeof *g->weight);
    if (!g->kernel || !g->weight)
        return WEFT_ERR_NOMEM;
    return open_device(e, g, diag);
}

/* Errors are ignored: a lost device returns nothing else. */
static void close_cuda(weft_engine *e)
{
    weft_cudev *g = weft_cudev__of(e);
    const weft_cu_api *cu = g->cu;
    if (g->primary) {
        weft_cudev__enter(g);
        weft_cudev__close_gemms(g);
        weft_cudev__close_convs(g);
        weft_cudev__unload_images(g);
        weft_cudev__free_weights(e);
        if (g->load)
            (void)cu->cuStreamDestroy(g->load);
        (void)cu->cuCtxSetCurrent(NULL);
        if (g->green)
            (void)cu->cuGreenCtxDestroy(g->green);
        (void)cu->cuDevicePrimaryCtxRelease(g->device);
    }
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->lost_lock);
    free(g->module);
    free(g->kernel);
    free(g->weight);
    free(g);
    e->device = NULL;
}

static const weft_device_ops cuda_ops = {
    .load_weights = weft_cudev__load_weights,
    .weight = weft_cudev__weight,
    .open_queue = weft_cudev__open_queue,
    .close_queue = weft_cudev__close_queue,
    .host_alloc = weft_cudev__host_alloc,
    .host_free = weft_cudev__host_free,
    .copy_in = weft_cudev__copy_in,
    .copy_out = weft_cudev__copy_out,
    .record_graph = weft_cudev__record_graph,
    .free_graph = weft_cudev__free_graph,
    .run_graph = weft_cudev__run_graph,
    .run_graph_timed = weft_cudev__run_graph_timed,
    .time_graph = weft_cudev__time_graph,
    .wait = weft_cudev__wait,
    .note_memory = weft_cudev__note_memory,
    .lost = lost_cuda,
};

const weft_driver weft_driver_cuda = {
    .name = "cuda",
    .brief = "NVIDIA GPUs and slices of them: CUDA graphs, cuBLASLt, cuDNN",
    .open = open_cuda,
    .close = close_cuda,
    .alloc = weft_cudev__alloc,
    .free = weft_cudev__free,
    .prepare = weft_cudev__prepare,
    .begin = begin_cuda,
    .packed_bytes = weft_cudev__weight_bytes,
    .device_ops = &cuda_ops,
};
