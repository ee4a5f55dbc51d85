/* Test double of libnvidia-ml.so.1: GPUs, MIG instances, power and counters of a machine described
 * by a text file, WEFT_DOUBLE_NVML. Lines, in order:
 *
 *   driver 580.65.06 13000          version of the driver, of CUDA
 *   gpu KIND [off|on|pending]       h200, a100-40 or t4; MIG mode (off)
 *   mig GPU PROFILE START           a GPU instance and a compute instance over all of it
 *   gi GPU PROFILE START            a GPU instance only
 *   ci GI, unci GI                  its compute instance is created, destroyed
 *   unmig GPU GI                    both are destroyed
 *   power GPU MILLIWATT
 *   lost GPU                        every call on it returns GPU_IS_LOST
 *   slow GPU REASONS                bits of nvmlDeviceGetCurrentClocksThrottleReasons
 *   limit GPU MILLIWATT             power limit in force; the default is 700 W
 *   ecc GPU CORRECTED UNCORRECTED   errors of memory
 *   rows GPU PENDING FAILED         rows of memory that are replaced at the next reset, that cannot
 * be mode GPU MODE                   compute mode xid GPU NUMBER                  an error, given
 * once to each event set that waits for it
 *
 * Changes are appended as such lines, so that other processes see them. Without a file no driver is
 * loaded. WEFT_DOUBLE_NVML_USER=1: calls that need privileges are refused. Ids of instances are
 * never reused; using the handle of a destroyed instance is a mistake. */
#include "runtime/machine/nvml_api.h"
#include "tests/doubles/double.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    GPUS_MAX = 8,
    PROFILES = 10,
    INSTANCES_MAX = 256,
    SAMPLES_MAX = 64,
    EVENTS_MAX = 16,
    XIDS_MAX = 16,
    MIG_SHOWN = 7
};

const char *const weft_double_library = "libnvidia-ml";

/* -- Kinds of GPUs --------------------------------------------------------------------------- */

typedef struct profile {
    unsigned id, gpcs, slots, starts, sms, count;
    unsigned long long mem_mb;
    const char *name;
} profile;

typedef struct kind {
    const char *name, *told;
    int cc_major, cc_minor;
    unsigned cores, sms, gpm;
    unsigned long long mem_mb;
    profile profile[PROFILES]; /* by NVML's profile number; no name: not on this GPU */
} kind;

/* H200: `nvidia-smi mig -lgip` as quoted in mig-parted issue 120; A100: NVIDIA's MIG user guide. */
static const kind kinds[] = {
    {"h200",
     "NVIDIA H200",
     9,
     0,
     16896,
     132,
     1,
     143771,
     {[0] = {19, 1, 1, 0x7f, 16, 7, 16384, "1g.18gb"},
      [1] = {14, 2, 2, 0x15, 32, 3, 33280, "2g.35gb"},
      [2] = {9, 3, 4, 0x11, 60, 2, 71168, "3g.71gb"},
      [3] = {5, 4, 4, 0x01, 64, 1, 71168, "4g.71gb"},
      [4] = {0, 7, 8, 0x01, 132, 1, 143360, "7g.141gb"},
      [7] = {20, 1, 1, 0x7f, 16, 1, 16384, "1g.18gb+me"},
      [9] = {15, 1, 2, 0x55, 26, 4, 33280, "1g.35gb"}}},
    {"a100-40",
     "NVIDIA A100-SXM4-40GB",
     8,
     0,
     6912,
     108,
     0,
     40960,
     {[0] = {19, 1, 1, 0x7f, 14, 7, 4864, "1g.5gb"},
      [1] = {14, 2, 2, 0x15, 28, 3, 9856, "2g.10gb"},
      [2] = {9, 3, 4, 0x11, 42, 2, 19968, "3g.20gb"},
      [3] = {5, 4, 4, 0x01, 56, 1, 19968, "4g.20gb"},
      [4] = {0, 7, 8, 0x01, 98, 1, 40192, "7g.40gb"},
      [9] = {15, 1, 2, 0x55, 14, 4, 9728, "1g.10gb"}}},
    {"t4", "Tesla T4", 7, 5, 2560, 40, 0, 15360, {{0}}},
};

/* -- State ----------------------------------------------------------------------------------- */

/* Handles of GPUs and of MIG devices are addresses of these. */
typedef struct instance {
    const profile *profile;
    unsigned gpu, id, start;
    bool gone, has_ci, handed_out;
} instance;

typedef struct gpu {
    const kind *kind;
    unsigned mig, pending, milliwatt, limit;
    unsigned slow, corrected, uncorrected, rows_pending, rows_failed, mode;
    unsigned xid[XIDS_MAX], n_xid;
    bool lost;
} gpu;

typedef struct events {
    weft_nvml_device device;
    unsigned seen; /* errors that were given */
    bool used;
} events;

