/* The door of runtime/machine: what this node has (CPUs, GPUs and their MIG instances through NVML,
 * MPS), and the two things that change it on request: MIG instances and MPS daemons. Nothing here
 * is needed to run a bundle. */
#ifndef WEFT_RUNTIME_MACHINE_MACHINE_H
#define WEFT_RUNTIME_MACHINE_MACHINE_H

#include "base/arena.h"
#include "base/device_type.h"
#include "base/diag.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_MACHINE_NAME_MAX = 96 };

/* -- Inventory (machine.c) ------------------------------------------------------------------ */

/* A MIG profile, as the GPU's driver reports it. */
typedef struct weft_machine_profile {
    char name[WEFT_MACHINE_NAME_MAX]; /* "1g.18gb"; "1g.18gb+me": with the media engines */
    uint32_t id;                      /* of NVML */
    uint32_t count;                   /* largest number of instances */
    uint32_t gpcs;                    /* compute slices */
    uint32_t slots;                   /* memory slots; 0: unknown */
    uint32_t starts; /* bit k: an instance may start at memory slot k; 0: unknown (needs root) */
    uint32_t sms;
    uint64_t mem_bytes;
} weft_machine_profile;

/* A MIG instance: a compute instance over all or a part of a GPU instance. */
typedef struct weft_machine_mig {
    char uuid[WEFT_MACHINE_NAME_MAX];
    char profile[WEFT_MACHINE_NAME_MAX]; /* of the GPU instance; "2c.3g.71gb": a part of it */
    uint32_t gi, ci;                     /* ids of the GPU instance and the compute instance */
    int32_t start;                       /* first memory slot; -1: unknown */
    uint32_t sms;
    uint64_t mem_bytes, mem_used_bytes;
} weft_machine_mig;

/* What keeps the clocks of a GPU below their maximum. */
enum {
    WEFT_MACHINE_SLOW_SETTING = 1, /* application clocks */
    WEFT_MACHINE_SLOW_POWER = 2,   /* the power limit, or the power supply */
    WEFT_MACHINE_SLOW_HEAT = 4
};

typedef struct weft_machine_health {
    int slow; /* bits of WEFT_MACHINE_SLOW_*; -1: unknown */
    /* Errors of memory since the driver was loaded; -1: unknown. */
    double ecc_corrected, ecc_uncorrected;
    /* Rows of memory that will be replaced at the next reset, or that cannot be. */
    bool rows_pending, rows_failed;
} weft_machine_health;

typedef struct weft_machine_gpu {
    char uuid[WEFT_MACHINE_NAME_MAX], name[WEFT_MACHINE_NAME_MAX];
    char why_not[64]; /* why the GPU cannot be read; then only `index` is known. "": it was read */
    const weft_device_type *type; /* NULL: not in the device table */
    uint32_t index;               /* NVML's */
    int cc_major, cc_minor;       /* compute capability; 0: unknown */
    uint32_t sms;                 /* 0: unknown */
    uint64_t mem_bytes, mem_used_bytes;
    bool mig_capable, mig_on, mig_pending;          /* MIG mode now, and after the next reset */
    bool prohibited, exclusive;                     /* compute mode */
    bool gpm;                                       /* has GPM counters (activity of SMs) */
    double power_w, power_limit_w, power_default_w; /* 0: unknown; default: of the limit */
    int persistent; /* the driver keeps the GPU initialised without clients; -1: unknown */
    weft_machine_health health;
    uint32_t sm_mhz, sm_max_mhz, mem_mhz; /* 0: unknown */
    double busy;                          /* fraction of time with a kernel; -1: unknown */
    uint32_t part_min, part_step; /* SMs of a green context: minimum, and its multiples; 0: none */
    const weft_machine_profile *profile;
    uint32_t n_profile;
    const weft_machine_mig *mig;
    uint32_t n_mig;
} weft_machine_gpu;

typedef struct weft_machine {
    char why_no_gpu[256]; /* why NVML is not available; "": it is */
    char driver[WEFT_MACHINE_NAME_MAX];
    int cuda_version;      /* supported by the driver: 13000 is 13.0; 0: unknown */
    char mps_control[256]; /* path of nvidia-cuda-mps-control; "": not found */
    const weft_machine_gpu *gpu;
    uint32_t n_gpu;
    const uint32_t *cpu; /* CPUs that this process may use */
    uint32_t n_cpu;
} weft_machine;

/* Reads all of it into `arena`; changes nothing. A machine without NVML has no GPUs, which is not
 * an error. */
