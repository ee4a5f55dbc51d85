/* GPUs as NVML reports them: properties, MIG instances, MIG profiles.
 *
 * NVML may refuse anything but the name, UUID and memory of a GPU (old driver, no privileges,
 * another kind of GPU); the field then has its value for "unknown". A GPU whose name, UUID or
 * memory cannot be read is listed with the reason. */
#include "runtime/machine/machine_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GPUS_MAX = 64, MIG_MAX = 64, PLACEMENTS_MAX = 32 };

/* -- A whole GPU ---------------------------------------------------------------------------- */

/* FP32 units of an SM: CUDA C++ programming guide, table "throughput of native arithmetic
 * instructions", row of 32-bit floating-point add. */
static uint32_t cores_per_sm(int major, int minor)
{
    if (major <= 2)
        return 0;
    if (major == 3)
        return 192;
    if (major == 6)
        return minor == 0 ? 64 : 128;
    if (major == 7 || (major == 8 && minor == 0))
        return 64;
    return 128;
}

/* The minimum SM count of cuDevSmResourceSplitByCount (CUDA driver API). The CUDA driver of Weft
 * makes partitions of whole groups of that size, because two partitions must not share a group. */
static void set_partitions(weft_machine_gpu *g)
{
    if (g->cc_major >= 6)
        g->part_min = g->part_step = g->cc_major >= 9 ? 8 : g->cc_major == 8 ? 4 : 2;
}

static void read_kind(const weft_nvml *nvml, weft_nvml_device device, weft_machine_gpu *g)
{
    const weft_nvml_syms *fn = &nvml->fn;
    unsigned int cores = 0;
    unsigned int mode = 0;
    if (fn->nvmlDeviceGetCudaComputeCapability &&
        fn->nvmlDeviceGetCudaComputeCapability(device, &g->cc_major, &g->cc_minor) != 0)
        g->cc_major = g->cc_minor = 0;
    uint32_t per_sm = cores_per_sm(g->cc_major, g->cc_minor);
    if (per_sm && fn->nvmlDeviceGetNumGpuCores &&
        fn->nvmlDeviceGetNumGpuCores(device, &cores) == WEFT_NVML_SUCCESS)
        g->sms = cores / per_sm;
    if (fn->nvmlDeviceGetComputeMode &&
        fn->nvmlDeviceGetComputeMode(device, &mode) == WEFT_NVML_SUCCESS) {
        g->prohibited = mode == WEFT_NVML_COMPUTE_PROHIBITED;
        g->exclusive = mode == WEFT_NVML_COMPUTE_EXCLUSIVE_PROCESS;
    }
    weft_nvml_gpm_support gpm = {.version = WEFT_NVML_GPM_VERSION};
    g->gpm = fn->nvmlGpmQueryDeviceSupport &&
             fn->nvmlGpmQueryDeviceSupport(device, &gpm) == WEFT_NVML_SUCCESS && gpm.supported;
    set_partitions(g);
}

static uint32_t read_clock(weft_nvml_result (*get)(weft_nvml_device, unsigned int, unsigned int *),
                           weft_nvml_device device, unsigned int which)
{
    unsigned int mhz = 0;
    return get && get(device, which, &mhz) == WEFT_NVML_SUCCESS ? mhz : 0;
}

static void read_state(const weft_nvml *nvml, weft_nvml_device device, weft_machine_gpu *g)
{
    const weft_nvml_syms *fn = &nvml->fn;
    unsigned int mw = 0, mode = 0;
    weft_nvml_utilization busy = {0};
    if (fn->nvmlDeviceGetPowerUsage && fn->nvmlDeviceGetPowerUsage(device, &mw) == 0)
        g->power_w = mw * 1e-3;
    if (fn->nvmlDeviceGetEnforcedPowerLimit &&
        fn->nvmlDeviceGetEnforcedPowerLimit(device, &mw) == 0)
        g->power_limit_w = mw * 1e-3;
    g->busy = -1;
    if (fn->nvmlDeviceGetUtilizationRates && fn->nvmlDeviceGetUtilizationRates(device, &busy) == 0)
        g->busy = busy.gpu * 1e-2;
    g->sm_mhz = read_clock(fn->nvmlDeviceGetClockInfo, device, WEFT_NVML_CLOCK_SM);
    g->sm_max_mhz = read_clock(fn->nvmlDeviceGetMaxClockInfo, device, WEFT_NVML_CLOCK_SM);
    g->mem_mhz = read_clock(fn->nvmlDeviceGetClockInfo, device, WEFT_NVML_CLOCK_MEM);
    if (fn->nvmlDeviceGetPowerManagementDefaultLimit &&
        fn->nvmlDeviceGetPowerManagementDefaultLimit(device, &mw) == 0)
        g->power_default_w = mw * 1e-3;
    g->persistent = -1;
    if (fn->nvmlDeviceGetPersistenceMode && fn->nvmlDeviceGetPersistenceMode(device, &mode) == 0)
        g->persistent = mode != 0;
    weft_nvml__read_health(nvml, device, &g->health);
}

