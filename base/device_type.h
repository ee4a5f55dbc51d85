/* The devices that Weft plans and estimates for: facts that belong to the hardware, whoever asks.
 * Rows of devices.def. What a device computes in a second is the estimator's table (gpus.def). */
#ifndef WEFT_BASE_DEVICE_TYPE_H
#define WEFT_BASE_DEVICE_TYPE_H

#include <stddef.h>
#include <stdint.h>

/* A legal MIG profile of a device: which start slots it may take and what it has. */
typedef struct weft_mig_profile {
    const char *name; /* "1g.10gb" */
    uint32_t gpcs;    /* compute slots */
    uint32_t of_gpcs; /* of so many: 7, on an A30 4 */
    uint32_t slots;   /* memory slots it covers */
    uint32_t starts;  /* bit i: may start at slot i */
    uint32_t sms;     /* measured; 0: not known */
    double share;     /* of the device's compute units: sms / all */
    uint64_t mem_bytes;
} weft_mig_profile;

typedef struct weft_device_type {
    const char *name;
    double price_per_hour; /* dollars, 0: not known */
    uint64_t mem_bytes;    /* usable, 0: not known */
    uint32_t sms;          /* 0: no GPU */
    uint32_t mig_slots;    /* memory slots, 0: no MIG */
    const weft_mig_profile *mig;
    size_t n_mig;
    const char *source;
} weft_device_type;

const weft_device_type *weft_device_type_find(const char *name); /* NULL when unknown */
const weft_device_type *weft_device_type_at(size_t i);           /* NULL behind the last */

#endif
