/* The table of devices, from devices.def. */
#include "base/device_type.h"

#include <string.h>

#define GIB(x)        ((uint64_t)((x)*1073741824.0))
#define MIG_BEGIN(id) static const weft_mig_profile mig_##id[] = {
#define MIG(name_, gpcs_, of_, slots_, starts_, sms_, all_sms, gib) \
    {.name = name_,                                                 \
     .gpcs = gpcs_,                                                 \
     .of_gpcs = of_,                                                \
     .slots = slots_,                                               \
     .starts = starts_,                                             \
     .sms = sms_,                                                   \
     .share = (double)(sms_) / (all_sms),                           \
     .mem_bytes = GIB(gib)},
#define MIG_END \
    }           \
    ;
#define DEVICES_BEGIN      static const weft_device_type device_table[] = {
#define DEVICE(name_, ...) {.name = name_, __VA_ARGS__},
#define DEVICES_END \
    }               \
    ;
#include "base/devices.def"

enum { DEVICE_COUNT = sizeof device_table / sizeof device_table[0] };

const weft_device_type *weft_device_type_at(size_t i)
{
    return i < DEVICE_COUNT ? &device_table[i] : NULL;
}

const weft_device_type *weft_device_type_find(const char *name)
{
    for (size_t i = 0; i < DEVICE_COUNT; i++)
        if (strcmp(device_table[i].name, name) == 0)
            return &device_table[i];
    return NULL;
}