static struct {
    unsigned inits, n_gpu, n_instance, n_sample;
    gpu gpu[GPUS_MAX];
    instance instance[INSTANCES_MAX];
    bool sample[SAMPLES_MAX];
    unsigned long long sample_us[SAMPLES_MAX];
    events events[EVENTS_MAX];
    char driver[80];
    int cuda;
} D;

void weft_double_library_reset(void)
{
    memset(&D, 0, sizeof D);
}

static const profile *find_profile(const gpu *g, unsigned id)
{
    for (unsigned i = 0; g->kind && i < PROFILES; i++)
        if (g->kind->profile[i].name && g->kind->profile[i].id == id)
            return &g->kind->profile[i];
    return NULL;
}

static void take_gpu(const char *name, const char *mode)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && D.n_gpu < GPUS_MAX; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            bool on = strcmp(mode, "on") == 0;
            D.gpu[D.n_gpu++] = (gpu){.kind = &kinds[i],
                                     .mig = on,
                                     .pending = on || strcmp(mode, "pending") == 0,
                                     .milliwatt = 100000,
                                     .limit = 700000};
        }
}

static void take_mig(unsigned g, unsigned id, unsigned start, bool has_ci)
{
    if (g >= D.n_gpu || D.n_instance == INSTANCES_MAX || !find_profile(&D.gpu[g], id))
        return;
    D.instance[D.n_instance] = (instance){.profile = find_profile(&D.gpu[g], id),
                                          .gpu = g,
                                          .id = D.n_instance + 1,
                                          .start = start,
                                          .has_ci = has_ci};
    D.n_instance++;
}

static void take_health(const char *line)
{
    char word[16] = "";
    unsigned i = 0, x = 0, y = 0;
    int n = sscanf(line, "%15s %u %u %u", word, &i, &x, &y);
    if (n < 3 || i >= D.n_gpu)
        return;
    gpu *g = &D.gpu[i];
    if (strcmp(word, "slow") == 0) {
        g->slow = x;
    } else if (strcmp(word, "limit") == 0) {
        g->limit = x;
    } else if (strcmp(word, "mode") == 0) {
        g->mode = x;
    } else if (strcmp(word, "xid") == 0 && g->n_xid < XIDS_MAX) {
        g->xid[g->n_xid++] = x;
    } else if (strcmp(word, "ecc") == 0 && n == 4) {
        g->corrected = x;
        g->uncorrected = y;
    } else if (strcmp(word, "rows") == 0 && n == 4) {
        g->rows_pending = x;
        g->rows_failed = y;
    }
}

static void take_line(const char *line)
{
    char a[64] = "", b[64] = "";
    unsigned x = 0, y = 0, z = 0;
    if (sscanf(line, "driver %63s %d", a, &D.cuda) == 2)
        snprintf(D.driver, sizeof D.driver, "%s", a);
    else if (sscanf(line, "gpu %63s %63s", a, b) >= 1)
        take_gpu(a, b);
    else if (sscanf(line, "mig %u %u %u", &x, &y, &z) == 3)
        take_mig(x, y, z, true);
    else if (sscanf(line, "gi %u %u %u", &x, &y, &z) == 3)
        take_mig(x, y, z, false);
    else if (sscanf(line, "ci %u", &x) == 1 && x >= 1 && x <= D.n_instance)
        D.instance[x - 1].has_ci = true;
    else if (sscanf(line, "unci %u", &x) == 1 && x >= 1 && x <= D.n_instance)
        D.instance[x - 1].has_ci = false;
    else if (sscanf(line, "unmig %u %u", &x, &y) == 2 && y >= 1 && y <= D.n_instance)
        D.instance[y - 1].gone = true;
    else if (sscanf(line, "power %u %u", &x, &y) == 2 && x < D.n_gpu)
        D.gpu[x].milliwatt = y;
    else if (sscanf(line, "lost %u", &x) == 1 && x < D.n_gpu)
        D.gpu[x].lost = true;
    else
        take_health(line);
}

/* Reads the current file. Instances keep their index, so handles stay valid. */
static bool read_state(void)
{
    const char *path = weft_double_text("NVML");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f)
        return false;
    bool handed[INSTANCES_MAX];
    for (unsigned i = 0; i < INSTANCES_MAX; i++)
        handed[i] = D.instance[i].handed_out;
    D.n_gpu = D.n_instance = 0;
    char line[256];
    while (fgets(line, sizeof line, f))
        take_line(line);
    fclose(f);
    for (unsigned i = 0; i < INSTANCES_MAX; i++)
        D.instance[i].handed_out = handed[i];
    return true;
}

static void append(const char *format, unsigned a, unsigned b, unsigned c)
{
    FILE *f = fopen(weft_double_text("NVML"), "a");
    if (!f)
        return;
    fprintf(f, format, a, b, c);
    fclose(f);
    weft_double_log(format, a, b, c);
    read_state();
}

/* -- Start of every call -------------------------------------------------------------------- */

