/* Compute need over time: when each kernel runs, and which kernels run together.
 *
 *   start(k) = max over parents p of end(p)        end(k) = start(k) + time(k)
 *
 * A join waits for all its parents (the released code of the USHER paper waits only for the parent
 * that it visits first). Every kernel starts as soon as its operands are ready, on as many streams
 * as that takes: the need over time is what a graph could use, the time of its longest chain is a
 * lower bound of its time. The needs of concurrent kernels add up, to at most the whole device.
 *
 * A sweep over the sorted 2 K end points of the intervals: O(K log K). Intervals are half open, so
 * that a kernel that starts when another ends does not overlap it. */
#include "estimator/workload/workload.h"

#include <math.h>
#include <stdlib.h>

/* -- Starts and ends -------------------------------------------------------------------------- */

void weft_workload__schedule(const weft_workload *work, weft_kernel_cost *kernel,
                             weft_arena *scratch, weft_creq *out)
{
    double *end_us = weft_arena_array(scratch, work->n_node + 1, sizeof *end_us);
    weft_interval *interval = weft_arena_array(scratch, work->n + 1, sizeof *interval);
    for (size_t i = 0; i < work->n_node; i++) {
        const weft_workload_node *s = &work->node[i];
        double now_us = 0;
        for (uint32_t e = 0; e < s->n_edge; e++)
            now_us = fmax(now_us, end_us[work->edge[s->first_edge + e]]);
        for (uint32_t k = s->first_kernel; k < s->first_kernel + s->n_kernel; k++) {
            kernel[k].start_us = now_us;
            now_us += kernel[k].cost.time_us;
            kernel[k].end_us = now_us;
            interval[k] = (weft_interval){kernel[k].start_us, now_us, kernel[k].cost.creq};
        }
        end_us[i] = now_us;
    }
    weft_creq_sweep(interval, work->n, scratch, out);
}

/* -- Sweep ------------------------------------------------------------------------------------ */

/* An end point of an interval. */
typedef struct event {
    double at_us, change; /* change of the need */
} event;

/* A period of constant need. */
typedef struct stretch {
    double need, len_us;
} stretch;

/* Ends sort before starts at the same time, so that adjacent intervals do not overlap. */
static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    return (x->change > y->change) - (x->change < y->change);
}

static int by_need(const void *a, const void *b)
{
    const stretch *x = a, *y = b;
    return (x->need > y->need) - (x->need < y->need);
}

static size_t make_events(const weft_interval *interval, size_t n, event *out)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(interval[i].end_us > interval[i].start_us))
            continue;
        out[len++] = (event){interval[i].start_us, interval[i].need};
        out[len++] = (event){interval[i].end_us, -interval[i].need};
    }
    qsort(out, len, sizeof *out, by_time);
    return len;
}

static uint32_t bin_of(double need)
{
    double bin = ceil(need * WEFT_CREQ_BINS - 1e-9) - 1;
    return (uint32_t)fmin(fmax(bin, 0), WEFT_CREQ_BINS - 1);
}

void weft_creq_sweep(const weft_interval *interval, size_t n, weft_arena *scratch, weft_creq *out)
{
    event *at = weft_arena_array(scratch, 2 * n + 1, sizeof *at);
    stretch *part = weft_arena_array(scratch, 2 * n + 1, sizeof *part);
    size_t n_event = make_events(interval, n, at), n_part = 0;
    double need = 0, span_us = 0, area = 0;
    weft_creq c = {0};
    for (size_t i = 0; i < n_event; i++) {
        need += at[i].change;
        double len_us = i + 1 < n_event ? at[i + 1].at_us - at[i].at_us : 0;
        if (!(len_us > 0))
            continue;
        double used = fmin(1, fmax(0, need));
        part[n_part++] = (stretch){used, len_us};
        c.max = fmax(c.max, used);
        c.bin[bin_of(used)] += len_us;
        area += used * len_us;
        span_us += len_us;
    }
    if (span_us > 0) {
        c.mean = area / span_us;
        c.span_us = span_us;
        for (size_t i = 0; i < WEFT_CREQ_BINS; i++)
            c.bin[i] /= span_us;
        qsort(part, n_part, sizeof *part, by_need);
        double behind_us = 0;
        for (size_t i = 0; i < n_part && behind_us < 0.95 * span_us; i++) {
            behind_us += part[i].len_us;
            c.p95 = part[i].need;
        }
    }
    *out = c;
}

/* -- USHER's grouping ------------------------------------------------------------------------- */

static int by_start(const void *a, const void *b)
{
    const weft_interval *x = a, *y = b;
    return (x->start_us > y->start_us) - (x->start_us < y->start_us);
}

double weft_creq_usher(const weft_interval *interval, size_t n, double tau_us, weft_arena *scratch)
{
    weft_interval *sorted = weft_arena_array(scratch, n + 1, sizeof *sorted);
    double most = 0;
    for (size_t i = 0; i < n; i++)
        sorted[i] = interval[i];
    qsort(sorted, n, sizeof *sorted, by_start);
    for (size_t i = 0; i < n;) {
        double first_us = sorted[i].start_us, need = 0;
        while (i < n && sorted[i].start_us - first_us <= tau_us)
            need += sorted[i++].need;
        most = fmax(most, need);
    }
    return fmin(1, most);
}
