/* Is this machine ready for models on GPUs? NVIDIA's libraries, devices, MIG, MPS. */
#include "base/dynlib.h"
#include "runtime/machine/machine.h"
#include "tools/doctor/doctor.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double gib = 0x1p30;

typedef struct findings {
    weft_doctor *d;
    weft_machine machine;
    weft_machine_libraries libraries;
    int on_bus;  /* NVIDIA's GPUs on the PCI bus; -1: unknown */
    bool module; /* the kernel module of NVIDIA's driver is loaded */
} findings;

/* -- Hardware and kernel --------------------------------------------------------------------- */

static unsigned long read_hex(const char *path)
{
    unsigned long value = 0;
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%lx", &value) != 1)
        value = 0;
    if (f)
        fclose(f);
    return value;
}

/* Display controllers (class 03) of NVIDIA (vendor 10de). */
static int count_on_bus(const weft_doctor *d)
{
    const char *bus = weft_doctor__path(d, "/sys/bus/pci/devices");
    DIR *dir = opendir(bus);
    int n = 0;
    if (!dir)
        return -1;
    for (const struct dirent *e; (e = readdir(dir));)
        n += read_hex(weft_arena_printf(d->arena, "%s/%s/vendor", bus, e->d_name)) == 0x10de &&
             read_hex(weft_arena_printf(d->arena, "%s/%s/class", bus, e->d_name)) >> 16 == 0x03;
    closedir(dir);
    return n;
}

static bool exists(const weft_doctor *d, const char *path)
{
    return access(weft_doctor__path(d, path), F_OK) == 0;
}

static bool has_gpus(const findings *f)
{
    return f->machine.n_gpu > 0 || f->on_bus > 0 || f->module;
}

static const char *driver_remedy(const findings *f)
{
    if (!f->module && exists(f->d, "/sys/module/nouveau"))
        return "install NVIDIA's driver (525 or later), keep the kernel from loading nouveau, and "
               "restart";
    if (!f->module)
        return "install NVIDIA's driver (525 or later) and load its kernel module: modprobe nvidia";
    if (strstr(f->libraries.cuda.why_not, "too old"))
        return "install NVIDIA's driver, 525 or later";
    if (strstr(f->machine.why_no_gpu, "different drivers"))
        return "the driver was upgraded while its kernel module was in use: restart";
    return "install the driver's libraries (libnvidia-ml.so.1, libcuda.so.1) of the version of the "
           "kernel module; in a container, start it with NVIDIA's container toolkit (--gpus all)";
}

