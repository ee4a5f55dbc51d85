/* Profiles as CSV, both layouts: a profile is usable for planning or refused with a message. */
#include "scheduler/scheduler.h"
#include "tests/support/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan_with(const weft_profile *profile, weft_arena *arena)
{
    const weft_fleet_device rows[] = {
        {.type = "a100-80", .count = 2, .mig = true, .mps = true},
        {.type = "h100", .count = 2, .mig = true, .mps = true},
    };
    const weft_fleet fleet = {.file = "fleet", .device = rows, .n_device = 2};
    const weft_demand demand[] = {
        {.model = "a", .slo_us = 1e5, .rate_per_s = 20, .profile = *profile},
        {.model = "b", .rate_per_s = 500, .profile = *profile},
    };
    const weft_demands demands = {demand, 2};
    const weft_problem problem = {.demands = &demands, .fleet = &fleet};
    weft_diag *diag = weft_diag_create();
    weft_plan plan;
    weft_err err = weft_plan_make(weft_policy_find("bestfit"), NULL, &problem, arena, diag, &plan);
    if (err == WEFT_ERR_BUG)
        abort();
    weft_diag_destroy(diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const layout[] = {"weft", "parvagpu"};
    for (size_t i = 0; i < 2; i++) {
        weft_arena *arena = weft_arena_create(0);
        weft_diag *diag = weft_diag_create();
        weft_profile profile;
        char path[32];
        int fd = fuzz_file_open(data, size, path);
        weft_err err = weft_profile_load(path, layout[i], "m", arena, diag, &profile);
        if (err == WEFT_ERR_OK)
            plan_with(&profile, arena);
        else if (weft_diag_count(diag) == 0)
            abort();
        close(fd);
        weft_arena_destroy(arena);
        weft_diag_destroy(diag);
    }
    return 0;
}