/* -- MIG profiles ---------------------------------------------------------------------------- */

/* The name that NVIDIA's tools give a profile, such as "1g.18gb": the memory is rounded up to
 * eighths of the whole (go-nvlib, pkg/nvlib/device/mig_profile.go). For drivers that report no
 * name. */
static void make_profile_name(uint32_t slices, uint64_t mem_bytes, uint64_t whole_bytes,
                              char out[WEFT_MACHINE_NAME_MAX])
{
    double part = whole_bytes ? ceil((double)mem_bytes / (double)whole_bytes * 8) / 8 : 0;
    double whole_gib = ceil((double)whole_bytes / 0x1p30);
    snprintf(out, WEFT_MACHINE_NAME_MAX, "%ug.%.0fgb", slices, round(part * whole_gib));
}

static weft_nvml_result get_profile(const weft_nvml *nvml, weft_nvml_device device, uint32_t i,
                                    const weft_machine_gpu *g, weft_machine_profile *out)
{
    weft_nvml_gi_profile_v2 v2 = {.version = WEFT_NVML_GI_PROFILE_V2};
    weft_nvml_result result = WEFT_NVML_FUNCTION_NOT_FOUND;
    if (nvml->fn.nvmlDeviceGetGpuInstanceProfileInfoV)
        result = nvml->fn.nvmlDeviceGetGpuInstanceProfileInfoV(device, i, &v2);
    if ((result == WEFT_NVML_FUNCTION_NOT_FOUND || result == WEFT_NVML_ARGUMENT_VERSION_MISMATCH) &&
        nvml->fn.nvmlDeviceGetGpuInstanceProfileInfo) {
        weft_nvml_gi_profile v1 = {0};
        result = nvml->fn.nvmlDeviceGetGpuInstanceProfileInfo(device, i, &v1);
        v2 = (weft_nvml_gi_profile_v2){.id = v1.id,
                                       .slices = v1.slices,
                                       .count = v1.count,
                                       .sms = v1.sms,
                                       .mem_mb = v1.mem_mb};
    }
    if (result != WEFT_NVML_SUCCESS)
        return result;
    *out = (weft_machine_profile){.id = v2.id,
                                  .count = v2.count,
                                  .gpcs = v2.slices,
                                  .sms = v2.sms,
                                  .mem_bytes = (uint64_t)v2.mem_mb << 20};
    v2.name[sizeof v2.name - 1] = '\0';
    const char *name = strncmp(v2.name, "MIG ", 4) == 0 ? v2.name + 4 : v2.name;
    if (*name)
        snprintf(out->name, sizeof out->name, "%s", name);
    else
        make_profile_name(out->gpcs, out->mem_bytes, g->mem_bytes, out->name);
    return result;
}

static void read_placements(const weft_nvml *nvml, weft_nvml_device device, weft_machine_profile *p)
{
    weft_nvml_placement at[PLACEMENTS_MAX];
    unsigned int n = PLACEMENTS_MAX;
    if (!nvml->fn.nvmlDeviceGetGpuInstancePossiblePlacements_v2 ||
        nvml->fn.nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, p->id, at, &n) != 0)
        return;
    for (unsigned int i = 0; i < n && i < PLACEMENTS_MAX; i++) {
        p->slots = at[i].size;
        if (at[i].start < 32)
            p->starts |= 1u << at[i].start;
    }
}

