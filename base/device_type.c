/* The table of devices, from devices.def. */
#include "base/device_type.h"

#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
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

bool weft_device_type_is_cpu(const char *name)
{
    const weft_device_type *type = weft_device_type_find(name);
    return type && type->sms == 0;
}

const weft_mig_profile *weft_device_type_mig(const weft_device_type *type, const char *name)
{
    for (size_t i = 0; type && i < type->n_mig; i++)
        if (strcmp(type->mig[i].name, name) == 0)
            return &type->mig[i];
    return NULL;
}

uint32_t weft_device_type_mig_slots(const weft_mig_profile *mig, int32_t start)
{
    return start < 0 || start > 31 ? 0 : (uint32_t)((((uint64_t)1 << mig->slots) - 1) << start);
}

/* -- Names that users write ------------------------------------------------------------------- */

/* Usual names without "NVIDIA", "Tesla" and separators, in lower case. Cards with other clocks,
 * multiprocessors or memory than those of the row are left out: H100 NVL, GH200 of 144 GB, V100 of
 * 32 GB on SXM2, A30X. */
static const struct {
    const char *name, *device;
} usual_names[] = {
    {"v100sxm2", "v100"},
    {"v100sxm216gb", "v100"},
    {"v100pcie32gb", "v100-pcie-32"},
    {"a100", "a100-80"},
    {"a100sxm", "a100-80"},
    {"a100sxm4", "a100-80"},
    {"a100pcie40gb", "a100-40"},
    {"a100sxm440gb", "a100-40"},
    {"a10040gb", "a100-40"},
    {"a100pcie80gb", "a100-80-pcie"},
    {"a100sxm480gb", "a100-80"},
    {"a10080gb", "a100-80"},
    {"a10080gbpcie", "a100-80-pcie"},
    {"h100sxm", "h100"},
    {"h100sxm5", "h100"},
    {"h100sxm80gb", "h100"},
    {"h100sxm580gb", "h100"},
    {"h10080gbhbm3", "h100"},
    {"h200sxm", "h200"},
    {"h200sxm141gb", "h200"},
    {"b200sxm", "b200"},
    {"p100pcie16gb", "p100"},
    {"p100sxm216gb", "p100"},
    {"h100pcie80gb", "h100-pcie"},
    {"amdinstinctmi300x", "mi300x"},
};

enum { NAME_LEN_MAX = 63 };

static bool starts_with(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* "NVIDIA A100-SXM4-80GB" ==> "a100sxm480gb". The result may be at an offset in `buf`. */
static const char *simplify(const char *name, char buf[NAME_LEN_MAX + 1])
{
    size_t len = 0;
    for (; *name && len < NAME_LEN_MAX; name++)
        if (isalnum((unsigned char)*name))
            buf[len++] = (char)tolower((unsigned char)*name);
    buf[len] = '\0';
    const char *text = buf;
    text += starts_with(text, "nvidia") ? strlen("nvidia") : 0;
    return text + (starts_with(text, "tesla") ? strlen("tesla") : 0);
}

const weft_device_type *weft_device_type_named(const char *name)
{
    char buf[NAME_LEN_MAX + 1], row[NAME_LEN_MAX + 1];
    if (strlen(name) > NAME_LEN_MAX)
        return NULL;
    const char *text = simplify(name, buf);
    for (size_t i = 0; *text && i < DEVICE_COUNT; i++)
        if (strcmp(simplify(device_table[i].name, row), text) == 0)
            return &device_table[i];
    for (size_t i = 0; i < sizeof usual_names / sizeof usual_names[0]; i++)
        if (strcmp(usual_names[i].name, text) == 0)
            return weft_device_type_find(usual_names[i].device);
    return NULL;
}

static const char *name_at(size_t i, const void *user)
{
    (void)user;
    return i < DEVICE_COUNT ? device_table[i].name : NULL;
}

const char *weft_device_type_near(const char *name)
{
    return weft_nearest(name, name_at, NULL);
}