static weft_nvml_result enter(const char *call)
{
    unsigned fail = weft_double_fail(call);
    if (fail)
        return (weft_nvml_result)fail;
    if (!D.inits) {
        weft_double_mistake("%s before nvmlInit", call);
        return WEFT_NVML_UNINITIALIZED;
    }
    return read_state() ? WEFT_NVML_SUCCESS : WEFT_NVML_UNKNOWN;
}

static gpu *as_gpu(const void *handle)
{
    for (unsigned i = 0; i < D.n_gpu; i++)
        if (handle == &D.gpu[i])
            return &D.gpu[i];
    return NULL;
}

static instance *as_instance(const char *call, const void *handle)
{
    for (unsigned i = 0; i < D.n_instance; i++)
        if (handle == &D.instance[i]) {
            if (!D.instance[i].gone)
                return &D.instance[i];
            weft_double_mistake("%s: the handle of a destroyed MIG instance", call);
            return NULL;
        }
    return NULL;
}

static weft_nvml_result enter_gpu(const char *call, weft_nvml_device device, gpu **out)
{
    weft_nvml_result result = enter(call);
    if (result != WEFT_NVML_SUCCESS)
        return result;
    *out = as_gpu(device);
    if (!*out)
        return WEFT_NVML_INVALID_ARGUMENT;
    return (*out)->lost ? WEFT_NVML_GPU_IS_LOST : WEFT_NVML_SUCCESS;
}

#define ENTER(call)                        \
    weft_nvml_result result = enter(call); \
    if (result != WEFT_NVML_SUCCESS)       \
    return result
#define ENTER_GPU(call)                                    \
    gpu *g = NULL;                                         \
    weft_nvml_result result = enter_gpu(call, device, &g); \
    if (result != WEFT_NVML_SUCCESS)                       \
    return result

static bool privileged(void)
{
    return !weft_double_number("NVML_USER", 0);
}

static unsigned long long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000 + (unsigned long long)t.tv_nsec / 1000;
}

#define NVML_SYM(name, need, args) WEFT_EXPORT weft_nvml_result name args;
#include "runtime/machine/nvml_syms.def"
#undef NVML_SYM

/* -- Library ---------------------------------------------------------------------------------- */

weft_nvml_result nvmlInit_v2(void)
{
    unsigned fail = weft_double_fail("nvmlInit_v2");
    if (fail)
        return (weft_nvml_result)fail;
    if (!read_state())
        return WEFT_NVML_DRIVER_NOT_LOADED;
    D.inits++;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlShutdown(void)
{
    if (!D.inits) {
        weft_double_mistake("nvmlShutdown before nvmlInit");
        return WEFT_NVML_UNINITIALIZED;
    }
    for (unsigned i = 0; i < SAMPLES_MAX && D.inits == 1; i++)
        if (D.sample[i])
            weft_double_mistake("nvmlShutdown with a GPM sample that was not freed");
    for (unsigned i = 0; i < EVENTS_MAX && D.inits == 1; i++)
        if (D.events[i].used)
            weft_double_mistake("nvmlShutdown with an event set that was not freed");
    D.inits--;
    return WEFT_NVML_SUCCESS;
}

static weft_nvml_result give_text(const char *text, char *out, unsigned length)
{
    if (strlen(text) + 1 > length)
        return WEFT_NVML_INSUFFICIENT_SIZE;
    snprintf(out, length, "%s", text);
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER("nvmlSystemGetDriverVersion");
    return give_text(D.driver, version, length);
}

weft_nvml_result nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER("nvmlSystemGetCudaDriverVersion_v2");
    *version = D.cuda;
    return WEFT_NVML_SUCCESS;
}

/* -- GPUs -------------------------------------------------------------------------------------- */

