/* Devices that cuDNN's plans are made for. */
#include "tools/compiler/conv_targets.h"

#include "estimator/estimator.h"

#include <string.h>

static bool is_of(const weft_device_type *type, const weft_sm_limits *sm)
{
    const weft_gpu *gpu = type ? weft_gpu_find(type->name) : NULL;
    return gpu && type->sms > 0 && gpu->capability == sm->capability;
}

/* NULL: the table has no device of the architecture. */
static const weft_device_type *find_device(const weft_sm_limits *sm, const char *gpu)
{
    const weft_device_type *type = gpu ? weft_device_type_find(gpu) : NULL;
    if (is_of(type, sm))
        return type;
    for (size_t i = 0; (type = weft_device_type_at(i)); i++)
        if (is_of(type, sm))
            return type;
    return NULL;
}

weft_err weft_tool_plan_convs(weft_bundle *bundle, const char *gpu, weft_arena *arena,
                              weft_conv_planning *out)
{
    weft_conv_target *target = weft_arena_array(arena, bundle->n_arch, sizeof *target);
    uint32_t n = 0;
    for (uint32_t i = 0; i < bundle->n_arch; i++) {
        const char *arch = bundle->arch[i];
        const weft_sm_limits *sm = weft_sm_limits_named(arch, strlen(arch));
        const weft_device_type *type = sm ? find_device(sm, gpu) : NULL;
        if (type)
            target[n++] = (weft_conv_target){type->name, i, sm, type->sms, type->mem_bytes};
    }
    WEFT_TRY(weft_convs_plan(bundle, target, n, arena, out));
    bundle->conv_plans = out->plans;
    bundle->n_conv_plans = out->n_plans;
    return WEFT_ERR_OK;
}
