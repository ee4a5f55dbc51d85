/* How bursty a trace is: the peak rate over the mean rate of each model's requests.
 *
 * Requests are counted in windows as long as the SLO of the model, but of at least 100 requests at
 * its rate, since the rule `queue` has the noise of random arrivals in its capacity already. The
 * peak is the largest count such that the windows above it have at most 1 - quantile of all
 * requests, less the 2.33 deviations that a Poisson count of this size exceeds in one case of a
 * hundred. Bursts shorter than a window are averaged over it. */
#include "scheduler/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_REQUESTS = 100 };

static const double normal_99 = 2.33;

typedef struct tally {
    const char *name;
    int64_t window_ns; /* 0: the model has no rate */
    int64_t at;        /* window in hand */
    uint32_t here;     /* its requests so far */
    WEFT_VEC(uint32_t) count;
} tally;

static int compare_counts(const void *a, const void *b)
{
    uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
    return (p < q) - (p > q);
}

/* Peak over mean rate; 1 if there are too few windows to tell. */
static double ratio_of(tally *t, double quantile)
{
    double sum = 0, above = 0;
    if (t->count.len < 2)
        return 1;
    qsort(t->count.at, t->count.len, sizeof *t->count.at, compare_counts);
    for (uint32_t i = 0; i < t->count.len; i++)
        sum += t->count.at[i];
    uint32_t i = 0;
    while (i + 1 < t->count.len && above + t->count.at[i] <= (1 - quantile) * sum)
        above += t->count.at[i++];
    double peak = t->count.at[i], mean = sum / (double)t->at;
    return fmax(1, (peak - normal_99 * sqrt(peak)) / mean);
}

static tally *start(const weft_problem *problem, const weft_service *service, size_t n,
                    weft_arena *arena)
{
    tally *list = weft_arena_array(arena, n + 1, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        double slo_us = 0;
        for (size_t d = 0; d < problem->demands->n; d++)
            if (strcmp(problem->demands->at[d].model, service[i].name) == 0)
                slo_us = problem->demands->at[d].slo_us;
        double window_s = fmax(slo_us / 1e6, WINDOW_REQUESTS / service[i].rate_per_s);
        list[i].name = service[i].name;
        list[i].window_ns = window_s < 1e9 ? (int64_t)fmax(1e3, window_s * 1e9) : 0;
    }
    return list;
}

weft_err weft_trace_burst(const char *path, const weft_problem *problem, double quantile,
                          weft_arena *arena, weft_diag *diag, const char **out_model,
                          double *out_ratio)
{
    const weft_service *service;
    weft_arrivals *arrivals = NULL;
    weft_arrival one;
    bool more = true;
    size_t n;
    weft_sim_services(problem, arena, &service, &n);
    WEFT_TRY(weft_trace_open(path, service, n, problem->seed, arena, diag, &arrivals));
    tally *list = start(problem, service, n, arena);
    weft_err err;
    while ((err = weft_arrivals_next(arrivals, &one, &more)) == WEFT_ERR_OK && more) {
        tally *t = &list[one.service];
        if (t->window_ns == 0)
            continue;
        int64_t at = one.time_ns / t->window_ns;
        if (at != t->at && t->here > 0)
            WEFT_VEC_PUSH(arena, &t->count, t->here);
        t->here = at != t->at ? 1 : t->here + 1;
        t->at = at;
    }
    weft_arrivals_close(arrivals);
    WEFT_TRY(err);
    *out_ratio = 1;
    *out_model = NULL;
    for (size_t i = 0; i < n; i++) {
        double ratio = ratio_of(&list[i], quantile);
        if (ratio > *out_ratio) {
            *out_ratio = ratio;
            *out_model = list[i].name;
        }
    }
    return WEFT_ERR_OK;
}
