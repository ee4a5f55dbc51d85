/* The device table: rows of gpus.def. */
#include "estimator/device/device.h"

#include <string.h>

static const weft_gpu gpu_table[] = {
#define GPU(name_, ...) {.name = name_, __VA_ARGS__},
#define CPU(name_, ...) {.name = name_, .is_cpu = true, __VA_ARGS__},
#include "estimator/device/gpus.def"
#undef GPU
#undef CPU
};

enum { GPU_COUNT = sizeof gpu_table / sizeof gpu_table[0] };

const weft_gpu *weft_gpu_at(size_t i)
{
    return i < GPU_COUNT ? &gpu_table[i] : NULL;
}

const weft_gpu *weft_gpu_find(const char *name)
{
    for (size_t i = 0; i < GPU_COUNT; i++)
        if (strcmp(gpu_table[i].name, name) == 0)
            return &gpu_table[i];
    return NULL;
}
