/* Power, memory and activity of a GPU or a MIG instance, through NVML.
 *
 * Activity comes from NVML's GPM counters (Hopper and later), as the difference of two samples; the
 * first sample is taken when the meter is opened. An older GPU, or one whose MIG mode is on, leaves
 * some fields unknown. */
#include "runtime/cuda/cuda_load.h"
#include "runtime/machine/machine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIG_MAX = 64, EVENTS_MAX = 64 };

struct weft_meter {
    weft_nvml nvml;
    weft_nvml_device gpu, mig; /* mig NULL: the whole GPU */
    unsigned int gi;
    char uuid[WEFT_MACHINE_NAME_MAX];
    weft_nvml_gpm_sample before, now; /* NULL: no counters */
    bool sampled;                     /* `before` has a sample */
    weft_nvml_events events;          /* NULL: the driver reports none, or a MIG instance */
    double xids, last_xid;            /* as in weft_meter_reading */
};

/* -- Finding the device ----------------------------------------------------------------------- */

/* `uuid`: "GPU-..." or "MIG-...", or the part after that prefix. */
static bool has_uuid(const weft_meter *m, weft_nvml_device device, const char *uuid)
{
    char text[WEFT_NVML_UUID_BYTES];
    return m->nvml.fn.nvmlDeviceGetUUID(device, text, sizeof text) == WEFT_NVML_SUCCESS &&
           (strcmp(text, uuid) == 0 ||
            (strchr(text, '-') && strcmp(strchr(text, '-') + 1, uuid) == 0));
}

static bool find_mig(weft_meter *m, weft_nvml_device gpu, const char *uuid)
{
    const weft_nvml_syms *fn = &m->nvml.fn;
    unsigned int n = 0;
    if (!fn->nvmlDeviceGetMaxMigDeviceCount || !fn->nvmlDeviceGetMigDeviceHandleByIndex ||
        !fn->nvmlDeviceGetGpuInstanceId ||
        fn->nvmlDeviceGetMaxMigDeviceCount(gpu, &n) != WEFT_NVML_SUCCESS)
        return false;
    for (unsigned int i = 0; i < n && i < MIG_MAX; i++) {
        weft_nvml_device mig = NULL;
        if (fn->nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &mig) == WEFT_NVML_SUCCESS &&
            has_uuid(m, mig, uuid) &&
            fn->nvmlDeviceGetGpuInstanceId(mig, &m->gi) == WEFT_NVML_SUCCESS) {
            m->mig = mig;
            return true;
        }
    }
    return false;
}

static weft_err find(weft_meter *m, const char *uuid, weft_diag *diag)
{
    const weft_nvml_syms *fn = &m->nvml.fn;
    unsigned int n = 0;
    fn->nvmlDeviceGetCount_v2(&n);
    for (unsigned int i = 0; i < n; i++)
        if (fn->nvmlDeviceGetHandleByIndex_v2(i, &m->gpu) == WEFT_NVML_SUCCESS &&
            (has_uuid(m, m->gpu, uuid) || find_mig(m, m->gpu, uuid)))
            return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0}, "no GPU has the UUID %s", uuid);
}

static bool sample(weft_meter *m, weft_nvml_gpm_sample to)
{
    const weft_nvml_syms *fn = &m->nvml.fn;
    return (m->mig ? fn->nvmlGpmMigSampleGet(m->gpu, m->gi, to)
                   : fn->nvmlGpmSampleGet(m->gpu, to)) == WEFT_NVML_SUCCESS;
}

static void open_counters(weft_meter *m)
{
    const weft_nvml_syms *fn = &m->nvml.fn;
    weft_nvml_gpm_support support = {.version = WEFT_NVML_GPM_VERSION};
    if (!fn->nvmlGpmQueryDeviceSupport || !fn->nvmlGpmSampleAlloc || !fn->nvmlGpmSampleFree ||
        !fn->nvmlGpmSampleGet || !fn->nvmlGpmMetricsGet || (m->mig && !fn->nvmlGpmMigSampleGet) ||
        fn->nvmlGpmQueryDeviceSupport(m->gpu, &support) != WEFT_NVML_SUCCESS || !support.supported)
        return;
    if (fn->nvmlGpmSampleAlloc(&m->before) != WEFT_NVML_SUCCESS)
        m->before = NULL;
    if (m->before && fn->nvmlGpmSampleAlloc(&m->now) != WEFT_NVML_SUCCESS)
        m->now = NULL;
}