/* Files that CUDA opens. */
static void check_files(const findings *f)
{
    static const char *const path[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    for (size_t i = 0; f->module && i < sizeof path / sizeof path[0]; i++) {
        if (!exists(f->d, path[i]))
            weft_doctor__add(f->d, path[i], WEFT_DOCTOR_MISSING, WEFT_DOCTOR_ON_GPU,
                             "nvidia-modprobe -c 0 -u, as root; in a container: --gpus all",
                             "does not exist");
        else if (access(weft_doctor__path(f->d, path[i]), R_OK | W_OK) != 0)
            weft_doctor__add(f->d, path[i], WEFT_DOCTOR_MISSING, WEFT_DOCTOR_ON_GPU,
                             "add this user to the group of the file (often video or render)",
                             "this user may not open it");
    }
}

static void check_hardware(const findings *f)
{
    if (f->machine.n_gpu) {
        weft_doctor__add(f->d, "GPUs", WEFT_DOCTOR_OK, 0, NULL, "%u, driver %s, CUDA %d.%d",
                         f->machine.n_gpu, f->machine.driver, f->machine.cuda_version / 1000,
                         f->machine.cuda_version % 1000 / 10);
    } else if (!has_gpus(f)) {
        weft_doctor__add(f->d, "GPUs", WEFT_DOCTOR_NOTE, WEFT_DOCTOR_ON_GPU, NULL,
                         "none of NVIDIA's on the PCI bus");
        return;
    } else {
        const char *why = f->machine.why_no_gpu;
        weft_doctor__add(f->d, "GPUs", WEFT_DOCTOR_MISSING, WEFT_DOCTOR_ON_GPU, driver_remedy(f),
                         "%d on the PCI bus, but the driver cannot be asked: %s",
                         f->on_bus < 0 ? 0 : f->on_bus, *why ? why : "it shows no GPU");
    }
    check_files(f);
}

/* -- Libraries ------------------------------------------------------------------------------- */

static const char *cuda_remedy(const findings *f)
{
    const char *why = f->libraries.why_no_device;
    if (strstr(why, "SYSTEM_NOT_READY"))
        return "start the fabric manager of machines with NVSwitch: systemctl start "
               "nvidia-fabricmanager";
    if (strstr(why, "DRIVER_MISMATCH"))
        return "libcuda.so.1 and the kernel module are of different drivers: restart, or remove "
               "the other libcuda from LD_LIBRARY_PATH";
    if (strstr(why, "NO_DEVICE") && getenv("CUDA_VISIBLE_DEVICES"))
        return "unset CUDA_VISIBLE_DEVICES, or name a device in it (weft list slices)";
    return "look for NVIDIA's messages in the kernel's log: dmesg | grep -i nvrm";
}

static void check_cuda(const findings *f)
{
    const weft_machine_libraries *l = &f->libraries;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (l->cuda.why_not[0]) {
        weft_doctor__add(f->d, "CUDA", WEFT_DOCTOR_MISSING, WEFT_DOCTOR_ON_GPU, driver_remedy(f),
                         "%s", l->cuda.why_not);
        return;
    }
    if (l->why_no_device[0] || l->n_device == 0) {
        weft_doctor__add(f->d, "CUDA", WEFT_DOCTOR_MISSING, WEFT_DOCTOR_ON_GPU, cuda_remedy(f),
                         "%s", l->why_no_device[0] ? l->why_no_device : "shows no device");
        return;
    }
    weft_doctor__add(f->d, "CUDA", WEFT_DOCTOR_OK, 0, NULL, "%s, %u devices%s%s", l->cuda.version,
                     l->n_device, visible ? " by CUDA_VISIBLE_DEVICES=" : "",
                     visible ? visible : "");
    if (!l->graphs)
        weft_doctor__add(f->d, "CUDA graphs", WEFT_DOCTOR_NOTE, 0, "install a newer driver",
                         "the driver lacks functions: launches are made one by one");
    if (!l->green)
        weft_doctor__add(f->d, "green contexts", WEFT_DOCTOR_NOTE, WEFT_DOCTOR_GREEN,
                         "install a driver of CUDA 12.4 (550) or later",
                         "the driver has none of their functions");
}

/* NVRTC's version, as 12 and 4. Only the compiler uses NVRTC, but its absence is a fact of the
 * machine. */
static weft_err find_nvrtc(weft_diag *diag, int *major, int *minor)
{
    static const char *const names[] = {
#define NAME(name) name,
#include "base/nvrtc_names.def"
#undef NAME
    };
    int (*version)(int *, int *) = NULL;
    const weft_dynlib_symbol symbol = {"nvrtcVersion", 0, true};
    weft_dynlib *lib;
    WEFT_TRY(weft_dynlib_open("NVRTC, the compiler of CUDA kernels,", names,
                              sizeof names / sizeof names[0], diag, &lib));
    weft_err err = weft_dynlib_resolve(lib, &symbol, 1, &version, diag);
    if (err == WEFT_ERR_OK && version(major, minor) != 0)
        err = weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                              "NVRTC does not tell its version");
    weft_dynlib_close(lib);
    return err;
}

static void add_nvrtc(const findings *f, int major, int minor)
{
    bool newer = f->machine.cuda_version && major > f->machine.cuda_version / 1000;
    weft_doctor__add(f->d, "NVRTC", newer ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_OK, 0,
                     newer ? "compile with NVRTC of the driver's CUDA version, or install a newer "
                             "driver"
                           : NULL,
                     "%d.%d%s", major, minor,
                     newer ? ", newer than the driver: kernels for later GPUs (PTX) do not load"
                           : "");
}

static weft_err check_compiler(const findings *f)
{
    int major = 0, minor = 0;
    weft_diag *diag = weft_diag_create();
    weft_err err = diag ? find_nvrtc(diag, &major, &minor) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK) {
        add_nvrtc(f, major, minor);
    } else if (err == WEFT_ERR_NODEV) {
        char why[256];
        weft_diag_format(weft_diag_at(diag, 0), why, sizeof why);
        weft_doctor__add(f->d, "NVRTC", WEFT_DOCTOR_NOTE, WEFT_DOCTOR_COMPILE,
                         "to compile for GPUs, install NVRTC of a CUDA toolkit; no GPU is needed",
                         "%s", why);
        err = WEFT_ERR_OK;
    }
    weft_diag_destroy(diag);
    return err;
}

