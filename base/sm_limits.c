/* The table of multiprocessor limits, from sm_limits.def. */
#include "base/sm_limits.h"

#include <string.h>

static const weft_sm_limits sm_table[] = {
#define SM(capability_, ...) {.capability = capability_, __VA_ARGS__},
#include "base/sm_limits.def"
#undef SM
};

enum { SM_COUNT = sizeof sm_table / sizeof sm_table[0] };

const weft_sm_limits *weft_sm_limits_at(size_t i)
{
    return i < SM_COUNT ? &sm_table[i] : NULL;
}

const weft_sm_limits *weft_sm_limits_find(uint32_t capability)
{
    for (size_t i = 0; i < SM_COUNT; i++)
        if (sm_table[i].capability == capability)
            return &sm_table[i];
    return NULL;
}

const weft_sm_limits *weft_sm_limits_named(const char *arch, size_t len)
{
    static const char prefix[] = "sm_";
    uint32_t capability = 0;
    size_t at = sizeof prefix - 1;
    if (len <= at || len > at + 4 || memcmp(arch, prefix, at) != 0 || arch[at] == '0')
        return NULL;
    for (; at < len; at++) {
        if (arch[at] < '0' || arch[at] > '9')
            return NULL;
        capability = 10 * capability + (uint32_t)(arch[at] - '0');
    }
    return weft_sm_limits_find(capability);
}
