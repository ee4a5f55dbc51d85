/* Changes the MIG instances of a GPU, only on request. NVML's order: compute instances are
 * destroyed before their GPU instance; a GPU instance is created at a placement, then one compute
 * instance of the same size in it. The driver may count an instance as in use for a moment after
 * the processes on it have ended. */
#include "runtime/machine/machine_int.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { INSTANCES_MAX = 64, CI_PROFILES_MAX = 16 };
enum { IN_USE_TRIES = 30, IN_USE_PAUSE_MS = 100 };

typedef struct changer {
    weft_nvml nvml;
    weft_nvml_device device;
    const weft_machine_gpu *gpu;
    char where[32];
    bool all; /* destroys all instances that are not wanted */
    weft_diag *diag;
} changer;

static weft_err refuse(const changer *c, const char *what, const char *profile,
                       weft_nvml_result result)
{
    return weft_diag_error(c->diag, WEFT_ERR_NODEV, (weft_where){.item = c->where},
                           "the MIG instance %s cannot be %s: %s", profile, what,
                           weft_nvml__text(result));
}

static weft_nvml_result destroy_compute(const changer *c, weft_nvml_gi gi)
{
    const weft_nvml_syms *fn = &c->nvml.fn;
    weft_nvml_result result = WEFT_NVML_SUCCESS;
    for (uint32_t i = 0; i < CI_PROFILES_MAX && result == WEFT_NVML_SUCCESS; i++) {
        weft_nvml_ci_profile info = {0};
        weft_nvml_ci ci[INSTANCES_MAX];
        unsigned int n = INSTANCES_MAX;
        if (fn->nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, i, WEFT_NVML_CI_ENGINES_SHARED,
                                                             &info) != WEFT_NVML_SUCCESS ||
            fn->nvmlGpuInstanceGetComputeInstances(gi, info.id, ci, &n) != WEFT_NVML_SUCCESS)
            continue;
        for (unsigned int k = 0; k < n && result == WEFT_NVML_SUCCESS; k++)
            result = fn->nvmlComputeInstanceDestroy(ci[k]);
    }
    return result;
}

static weft_nvml_result destroy(const changer *c, weft_nvml_gi gi)
{
    const struct timespec pause = {.tv_nsec = IN_USE_PAUSE_MS * 1000000L};
    weft_nvml_result result = WEFT_NVML_IN_USE;
    for (int i = 0; i < IN_USE_TRIES && result == WEFT_NVML_IN_USE; i++) {
        if (i > 0)
            nanosleep(&pause, NULL);
        result = destroy_compute(c, gi);
        if (result == WEFT_NVML_SUCCESS)
            result = c->nvml.fn.nvmlGpuInstanceDestroy(gi);
    }
    return result;
}

/* Creates a compute instance of all `slices` compute slices of the GPU instance. */
static weft_nvml_result create_compute(const changer *c, weft_nvml_gi gi, uint32_t slices)
{
    const weft_nvml_syms *fn = &c->nvml.fn;
    for (uint32_t i = 0; i < CI_PROFILES_MAX; i++) {
        weft_nvml_ci_profile info = {0};
        weft_nvml_ci ci = NULL;
        if (fn->nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, i, WEFT_NVML_CI_ENGINES_SHARED,
                                                             &info) == WEFT_NVML_SUCCESS &&
            info.slices == slices)
            return fn->nvmlGpuInstanceCreateComputeInstance(gi, info.id, &ci);
    }
    return WEFT_NVML_NOT_FOUND;
}

/* Whether the GPU instance has a compute instance: a destruction that was refused halfway leaves
 * none. */
static bool has_compute(const changer *c, weft_nvml_gi gi)
{
    const weft_nvml_syms *fn = &c->nvml.fn;
    bool found = false;
    for (uint32_t i = 0; i < CI_PROFILES_MAX && !found; i++) {
        weft_nvml_ci_profile info = {0};
        weft_nvml_ci ci[INSTANCES_MAX];
        unsigned int n = INSTANCES_MAX;
        found = fn->nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, i, WEFT_NVML_CI_ENGINES_SHARED,
                                                                 &info) == WEFT_NVML_SUCCESS &&
                fn->nvmlGpuInstanceGetComputeInstances(gi, info.id, ci, &n) == WEFT_NVML_SUCCESS &&
                n > 0;
    }
    return found;
}

static const weft_machine_profile *find_profile(const changer *c, const char *name)
{
    for (uint32_t i = 0; i < c->gpu->n_profile; i++)
        if (strcmp(c->gpu->profile[i].name, name) == 0)
            return &c->gpu->profile[i];
    return NULL;
}

/* Whether an instance is in `want`; marks that entry in `have`, so that each counts once. */
static bool is_wanted(const weft_machine_profile *p, uint32_t start,
                      const weft_machine_mig_want *want, uint32_t n, bool *have)
{
    for (uint32_t i = 0; i < n; i++)
        if (!have[i] && want[i].start == start && strcmp(want[i].profile, p->name) == 0) {
            have[i] = true;
            return true;
        }
    return false;
}

/* Whether an instance has a slot of one that is missing. */
static bool is_in_the_way(const changer *c, const weft_nvml_gi_info *info,
                          const weft_machine_mig_want *want, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const weft_machine_profile *p = find_profile(c, want[i].profile);
        if (p && info->placement.start < want[i].start + p->slots &&
            want[i].start < info->placement.start + info->placement.size)
            return true;
    }
    return false;
}

