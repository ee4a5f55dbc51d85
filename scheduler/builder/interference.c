/* Interference: models that run at the same time on one device, or in one MIG instance, slow each
 * other down. The execution time of each is multiplied by a factor of at least 1.
 *
 * Coefficients (gpulet, ATC'22):
 *   max(1, c0 l2 + c1 l2' + c2 dram + c3 dram' + c4)
 * l2 and dram are utilisations of the point alone on its share; primed ones are sums over the other
 * slices, at most 1, where a shared slice counts with the largest of its models. Profiles have no
 * l2: `creq`, the part of the compute units in use, replaces it. dram is the memory bandwidth over
 * the peak of the device.
 *
 * Over time:
 *   E[max(1, u + u')]
 * u is the bandwidth that the point takes at a moment, as a part of the device's, and u' the sum of
 * what the others take. While they want more than there is, each gets its proportional part, so
 * that the point takes u + u' times as long, unless it takes none itself (then the factor is 1).
 * Runs without a common clock meet in every phase: u and u' are independent, and the distribution
 * of u' is the convolution of the neighbours' histograms (base/use_histogram.h; of a point without
 * one its mean, without that all of the bandwidth). The others count as if they ran all the time.
 * Compute units are those of the shares, and shares are apart. */
#include "scheduler/builder/builder.h"

#include <math.h>
#include <string.h>

enum { TOP = WEFT_USEHIST_LEVELS - 1, LEVELS = WEFT_PRESSURE_LEVELS };

weft_pressure weft_point__pressure(const weft_fleet_device *row, const weft_profile_point *point)
{
    weft_pressure use = {.l2 = point->cost.creq, .use = &point->use};
    if (row && row->bandwidth_gbps > 0)
        use.dram = point->cost.bandwidth_gbps / row->bandwidth_gbps;
    use.l2 = use.l2 > 0 ? fmin(1, use.l2) : 0;
    use.dram = use.dram > 0 ? fmin(1, use.dram) : 0;
    return use;
}

weft_pressure weft_pressure__larger(weft_pressure a, weft_pressure b)
{
    return (weft_pressure){.l2 = fmax(a.l2, b.l2),
                           .dram = fmax(a.dram, b.dram),
                           .use = a.use && a.dram >= b.dram ? a.use : b.use};
}

bool weft_interference__any(const weft_interference *coeff)
{
    for (size_t i = 0; i < sizeof coeff->c / sizeof coeff->c[0]; i++)
        if (coeff->c[i] != 0)
            return true;
    return coeff->over_time;
}

bool weft_interference__equal(const weft_interference *a, const weft_interference *b)
{
    bool same = a->over_time == b->over_time && a->mean == b->mean;
    for (size_t i = 0; i < sizeof a->c / sizeof a->c[0]; i++)
        same = same && a->c[i] == b->c[i];
    return same;
}

/* Part of the time at each level of bandwidth. */
static void list_levels(const weft_interference *coeff, const weft_pressure *p,
                        double out[WEFT_USEHIST_LEVELS])
{
    bool known = p->use && weft_usehist_is_known(p->use);
    if (!coeff->mean && known) {
        weft_usehist_levels(p->use, WEFT_USEHIST_BANDWIDTH, out);
        return;
    }
    double mean = known ? weft_usehist_mean(p->use, WEFT_USEHIST_BANDWIDTH) : p->dram;
    double x = mean > 0 ? mean * TOP : TOP;
    int below = x >= TOP ? TOP - 1 : (int)x;
    memset(out, 0, WEFT_USEHIST_LEVELS * sizeof *out);
    out[below] = below + 1 - x;
    out[below + 1] = x - below;
}

void weft_interference__add(const weft_interference *coeff, weft_pressure use,
                            weft_pressure_sum *sum)
{
    double own[WEFT_USEHIST_LEVELS], both[LEVELS] = {0};
    sum->l2 += use.l2;
    sum->dram += use.dram;
    if (!coeff->over_time)
        return;
    list_levels(coeff, &use, own);
    if (sum->top == 0)
        sum->band[0] = 1;
    for (int i = 0; i <= sum->top; i++)
        for (int k = 0; k < WEFT_USEHIST_LEVELS; k++)
            both[i + k < LEVELS ? i + k : LEVELS - 1] += sum->band[i] * own[k];
    memcpy(sum->band, both, sizeof both);
    sum->top = sum->top + TOP < LEVELS ? sum->top + TOP : LEVELS - 1;
}

static double factor_over_time(const weft_interference *coeff, weft_pressure own,
                               const weft_pressure_sum *others)
{
    double level[WEFT_USEHIST_LEVELS], sum = 0;
    list_levels(coeff, &own, level);
    for (int i = 1; i < WEFT_USEHIST_LEVELS; i++)
        for (int k = 0; k <= others->top && level[i] > 0; k++)
            sum += level[i] * others->band[k] * fmax(1, (double)(i + k) / TOP);
    return others->top > 0 ? fmax(1, level[0] + sum) : 1;
}

weft_profile weft_interference_times(const weft_profile *profile, const weft_interference *coeff,
                                     weft_arena *arena)
{
    weft_profile out = *profile;
    if (!coeff->over_time)
        return out;
    weft_profile_point *point = weft_arena_array(arena, profile->n + 1, sizeof *point);
    for (size_t i = 0; i < profile->n; i++) {
        weft_profile_point *p = &point[i];
        *p = profile->point[i];
        double part = p->idle_us / p->cost.time_us;
        if (!strchr(p->slice, '%') || !(part > 0))
            continue;
        p->cost.time_us *= part;
        p->cost.time_p5_us *= part;
        p->cost.time_p95_us *= part;
        p->throughput_per_s /= part;
        p->cost.bandwidth_gbps /= part; /* as many bytes */
        p->idle_us = p->cost.time_us;   /* once more, nothing changes */
    }
    out.point = point;
    return out;
}

double weft_interference__factor(const weft_interference *coeff, weft_pressure own,
                                 const weft_pressure_sum *others)
{
    const double *c = coeff->c;
    if (coeff->over_time)
        return factor_over_time(coeff, own, others);
    double factor = c[0] * own.l2 + c[1] * fmin(1, others->l2) + c[2] * own.dram +
                    c[3] * fmin(1, others->dram) + c[4];
    return fmax(1, factor);
}
