/* Request traces: requests come in order of time, belong to existing services, are as many as
 * counted, and are the same when the trace is read again. A part of the requests is then
 * simulated. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REQUESTS_MAX = 20000 };

static const weft_service service[] = {{"a", 1}, {"b", 1}};

/* Hash of the first requests; 1 if the trace is refused. */
static uint64_t read_trace(const uint8_t *data, size_t size, weft_arena *arena)
{
    weft_diag *diag = weft_diag_create();
    weft_arrivals *arrivals = NULL;
    uint64_t hash = 0;
    int64_t last = 0;
    weft_err err = weft_trace_open_text((const char *)data, size, "trace.csv", service, 2, 3, arena,
                                        diag, &arrivals);
    bool more = err == WEFT_ERR_OK;
    for (int i = 0; more && i < REQUESTS_MAX; i++) {
        weft_arrival r = {0};
        err = weft_arrivals_next(arrivals, &r, &more);
        if (err != WEFT_ERR_OK)
            break;
        if (more && (r.time_ns < last || r.service > 1 || r.time_ns > 1000000060000000000))
            abort();
        last = r.time_ns;
        hash = hash * 31 + (uint64_t)r.time_ns * 2 + r.service;
    }
    if (err != WEFT_ERR_OK && (err != WEFT_ERR_INPUT || weft_diag_count(diag) == 0))
        abort();
    weft_arrivals_close(arrivals);
    weft_diag_destroy(diag);
    return err == WEFT_ERR_OK ? hash : 1;
}

static void serve(const uint8_t *data, size_t size, weft_arena *arena)
{
    weft_demand demand[] = {{.model = "a", .slo_us = 1e5}, {.model = "b"}};
    weft_demands demands = {demand, 2};
    weft_placement p[2] = {{.model = "a",
                            .type = "h100",
                            .slice = "",
                            .mig_start = -1,
                            .share = 1,
                            .batch = 4,
                            .procs = 2,
                            .capacity_per_s = 100}};
    p[1] = p[0];
    p[1].model = "b";
    p[1].device = 1;
    weft_plan plan = {.policy = "fuzz", .at = p, .n = 2, .gpus = 2};
    weft_problem problem = {.demands = &demands};
    weft_sim_options options = {.plan = &plan,
                                .problem = &problem,
                                .duration_s = 100,
                                .bucket_s = 7,
                                .router = (weft_sim_router)(size % 3)};
    weft_sim_report report;
    weft_diag *diag = weft_diag_create();
    weft_arrivals *arrivals = NULL;
    if (weft_trace_open_text((const char *)data, size, "trace.csv", service, 2, 3, arena, diag,
                             &arrivals) == WEFT_ERR_OK &&
        weft_simulate(&options, arrivals, arena, diag, &report) == WEFT_ERR_OK) {
        const weft_sim_service *all = &report.total;
        if (all->count.requests != all->count.answered + all->count.dropped + all->in_flight)
            abort();
    }
    weft_arrivals_close(arrivals);
    weft_diag_destroy(diag);
}

/* Are all counts small? A billion requests in a row are valid but slow. */
static bool is_small(const uint8_t *data, size_t size)
{
    int digits = 0;
    for (size_t i = 0; i < size; i++) {
        digits = data[i] >= '0' && data[i] <= '9' ? digits + 1 : 0;
        if (digits > 4)
            return false;
    }
    return size < 4000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A block of exactly the input's size, so that a sanitizer detects reads past it. */
    uint8_t *copy = malloc(size ? size : 1);
    weft_arena *arena = weft_arena_create(0);
    if (copy && arena) {
        memcpy(copy, data, size);
        if (read_trace(copy, size, arena) != read_trace(copy, size, arena))
            abort();
        if (is_small(copy, size))
            serve(copy, size, arena);
    }
    weft_arena_destroy(arena);
    free(copy);
    return 0;
}