WEFT_MUST_USE weft_err weft_machine_read(weft_arena *arena, weft_diag *diag, weft_machine *out);
/* Describes, one line each, the differences between the GPU and its row of the device table. */
void weft_machine_differences(const weft_machine_gpu *gpu, weft_arena *arena,
                              const char *const **out, size_t *out_n);

/* -- NVIDIA's libraries (machine_libraries.c) ----------------------------------------------- */

typedef struct weft_machine_library {
    char version[32];  /* as the library tells it; "": unknown */
    char why_not[256]; /* why it cannot be used; "": it can */
} weft_machine_library;

typedef struct weft_machine_libraries {
    weft_machine_library cuda; /* the driver; version: of CUDA */
    bool graphs, green;        /* the driver has the functions of graphs, of green contexts */
    uint32_t n_device;         /* devices that CUDA shows to this process */
    char why_no_device[256];   /* why CUDA does not start; "": it does */
    weft_machine_library cublaslt, cudnn, cupti;
} weft_machine_libraries;

/* Loads them, and starts CUDA. That a library is missing is no error. */
WEFT_MUST_USE weft_err weft_machine_find_libraries(weft_machine_libraries *out);

/* -- MIG (machine_mig.c) -------------------------------------------------------------------- */

typedef struct weft_machine_mig_want {
    const char *profile; /* "3g.71gb" */
    uint32_t start;      /* memory slot */
} weft_machine_mig_want;

/* Makes the MIG instances of a GPU those of `want`: destroys the others, creates those that are
 * missing. Only this function and the next one change a GPU. Needs root, MIG mode, and that the
 * instances to destroy are not in use: waits 3 s for that. Each change is noted in `diag`. */
WEFT_MUST_USE weft_err weft_machine_set_mig(uint32_t gpu, const weft_machine_mig_want *want,
                                            uint32_t n, weft_diag *diag);
/* The same, but destroys only instances on the memory slots of those that are missing. `want` has
 * all that are to stay. */
WEFT_MUST_USE weft_err weft_machine_add_mig(uint32_t gpu, const weft_machine_mig_want *want,
                                            uint32_t n, weft_diag *diag);

/* -- Meters (meter.c) ----------------------------------------------------------------------- */

/* Repeated readings of a GPU or a MIG instance. Thread-compatible. */
typedef struct weft_meter weft_meter;

/* Negative: unknown. */
typedef struct weft_meter_reading {
    double power_w, power_limit_w;
    double energy_j; /* since the driver was loaded */
    double mem_bytes, mem_used_bytes;
    double busy; /* fraction of NVML's last sample period with a kernel */
    /* Means since the previous reading, from GPM counters, as fractions: SMs with work, resident
     * warps, tensor cores in use, memory bandwidth in use. */
    double sms, warps, tensor, bandwidth;
    double sm_hz, memory_hz;                    /* clocks */
    double slow_setting, slow_power, slow_heat; /* 1: keeps the clocks down now */
    double ecc_corrected, ecc_uncorrected;      /* errors of memory since the driver was loaded */
    double xids, last_xid; /* errors that the driver reported since the meter was opened, and the
                              number of the last one (0: none) */
} weft_meter_reading;

/* `uuid` NULL: the GPU or MIG instance with CUDA's number `ordinal` in this process. NODEV: no such
 * device. The caller owns *out. */
WEFT_MUST_USE weft_err weft_meter_open(const char *uuid, uint32_t ordinal, weft_diag *diag,
                                       weft_meter **out);
void weft_meter_close(weft_meter *meter); /* NULL is allowed */
const char *weft_meter_uuid(const weft_meter *meter);
/* The GPU's row of the device table; NULL: none, or a MIG instance. */
const weft_device_type *weft_meter_type(const weft_meter *meter);
void weft_meter_read(weft_meter *meter, weft_meter_reading *out);
extern const weft_meter_reading weft_meter_unknown;

/* -- MPS (mps.c) ---------------------------------------------------------------------------- */

/* A daemon of NVIDIA's Multi-Process Service for one GPU or MIG instance, private to this process.
 * Clients find it by CUDA_MPS_PIPE_DIRECTORY. */
typedef struct weft_mps weft_mps;

/* `control`: path of nvidia-cuda-mps-control. `visible`: UUID. The caller owns *out and ends it by
 * weft_mps_stop. */
WEFT_MUST_USE weft_err weft_mps_start(const char *control, const char *visible, weft_diag *diag,
                                      weft_mps **out);
const char *weft_mps_pipe_dir(const weft_mps *mps);
/* Warns when the daemon does not end. NULL is allowed. */
void weft_mps_stop(weft_mps *mps, weft_diag *diag);

#endif
