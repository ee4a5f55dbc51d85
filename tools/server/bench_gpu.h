/* Readings of a GPU during a measurement of `weft bench`, with the estimates of the bundle. */
#ifndef WEFT_TOOLS_BENCH_GPU_H
#define WEFT_TOOLS_BENCH_GPU_H

#include "ir/bundle.h"
#include "runtime/machine/machine.h"
#include "runtime/runtime.h"

struct json_t;

typedef struct weft_bench_meter {
    weft_meter *gpu;    /* NULL: the bundle is for CPUs, or the GPU gives no readings */
    double free_bytes;  /* memory in use by other processes when the meter was opened */
    const char *device; /* row of the device table; NULL: none */
    char slice[16];     /* the part of it that the engine uses: "2core"; "": all of a GPU */
    weft_meter_reading begin;
    double begin_ms; /* time of the first reading */
} weft_bench_meter;

/* Readings of one measurement; negative: unknown. */
typedef struct weft_bench_reading {
    double energy_j; /* of one run */
    double power_w;  /* mean */
    double mem_bytes;
    double sms, tensor, bandwidth; /* activity */
    const weft_cost *estimate;     /* for this device and batch; NULL: none */
} weft_bench_reading;

/* Opens the meter; to be called before the engine is opened. A GPU without readings is no error.
 */
void weft_bench_meter_open(weft_bench_meter *meter, const char *bundle,
                           const weft_engine_options *engine);
void weft_bench_meter_close(weft_bench_meter *meter);
/* Brackets runs that take `seconds` in all. */
void weft_bench_meter_begin(weft_bench_meter *meter);
void weft_bench_meter_end(weft_bench_meter *meter, const weft_bundle_program *program,
                          int64_t batch, size_t runs, double seconds, weft_bench_reading *out);
/* Prints one line; prints nothing when no reading is known. */
void weft_bench_reading_print(const weft_bench_reading *reading, double median_ms);
/* Adds the keys "energy_j", "power_w", "mem_bytes", "sm_activity", "tensor_activity",
 * "memory_activity" and "estimate" to `row`. */
void weft_bench_reading_add(const weft_bench_reading *reading, struct json_t *row);

#endif