static void read_profiles(const weft_nvml *nvml, weft_nvml_device device, weft_arena *arena,
                          weft_machine_gpu *g)
{
    WEFT_VEC(weft_machine_profile) all = {0};
    for (uint32_t i = 0; i < WEFT_NVML_GPU_PROFILES_MAX; i++) {
        weft_machine_profile p;
        weft_nvml_result result = get_profile(nvml, device, i, g, &p);
        if (result == WEFT_NVML_INVALID_ARGUMENT || result == WEFT_NVML_FUNCTION_NOT_FOUND ||
            result == WEFT_NVML_GPU_IS_LOST)
            break;
        if (result != WEFT_NVML_SUCCESS)
            continue; /* the GPU lacks this profile */
        read_placements(nvml, device, &p);
        WEFT_VEC_PUSH(arena, &all, p);
    }
    g->profile = all.at;
    g->n_profile = all.len;
}

/* -- MIG instances --------------------------------------------------------------------------- */

/* First memory slot of a GPU instance; -1: unknown. */
static int32_t find_start(const weft_nvml *nvml, weft_nvml_device device, uint32_t gi_id)
{
    weft_nvml_gi gi = NULL;
    weft_nvml_gi_info info = {0};
    if (!nvml->fn.nvmlDeviceGetGpuInstanceById || !nvml->fn.nvmlGpuInstanceGetInfo ||
        nvml->fn.nvmlDeviceGetGpuInstanceById(device, gi_id, &gi) != WEFT_NVML_SUCCESS ||
        nvml->fn.nvmlGpuInstanceGetInfo(gi, &info) != WEFT_NVML_SUCCESS ||
        info.placement.start > 31)
        return -1;
    return (int32_t)info.placement.start;
}

/* false: the instance was destroyed in the meantime. */
static bool read_instance(const weft_nvml *nvml, weft_nvml_device device, weft_nvml_device mig,
                          const weft_machine_gpu *g, weft_machine_mig *out)
{
    const weft_nvml_syms *fn = &nvml->fn;
    weft_nvml_attributes attr = {0};
    weft_nvml_memory memory = {0};
    char name[WEFT_MACHINE_NAME_MAX] = "";
    unsigned int gi = 0, ci = 0;
    *out = (weft_machine_mig){.start = -1};
    if (fn->nvmlDeviceGetUUID(mig, out->uuid, sizeof out->uuid) != WEFT_NVML_SUCCESS ||
        !fn->nvmlDeviceGetGpuInstanceId || fn->nvmlDeviceGetGpuInstanceId(mig, &gi) != 0)
        return false;
    if (fn->nvmlDeviceGetComputeInstanceId)
        fn->nvmlDeviceGetComputeInstanceId(mig, &ci);
    if (fn->nvmlDeviceGetAttributes_v2)
        fn->nvmlDeviceGetAttributes_v2(mig, &attr);
    if (fn->nvmlDeviceGetMemoryInfo(mig, &memory) == WEFT_NVML_SUCCESS)
        out->mem_used_bytes = memory.used;
    out->gi = gi;
    out->ci = ci;
    out->sms = attr.sms;
    out->mem_bytes = memory.total ? memory.total : (uint64_t)attr.mem_mb << 20;
    out->start = find_start(nvml, device, gi);
    /* "NVIDIA H200 MIG 1g.18gb" */
    const char *at = NULL; /* the profile in the name */
    if (fn->nvmlDeviceGetName(mig, name, sizeof name) == WEFT_NVML_SUCCESS)
        at = strstr(name, "MIG ");
    if (at)
        snprintf(out->profile, sizeof out->profile, "%s", at + 4);
    else
        make_profile_name(attr.gi_slices, (uint64_t)attr.mem_mb << 20, g->mem_bytes, out->profile);
    return true;
}

