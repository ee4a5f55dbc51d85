/* plan.json: a plan that was read is written and read back unchanged. Checking, deriving fields,
 * measuring, comparing, drawing and explaining an untrusted plan never crash; a plan whose fields
 * were derived has no wrong ones. */
#include "scheduler/scheduler.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define POINT(dev, sl, b, p, us)                                      \
    {                                                                 \
        .device = dev, .slice = sl, .batch = b, .procs = p, .cost = { \
            .time_us = us,                                            \
            .mreq_bytes = 1 << 30,                                    \
            .source = "measured",                                     \
            .creq = 0.3                                               \
        }                                                             \
    }

static const weft_profile_point points[] = {
    POINT("h100", "", 8, 1, 900),         POINT("h100", "1g.10gb", 4, 1, 4000),
    POINT("h100", "3g.40gb", 4, 2, 2000), POINT("h100", "3g.40gb/50%", 4, 1, 3000),
    POINT("h100", "40%", 8, 1, 2000),     POINT("cpu", "1core", 1, 1, 9000),
};

static const weft_demand demands[] = {
    {.model = "a", .slo_us = 20000, .rate_per_s = 100, .profile = {.point = points, .n = 6}},
    {.model = "b", .slo_us = 30000, .rate_per_s = 50, .profile = {.point = points, .n = 6}},
};
static const weft_demands both = {demands, 2};
static const uint32_t cores[] = {1, 1};
static const weft_fleet_device devices[] = {
    {.type = "cpu", .count = 1, .cores = 2, .slice_cores = cores, .n_slice = 2},
    {.type = "h100", .count = 3, .mig = true, .mps = true},
};
static const weft_fleet fleet = {.file = "fleet", .device = devices, .n_device = 2};

static void write_again(const weft_plan *plan, weft_arena *arena)
{
    char *first = NULL, *second = NULL;
    weft_plan back;
    if (weft_plan_to_json(plan, &both, &first) != WEFT_ERR_OK)
        abort();
    if (weft_plan_from_json(first, strlen(first), "again", arena, NULL, &back) != WEFT_ERR_OK ||
        weft_plan_to_json(&back, &both, &second) != WEFT_ERR_OK || strcmp(first, second) != 0)
        abort();
    free(first);
    free(second);
}

static void draw(const weft_plan *plan)
{
    const weft_draw_options options = {.color = true, .width = 60};
    char *text = NULL, *svg = NULL;
    if (weft_plan_draw_text(plan, &options, &text) != WEFT_ERR_OK ||
        weft_plan_draw_svg(plan, &options, &svg) != WEFT_ERR_OK)
        abort();
    free(text);
    free(svg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_problem problem = {.demands = &both, .fleet = &fleet};
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_plan plan;
    if (size > 1 && data[size - 1] % 2)
        problem.rules.interference = (weft_interference){.c = {0.1, 0.4, 0.1, 0.4, 0.9}};
    if (weft_plan_from_json((const char *)data, size, "fuzz", arena, diag, &plan) == WEFT_ERR_OK) {
        const weft_plan_move *move;
        weft_plan_metrics metrics;
        weft_explanation why;
        size_t n;
        write_again(&plan, arena);
        if (weft_plan_check(&plan, &problem, diag) != WEFT_ERR_OK && weft_diag_count(diag) == 0)
            abort();
        draw(&plan);
        weft_plan_diff(&plan, &plan, arena, &move, &n);
        if (n != 0)
            abort(); /* a plan differs from itself */
        weft_plan_measure(&plan, &problem, arena, &metrics);
        weft_diag_clear(diag);
        if (weft_plan_explain(&plan, &problem, NULL, "a", arena, diag, &why) != WEFT_ERR_OK &&
            weft_diag_count(diag) == 0)
            abort();
        weft_plan_derive(&plan, &problem, arena);
        weft_diag_clear(diag);
        if (weft_plan_check(&plan, &problem, diag) != WEFT_ERR_OK && weft_diag_count(diag) == 0)
            abort();
        for (size_t i = 0; i < weft_diag_count(diag); i++)
            if (strncmp(weft_diag_at(diag, i)->text, "objective: cap", 14) == 0 ||
                strncmp(weft_diag_at(diag, i)->text, "objective: lat", 14) == 0)
                abort(); /* checker and completion do not agree */
    } else if (weft_diag_count(diag) == 0) {
        abort(); /* an error without a message */
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}
