/* Costs: of a kernel or a model on a device, and the profile of a model over (device, slice,
 * batch). Plain data with units in the names. The scheduler sees this header and bundle.h, nothing
 * else of ir/. */
#ifndef WEFT_IR_COST_H
#define WEFT_IR_COST_H

#include "base/err.h"
#include "base/slice_name.h"
#include "base/use_histogram.h"
#include "ops/work.h"

#include <stddef.h>
#include <stdint.h>

enum { WEFT_DEVICE_NAME_MAX = 32, WEFT_SOURCE_NAME_MAX = 16 };

/* What a kernel, or a whole model at one batch size, costs on one device or slice. */
typedef struct weft_cost {
    double time_us;
    double time_p5_us, time_p95_us; /* 90 % band of the time; 0: not known */
    double creq;           /* share of the device's compute units in use, time weighted, 0..1 */
    uint64_t mreq_bytes;   /* capacity: weights + peak arena + workspace + context */
    double bandwidth_gbps; /* memory traffic over time, 1e9 bytes per second */
    double energy_j;       /* joules per execution */
    double expected_error; /* relative, of time_us; 0.3 = 30 % */
    char source[WEFT_SOURCE_NAME_MAX]; /* "analytic", "learned", "measured" */
} weft_cost;

/* One row of a profile. */
typedef struct weft_profile_point {
    char device[WEFT_DEVICE_NAME_MAX]; /* row of the device table: "h100", "cpu" */
    char slice[WEFT_SLICE_NAME_MAX];   /* "" whole device; "1g.10gb"; "40%"; "1core" */
    double share;                      /* of the device's compute units, 0..1 */
    uint32_t batch;
    uint32_t procs;          /* processes of this model sharing the slice, 1 without MPS */
    double throughput_per_s; /* measured, of all processes; 0: batch * procs / time */
    double idle_us;          /* of a batch with the rest of the device idle; 0: not known */
    weft_cost cost;          /* of one execution of one batch */
    weft_usehist use;        /* over the run, as parts of the device; zeroes: not known */
} weft_profile_point;

typedef struct weft_profile {
    const weft_profile_point *point;
    size_t n;
    double host_us; /* of each request, besides its execution: transport, router, copies */
} weft_profile;

#endif