static void check_libraries(const findings *f)
{
    const weft_machine_libraries *l = &f->libraries;
    if (l->cublaslt.why_not[0])
        weft_doctor__add(f->d, "cuBLASLt", WEFT_DOCTOR_NOTE, 0, "install cuBLAS of a CUDA toolkit",
                         "%s: bundles with GEMMs that have no kernel of their own do not run",
                         l->cublaslt.why_not);
    else
        weft_doctor__add(f->d, "cuBLASLt", WEFT_DOCTOR_OK, 0, NULL, "version %s",
                         l->cublaslt.version);
    if (l->cudnn.why_not[0])
        weft_doctor__add(f->d, "cuDNN", WEFT_DOCTOR_NOTE, 0, "install cuDNN 9.8 or a later 9",
                         "%s: convolutions run on kernels of our own, which are slower",
                         l->cudnn.why_not);
    else
        weft_doctor__add(f->d, "cuDNN", WEFT_DOCTOR_OK, 0, NULL, "version %s", l->cudnn.version);
    if (l->cupti.why_not[0])
        weft_doctor__add(f->d, "CUPTI", WEFT_DOCTOR_NOTE, WEFT_DOCTOR_TIMES,
                         "install CUPTI of a CUDA toolkit",
                         "%s: times of launches are measured by events", l->cupti.why_not);
}

/* -- Each GPU -------------------------------------------------------------------------------- */

static void note(const findings *f, const weft_machine_gpu *g, const char *remedy, const char *text)
{
    weft_doctor__add(f->d, weft_arena_printf(f->d->arena, "GPU %u", g->index), WEFT_DOCTOR_NOTE, 0,
                     remedy, "%s", text);
}

static void fail(const findings *f, const weft_machine_gpu *g, const char *remedy, const char *text)
{
    weft_doctor__add(f->d, weft_arena_printf(f->d->arena, "GPU %u", g->index), WEFT_DOCTOR_MISSING,
                     0, remedy, "%s", text);
}

static void check_state(const findings *f, const weft_machine_gpu *g)
{
    weft_arena *a = f->d->arena;
    const uint32_t i = g->index;
    if (g->prohibited)
        fail(f, g, weft_arena_printf(a, "nvidia-smi -i %u -c DEFAULT", i),
             "its compute mode prohibits contexts: nothing runs on it");
    if (g->exclusive)
        note(f, g, weft_arena_printf(a, "serve --mps, or nvidia-smi -i %u -c DEFAULT", i),
             "its compute mode allows one process: several workers need MPS");
    if (g->persistent == 0)
        note(f, g,
             weft_arena_printf(a, "nvidia-smi -i %u -pm 1, or the service nvidia-persistenced", i),
             "the driver initialises it for each first process, which takes seconds");
    if (g->power_default_w > 0 && g->power_limit_w < 0.99 * g->power_default_w)
        note(f, g, weft_arena_printf(a, "nvidia-smi -i %u -pl %.0f", i, g->power_default_w),
             weft_arena_printf(
                 a, "its power limit is %.0f W, %.0f W are the default: slower than estimated",
                 g->power_limit_w, g->power_default_w));
    if (g->mem_bytes && (double)g->mem_used_bytes > 0.05 * (double)g->mem_bytes)
        note(f, g, "end the processes that nvidia-smi lists, or plan with less memory",
             weft_arena_printf(a, "%.1f of %.1f GiB are in use", (double)g->mem_used_bytes / gib,
                               (double)g->mem_bytes / gib));
}

static void check_health(const findings *f, const weft_machine_gpu *g)
{
    const weft_machine_health *h = &g->health;
    weft_arena *a = f->d->arena;
    if (h->slow > 0 && (h->slow & WEFT_MACHINE_SLOW_SETTING))
        note(f, g, weft_arena_printf(a, "nvidia-smi -i %u -rac", g->index),
             "application clocks hold it below its maximum");
    if (h->slow > 0 && (h->slow & WEFT_MACHINE_SLOW_HEAT))
        note(f, g, "look at its cooling (nvidia-smi -q -d TEMPERATURE)",
             "its temperature holds the clocks down");
    if (h->slow > 0 && (h->slow & WEFT_MACHINE_SLOW_POWER))
        note(f, g, "look at its power limit and supply (nvidia-smi -q -d POWER)",
             "its power limit or supply holds the clocks down");
    if (h->ecc_uncorrected > 0)
        fail(
            f, g,
            weft_arena_printf(a, "reset it when nothing runs on it: nvidia-smi -i %u -r", g->index),
            weft_arena_printf(a, "%.0f uncorrected errors of memory since the driver was loaded",
                              h->ecc_uncorrected));
    if (h->rows_pending)
        note(
            f, g,
            weft_arena_printf(a, "reset it when nothing runs on it: nvidia-smi -i %u -r", g->index),
            "rows of its memory are replaced at the next reset");
    if (h->rows_failed)
        fail(f, g, "have it replaced", "rows of its memory cannot be replaced");
}

