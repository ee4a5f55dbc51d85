/* Histograms of durations with fixed boundaries, as Prometheus has them. */
#include "runtime/server/serve_int.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void weft_histogram__init(weft_histogram *h, double slo_us)
{
    static const double fixed[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                   0.1,    0.25,  0.5,    1,     2.5,  5,     10};
    double all[WEFT_HISTOGRAM_MAX];
    uint32_t n = 0;
    *h = (weft_histogram){0};
    for (; n < sizeof fixed / sizeof fixed[0]; n++)
        all[n] = fixed[n];
    /* So that the part of requests within the SLO can be read off exactly. */
    for (double times = 0.5; slo_us > 0 && times <= 2; times *= 2)
        all[n++] = slo_us * times / 1e6;
    qsort(all, n, sizeof all[0], compare);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || all[i] > all[i - 1] * (1 + 1e-9))
            h->bound_s[h->n++] = all[i];
}

void weft_histogram__add(weft_histogram *h, uint64_t ns)
{
    uint32_t i = 0;
    double s = (double)ns * 1e-9;
    while (i < h->n && s > h->bound_s[i])
        i++;
    h->count[i]++;
    h->sum_ns += ns;
}
