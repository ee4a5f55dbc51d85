/* A GPU beside the device table (base/device_type.h): the row that describes it, and the
 * differences between what its driver reports and that row. */
#include "runtime/machine/machine_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Memory sizes that drivers report for one GPU differ between driver versions by less than this. */
static const double mem_tolerance = 0.03;

/* Whether the first word of a row's name ("a100" of "a100-40") is a word of NVML's name. */
static bool has_model(const char *name, const char *row)
{
    size_t n = strcspn(row, "-");
    for (const char *at = name; *at; at++) {
        bool starts = at == name || !isalnum((unsigned char)at[-1]);
        if (starts && strncasecmp(at, row, n) == 0 && !isalnum((unsigned char)at[n]))
            return true;
    }
    return false;
}

const weft_device_type *weft_machine__find_type(const char *name, uint64_t mem_bytes, uint32_t sms)
{
    const weft_device_type *type;
    for (size_t i = 0; (type = weft_device_type_at(i)); i++) {
        /* NVML reports the whole memory, the table has the memory that a process can use. */
        double part = mem_bytes ? (double)type->mem_bytes / (double)mem_bytes : 0;
        if (type->sms && has_model(name, type->name) && part > 0.85 && part < 1.03 &&
            (sms == 0 || sms == type->sms))
            return type;
    }
    return NULL;
}

typedef WEFT_VEC(const char *) lines;

static void put_starts(uint32_t starts, char text[64])
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < 16; i++)
        if (starts & 1u << i)
            at += (size_t)snprintf(text + at, 64 - at, "%s%u", at ? "," : "", i);
}

static void compare_profile(const weft_machine_profile *p, const weft_mig_profile *row,
                            weft_arena *arena, lines *out)
{
    double gib = (double)p->mem_bytes / 0x1p30, row_gib = (double)row->mem_bytes / 0x1p30;
    if (p->sms != row->sms)
        WEFT_VEC_PUSH(
            arena, out,
            weft_arena_printf(arena, "%s: %u SMs, the table has %u", p->name, p->sms, row->sms));
    if (fabs(gib - row_gib) > mem_tolerance * row_gib)
        WEFT_VEC_PUSH(
            arena, out,
            weft_arena_printf(arena, "%s: %.2f GiB, the table has %.2f", p->name, gib, row_gib));
    if (p->starts && p->starts != row->starts) {
        char here[64], there[64];
        put_starts(p->starts, here);
        put_starts(row->starts, there);
        WEFT_VEC_PUSH(
            arena, out,
            weft_arena_printf(arena, "%s: starts at %s, the table has %s", p->name, here, there));
    }
}

static const weft_machine_profile *find_profile(const weft_machine_gpu *gpu, const char *name)
{
    for (uint32_t i = 0; i < gpu->n_profile; i++)
        if (strcmp(gpu->profile[i].name, name) == 0)
            return &gpu->profile[i];
    return NULL;
}

void weft_machine_differences(const weft_machine_gpu *gpu, weft_arena *arena,
                              const char *const **out, size_t *out_n)
{
    lines l = {0};
    const weft_device_type *type = gpu->type;
    if (!type)
        WEFT_VEC_PUSH(arena, &l, "the device table has no such GPU");
    for (size_t i = 0; type && gpu->n_profile && i < type->n_mig; i++) {
        const weft_machine_profile *p = find_profile(gpu, type->mig[i].name);
        if (p)
            compare_profile(p, &type->mig[i], arena, &l);
        else
            WEFT_VEC_PUSH(
                arena, &l,
                weft_arena_printf(arena, "%s: the driver has no such profile", type->mig[i].name));
    }
    for (uint32_t i = 0; type && i < gpu->n_profile; i++) {
        const weft_machine_profile *p = &gpu->profile[i];
        /* Variants ("+me", "-me") differ only in engines that Weft does not use. */
        if (!strpbrk(p->name, "+-") && !weft_device_type_mig(type, p->name))
            WEFT_VEC_PUSH(arena, &l,
                          weft_arena_printf(arena, "%s: not in the table (%u SMs, %.2f GiB)",
                                            p->name, p->sms, (double)p->mem_bytes / 0x1p30));
    }
    *out = l.at;
    *out_n = l.len;
}
