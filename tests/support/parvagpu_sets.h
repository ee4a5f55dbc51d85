/* Scheduling problems from ParvaGPU's published data: its six scenarios, multiples of them, and
 * random sets drawn from the same profiles by a seeded generator. For tests and benchmarks. */
#ifndef WEFT_TESTS_SUPPORT_PARVAGPU_SETS_H
#define WEFT_TESTS_SUPPORT_PARVAGPU_SETS_H

#include "data_dir.h"

#include "scheduler/scheduler.h"
#include "tests/support/rand.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { PARVAGPU_SET_MODELS = 11, PARVAGPU_SCENARIOS = 6 };

static const char *const parvagpu_set_model[PARVAGPU_SET_MODELS] = {
    "bert",      "densenet121", "densenet169", "densenet201", "inceptionv3", "mobilenetv2",
    "resnet101", "resnet152",   "resnet50",    "vgg16",       "vgg19"};

typedef struct parvagpu_data {
    double rate[PARVAGPU_SCENARIOS][PARVAGPU_SET_MODELS]; /* 0: absent */
    double slo_ms[PARVAGPU_SCENARIOS][PARVAGPU_SET_MODELS];
    weft_profile profile[PARVAGPU_SET_MODELS];
    double peak_per_s[PARVAGPU_SET_MODELS]; /* most on a whole device */
    double fastest_ms[PARVAGPU_SET_MODELS]; /* least time of any point */
    weft_fleet_device device;
    weft_fleet fleet;
} parvagpu_data;

/* A problem and the demands that it points to. */
typedef struct parvagpu_set {
    weft_demands demands;
    weft_problem problem;
} parvagpu_set;

static inline bool parvagpu_read_table(const char *name, double out[][PARVAGPU_SET_MODELS])
{
    char path[4096], line[1024];
    if (!weft_data_path(name, path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    bool ok = f != NULL;
    for (size_t r = 0; ok && r < PARVAGPU_SCENARIOS; r++) {
        char *at = fgets(line, sizeof line, f);
        for (size_t c = 0; at && c < PARVAGPU_SET_MODELS; c++) {
            char *field = strsep(&at, ",\r\n");
            out[r][c] = field && strcmp(field, "N/A") != 0 ? strtod(field, NULL) : 0;
        }
        ok = line[0] != 0;
    }
    if (f)
        fclose(f);
    return ok;
}

/* false: the data is not there. */
static inline bool parvagpu_load(weft_arena *arena, parvagpu_data *out)
{
    if (!parvagpu_read_table("parvagpu/SLO/SLO_req_rate.csv", out->rate) ||
        !parvagpu_read_table("parvagpu/SLO/SLO_latency.csv", out->slo_ms))
        return false;
    for (size_t m = 0; m < PARVAGPU_SET_MODELS; m++) {
        char name[64], path[4096];
        snprintf(name, sizeof name, "parvagpu/profiles/%s.csv", parvagpu_set_model[m]);
        if (!weft_data_path(name, path, sizeof path) ||
            weft_profile_load(path, "parvagpu", parvagpu_set_model[m], arena, NULL,
                              &out->profile[m]) != WEFT_ERR_OK)
            return false;
        out->peak_per_s[m] = 0;
        out->fastest_ms[m] = 1e9;
        for (size_t i = 0; i < out->profile[m].n; i++) {
            const weft_profile_point *p = &out->profile[m].point[i];
            out->peak_per_s[m] = fmax(out->peak_per_s[m], p->throughput_per_s);
            out->fastest_ms[m] = fmin(out->fastest_ms[m], p->cost.time_us / 1e3);
        }
    }
    out->device = (weft_fleet_device){.type = "a100-80", .count = 10000, .mig = true};
    out->fleet = (weft_fleet){.file = "fleet", .device = &out->device, .n_device = 1};
    return true;
}

/* The rules of the published plans: latency rule half09, whole milliseconds, no shared instances.
 */
static inline void parvagpu_set_rules(const parvagpu_data *data, uint32_t procs, parvagpu_set *out)
{
    out->problem = (weft_problem){.demands = &out->demands, .fleet = &data->fleet};
    out->problem.rules.latency = WEFT_RULE_HALF09;
    out->problem.rules.whole_ms = true;
    out->problem.rules.procs_max = procs;
    out->problem.rules.isolated = true;
}

/* Scenario 0..5 with `times` copies of every service under different names. */
static inline void parvagpu_scenario(const parvagpu_data *data, size_t scenario, uint32_t times,
                                     uint32_t procs, weft_arena *arena, parvagpu_set *out)
{
    weft_demand *demand =
        weft_arena_array(arena, (size_t)times * PARVAGPU_SET_MODELS, sizeof *demand);
    size_t n = 0;
    for (size_t m = 0; m < PARVAGPU_SET_MODELS; m++)
        for (uint32_t k = 0; k < times && data->rate[scenario][m] > 0; k++)
            demand[n++] = (weft_demand){
                .model = times == 1 ? parvagpu_set_model[m]
                                    : weft_arena_printf(arena, "%s-%03u", parvagpu_set_model[m], k),
                .slo_us = data->slo_ms[scenario][m] * 1000,
                .rate_per_s = data->rate[scenario][m],
                .profile = data->profile[m]};
    out->demands = (weft_demands){demand, n};
    parvagpu_set_rules(data, procs, out);
}

/* Log-uniform between lo and hi, rounded so that every machine computes the same value. */
static inline double parvagpu_pick(uint64_t *seed, double lo, double hi)
{
    double x = (double)(rand_next(seed) % 1001) / 1000;
    return floor(1000 * lo * pow(hi / lo, x)) / 1000;
}

/* `n` services (0: 2 to 24) of random models. Rates: 2 % to `most` of the peak throughput of a
 * whole device; SLOs: 3 to 60 times the fastest point, as in the published scenarios. */
static inline void parvagpu_random(const parvagpu_data *data, uint64_t seed, uint32_t n,
                                   double most, uint32_t procs, weft_arena *arena,
                                   parvagpu_set *out)
{
    seed = seed * 7919 + 17;
    for (int i = 0; i < 4; i++)
        (void)rand_next(&seed);
    if (n == 0)
        n = 2 + (uint32_t)rand_next(&seed) % 23;
    weft_demand *demand = weft_arena_array(arena, n, sizeof *demand);
    for (uint32_t i = 0; i < n; i++) {
        size_t m = rand_next(&seed) % PARVAGPU_SET_MODELS;
        demand[i].model = weft_arena_printf(arena, "%s-%04u", parvagpu_set_model[m], i);
        demand[i].profile = data->profile[m];
        demand[i].rate_per_s = parvagpu_pick(&seed, 0.02, most) * data->peak_per_s[m];
        demand[i].slo_us = parvagpu_pick(&seed, 3, 60) * fmax(data->fastest_ms[m], 4) * 1000;
    }
    out->demands = (weft_demands){demand, n};
    parvagpu_set_rules(data, procs, out);
}

#endif