static void check_mig(const findings *f, const weft_machine_gpu *g)
{
    weft_arena *a = f->d->arena;
    if (g->mig_on != g->mig_pending)
        note(f, g, weft_arena_printf(a, "nvidia-smi -i %u -r, when nothing runs on it", g->index),
             g->mig_pending ? "MIG mode will be on after the next reset"
                            : "MIG mode will be off after the next reset");
    if (g->mig_on && g->n_mig == 0)
        fail(f, g,
             geteuid() == 0 ? "weft serve BUNDLE PLAN --reconfigure-mig"
                            : "weft serve BUNDLE PLAN --reconfigure-mig, as root",
             "MIG mode is on and there are no instances: nothing runs on it");
}

static void check_gpu(const findings *f, const weft_machine_gpu *g)
{
    const char *const *line;
    size_t n;
    if (g->why_not[0]) {
        fail(f, g,
             weft_arena_printf(f->d->arena, "dmesg | grep -i xid; nvidia-smi -i %u -r, or restart",
                               g->index),
             weft_arena_printf(f->d->arena, "cannot be read: %s", g->why_not));
        return;
    }
    weft_doctor__add(f->d, weft_arena_printf(f->d->arena, "GPU %u", g->index), WEFT_DOCTOR_OK, 0,
                     NULL, "%s, sm_%d%d, %.1f GiB", g->name, g->cc_major, g->cc_minor,
                     (double)g->mem_bytes / gib);
    check_state(f, g);
    check_health(f, g);
    check_mig(f, g);
    weft_machine_differences(g, f->d->arena, &line, &n);
    for (size_t i = 0; i < n; i++)
        note(f, g, NULL,
             weft_arena_printf(f->d->arena, "differs from the table of devices: %s", line[i]));
}

/* -- How GPUs are shared --------------------------------------------------------------------- */

/* A GPU that is readable, allows contexts and, with MIG, has an instance. */
static bool runs(const weft_machine_gpu *g)
{
    return !g->why_not[0] && !g->prohibited && !(g->mig_on && g->n_mig == 0);
}

static void check_sharing(const findings *f)
{
    uint32_t n_run = 0, n_mig = 0, n_on = 0;
    for (uint32_t i = 0; i < f->machine.n_gpu; i++) {
        const weft_machine_gpu *g = &f->machine.gpu[i];
        n_run += runs(g);
        n_mig += g->mig_capable;
        n_on += g->mig_on;
    }
    if (n_run == 0)
        weft_doctor__add(f->d, "GPUs", WEFT_DOCTOR_MISSING, WEFT_DOCTOR_ON_GPU & ~WEFT_DOCTOR_MIG,
                         NULL, "none of them runs anything now");
    if (n_mig == 0)
        weft_doctor__add(f->d, "MIG", WEFT_DOCTOR_NOTE, WEFT_DOCTOR_MIG, NULL,
                         "no GPU here can be divided by MIG");
    else if (n_on == 0)
        weft_doctor__add(f->d, "MIG", WEFT_DOCTOR_NOTE, WEFT_DOCTOR_MIG,
                         "nvidia-smi -i N -mig 1, as root and when nothing runs on GPU N",
                         "off on all GPUs");
    else
        weft_doctor__add(f->d, "MIG", WEFT_DOCTOR_OK, 0, NULL, "on for %u of %u GPUs%s", n_on,
                         f->machine.n_gpu,
                         geteuid() == 0 ? "" : "; only root can change instances");
    if (!f->machine.mps_control[0])
        weft_doctor__add(f->d, "MPS", WEFT_DOCTOR_NOTE, WEFT_DOCTOR_MPS,
                         "install the driver's programs (nvidia-cuda-mps-control)",
                         "no nvidia-cuda-mps-control in PATH");
    else
        weft_doctor__add(f->d, "MPS", WEFT_DOCTOR_OK, 0, NULL, "%s", f->machine.mps_control);
}

weft_err weft_doctor_check_gpus(weft_doctor *d, weft_diag *diag)
{
    findings *f = weft_arena_alloc(d->arena, sizeof *f);
    *f = (findings){.d = d, .on_bus = count_on_bus(d)};
    f->module = exists(d, "/proc/driver/nvidia/version");
    WEFT_TRY(weft_machine_read(d->arena, diag, &f->machine));
    check_hardware(f);
    WEFT_TRY(check_compiler(f));
    if (!has_gpus(f))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_machine_find_libraries(&f->libraries));
    check_cuda(f);
    check_libraries(f);
    for (uint32_t i = 0; i < f->machine.n_gpu; i++)
        check_gpu(f, &f->machine.gpu[i]);
    if (f->machine.n_gpu)
        check_sharing(f);
    return WEFT_ERR_OK;
}
