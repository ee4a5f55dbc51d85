/* Is this machine ready for models on its CPUs? */
#include "base/cpus.h"
#include "runtime/runtime.h"
#include "tools/common/machine_file.h"
#include "tools/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Descriptors of a server that is to accept a thousand connections to each of its ports. */
enum { DESCRIPTORS_WANTED = 4096 };
static const double mib = 0x1p20;

/* Whether a list with spaces has the word. */
static bool lists(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == ' ' || at[len] == 0))
            return true;
    return false;
}

/* Instruction sets that kernels use, as /proc/cpuinfo names them, and their usual names. */
static const char *const instructions[][2] = {
    {"avx2", "AVX2"},           {"avx_vnni", "AVX-VNNI"}, {"avx512f", "AVX-512"},
    {"avx512_vnni", "VNNI"},    {"avx512_bf16", "BF16"},  {"avx512_fp16", "FP16"},
    {"amx_int8", "AMX (int8)"}, {"asimd", "NEON"},        {"sve", "SVE"}};

static void check_cpu(weft_doctor *d)
{
    char set[128] = "";
    const char *name = weft_doctor__value(d, "/proc/cpuinfo", "model name");
    const char *x86 = weft_doctor__value(d, "/proc/cpuinfo", "flags");
    const char *flags = x86 ? x86 : weft_doctor__value(d, "/proc/cpuinfo", "Features");
    for (size_t i = 0; flags && i < sizeof instructions / sizeof instructions[0]; i++)
        if (lists(flags, instructions[i][0])) {
            size_t at = strlen(set);
            snprintf(set + at, sizeof set - at, ", %s", instructions[i][1]);
        }
    bool slow = x86 && !(lists(x86, "avx2") && lists(x86, "fma"));
    weft_doctor__add(d, "CPU", slow ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_OK, 0,
                     slow ? "a machine with AVX2 is several times faster" : NULL,
                     "%s, %u of %ld CPUs usable%s%s", name ? name : "unknown CPU",
                     weft_cpus_usable(), sysconf(_SC_NPROCESSORS_ONLN), set,
                     slow ? ", without AVX2" : "");
    uint64_t limit = weft_cpus_limit(d->root);
    if (limit)
        weft_doctor__add(d, "CPU limit", WEFT_DOCTOR_OK, 0, NULL, "%.2f CPUs, of the control group",
                         (double)limit * 1e-3);
}

static void check_library(weft_doctor *d)
{
    char library[64] = "";
    const weft_driver *driver = weft_driver_find("cpu");
    if (driver)
        weft_driver_library(driver, library, sizeof library);
    weft_doctor__add(d, "CPU driver", WEFT_DOCTOR_OK, 0, NULL, "%s", library);
}

static void check_memory(weft_doctor *d)
{
    const char *total = weft_doctor__value(d, "/proc/meminfo", "MemTotal");
    const char *available = weft_doctor__value(d, "/proc/meminfo", "MemAvailable");
    if (!total || !available)
        return;
    double free_mib = strtod(available, NULL) * 1024 / mib;
    bool low = free_mib < 512;
    weft_doctor__add(d, "memory", low ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_OK, 0,
                     low ? "end other programs; `weft estimate` says what models need" : NULL,
                     "%.0f of %.0f MiB available", free_mib, strtod(total, NULL) * 1024 / mib);
}

static void check_descriptors(weft_doctor *d)
{
    struct rlimit files = {0};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    bool few = files.rlim_max < DESCRIPTORS_WANTED;
    if (files.rlim_max == RLIM_INFINITY) {
        weft_doctor__add(d, "descriptors", WEFT_DOCTOR_OK, 0, NULL, "no limit");
        return;
    }
    weft_doctor__add(d, "descriptors", few ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_OK, 0,
                     few ? "raise the hard limit: ulimit -Hn, or LimitNOFILE= of the unit" : NULL,
                     "%llu for a server%s", (unsigned long long)files.rlim_max,
                     few ? ": it accepts fewer than a thousand connections to each port" : "");
}

/* Folders that verbs write to. */
static void check_folders(weft_doctor *d)
{
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && *tmp ? tmp : "/tmp";
    if (access(tmp, W_OK | X_OK) != 0)
        weft_doctor__add(d, "TMPDIR", WEFT_DOCTOR_MISSING, WEFT_DOCTOR_MPS,
                         "set TMPDIR to a folder that this user can write to",
                         "%s cannot be written to", tmp);
}