/* Errors that the driver reports ("Xid"): those of a GPU include its MIG instances'. */
static void open_events(weft_meter *m)
{
    const weft_nvml_syms *fn = &m->nvml.fn;
    if (m->mig || !fn->nvmlEventSetCreate || !fn->nvmlEventSetFree ||
        !fn->nvmlDeviceRegisterEvents || !fn->nvmlEventSetWait_v2 ||
        fn->nvmlEventSetCreate(&m->events) != WEFT_NVML_SUCCESS)
        m->events = NULL;
    else if (fn->nvmlDeviceRegisterEvents(m->gpu, WEFT_NVML_EVENT_XID, m->events) !=
             WEFT_NVML_SUCCESS) {
        fn->nvmlEventSetFree(m->events);
        m->events = NULL;
    }
}

/* The UUID of CUDA's device `ordinal`, without the prefix "GPU-" or "MIG-". CUDA's numbers differ
 * from NVML's: they depend on CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, and by default the
 * fastest GPU is the first. */
static weft_err ask_cuda(uint32_t ordinal, weft_diag *diag, char out[WEFT_MACHINE_NAME_MAX])
{
    const weft_libcuda *lib;
    weft_cu_device device;
    weft_cu_uuid uuid;
    WEFT_TRY(weft_libcuda__get(diag, &lib));
    if (lib->api.cuInit(0) != WEFT_CUDA_SUCCESS ||
        lib->api.cuDeviceGet(&device, (int)ordinal) != WEFT_CUDA_SUCCESS ||
        lib->api.cuDeviceGetUuid(&uuid, device) != WEFT_CUDA_SUCCESS)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0}, "CUDA has no GPU %u",
                               ordinal);
    size_t at = 0;
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(out + at, WEFT_MACHINE_NAME_MAX - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                               (unsigned char)uuid.bytes[i]);
    return WEFT_ERR_OK;
}

weft_err weft_meter_open(const char *uuid, uint32_t ordinal, weft_diag *diag, weft_meter **out)
{
    char of_cuda[WEFT_MACHINE_NAME_MAX];
    weft_meter *m = calloc(1, sizeof *m);
    if (!m)
        return WEFT_ERR_NOMEM;
    weft_err err = uuid ? WEFT_ERR_OK : ask_cuda(ordinal, diag, of_cuda);
    if (err == WEFT_ERR_OK)
        err = weft_nvml__open(diag, &m->nvml);
    if (err == WEFT_ERR_OK)
        err = find(m, uuid ? uuid : of_cuda, diag);
    if (err != WEFT_ERR_OK) {
        weft_meter_close(m);
        return err;
    }
    if (m->nvml.fn.nvmlDeviceGetUUID(m->mig ? m->mig : m->gpu, m->uuid, sizeof m->uuid) != 0)
        m->uuid[0] = '\0';
    open_counters(m);
    open_events(m);
    m->sampled = m->now && sample(m, m->before);
    *out = m;
    return WEFT_ERR_OK;
}

void weft_meter_close(weft_meter *meter)
{
    if (!meter)
        return;
    if (meter->before)
        meter->nvml.fn.nvmlGpmSampleFree(meter->before);
    if (meter->now)
        meter->nvml.fn.nvmlGpmSampleFree(meter->now);
    if (meter->events)
        meter->nvml.fn.nvmlEventSetFree(meter->events);
    weft_nvml__close(&meter->nvml);
    free(meter);
}

const char *weft_meter_uuid(const weft_meter *meter)
{
    return meter->uuid;
}

const weft_device_type *weft_meter_type(const weft_meter *meter)
{
    char name[WEFT_NVML_NAME_BYTES];
    weft_nvml_memory memory;
    if (meter->mig || meter->nvml.fn.nvmlDeviceGetName(meter->gpu, name, sizeof name) != 0 ||
        meter->nvml.fn.nvmlDeviceGetMemoryInfo(meter->gpu, &memory) != 0)
        return NULL;
    return weft_machine__find_type(name, memory.total, 0);
}

/* -- Reading ---------------------------------------------------------------------------------- */