weft_nvml_result nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER("nvmlDeviceGetCount_v2");
    *count = D.n_gpu;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned int index, weft_nvml_device *device)
{
    ENTER("nvmlDeviceGetHandleByIndex_v2");
    if (index >= D.n_gpu)
        return WEFT_NVML_INVALID_ARGUMENT;
    *device = (weft_nvml_device)(void *)&D.gpu[index];
    return D.gpu[index].lost ? WEFT_NVML_GPU_IS_LOST : WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetName(weft_nvml_device device, char *name, unsigned int length)
{
    ENTER("nvmlDeviceGetName");
    const gpu *g = as_gpu(device);
    const instance *m = g ? NULL : as_instance("nvmlDeviceGetName", device);
    char text[96];
    if (m)
        snprintf(text, sizeof text, "%s MIG %s", D.gpu[m->gpu].kind->told, m->profile->name);
    else if (g)
        snprintf(text, sizeof text, "%s", g->kind->told);
    else
        return WEFT_NVML_INVALID_ARGUMENT;
    return give_text(text, name, length);
}

weft_nvml_result nvmlDeviceGetUUID(weft_nvml_device device, char *uuid, unsigned int length)
{
    ENTER("nvmlDeviceGetUUID");
    const gpu *g = as_gpu(device);
    const instance *m = g ? NULL : as_instance("nvmlDeviceGetUUID", device);
    char text[96];
    if (g)
        snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012u", (unsigned)(g - D.gpu));
    else if (m)
        snprintf(text, sizeof text, "MIG-00000000-0000-0000-%04u-%012u", m->gpu, m->id);
    else
        return WEFT_NVML_INVALID_ARGUMENT;
    return give_text(text, uuid, length);
}

weft_nvml_result nvmlDeviceGetMemoryInfo(weft_nvml_device device, weft_nvml_memory *memory)
{
    ENTER("nvmlDeviceGetMemoryInfo");
    const gpu *g = as_gpu(device);
    const instance *m = g ? NULL : as_instance("nvmlDeviceGetMemoryInfo", device);
    if (!g && !m)
        return WEFT_NVML_INVALID_ARGUMENT;
    if (g && g->lost)
        return WEFT_NVML_GPU_IS_LOST;
    unsigned long long mb = g ? g->kind->mem_mb : m->profile->mem_mb;
    memory->total = mb << 20;
    memory->used = 500ull << 20;
    memory->free = memory->total - memory->used;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetCudaComputeCapability(weft_nvml_device device, int *major, int *minor)
{
    ENTER_GPU("nvmlDeviceGetCudaComputeCapability");
    *major = g->kind->cc_major;
    *minor = g->kind->cc_minor;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetNumGpuCores(weft_nvml_device device, unsigned int *cores)
{
    ENTER_GPU("nvmlDeviceGetNumGpuCores");
    *cores = g->kind->cores;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetComputeMode(weft_nvml_device device, unsigned int *mode)
{
    ENTER_GPU("nvmlDeviceGetComputeMode");
    *mode = g->mode;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetUtilizationRates(weft_nvml_device device,
                                               weft_nvml_utilization *utilization)
{
    ENTER_GPU("nvmlDeviceGetUtilizationRates");
    if (g->mig)
        return WEFT_NVML_NOT_SUPPORTED;
    *utilization = (weft_nvml_utilization){.gpu = 42, .memory = 7};
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetPowerUsage(weft_nvml_device device, unsigned int *milliwatt)
{
    ENTER_GPU("nvmlDeviceGetPowerUsage");
    *milliwatt = g->milliwatt;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetEnforcedPowerLimit(weft_nvml_device device, unsigned int *milliwatt)
{
    ENTER_GPU("nvmlDeviceGetEnforcedPowerLimit");
    *milliwatt = g->limit;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetPowerManagementDefaultLimit(weft_nvml_device device,
                                                          unsigned int *milliwatt)
{
    ENTER_GPU("nvmlDeviceGetPowerManagementDefaultLimit");
    *milliwatt = 700000;
    return WEFT_NVML_SUCCESS;
}

/* Assumes constant power since the start of the machine. */
weft_nvml_result nvmlDeviceGetTotalEnergyConsumption(weft_nvml_device device,
                                                     unsigned long long *millijoule)
{
    ENTER_GPU("nvmlDeviceGetTotalEnergyConsumption");
    if (g->kind->cc_major < 7)
        return WEFT_NVML_NOT_SUPPORTED;
    *millijoule = now_us() / 1000 * (g->milliwatt / 1000);
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetClockInfo(weft_nvml_device device, unsigned int type,
                                        unsigned int *mhz)
{
    ENTER_GPU("nvmlDeviceGetClockInfo");
    *mhz = type == WEFT_NVML_CLOCK_SM ? 1500 : 3201;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetMaxClockInfo(weft_nvml_device device, unsigned int type,
                                           unsigned int *mhz)
{
    ENTER_GPU("nvmlDeviceGetMaxClockInfo");
    *mhz = type == WEFT_NVML_CLOCK_SM ? 1980 : 3201;
    return WEFT_NVML_SUCCESS;
}

/* -- Health ------------------------------------------------------------------------------------ */

weft_nvml_result nvmlDeviceGetPersistenceMode(weft_nvml_device device, unsigned int *mode)
{
    ENTER_GPU("nvmlDeviceGetPersistenceMode");
    *mode = g->kind->cc_major >= 8;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetCurrentClocksThrottleReasons(weft_nvml_device device,
                                                           unsigned long long *reasons)
{
    ENTER_GPU("nvmlDeviceGetCurrentClocksThrottleReasons");
    *reasons = g->slow;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetTotalEccErrors(weft_nvml_device device, unsigned int which,
                                             unsigned int period, unsigned long long *count)
{
    ENTER_GPU("nvmlDeviceGetTotalEccErrors");
    if (which > WEFT_NVML_ECC_UNCORRECTED || period != WEFT_NVML_ECC_VOLATILE)
        return WEFT_NVML_INVALID_ARGUMENT;
    *count = which == WEFT_NVML_ECC_CORRECTED ? g->corrected : g->uncorrected;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetRemappedRows(weft_nvml_device device, unsigned int *corrected,
                                           unsigned int *uncorrected, unsigned int *pending,
                                           unsigned int *failed)
{
    ENTER_GPU("nvmlDeviceGetRemappedRows");
    if (g->kind->cc_major < 8)
        return WEFT_NVML_NOT_SUPPORTED;
    *corrected = *uncorrected = 0;
    *pending = g->rows_pending;
    *failed = g->rows_failed;
    return WEFT_NVML_SUCCESS;
}

/* -- Events ------------------------------------------------------------------------------------ */

static events *as_events(const char *call, const void *handle)
{
    for (unsigned i = 0; i < EVENTS_MAX; i++)
        if (handle == &D.events[i] && D.events[i].used)
            return &D.events[i];
    weft_double_mistake("%s: not an event set", call);
    return NULL;
}

weft_nvml_result nvmlEventSetCreate(weft_nvml_events *out)
{
    ENTER("nvmlEventSetCreate");
    for (unsigned i = 0; i < EVENTS_MAX; i++)
        if (!D.events[i].used) {
            D.events[i] = (events){.used = true};
            *out = (weft_nvml_events)(void *)&D.events[i];
            return WEFT_NVML_SUCCESS;
        }
    return WEFT_NVML_INSUFFICIENT_RESOURCES;
}

weft_nvml_result nvmlEventSetFree(weft_nvml_events set)
{
    ENTER("nvmlEventSetFree");
    events *e = as_events("nvmlEventSetFree", set);
    if (!e)
        return WEFT_NVML_INVALID_ARGUMENT;
    e->used = false;
    return WEFT_NVML_SUCCESS;
}

/* Errors from before do not count. One GPU for each set. */
weft_nvml_result nvmlDeviceRegisterEvents(weft_nvml_device device, unsigned long long types,
                                          weft_nvml_events set)
{
    ENTER_GPU("nvmlDeviceRegisterEvents");
    events *e = as_events("nvmlDeviceRegisterEvents", set);
    if (!e || types != WEFT_NVML_EVENT_XID)
        return WEFT_NVML_INVALID_ARGUMENT;
    e->device = device;
    e->seen = g->n_xid;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlEventSetWait_v2(weft_nvml_events set, weft_nvml_event *event,
                                     unsigned int timeout_ms)
{
    ENTER("nvmlEventSetWait_v2");
    events *e = as_events("nvmlEventSetWait_v2", set);
    const gpu *g = e ? as_gpu(e->device) : NULL;
    if (!g || timeout_ms)
        return WEFT_NVML_INVALID_ARGUMENT;
    if (e->seen >= g->n_xid)
        return WEFT_NVML_TIMEOUT;
    *event = (weft_nvml_event){.device = e->device,
                               .type = WEFT_NVML_EVENT_XID,
                               .data = g->xid[e->seen++],
                               .gi = ~0u,
                               .ci = ~0u};
    return WEFT_NVML_SUCCESS;
}

/* -- MIG: state -------------------------------------------------------------------------------- */

weft_nvml_result nvmlDeviceGetMigMode(weft_nvml_device device, unsigned int *current,
                                      unsigned int *pending)
{
    ENTER_GPU("nvmlDeviceGetMigMode");
    if (!g->kind->profile[0].name)
        return WEFT_NVML_NOT_SUPPORTED;
    *current = g->mig;
    *pending = g->pending;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetMaxMigDeviceCount(weft_nvml_device device, unsigned int *count)
{
    ENTER_GPU("nvmlDeviceGetMaxMigDeviceCount");
    *count = g->mig ? MIG_SHOWN : 0;
    return WEFT_NVML_SUCCESS;
}

/* A MIG device is listed at the index of its first slot; other indices are empty. */
weft_nvml_result nvmlDeviceGetMigDeviceHandleByIndex(weft_nvml_device device, unsigned int index,
                                                     weft_nvml_device *mig)
{
    ENTER_GPU("nvmlDeviceGetMigDeviceHandleByIndex");
    if (!g->mig || index >= MIG_SHOWN)
        return WEFT_NVML_INVALID_ARGUMENT;
    for (unsigned i = 0; i < D.n_instance; i++) {
        instance *m = &D.instance[i];
        if (&D.gpu[m->gpu] == g && !m->gone && m->has_ci && m->start == index) {
            *mig = (weft_nvml_device)(void *)m;
            return WEFT_NVML_SUCCESS;
        }
    }
    return WEFT_NVML_NOT_FOUND;
}

weft_nvml_result nvmlDeviceGetGpuInstanceId(weft_nvml_device mig, unsigned int *id)
{
    ENTER("nvmlDeviceGetGpuInstanceId");
    const instance *m = as_instance("nvmlDeviceGetGpuInstanceId", mig);
    if (!m)
        return WEFT_NVML_INVALID_ARGUMENT;
    *id = m->id;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetComputeInstanceId(weft_nvml_device mig, unsigned int *id)
{
    ENTER("nvmlDeviceGetComputeInstanceId");
    *id = 0;
    return as_instance("nvmlDeviceGetComputeInstanceId", mig) ? WEFT_NVML_SUCCESS
                                                              : WEFT_NVML_INVALID_ARGUMENT;
}

weft_nvml_result nvmlDeviceGetAttributes_v2(weft_nvml_device mig, weft_nvml_attributes *attributes)
{
    ENTER("nvmlDeviceGetAttributes_v2");
    const instance *m = as_instance("nvmlDeviceGetAttributes_v2", mig);
    if (!m)
        return WEFT_NVML_INVALID_ARGUMENT;
    *attributes = (weft_nvml_attributes){.sms = m->profile->sms,
                                         .gi_slices = m->profile->gpcs,
                                         .ci_slices = m->profile->gpcs,
                                         .mem_mb = m->profile->mem_mb};
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetGpuInstanceById(weft_nvml_device device, unsigned int id,
                                              weft_nvml_gi *gi)
{
    ENTER_GPU("nvmlDeviceGetGpuInstanceById");
    if (!privileged())
        return WEFT_NVML_NO_PERMISSION;
    if (id < 1 || id > D.n_instance || D.instance[id - 1].gone)
        return WEFT_NVML_NOT_FOUND;
    *gi = (weft_nvml_gi)(void *)&D.instance[id - 1];
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlGpuInstanceGetInfo(weft_nvml_gi gi, weft_nvml_gi_info *info)
{
    ENTER("nvmlGpuInstanceGetInfo");
    const instance *m = as_instance("nvmlGpuInstanceGetInfo", gi);
    if (!m)
        return WEFT_NVML_INVALID_ARGUMENT;
    *info = (weft_nvml_gi_info){.device = (weft_nvml_device)(void *)&D.gpu[m->gpu],
                                .id = m->id,
                                .profile_id = m->profile->id,
                                .placement = {m->start, m->profile->slots}};
    return WEFT_NVML_SUCCESS;
}

/* -- MIG: possibilities ------------------------------------------------------------------------ */

weft_nvml_result nvmlDeviceGetGpuInstanceProfileInfoV(weft_nvml_device device, unsigned int number,
                                                      weft_nvml_gi_profile_v2 *info)
{
    ENTER_GPU("nvmlDeviceGetGpuInstanceProfileInfoV");
    if (info->version != WEFT_NVML_GI_PROFILE_V2) {
        weft_double_mistake("nvmlDeviceGetGpuInstanceProfileInfoV: version %#x", info->version);
        return WEFT_NVML_INVALID_ARGUMENT;
    }
    if (number >= PROFILES)
        return WEFT_NVML_INVALID_ARGUMENT;
    const profile *p = &g->kind->profile[number];
    if (!p->name)
        return WEFT_NVML_NOT_SUPPORTED;
    *info = (weft_nvml_gi_profile_v2){.version = info->version,
                                      .id = p->id,
                                      .slices = p->gpcs,
                                      .count = p->count,
                                      .sms = p->sms,
                                      .mem_mb = p->mem_mb};
    snprintf(info->name, sizeof info->name, "MIG %s", p->name);
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceGetGpuInstanceProfileInfo(weft_nvml_device device, unsigned int number,
                                                     weft_nvml_gi_profile *info)
{
    weft_nvml_gi_profile_v2 v2 = {.version = WEFT_NVML_GI_PROFILE_V2};
    weft_nvml_result result = nvmlDeviceGetGpuInstanceProfileInfoV(device, number, &v2);
    if (result == WEFT_NVML_SUCCESS)
        *info = (weft_nvml_gi_profile){.id = v2.id,
                                       .slices = v2.slices,
                                       .count = v2.count,
                                       .sms = v2.sms,
                                       .mem_mb = v2.mem_mb};
    return result;
}

weft_nvml_result nvmlDeviceGetGpuInstancePossiblePlacements_v2(weft_nvml_device device,
                                                               unsigned int profile_id,
                                                               weft_nvml_placement *placement,
                                                               unsigned int *count)
{
    ENTER_GPU("nvmlDeviceGetGpuInstancePossiblePlacements_v2");
    const profile *p = find_profile(g, profile_id);
    unsigned n = 0;
    if (!privileged())
        return WEFT_NVML_NO_PERMISSION;
    if (!p)
        return WEFT_NVML_NOT_SUPPORTED;
    for (unsigned i = 0; i < 8; i++)
        if (p->starts & 1u << i) {
            if (placement && n < *count)
                placement[n] = (weft_nvml_placement){i, p->slots};
            n++;
        }
    *count = n;
    return WEFT_NVML_SUCCESS;
}

/* -- MIG: changes ------------------------------------------------------------------------------ */

weft_nvml_result nvmlDeviceGetGpuInstances(weft_nvml_device device, unsigned int profile_id,
                                           weft_nvml_gi *gi, unsigned int *count)
{
    ENTER_GPU("nvmlDeviceGetGpuInstances");
    unsigned n = 0;
    if (!privileged())
        return WEFT_NVML_NO_PERMISSION;
    for (unsigned i = 0; i < D.n_instance; i++)
        if (&D.gpu[D.instance[i].gpu] == g && !D.instance[i].gone &&
            D.instance[i].profile->id == profile_id)
            gi[n++] = (weft_nvml_gi)(void *)&D.instance[i];
    *count = n;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlDeviceCreateGpuInstanceWithPlacement(weft_nvml_device device,
                                                          unsigned int profile_id,
                                                          const weft_nvml_placement *placement,
                                                          weft_nvml_gi *gi)
{
    ENTER_GPU("nvmlDeviceCreateGpuInstanceWithPlacement");
    const profile *p = find_profile(g, profile_id);
    if (!privileged())
        return WEFT_NVML_NO_PERMISSION;
    if (!g->mig)
        return WEFT_NVML_NOT_SUPPORTED;
    if (!p || placement->start > 7 || !(p->starts & 1u << placement->start) ||
        placement->size != p->slots)
        return WEFT_NVML_INVALID_ARGUMENT;
    for (unsigned i = 0; i < D.n_instance; i++) {
        const instance *m = &D.instance[i];
        if (&D.gpu[m->gpu] == g && !m->gone && m->start < placement->start + p->slots &&
            placement->start < m->start + m->profile->slots)
            return WEFT_NVML_INSUFFICIENT_RESOURCES;
    }
    append("gi %u %u %u\n", (unsigned)(g - D.gpu), profile_id, placement->start);
    *gi = (weft_nvml_gi)(void *)&D.instance[D.n_instance - 1];
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlGpuInstanceDestroy(weft_nvml_gi gi)
{
    ENTER("nvmlGpuInstanceDestroy");
    const instance *m = as_instance("nvmlGpuInstanceDestroy", gi);
    if (!privileged())
        return WEFT_NVML_NO_PERMISSION;
    if (!m)
        return WEFT_NVML_INVALID_ARGUMENT;
    if (m->has_ci)
        return WEFT_NVML_IN_USE;
    append("unmig %u %u\n", m->gpu, m->id, 0);
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlGpuInstanceGetComputeInstanceProfileInfo(weft_nvml_gi gi, unsigned int number,
                                                              unsigned int engines,
                                                              weft_nvml_ci_profile *info)
{
    static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6, 1};
    ENTER("nvmlGpuInstanceGetComputeInstanceProfileInfo");
    const instance *m = as_instance("nvmlGpuInstanceGetComputeInstanceProfileInfo", gi);
    if (!m || number >= sizeof slices / sizeof slices[0] || engines)
        return WEFT_NVML_INVALID_ARGUMENT;
    if (slices[number] > m->profile->gpcs)
        return WEFT_NVML_NOT_SUPPORTED;
    *info = (weft_nvml_ci_profile){.id = number, .slices = slices[number], .count = 1};
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlGpuInstanceGetComputeInstances(weft_nvml_gi gi, unsigned int profile_id,
                                                    weft_nvml_ci *ci, unsigned int *count)
{
    static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6, 1};
    ENTER("nvmlGpuInstanceGetComputeInstances");
    instance *m = as_instance("nvmlGpuInstanceGetComputeInstances", gi);
    if (!m || profile_id >= sizeof slices / sizeof slices[0])
        return WEFT_NVML_INVALID_ARGUMENT;
    *count = m->has_ci && slices[profile_id] == m->profile->gpcs;
    if (*count)
        ci[0] = (weft_nvml_ci)(void *)m;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlGpuInstanceCreateComputeInstance(weft_nvml_gi gi, unsigned int profile_id,
                                                      weft_nvml_ci *ci)
{
    static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6, 1};
    ENTER("nvmlGpuInstanceCreateComputeInstance");
    instance *m = as_instance("nvmlGpuInstanceCreateComputeInstance", gi);
    if (!privileged())
        return WEFT_NVML_NO_PERMISSION;
    if (!m || profile_id >= sizeof slices / sizeof slices[0] ||
        slices[profile_id] != m->profile->gpcs)
        return WEFT_NVML_INVALID_ARGUMENT;
    append("ci %u\n", m->id, 0, 0);
    *ci = (weft_nvml_ci)(void *)m;
    return WEFT_NVML_SUCCESS;
}

/* Whether the environment of a process has these settings. */
static bool has_environment(const char *pid, const char *one, const char *other)
{
    static char text[1 << 18];
    char path[300];
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    int found = 0;
    text[n] = '\0';
    for (size_t at = 0; at < n; at += strlen(text + at) + 1)
        found += strcmp(text + at, one) == 0 || strcmp(text + at, other) == 0;
    if (f)
        fclose(f);
    return found == 2;
}

/* WEFT_DOUBLE_NVML_USERS=1: processes of this machine that see only the instance use it, because
 * they have, or may make, a context on it. */
static bool is_in_use(const instance *m)
{
    char setting[96], machine[4200];
    bool used = false;
    snprintf(setting, sizeof setting, "CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-%04u-%012u",
             m->gpu, m->id);
    snprintf(machine, sizeof machine, "WEFT_DOUBLE_NVML=%s", weft_double_text("NVML"));
    DIR *d = weft_double_number("NVML_USERS", 0) ? opendir("/proc") : NULL;
    for (const struct dirent *e; d && !used && (e = readdir(d));)
        used = e->d_name[0] >= '0' && e->d_name[0] <= '9' &&
               has_environment(e->d_name, setting, machine);
    if (d)
        closedir(d);
    return used;
}

/* WEFT_DOUBLE_NVML_BUSY=1: every instance is in use. */
weft_nvml_result nvmlComputeInstanceDestroy(weft_nvml_ci ci)
{
    ENTER("nvmlComputeInstanceDestroy");
    const instance *m = as_instance("nvmlComputeInstanceDestroy", ci);
    if (!m)
        return WEFT_NVML_INVALID_ARGUMENT;
    if (weft_double_number("NVML_BUSY", 0) || is_in_use(m)) {
        weft_double_log("in use %u", m->id);
        return WEFT_NVML_IN_USE;
    }
    append("unci %u\n", m->id, 0, 0);
    return WEFT_NVML_SUCCESS;
}

/* -- Counters ---------------------------------------------------------------------------------- */

weft_nvml_result nvmlGpmQueryDeviceSupport(weft_nvml_device device, weft_nvml_gpm_support *support)
{
    ENTER_GPU("nvmlGpmQueryDeviceSupport");
    if (support->version != WEFT_NVML_GPM_VERSION)
        weft_double_mistake("nvmlGpmQueryDeviceSupport: version %u", support->version);
    support->supported = g->kind->gpm;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlGpmSampleAlloc(weft_nvml_gpm_sample *sample)
{
    ENTER("nvmlGpmSampleAlloc");
    for (unsigned i = 0; i < SAMPLES_MAX; i++)
        if (!D.sample[i]) {
            D.sample[i] = true;
            D.sample_us[i] = 0;
            *sample = (weft_nvml_gpm_sample)(void *)&D.sample[i];
            return WEFT_NVML_SUCCESS;
        }
    return WEFT_NVML_INSUFFICIENT_RESOURCES;
}

static unsigned find_sample(const char *call, weft_nvml_gpm_sample sample)
{
    for (unsigned i = 0; i < SAMPLES_MAX; i++)
        if ((const void *)sample == &D.sample[i] && D.sample[i])
            return i;
    weft_double_mistake("%s: no GPM sample", call);
    return SAMPLES_MAX;
}

weft_nvml_result nvmlGpmSampleFree(weft_nvml_gpm_sample sample)
{
    unsigned i = find_sample("nvmlGpmSampleFree", sample);
    if (i == SAMPLES_MAX)
        return WEFT_NVML_INVALID_ARGUMENT;
    D.sample[i] = false;
    return WEFT_NVML_SUCCESS;
}

weft_nvml_result nvmlGpmSampleGet(weft_nvml_device device, weft_nvml_gpm_sample sample)
{
    ENTER_GPU("nvmlGpmSampleGet");
    unsigned i = find_sample("nvmlGpmSampleGet", sample);
    if (i == SAMPLES_MAX)
        return WEFT_NVML_INVALID_ARGUMENT;
    D.sample_us[i] = now_us();
    return g->kind->gpm ? WEFT_NVML_SUCCESS : WEFT_NVML_NOT_SUPPORTED;
}

weft_nvml_result nvmlGpmMigSampleGet(weft_nvml_device device, unsigned int gi_id,
                                     weft_nvml_gpm_sample sample)
{
    ENTER_GPU("nvmlGpmMigSampleGet");
    if (gi_id < 1 || gi_id > D.n_instance || D.instance[gi_id - 1].gone ||
        &D.gpu[D.instance[gi_id - 1].gpu] != g)
        return WEFT_NVML_NOT_FOUND;
    return nvmlGpmSampleGet(device, sample);
}

weft_nvml_result nvmlGpmMetricsGet(weft_nvml_gpm_metrics *metrics)
{
    ENTER("nvmlGpmMetricsGet");
    unsigned a = find_sample("nvmlGpmMetricsGet", metrics->sample1);
    unsigned b = find_sample("nvmlGpmMetricsGet", metrics->sample2);
    if (metrics->version != WEFT_NVML_GPM_VERSION)
        weft_double_mistake("nvmlGpmMetricsGet: version %u", metrics->version);
    if (a == SAMPLES_MAX || b == SAMPLES_MAX || D.sample_us[a] >= D.sample_us[b] ||
        metrics->n > WEFT_NVML_GPM_METRICS)
        return WEFT_NVML_INVALID_ARGUMENT;
    for (unsigned i = 0; i < metrics->n; i++) {
        metrics->metric[i].result = WEFT_NVML_SUCCESS;
        metrics->metric[i].value = 10.0 + metrics->metric[i].id;
    }
    return WEFT_NVML_SUCCESS;
}
