/* The device table, and slices of its rows. */
#include "estimator/estimator_int.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const weft_gpu gpu_table[] = {
#define GPU(name_, ...) {.name = name_, __VA_ARGS__},
#include "estimator/device/gpus.def"
#undef GPU
};

enum { GPU_COUNT = sizeof gpu_table / sizeof gpu_table[0], CORES_MAX = 4096 };

/* README.md: a slice of two or more cores; bandwidth of the second core against the first. */
static const double cpu_pair_bandwidth = 66.0 / 56.0;

const weft_gpu *weft_gpu_at(size_t i)
{
    return i < GPU_COUNT ? &gpu_table[i] : NULL;
}

const weft_gpu *weft_gpu_find(const char *name)
{
    for (size_t i = 0; i < GPU_COUNT; i++)
        if (strcmp(gpu_table[i].name, name) == 0)
            return &gpu_table[i];
    return NULL;
}

bool weft_gpu__is_cpu(const weft_gpu *gpu)
{
    return gpu->capability == 0;
}

/* -- Slices ----------------------------------------------------------------------------------- */

static weft_err make_cpu(const char *name, weft_diag *diag, weft_slice *s)
{
    char text[WEFT_SLICE_NAME_MAX];
    int64_t cores = 1;
    size_t len = strlen(name);
    if (len > 0) {
        bool ok = len >= 5 && len < sizeof text && strcmp(name + len - 4, "core") == 0;
        if (ok) {
            memcpy(text, name, len - 4);
            text[len - 4] = 0;
            ok = weft_parse_i64(text, &cores) && cores >= 1 && cores <= CORES_MAX;
        }
        if (!ok)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = "cpu"},
                                   "slice '%s' is unknown; a CPU slice is named by its cores, "
                                   "1core to 4096core",
                                   name);
    }
    snprintf(s->name, sizeof s->name, "%ucore", (unsigned)cores);
    s->units = s->all_units = (uint32_t)cores;
    s->share = 1;
    s->bandwidth_gbps = s->gpu->bandwidth_gbps;
    if (cores >= 2)
        s->bandwidth_gbps *= cpu_pair_bandwidth * (double)cores / 2;
    s->cache_gbps = s->gpu->cache_gbps * (double)cores;
    s->cache_bytes = s->gpu->cache_bytes;
    return WEFT_ERR_OK;
}

/* Part of the bandwidth that a part of the units draws, of what all of them reach; README.md,
 * Slices. */
static double draw_part(double units_part)
{
    static const double half = 0.2;
    return units_part < 1 ? (1 + half) * units_part / (units_part + half) : 1;
}

static const weft_mig_profile *find_mig(const weft_device_type *type, const char *name, size_t len)
{
    for (size_t i = 0; i < type->n_mig; i++)
        if (strlen(type->mig[i].name) == len && memcmp(type->mig[i].name, name, len) == 0)
            return &type->mig[i];
    return NULL;
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

/* A cap on the SMs; cache and memory stay common. */
static void make_mps(double percent, weft_slice *s)
{
    double units = fmax(1, floor(percent * s->units + 1e-9)), drawn = draw_part(units / s->units);
    s->bandwidth_units = s->units;
    s->units = (uint32_t)units;
    s->bandwidth_gbps *= drawn;
    s->cache_gbps *= drawn;
}

/* "1g.18gb", "40%", "3g.71gb/40%". */
static weft_err make_part(const weft_device_type *type, const char *name, weft_diag *diag,
                          weft_slice *s)
{
    const char *slash = strchr(name, '/'), *share = slash ? slash + 1 : name;
    bool is_share = name[strlen(name) - 1] == '%';
    double percent = 0;
    make_whole(type, s);
    if (slash || !is_share) {
        const weft_mig_profile *mig =
            find_mig(type, name, slash ? (size_t)(slash - name) : strlen(name));
        if (!mig)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                                   "slice '%s' is neither a MIG profile of this device nor a "
                                   "share such as 40%% nor both, as in PROFILE/40%%",
                                   name);
        if (mig->sms == 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                                   "slice '%s': how many SMs it has is not known", name);
        make_mig(type, mig, s);
    }
    if (slash || is_share) {
        if (!weft_parse_percent(share, &percent) || !(percent > 0 && percent <= 1))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = type->name},
                                   "slice '%s': a share is more than 0%% and at most 100%%", name);
        make_mps(percent, s);
    }
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
    if (weft_gpu__is_cpu(s.gpu)) {
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
    double part = (double)slice->units / slice->bandwidth_units, drawn = draw_part(part);
    slice->bandwidth_gbps *= part / drawn;
    slice->cache_gbps *= part / drawn;
    slice->cache_bytes = (uint64_t)((double)slice->cache_bytes * part);
    slice->bandwidth_units = 0;
}