static void read_counters(weft_meter *m, weft_meter_reading *out)
{
    static const unsigned int ids[] = {WEFT_NVML_GPM_SM_UTIL, WEFT_NVML_GPM_SM_OCCUPANCY,
                                       WEFT_NVML_GPM_ANY_TENSOR_UTIL, WEFT_NVML_GPM_DRAM_BW_UTIL};
    double *const value[] = {&out->sms, &out->warps, &out->tensor, &out->bandwidth};
    if (!m->now)
        return;
    if (!m->sampled) {
        m->sampled = sample(m, m->before);
        return;
    }
    weft_nvml_gpm_metrics metrics = {.version = WEFT_NVML_GPM_VERSION,
                                     .n = sizeof ids / sizeof ids[0],
                                     .sample1 = m->before,
                                     .sample2 = m->now};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        metrics.metric[i].id = ids[i];
    if (!sample(m, m->now) || m->nvml.fn.nvmlGpmMetricsGet(&metrics) != WEFT_NVML_SUCCESS)
        return;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (metrics.metric[i].result == WEFT_NVML_SUCCESS)
            *value[i] = metrics.metric[i].value * 1e-2;
    m->before = metrics.sample2;
    m->now = metrics.sample1;
}

static void read_clocks(const weft_meter *m, weft_meter_reading *out)
{
    const weft_nvml_syms *fn = &m->nvml.fn;
    unsigned int mhz = 0;
    if (!fn->nvmlDeviceGetClockInfo)
        return;
    if (fn->nvmlDeviceGetClockInfo(m->gpu, WEFT_NVML_CLOCK_SM, &mhz) == WEFT_NVML_SUCCESS)
        out->sm_hz = mhz * 1e6;
    if (fn->nvmlDeviceGetClockInfo(m->gpu, WEFT_NVML_CLOCK_MEM, &mhz) == WEFT_NVML_SUCCESS)
        out->memory_hz = mhz * 1e6;
}

static void read_errors(weft_meter *m, weft_meter_reading *out)
{
    weft_machine_health health;
    weft_nvml__read_health(&m->nvml, m->gpu, &health);
    out->ecc_corrected = health.ecc_corrected;
    out->ecc_uncorrected = health.ecc_uncorrected;
    if (health.slow >= 0) {
        out->slow_setting = (health.slow & WEFT_MACHINE_SLOW_SETTING) != 0;
        out->slow_power = (health.slow & WEFT_MACHINE_SLOW_POWER) != 0;
        out->slow_heat = (health.slow & WEFT_MACHINE_SLOW_HEAT) != 0;
    }
    if (!m->events)
        return;
    weft_nvml_event event = {0};
    for (int i = 0; i < EVENTS_MAX &&
                    m->nvml.fn.nvmlEventSetWait_v2(m->events, &event, 0) == WEFT_NVML_SUCCESS;
         i++)
        if (event.type & WEFT_NVML_EVENT_XID) {
            m->xids++;
            m->last_xid = (double)event.data;
        }
    out->xids = m->xids;
    out->last_xid = m->last_xid;
}

const weft_meter_reading weft_meter_unknown = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                               -1, -1, -1, -1, -1, -1, -1, -1, -1};

void weft_meter_read(weft_meter *meter, weft_meter_reading *out)
{
    const weft_nvml_syms *fn = &meter->nvml.fn;
    weft_nvml_memory memory;
    weft_nvml_utilization busy;
    unsigned int mw = 0;
    unsigned long long mj = 0;
    *out = weft_meter_unknown;
    /* The handle is invalid after the MIG instance was destroyed: look it up each time. */
    if (meter->mig && !find_mig(meter, meter->gpu, meter->uuid))
        return;
    if (fn->nvmlDeviceGetMemoryInfo(meter->mig ? meter->mig : meter->gpu, &memory) == 0) {
        out->mem_bytes = (double)memory.total;
        out->mem_used_bytes = (double)memory.used;
    }
    read_counters(meter, out);
    if (meter->mig)
        return; /* the other figures exist only for whole GPUs */
    if (fn->nvmlDeviceGetPowerUsage && fn->nvmlDeviceGetPowerUsage(meter->gpu, &mw) == 0)
        out->power_w = mw * 1e-3;
    if (fn->nvmlDeviceGetEnforcedPowerLimit &&
        fn->nvmlDeviceGetEnforcedPowerLimit(meter->gpu, &mw) == 0)
        out->power_limit_w = mw * 1e-3;
    if (fn->nvmlDeviceGetTotalEnergyConsumption &&
        fn->nvmlDeviceGetTotalEnergyConsumption(meter->gpu, &mj) == 0)
        out->energy_j = (double)mj * 1e-3;
    if (fn->nvmlDeviceGetUtilizationRates &&
        fn->nvmlDeviceGetUtilizationRates(meter->gpu, &busy) == 0)
        out->busy = busy.gpu * 1e-2;
    read_clocks(meter, out);
    read_errors(meter, out);
}