/* Destroys the instances that are not wanted; without c->all only those in the way of others. */
static weft_err destroy_others(const changer *c, const weft_machine_mig_want *want, uint32_t n,
                               bool *have)
{
    const weft_nvml_syms *fn = &c->nvml.fn;
    for (uint32_t i = 0; i < c->gpu->n_profile; i++) {
        const weft_machine_profile *p = &c->gpu->profile[i];
        weft_nvml_gi gi[INSTANCES_MAX];
        unsigned int n_gi = INSTANCES_MAX;
        weft_nvml_result result = fn->nvmlDeviceGetGpuInstances(c->device, p->id, gi, &n_gi);
        if (result != WEFT_NVML_SUCCESS)
            return refuse(c, "listed", p->name, result);
        for (unsigned int k = 0; k < n_gi; k++) {
            weft_nvml_gi_info info = {0};
            result = fn->nvmlGpuInstanceGetInfo(gi[k], &info);
            bool wanted =
                result == WEFT_NVML_SUCCESS && is_wanted(p, info.placement.start, want, n, have);
            if (wanted && !has_compute(c, gi[k])) {
                result = create_compute(c, gi[k], p->gpcs);
                if (result != WEFT_NVML_SUCCESS)
                    return refuse(c, "completed", p->name, result);
            }
            if (wanted ||
                (result == WEFT_NVML_SUCCESS && !c->all && !is_in_the_way(c, &info, want, n)))
                continue;
            if (result == WEFT_NVML_SUCCESS)
                result = destroy(c, gi[k]);
            if (result != WEFT_NVML_SUCCESS)
                return refuse(c, "destroyed", p->name, result);
            weft_diag_note(c->diag, (weft_where){.item = c->where},
                           "the MIG instance %s at slot %u was destroyed", p->name,
                           info.placement.start);
        }
    }
    return WEFT_ERR_OK;
}

static weft_err create_missing(const changer *c, const weft_machine_mig_want *want, uint32_t n,
                               const bool *have)
{
    for (uint32_t i = 0; i < n; i++) {
        const weft_machine_profile *p = find_profile(c, want[i].profile);
        weft_nvml_gi gi = NULL;
        if (have[i])
            continue;
        if (!p)
            return refuse(c, "created", want[i].profile, WEFT_NVML_NOT_FOUND);
        const weft_nvml_placement at = {.start = want[i].start, .size = p->slots};
        weft_nvml_result result =
            c->nvml.fn.nvmlDeviceCreateGpuInstanceWithPlacement(c->device, p->id, &at, &gi);
        if (result == WEFT_NVML_SUCCESS) {
            result = create_compute(c, gi, p->gpcs);
            if (result != WEFT_NVML_SUCCESS) /* nothing could use it */
                (void)c->nvml.fn.nvmlGpuInstanceDestroy(gi);
        }
        if (result != WEFT_NVML_SUCCESS)
            return refuse(c, "created", p->name, result);
        weft_diag_note(c->diag, (weft_where){.item = c->where},
                       "the MIG instance %s at slot %u was created", p->name, want[i].start);
    }
    return WEFT_ERR_OK;
}

static weft_err change(changer *c, const weft_machine_mig_want *want, uint32_t n)
{
    const weft_nvml_syms *fn = &c->nvml.fn;
    bool have[INSTANCES_MAX] = {false};
    if (!c->gpu->mig_on)
        return weft_diag_error(c->diag, WEFT_ERR_NODEV, (weft_where){.item = c->where},
                               "MIG mode is off: 'nvidia-smi -i %u -mig 1' switches it on",
                               c->gpu->index);
    if (n > INSTANCES_MAX)
        return WEFT_ERR_BUG;
    if (!fn->nvmlDeviceGetGpuInstances || !fn->nvmlDeviceCreateGpuInstanceWithPlacement ||
        !fn->nvmlGpuInstanceDestroy || !fn->nvmlGpuInstanceGetInfo ||
        !fn->nvmlGpuInstanceGetComputeInstanceProfileInfo ||
        !fn->nvmlGpuInstanceGetComputeInstances || !fn->nvmlGpuInstanceCreateComputeInstance ||
        !fn->nvmlComputeInstanceDestroy)
        return weft_diag_error(c->diag, WEFT_ERR_NODEV, (weft_where){.item = c->where},
                               "this driver's NVML cannot change MIG instances");
    weft_nvml_result result = fn->nvmlDeviceGetHandleByIndex_v2(c->gpu->index, &c->device);
    if (result != WEFT_NVML_SUCCESS)
        return weft_nvml__error(c->diag, "nvmlDeviceGetHandleByIndex", c->where, result);
    WEFT_TRY(destroy_others(c, want, n, have));
    return create_missing(c, want, n, have);
}

static weft_err change_gpu(uint32_t gpu, const weft_machine_mig_want *want, uint32_t n, bool all,
                           weft_diag *diag)
{
    weft_machine machine = {0};
    changer c = {.all = all, .diag = diag};
    weft_arena *arena = weft_arena_create(0);
    weft_err err = arena ? weft_nvml__open(diag, &c.nvml) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = weft_machine__read_gpus(&c.nvml, arena, diag, &machine);
    snprintf(c.where, sizeof c.where, "GPU %u", gpu);
    if (err == WEFT_ERR_OK && gpu >= machine.n_gpu)
        err = weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.item = c.where}, "is not here");
    if (err == WEFT_ERR_OK) {
        c.gpu = &machine.gpu[gpu];
        err = change(&c, want, n);
    }
    weft_nvml__close(&c.nvml);
    weft_arena_destroy(arena);
    return err;
}

weft_err weft_machine_set_mig(uint32_t gpu, const weft_machine_mig_want *want, uint32_t n,
                              weft_diag *diag)
{
    return change_gpu(gpu, want, n, true, diag);
}

weft_err weft_machine_add_mig(uint32_t gpu, const weft_machine_mig_want *want, uint32_t n,
                              weft_diag *diag)
{
    return change_gpu(gpu, want, n, false, diag);
}