static void read_instances(const weft_nvml *nvml, weft_nvml_device device, weft_arena *arena,
                           weft_machine_gpu *g)
{
    WEFT_VEC(weft_machine_mig) all = {0};
    unsigned int n = 0;
    if (!nvml->fn.nvmlDeviceGetMaxMigDeviceCount || !nvml->fn.nvmlDeviceGetMigDeviceHandleByIndex ||
        nvml->fn.nvmlDeviceGetMaxMigDeviceCount(device, &n) != WEFT_NVML_SUCCESS)
        return;
    for (unsigned int i = 0; i < n && i < MIG_MAX; i++) {
        weft_nvml_device mig = NULL;
        weft_machine_mig m;
        /* Indices may have gaps: NOT_FOUND. */
        if (nvml->fn.nvmlDeviceGetMigDeviceHandleByIndex(device, i, &mig) == WEFT_NVML_SUCCESS &&
            read_instance(nvml, device, mig, g, &m))
            WEFT_VEC_PUSH(arena, &all, m);
    }
    g->mig = all.at;
    g->n_mig = all.len;
}

static void read_mig(const weft_nvml *nvml, weft_nvml_device device, weft_arena *arena,
                     weft_machine_gpu *g)
{
    unsigned int now = 0, pending = 0;
    if (!nvml->fn.nvmlDeviceGetMigMode ||
        nvml->fn.nvmlDeviceGetMigMode(device, &now, &pending) != WEFT_NVML_SUCCESS)
        return;
    g->mig_capable = true;
    g->mig_on = now != 0;
    g->mig_pending = pending != 0;
    read_profiles(nvml, device, arena, g);
    if (g->mig_on)
        read_instances(nvml, device, arena, g);
}

/* -- All GPUs -------------------------------------------------------------------------------- */

static void read_gpu(const weft_nvml *nvml, uint32_t index, weft_arena *arena, weft_diag *diag,
                     weft_machine_gpu *g)
{
    const weft_nvml_syms *fn = &nvml->fn;
    weft_nvml_device device = NULL;
    weft_nvml_memory memory = {0};
    char gpu[32];
    snprintf(gpu, sizeof gpu, "GPU %u", index);
    *g = (weft_machine_gpu){.index = index, .busy = -1};
    weft_nvml_result result = fn->nvmlDeviceGetHandleByIndex_v2(index, &device);
    if (result == WEFT_NVML_SUCCESS)
        result = fn->nvmlDeviceGetName(device, g->name, sizeof g->name);
    if (result == WEFT_NVML_SUCCESS)
        result = fn->nvmlDeviceGetUUID(device, g->uuid, sizeof g->uuid);
    if (result == WEFT_NVML_SUCCESS)
        result = fn->nvmlDeviceGetMemoryInfo(device, &memory);
    if (result != WEFT_NVML_SUCCESS) {
        weft_diag_warn(diag, (weft_where){.item = gpu}, "cannot be read: %s",
                       weft_nvml__text(result));
        snprintf(g->why_not, sizeof g->why_not, "%s", weft_nvml__text(result));
        return;
    }
    g->mem_bytes = memory.total;
    g->mem_used_bytes = memory.used;
    read_kind(nvml, device, g);
    read_state(nvml, device, g);
    g->type = weft_machine__find_type(g->name, g->mem_bytes, g->sms);
    read_mig(nvml, device, arena, g);
}

weft_err weft_machine__read_gpus(const weft_nvml *nvml, weft_arena *arena, weft_diag *diag,
                                 weft_machine *out)
{
    unsigned int n = 0;
    weft_nvml_result result = nvml->fn.nvmlDeviceGetCount_v2(&n);
    if (result != WEFT_NVML_SUCCESS)
        return weft_nvml__error(diag, "nvmlDeviceGetCount", NULL, result);
    if (nvml->fn.nvmlSystemGetDriverVersion(out->driver, sizeof out->driver) != 0)
        out->driver[0] = '\0';
    if (nvml->fn.nvmlSystemGetCudaDriverVersion_v2 &&
        nvml->fn.nvmlSystemGetCudaDriverVersion_v2(&out->cuda_version) != WEFT_NVML_SUCCESS)
        out->cuda_version = 0;
    n = n < GPUS_MAX ? n : GPUS_MAX;
    weft_machine_gpu *gpu = weft_arena_array(arena, n, sizeof *gpu);
    for (uint32_t i = 0; i < n; i++)
        read_gpu(nvml, i, arena, diag, &gpu[i]);
    out->gpu = gpu;
    out->n_gpu = n;
    return WEFT_ERR_OK;
}
