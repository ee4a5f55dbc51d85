/* Speed of the simulator on one core: requests generated and served a second of CPU and of wall
 * clock.
 *
 *   bench_simulate REQUESTS SERVICES ROUTER     prints one line; ROUTER 0 pull, 1 shares, 2 least
 *
 * Each service has four slices, loaded to 80 %, with batches of up to 16 and two processes.
 * Instructions of one request: `valgrind --tool=callgrind` of two numbers of requests, the
 * difference over theirs. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static weft_profile make_profile(weft_arena *arena)
{
    weft_profile_point *point = weft_arena_array(arena, 5, sizeof *point);
    for (uint32_t i = 0; i < 5; i++) {
        point[i] = (weft_profile_point){.batch = 1u << i, .procs = 2, .share = 1};
        snprintf(point[i].device, sizeof point[i].device, "h100");
        point[i].cost.time_us = 2000 + 280 * (1u << i);
    }
    return (weft_profile){.point = point, .n = 5};
}

int main(int argc, char **argv)
{
    uint64_t requests = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 10;
    weft_sim_router router = argc > 3 ? (weft_sim_router)(atoi(argv[3]) % 3) : WEFT_SIM_PULL;
    uint32_t replicas = 4;
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_demand *demand = weft_arena_array(arena, n, sizeof *demand);
    weft_placement *p = weft_arena_array(arena, (size_t)n * replicas, sizeof *p);
    for (uint32_t i = 0; i < n; i++) {
        demand[i] = (weft_demand){.model = weft_arena_printf(arena, "m%05u", i),
                                  .slo_us = 50000,
                                  .rate_per_s = 0.8 * replicas * 4938,
                                  .profile = make_profile(arena)};
        for (uint32_t k = 0; k < replicas; k++)
            p[i * replicas + k] = (weft_placement){.model = demand[i].model,
                                                   .device = i * replicas + k,
                                                   .type = "h100",
                                                   .slice = "",
                                                   .mig_start = -1,
                                                   .share = 1,
                                                   .batch = 16,
                                                   .procs = 2,
                                                   .rate_per_s = 0.8 * 4938};
    }
    weft_demands demands = {demand, n};
    weft_problem problem = {.demands = &demands};
    weft_plan plan = {.policy = "bench", .at = p, .n = (size_t)n * replicas, .gpus = n * replicas};
    const weft_service *service;
    size_t n_service;
    weft_arrivals *arrivals;
    weft_sim_report report;
    weft_sim_services(&problem, arena, &service, &n_service);
    weft_arrivals_options generate = {.duration_s = (double)requests / (n * demand[0].rate_per_s),
                                      .seed = 1};
    weft_sim_options options = {.plan = &plan, .problem = &problem, .router = router};
    double cpu = now_s(CLOCK_PROCESS_CPUTIME_ID), wall = now_s(CLOCK_MONOTONIC);
    if (weft_arrivals_generate(&generate, service, n_service, arena, diag, &arrivals) !=
            WEFT_ERR_OK ||
        weft_simulate(&options, arrivals, arena, diag, &report) != WEFT_ERR_OK) {
        fprintf(stderr, "%s\n", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "failed");
        return 1;
    }
    cpu = now_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = now_s(CLOCK_MONOTONIC) - wall;
    double served = (double)report.total.count.answered;
    printf(
        "%.0f requests, %u services, %u slices: %.3f s of CPU, %.3f s, %.3g requests a second of "
        "CPU; use %.2f\n",
        served, n, n * replicas, cpu, wall, served / cpu, report.busy);
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
    return 0;
}