/* Devices by the numbers of /proc/cpuinfo: AMD's and Intel's families with ranges of models, Arm's
 * parts (implementer 0x41) as models of family 0. Source: the kernel's tables, intel-family.h,
 * cputype.h, and amd.c's ranges of Zen cores. */
static const struct {
    const char *maker;
    long family, first, last;
    const char *device;
} cpu_models[] = {
    {"AuthenticAMD", 0x17, 0x30, 0xaf, "cpu-zen2"},
    {"AuthenticAMD", 0x19, 0x00, 0x0f, "cpu-zen3"},
    {"AuthenticAMD", 0x19, 0x20, 0x5f, "cpu-zen3"},
    {"AuthenticAMD", 0x19, 0x10, 0x1f, "cpu-zen4"},
    {"AuthenticAMD", 0x19, 0x60, 0xaf, "cpu-zen4"},
    {"AuthenticAMD", 0x1a, 0x00, 0x4f, "cpu-zen5"},
    {"AuthenticAMD", 0x1a, 0x60, 0x7f, "cpu-zen5"},
    {"GenuineIntel", 6, 0x6a, 0x6a, "cpu-ice-lake"},
    {"GenuineIntel", 6, 0x6c, 0x6c, "cpu-ice-lake"},
    {"GenuineIntel", 6, 0x8f, 0x8f, "cpu-sapphire-rapids"},
    {"GenuineIntel", 6, 0xcf, 0xcf, "cpu-emerald-rapids"},
    {"GenuineIntel", 6, 0xad, 0xae, "cpu-granite-rapids"},
    {"0x41", 0, 0xd40, 0xd40, "cpu-graviton3"},
    {"0x41", 0, 0xd4f, 0xd4f, "cpu-graviton4"},
};

static long cpu_number(const weft_doctor *d, const char *key)
{
    const char *text = weft_doctor__value(d, "/proc/cpuinfo", key);
    return text ? strtol(text, NULL, 0) : -1;
}

/* The device of the estimator's table that this CPU is; NULL: none. */
static const char *find_device(const weft_doctor *d)
{
    const char *x86 = weft_doctor__value(d, "/proc/cpuinfo", "vendor_id");
    const char *maker = x86 ? x86 : weft_doctor__value(d, "/proc/cpuinfo", "CPU implementer");
    long family = x86 ? cpu_number(d, "cpu family") : 0;
    long model = cpu_number(d, x86 ? "model" : "CPU part");
    for (size_t i = 0; maker && i < sizeof cpu_models / sizeof cpu_models[0]; i++)
        if (strcmp(cpu_models[i].maker, maker) == 0 && cpu_models[i].family == family &&
            model >= cpu_models[i].first && model <= cpu_models[i].last)
            return cpu_models[i].device;
    return NULL;
}

static void check_calibration(weft_doctor *d)
{
    const char *device = find_device(d);
    weft_tool_machine m;
    if (weft_tool_machine_find(NULL, &m) != WEFT_ERR_OK) {
        weft_doctor__add(d, "calibration", WEFT_DOCTOR_NOTE, 0, "set HOME or XDG_STATE_HOME",
                         "no folder to keep one: neither HOME nor XDG_STATE_HOME is set");
        return;
    }
    if (access(m.path, R_OK) == 0)
        weft_doctor__add(d, "calibration", WEFT_DOCTOR_OK, 0, NULL, "%s", m.path);
    else
        weft_doctor__add(
            d, "calibration", WEFT_DOCTOR_NOTE, 0, "weft calibrate",
            "none for this CPU: estimates and plans use constants of other machines%s%s",
            device ? "; without it, data sheets: --gpu " : "", device ? device : "");
}

static void check_load(weft_doctor *d)
{
    double load = 0;
    FILE *f = fopen(weft_doctor__path(d, "/proc/loadavg"), "re");
    bool told = f && fscanf(f, "%lf", &load) == 1;
    if (f)
        fclose(f);
    if (told && load > 0.5 * weft_cpus_usable())
        weft_doctor__add(d, "other programs", WEFT_DOCTOR_NOTE, 0,
                         "measure (bench, calibrate) when the machine is quiet",
                         "%.1f runnable threads on average, on %u CPUs", load, weft_cpus_usable());
}

weft_err weft_doctor_check_cpu(weft_doctor *d)
{
    check_cpu(d);
    check_library(d);
    check_memory(d);
    check_descriptors(d);
    check_folders(d);
    check_calibration(d);
    check_load(d);
    return WEFT_ERR_OK;
}
