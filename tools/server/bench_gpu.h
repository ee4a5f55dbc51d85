/* What a GPU says of a measurement of `weft bench`, beside what the bundle's estimates say. */
#ifndef WEFT_TOOLS_BENCH_GPU_H
#define WEFT_TOOLS_BENCH_GPU_H

#include "ir/bundle.h"
#include "runtime/machine/machine.h"

struct json_t;

typedef struct weft_bench_meter {
    weft_meter *gpu;    /* NULL: the bundle is for CPUs, or the GPU does not tell */
    double free_bytes;  /* in use by others, when it was opened */
    const char *device; /* row of the table of devices; NULL: none */
    weft_meter_reading begin;
    double begin_ms; /* when it was read */
} weft_bench_meter;

/* Of one measurement; negative: not known. */
typedef struct weft_bench_reading {
    double energy_j; /* of one run */
    double power_w;  /* mean */
    double mem_bytes;
    double sms, tensor, bandwidth; /* activity */
    const weft_cost *estimate;     /* of this device and batch; NULL: none */
} weft_bench_reading;

/* To be opened before the engine is. A GPU that does not tell is no error. `ordinal`: of the GPU
 * that is used, among those that are visible. */
void weft_bench_meter_open(weft_bench_meter *meter, const char *bundle, uint32_t ordinal);
void weft_bench_meter_close(weft_bench_meter *meter);
/* Around runs that take `seconds` in all. */
void weft_bench_meter_begin(weft_bench_meter *meter);
void weft_bench_meter_end(weft_bench_meter *meter, const weft_bundle_program *program,
                          int64_t batch, size_t runs, double seconds, weft_bench_reading *out);
/* A line, when there is something to say. */
void weft_bench_reading_print(const weft_bench_reading *reading, double median_ms);
/* Keys "energy_j", "power_w", "mem_bytes", "sm_activity", "tensor_activity", "memory_activity" and
 * "estimate" join `row`. */
void weft_bench_reading_add(const weft_bench_reading *reading, struct json_t *row);

#endif
