/* Slices: a whole device, a MIG instance, an MPS share, cores of a CPU; README.md, Slices. */
#include "estimator/device/device.h"

#include "base/slice_name.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CORES_MAX = 4096 };

/* Bandwidth that two cores reach, over that of one core; README.md, Slices. */
static const double cpu_pair_bandwidth = 66.0 / 56.0;

/* -- By name ---------------------------------------------------------------------------------- */

static weft_err make_cpu(const char *name, weft_diag *diag, weft_slice *s)
{
    uint32_t cores = 1;
    if (name[0] && !weft_slicename_cores(name, CORES_MAX, &cores))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = "cpu"},
                               "slice '%s' is unknown; a CPU slice is named by its cores, "
                               "1core to 4096core",
                               name);
    snprintf(s->name, sizeof s->name, "%ucore", cores);
    s->units = s->all_units = cores;
    s->share = 1;
    s->bandwidth_gbps = s->gpu->bandwidth_gbps;
    if (cores >= 2)
        s->bandwidth_gbps *= cpu_pair_bandwidth * cores / 2;
    if (s->gpu->all_gbps > 0)
        s->bandwidth_gbps = fmin(s->bandwidth_gbps, s->gpu->all_gbps);
    s->cache_gbps = s->gpu->cache_gbps * cores;
    s->cache_bytes = s->gpu->cache_bytes;
    return WEFT_ERR_OK;
}

static void make_whole(const weft_device_type *type, weft_slice *s)
{
    s->units = s->all_units = type->sms;
    s->share = 1;
    s->bandwidth_gbps = s->gpu->bandwidth_gbps;
    s->cache_gbps = s->gpu->cache_gbps;
    s->cache_bytes = s->gpu->cache_bytes;
    s->mem_bytes = type->mem_bytes;
}

static void make_mig(const weft_device_type *type, const weft_mig_profile *mig, weft_slice *s)
{
    double part = (double)mig->slots / type->mig_slots;
    s->units = mig->sms;
    s->bandwidth_gbps *= part;
    s->cache_gbps *= part;
    s->cache_bytes = (uint64_t)((double)s->cache_bytes * part);
    s->mem_bytes = mig->mem_bytes;
}

/* Limits the SMs; cache and memory are shared with the other clients. */
static void make_mps(double percent, weft_slice *s)
{
    double units = fmax(1, floor(percent * s->units + 1e-9)),
           drawn = weft_slice__draw_part(units / s->units);
    s->bandwidth_units = s->units;
    s->units = (uint32_t)units;
    s->bandwidth_gbps *= drawn;
    s->cache_gbps *= drawn;
}

/* A MIG profile, an MPS share, or a share of a MIG instance: "1g.18gb", "40%", "3g.71gb/40%". */
static weft_err make_part(const weft_device_type *type, const char *name, weft_diag *diag,
                          weft_slice *s)
{
    weft_slice_name parts;
    make_whole(type, s);
    if (!weft_slicename_parse(name, &parts))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                               "slice '%s': a share is more than 0%% and at most 100%%", name);
    if (parts.profile[0] || parts.share == 0) {
        const weft_mig_profile *mig = weft_device_type_mig(type, parts.profile);
        if (!mig)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                                   "slice '%s' is neither a MIG profile of this device, nor a "
                                   "share such as 40%%, nor both, as in PROFILE/40%%",
                                   name);
        if (mig->sms == 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                                   "slice '%s': the number of its SMs is not known", name);
        make_mig(type, mig, s);
    }
    if (parts.share > 0 && type->is_foreign)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                               "slice '%s': this device has no MPS", name);
    if (parts.share > 0)
        make_mps(parts.share, s);
    snprintf(s->name, sizeof s->name, "%s", name);
    s->share = (double)s->units / s->all_units;
    return WEFT_ERR_OK;
}

weft_err weft_slice_make(const char *gpu, const char *slice, weft_diag *diag, weft_slice *out)
{
    weft_slice s = {.gpu = weft_gpu_find(gpu)};
    const weft_device_type *type = weft_device_type_find(gpu);
    if (!s.gpu || !type)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "unknown device '%s'; `weft list gpus` shows the known ones", gpu);
    if (strlen(slice) >= sizeof s.name)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = gpu},
                               "slice name is too long");
    if (s.gpu->is_cpu) {
        WEFT_TRY(make_cpu(slice, diag, &s));
    } else if (slice[0]) {
        WEFT_TRY(make_part(type, slice, diag, &s));
    } else {
        make_whole(type, &s);
    }
    *out = s;
    return WEFT_ERR_OK;
}

void weft_slice_crowd(weft_slice *slice)
{
    if (slice->bandwidth_units <= slice->units)
        return;
    double part = (double)slice->units / slice->bandwidth_units,
           drawn = weft_slice__draw_part(part);
    slice->bandwidth_gbps *= part / drawn;
    slice->cache_gbps *= part / drawn;
    slice->cache_bytes = (uint64_t)((double)slice->cache_bytes * part);
    slice->bandwidth_units = 0;
    slice->crowded = true;
}

/* -- Parts and wholes ------------------------------------------------------------------------- */

double weft_slice_parts(const weft_slice *slice)
{
    return slice->gpu->is_cpu ? slice->units : slice->share;
}

weft_slice weft_slice__whole(const weft_slice *slice)
{
    weft_slice whole = *slice;
    whole.name[0] = 0;
    whole.units = slice->all_units;
    whole.share = 1;
    whole.bandwidth_gbps = slice->gpu->bandwidth_gbps;
    whole.cache_gbps = slice->gpu->cache_gbps;
    whole.cache_bytes = slice->gpu->cache_bytes;
    return whole;
}
