/* Declarations of the part of NVML, NVIDIA's management library, that Weft uses: structs, values
 * and functions as in the binary interface of driver 525 and later. They replace nvml.h, so that
 * nothing of NVIDIA's is needed to build. Functions have NVML's names and are rows of
 * nvml_syms.def. */
#ifndef WEFT_RUNTIME_MACHINE_NVML_API_H
#define WEFT_RUNTIME_MACHINE_NVML_API_H

typedef unsigned int weft_nvml_result; /* nvmlReturn_t */

enum {
    WEFT_NVML_SUCCESS = 0,
    WEFT_NVML_UNINITIALIZED = 1,
    WEFT_NVML_INVALID_ARGUMENT = 2,
    WEFT_NVML_NOT_SUPPORTED = 3,
    WEFT_NVML_NO_PERMISSION = 4,
    WEFT_NVML_NOT_FOUND = 6,
    WEFT_NVML_INSUFFICIENT_SIZE = 7,
    WEFT_NVML_DRIVER_NOT_LOADED = 9,
    WEFT_NVML_TIMEOUT = 10,
    WEFT_NVML_FUNCTION_NOT_FOUND = 13,
    WEFT_NVML_GPU_IS_LOST = 15,
    WEFT_NVML_LIB_RM_VERSION_MISMATCH = 18, /* library and kernel module differ */
    WEFT_NVML_IN_USE = 19,
    WEFT_NVML_INSUFFICIENT_RESOURCES = 23,
    WEFT_NVML_ARGUMENT_VERSION_MISMATCH = 25,
    WEFT_NVML_UNKNOWN = 999
};

enum {
    WEFT_NVML_NAME_BYTES = 96, /* NVML_DEVICE_NAME_V2_BUFFER_SIZE */
    WEFT_NVML_UUID_BYTES = 96, /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */
    WEFT_NVML_VERSION_BYTES = 80,
    WEFT_NVML_CLOCK_SM = 1,
    WEFT_NVML_CLOCK_MEM = 2,
    WEFT_NVML_COMPUTE_DEFAULT = 0,
    WEFT_NVML_COMPUTE_PROHIBITED = 2,
    WEFT_NVML_COMPUTE_EXCLUSIVE_PROCESS = 3,
    WEFT_NVML_GPM_VERSION = 1,
    WEFT_NVML_GPM_METRICS = 98 /* size of the array in version 1 */
};

/* Kinds and periods of counters of memory errors. */
enum {
    WEFT_NVML_ECC_CORRECTED = 0,
    WEFT_NVML_ECC_UNCORRECTED = 1,
    WEFT_NVML_ECC_VOLATILE = 0 /* since the driver was loaded */
};

/* Reasons for clocks below their maximum, bits of nvmlDeviceGetCurrentClocksThrottleReasons. */
enum {
    WEFT_NVML_SLOW_SETTING = 0x2,     /* application clocks */
    WEFT_NVML_SLOW_POWER_CAP = 0x4,   /* power limit, by the driver */
    WEFT_NVML_SLOW_THERMAL = 0x20,    /* temperature, by the driver */
    WEFT_NVML_SLOW_HW_THERMAL = 0x40, /* temperature, by the hardware */
    WEFT_NVML_SLOW_POWER_BRAKE = 0x80 /* power supply */
};

enum { WEFT_NVML_EVENT_XID = 0x8 };

/* Ids of GPM metrics: percent of the time between two samples. */
enum {
    WEFT_NVML_GPM_SM_UTIL = 2,
    WEFT_NVML_GPM_SM_OCCUPANCY = 3,
    WEFT_NVML_GPM_ANY_TENSOR_UTIL = 5,
    WEFT_NVML_GPM_DRAM_BW_UTIL = 10
};

/* Profiles of GPU instances are enumerated by number until INVALID_ARGUMENT; no known driver has as
 * many as WEFT_NVML_GPU_PROFILES_MAX. */
enum { WEFT_NVML_GPU_PROFILES_MAX = 64, WEFT_NVML_CI_ENGINES_SHARED = 0 };

typedef struct weft_nvml_device_st *weft_nvml_device; /* a GPU or a MIG device */
typedef struct weft_nvml_gi_st *weft_nvml_gi;         /* GPU instance */
typedef struct weft_nvml_ci_st *weft_nvml_ci;         /* compute instance */
typedef struct weft_nvml_gpm_sample_st *weft_nvml_gpm_sample;
typedef struct weft_nvml_events_st *weft_nvml_events; /* event set */

typedef struct weft_nvml_memory { /* bytes */
    unsigned long long total, free, used;
} weft_nvml_memory;

typedef struct weft_nvml_utilization { /* percent of the last sample period */
    unsigned int gpu, memory;
} weft_nvml_utilization;

/* Of a MIG device. */
typedef struct weft_nvml_attributes {
    unsigned int sms, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned int gi_slices, ci_slices;
    unsigned long long mem_mb;
} weft_nvml_attributes;

typedef struct weft_nvml_placement { /* memory slots */
    unsigned int start, size;
} weft_nvml_placement;

typedef struct weft_nvml_gi_profile {
    unsigned int id, p2p, slices, count, sms;
    unsigned int copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long mem_mb;
} weft_nvml_gi_profile;

typedef struct weft_nvml_gi_profile_v2 {
    unsigned int version; /* WEFT_NVML_GI_PROFILE_V2 */
    unsigned int id, p2p, slices, count, sms;
    unsigned int copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long mem_mb;
    char name[WEFT_NVML_NAME_BYTES]; /* "1g.18gb" */
} weft_nvml_gi_profile_v2;

#define WEFT_NVML_GI_PROFILE_V2 ((unsigned int)sizeof(weft_nvml_gi_profile_v2) | 2u << 24)

typedef struct weft_nvml_gi_info {
    weft_nvml_device device;
    unsigned int id, profile_id;
    weft_nvml_placement placement;
} weft_nvml_gi_info;

typedef struct weft_nvml_ci_profile {
    unsigned int id, slices, count, sms;
    unsigned int copy_engines, decoders, encoders, jpegs, ofas;
} weft_nvml_ci_profile;

typedef struct weft_nvml_event {
    weft_nvml_device device;
    unsigned long long type, data; /* data: of WEFT_NVML_EVENT_XID, the number of the error */
    unsigned int gi, ci;           /* ~0: no instance */
} weft_nvml_event;

typedef struct weft_nvml_gpm_support {
    unsigned int version, supported;
} weft_nvml_gpm_support;

typedef struct weft_nvml_gpm_metric {
    unsigned int id;
    weft_nvml_result result;
    double value;
    struct {
        char *short_name, *long_name, *unit;
    } info;
} weft_nvml_gpm_metric;

typedef struct weft_nvml_gpm_metrics {
    unsigned int version, n;
    weft_nvml_gpm_sample sample1, sample2;
    weft_nvml_gpm_metric metric[WEFT_NVML_GPM_METRICS];
} weft_nvml_gpm_metrics;

/* Pointers to the functions. NULL: the library of this driver lacks it. */
typedef struct weft_nvml_syms {
#define NVML_SYM(name, need, args) weft_nvml_result(*name) args;
#include "runtime/machine/nvml_syms.def"
#undef NVML_SYM
} weft_nvml_syms;

#endif