/* -- Rates ------------------------------------------------------------------------------------ */

static double gemm_gflops(const weft_gpu *gpu, weft_dtype dtype, bool exact_f32)
{
    switch (dtype) {
    case WEFT_DTYPE_F64:
        return gpu->f64_matrix_gflops > 0 ? gpu->f64_matrix_gflops : gpu->f64_gflops;
    case WEFT_DTYPE_F32:
        return gpu->tf32_gflops > 0 && !exact_f32 ? gpu->tf32_gflops : gpu->f32_gflops;
    /* Where there is no such unit: converted, then as f32. */
    case WEFT_DTYPE_F16:
        return gpu->f16_gflops > 0 ? gpu->f16_gflops : gpu->f32_gflops;
    case WEFT_DTYPE_BF16:
        return gpu->bf16_gflops > 0 ? gpu->bf16_gflops : gpu->f32_gflops;
    case WEFT_DTYPE_I8:
    case WEFT_DTYPE_U8:
        return gpu->i8_gflops > 0 ? gpu->i8_gflops : gpu->f32_gflops;
    default: /* other integers: no matrix unit has them */
        return gpu->f32_gflops;
    }
}

double weft_slice__parts(const weft_slice *slice)
{
    return weft_gpu__is_cpu(slice->gpu) ? slice->units : slice->share;
}

double weft_peak__flops_per_us(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32)
{
    const weft_gpu *gpu = slice->gpu;
    double gflops = kernel->dtype == WEFT_DTYPE_F64 ? gpu->f64_gflops : gpu->f32_gflops;
    if (weft_kernel_uses_matrix_units(kernel->kind))
        gflops = gemm_gflops(gpu, kernel->dtype, exact_f32);
    return gflops * weft_slice__parts(slice) * 1e3;
}

bool weft_peak__is_plain(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32)
{
    return weft_peak__flops_per_us(slice, kernel, exact_f32) <=
           slice->gpu->f32_gflops * weft_slice__parts(slice) * 1e3 * (1 + 1e-9);
}

/* Activations of the kernel before are still in the cache when they take half of it or less. */
static bool is_cached(const weft_slice *slice, const weft_kernel *kernel)
{
    return kernel->work.bytes_read + kernel->work.bytes_written <= (double)slice->cache_bytes / 2;
}

double weft_traffic__memory_bytes(const weft_slice *slice, const weft_kernel *kernel)
{
    double missed =
        weft_gpu__is_cpu(slice->gpu)
            ? weft_model__cpu_missed(&weft_model__cpu_fitted, slice, kernel->reuse_bytes)
            : 1;
    return kernel->work.weight_bytes * missed +
           (is_cached(slice, kernel) ? 0 : kernel->work.bytes_read + kernel->work.bytes_written);
}

double weft_traffic__us(const weft_slice *slice, const weft_kernel *kernel, double units)
{
    /* Fits in README.md. The CPU's rates are measured, not taken from a data sheet. Called for
     * every tile of every kernel: no library calls. */
    static const double gpu_memory_eff = 0.75, cpu_memory_eff = 0.95;
    double drawn = weft_gpu__is_cpu(slice->gpu) ? cpu_memory_eff : gpu_memory_eff;
    double all = slice->units;
    if (slice->bandwidth_units > slice->units) {
        all = slice->bandwidth_units;
        drawn /= draw_part(slice->units / all);
    }
    if (units < all)
        drawn *= draw_part(units / all);
    double bytes = kernel->work.bytes_read + kernel->work.bytes_written;
    double bytes_per_us = slice->bandwidth_gbps * 1e3 * drawn;
    if (!is_cached(slice, kernel))
        return (kernel->work.weight_bytes + bytes) / bytes_per_us;
    double cache_gbps =
        slice->cache_gbps > slice->bandwidth_gbps ? slice->cache_gbps : slice->bandwidth_gbps;
    return kernel->work.weight_bytes / bytes_per_us + bytes / (cache_gbps * 1e3 * drawn);
}
