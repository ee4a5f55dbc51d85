/* The devices that Weft plans and estimates for: rows of devices.def, facts of the hardware. Rates
 * of arithmetic and memory are in the estimator's table (gpus.def). */
#ifndef WEFT_BASE_DEVICE_TYPE_H
#define WEFT_BASE_DEVICE_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A MIG profile of a device: its resources, and where an instance of it may start. */
typedef struct weft_mig_profile {
    const char *name; /* "1g.10gb" */
    uint32_t gpcs;    /* compute slices */
    uint32_t of_gpcs; /* compute slices of a whole GPU: 7; on an A30: 4 */
    uint32_t slots;   /* memory slots it covers */
    uint32_t starts;  /* bit k is set if an instance may start at memory slot k */
    uint32_t sms;     /* SMs of an instance, measured; 0: not known */
    double share;     /* of the device's compute units: sms / all */
    uint64_t mem_bytes;
} weft_mig_profile;

typedef struct weft_device_type {
    const char *name;
    double price_per_hour; /* dollars, CPU: of one core; 0: not known */
    const char *price_date,
        *price_source;  /* a month in which it held, "2025-06", and whose it is */
    uint64_t mem_bytes; /* usable, 0: not known */
    uint32_t sms;       /* 0: a CPU */
    uint32_t mig_slots; /* memory slots, 0: no MIG */
    const weft_mig_profile *mig;
    size_t n_mig;
    bool is_foreign; /* no GPU of NVIDIA: it has no MPS, and no worker runs on it */
    const char *source;
} weft_device_type;

const weft_device_type *weft_device_type_find(const char *name); /* NULL when unknown */
const weft_device_type *weft_device_type_at(size_t i);           /* NULL behind the last */
bool weft_device_type_is_cpu(const char *name);
/* NULL: the device has no MIG profile of the name; of no device, NULL, either. */
const weft_mig_profile *weft_device_type_mig(const weft_device_type *type, const char *name);
/* The memory slots of an instance that starts at slot `start`, as a bit set; 0: no slot is called
 * that, from 0 to 31. */
uint32_t weft_device_type_mig_slots(const weft_mig_profile *mig, int32_t start);
/* The device that a user names: its row in any case, or a usual name such as nvidia-smi's ("NVIDIA
 * A100-SXM4-80GB") or a published table's ("H100-SXM-80GB"). A name that could be another card is
 * none of them. NULL when unknown. */
const weft_device_type *weft_device_type_named(const char *name);
/* Name of the row that an unknown name was meant to be; NULL: none is near. */
const char *weft_device_type_near(const char *name);

#endif
