/* Measured time, memory and energy beside the estimates. Energy comes from the GPU's own
 * counter, which is updated about ten times a second: a measurement of one second has an error
 * of about 10 %. Memory is the increase of the memory in use on the whole GPU, so other
 * processes that allocate or free memory meanwhile disturb it. */
#include "tools/server/bench_gpu.h"

#include "base/cpus.h"
#include "tools/common/tools.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const double least_energy_s = 0.2;

void weft_bench_meter_open(weft_bench_meter *meter, const char *bundle_path,
                           const weft_engine_options *engine)
{
    weft_bundle *bundle;
    *meter = (weft_bench_meter){0};
    if (weft_bundle_open(bundle_path, NULL, &bundle) != WEFT_ERR_OK)
        return; /* opening the engine reports the error */
    bool gpu = bundle->target && strncmp(bundle->target, "sm_", 3) == 0;
    if (!gpu) {
        meter->device = "cpu";
        snprintf(meter->slice, sizeof meter->slice, "%ucore",
                 engine->threads ? engine->threads : weft_cpus_usable());
    }
    weft_bundle_close(bundle);
    if (!gpu || weft_meter_open(NULL, engine->gpu, NULL, &meter->gpu) != WEFT_ERR_OK)
        return;
    const weft_device_type *type = weft_meter_type(meter->gpu);
    meter->device = type ? type->name : NULL;
    weft_meter_read(meter->gpu, &meter->begin);
    meter->free_bytes = meter->begin.mem_used_bytes;
}

void weft_bench_meter_close(weft_bench_meter *meter)
{
    weft_meter_close(meter->gpu);
}

void weft_bench_meter_begin(weft_bench_meter *meter)
{
    if (meter->gpu)
        weft_meter_read(meter->gpu, &meter->begin);
    meter->begin_ms = weft_tool_now_ms();
}

static const weft_cost *find_estimate(const weft_bundle_program *p, const weft_bench_meter *meter,
                                      int64_t batch)
{
    for (size_t i = 0; meter->device && i < p->profile.n; i++) {
        const weft_profile_point *at = &p->profile.point[i];
        if (strcmp(at->device, meter->device) == 0 && strcmp(at->slice, meter->slice) == 0 &&
            at->procs <= 1 && (int64_t)at->batch == batch)
            return &at->cost;
    }
    return NULL;
}

void weft_bench_meter_end(weft_bench_meter *meter, const weft_bundle_program *program,
                          int64_t batch, size_t runs, double seconds, weft_bench_reading *out)
{
    weft_meter_reading now;
    *out = (weft_bench_reading){-1, -1, -1, -1, -1, -1, find_estimate(program, meter, batch)};
    if (!meter->gpu)
        return;
    weft_meter_read(meter->gpu, &now);
    double between_s = (weft_tool_now_ms() - meter->begin_ms) * 1e-3;
    if (now.energy_j >= 0 && meter->begin.energy_j >= 0 && seconds >= least_energy_s && runs) {
        out->power_w = (now.energy_j - meter->begin.energy_j) / between_s;
        out->energy_j = out->power_w * seconds / (double)runs;
    }
    if (now.mem_used_bytes >= 0 && meter->free_bytes >= 0)
        out->mem_bytes = now.mem_used_bytes - meter->free_bytes;
    out->sms = now.sms;
    out->tensor = now.tensor;
    out->bandwidth = now.bandwidth;
}

static void print_percent(const char *what, double part)
{
    if (part >= 0)
        printf("  %s %.0f%%", what, part * 100);
}

void weft_bench_reading_print(const weft_bench_reading *r, double median_ms)
{
    bool measured = r->mem_bytes >= 0 || r->energy_j >= 0 || r->sms >= 0;
    if (measured) {
        printf("    measured  %.3f ms", median_ms);
        if (r->mem_bytes >= 0)
            printf("  %.0f MB", r->mem_bytes * 1e-6);
        if (r->energy_j >= 0)
            printf("  %.4g J  %.0f W", r->energy_j, r->power_w);
        print_percent("SMs", r->sms);
        print_percent("tensor cores", r->tensor);
        print_percent("bandwidth", r->bandwidth);
        putchar('\n');
    }
    if (r->estimate) {
        printf("    estimated %.3f ms", r->estimate->time_us * 1e-3);
        if (r->estimate->mreq_bytes)
            printf("  %.0f MB", (double)r->estimate->mreq_bytes * 1e-6);
        if (r->estimate->energy_j > 0)
            printf("  %.4g J", r->estimate->energy_j);
        printf("  (%s, expected error of the time %.0f%%)\n", r->estimate->source,
               r->estimate->expected_error * 100);
    }
}

static void add(json_t *row, const char *key, double value)
{
    json_object_set_new(row, key, value >= 0 ? json_real(value) : json_null());
}

void weft_bench_reading_add(const weft_bench_reading *r, json_t *row)
{
    add(row, "energy_j", r->energy_j);
    add(row, "power_w", r->power_w);
    add(row, "mem_bytes", r->mem_bytes);
    add(row, "sm_activity", r->sms);
    add(row, "tensor_activity", r->tensor);
    add(row, "memory_activity", r->bandwidth);
    json_object_set_new(
        row, "estimate",
        r->estimate ? json_pack("{s:f, s:I, s:f, s:f, s:s}", "time_us", r->estimate->time_us,
                                "mreq_bytes", (json_int_t)r->estimate->mreq_bytes, "energy_j",
                                r->estimate->energy_j, "expected_error",
                                r->estimate->expected_error, "source", r->estimate->source)
                    : json_null());
}
