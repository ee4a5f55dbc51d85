/* ParvaGPU deployment maps: read or refused with a message; the checker accepts what a plan that
 * was read states about itself. */
#include "scheduler/scheduler.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const weft_profile_point points[] = {
    {.device = "a100-80",
     .slice = "1g.10gb",
     .batch = 4,
     .procs = 1,
     .cost = {.time_us = 5000, .source = "measured"}},
    {.device = "a100-80",
     .slice = "3g.40gb",
     .batch = 8,
     .procs = 2,
     .cost = {.time_us = 6000, .source = "measured"}},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const weft_fleet_device row = {.type = "a100-80", .count = 1000, .mig = true};
    const weft_fleet fleet = {.file = "fleet", .device = &row, .n_device = 1};
    const weft_demand demand = {
        .model = "a", .slo_us = 1e5, .rate_per_s = 20, .profile = {.point = points, .n = 2}};
    const weft_demands demands = {&demand, 1};
    const weft_problem problem = {.demands = &demands, .fleet = &fleet};
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_plan plan;
    if (weft_plan_from_parvagpu((const char *)data, size, "fuzz", &problem, arena, diag, &plan) ==
        WEFT_ERR_OK) {
        if (weft_plan_check(&plan, &problem, diag) != WEFT_ERR_OK && weft_diag_count(diag) == 0)
            abort();
        for (size_t i = 0; i < weft_diag_count(diag); i++)
            if (strncmp(weft_diag_at(diag, i)->text, "objective", 9) == 0)
                abort();
    } else if (weft_diag_count(diag) == 0) {
        abort();
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}
