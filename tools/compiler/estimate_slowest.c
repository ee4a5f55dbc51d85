/* The kernels that take the most time of an estimate. */
#include "tools/compiler/estimate.h"

#include <string.h>

size_t weft_tool_slowest(const weft_estimate *e, size_t *out, size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < e->n; i++) {
        size_t at = found < n ? found : n;
        while (at > 0 && e->kernel[out[at - 1]].cost.time_us < e->kernel[i].cost.time_us)
            at--;
        if (at == n)
            continue;
        size_t last = found < n ? found : n - 1;
        memmove(&out[at + 1], &out[at], (last - at) * sizeof *out);
        out[at] = i;
        found = last + 1;
    }
    return found;
}

void weft_tool_shares(const weft_estimate *e, double out[3])
{
    out[0] = out[1] = out[2] = 0;
    for (size_t i = 0; i < e->n; i++) {
        const char *bound = e->kernel[i].bound;
        int which = strcmp(bound, "compute") == 0 ? 0 : strcmp(bound, "memory") == 0 ? 1 : 2;
        out[which] += e->device_us > 0 ? e->kernel[i].cost.time_us / e->device_us : 0;
    }
}
