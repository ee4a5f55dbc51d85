/* What this machine has: CPUs, GPUs through NVML, the MPS control program; and how its GPUs differ
 * from the table of devices. Looks, changes nothing. */
#include "runtime/machine/machine_int.h"

#include <ctype.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Sizes that a driver tells differ from one version to the next by less than this. */
static const double mem_tolerance = 0.03;

/* -- CPUs and MPS --------------------------------------------------------------------------- */

static void find_cpus(weft_arena *arena, weft_machine *out)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    uint32_t *cpu = weft_arena_array(arena, (size_t)CPU_COUNT(&set), sizeof *cpu);
    for (uint32_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            cpu[out->n_cpu++] = i;
    out->cpu = cpu;
}

static void find_mps_control(weft_machine *out)
{
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t len = strcspn(at, ":");
        int n = snprintf(out->mps_control, sizeof out->mps_control, "%.*s/nvidia-cuda-mps-control",
                         (int)len, at);
        if (n > 0 && (size_t)n < sizeof out->mps_control && access(out->mps_control, X_OK) == 0)
            return;
        at += len + (at[len] == ':');
    }
    out->mps_control[0] = '\0';
}

weft_err weft_machine_read(weft_arena *arena, weft_diag *diag, weft_machine *out)
{
    weft_nvml nvml = {0};
    *out = (weft_machine){0};
    find_cpus(arena, out);
    find_mps_control(out);
    weft_diag *why = weft_diag_create();
    if (!why)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_nvml__open(why, &nvml);
    if (err == WEFT_ERR_NODEV) {
        weft_diag_format(weft_diag_at(why, 0), out->why_no_gpu, sizeof out->why_no_gpu);
        err = WEFT_ERR_OK;
    } else if (err == WEFT_ERR_OK) {
        err = weft_machine__read_gpus(&nvml, arena, diag, out);
    }
    weft_nvml__close(&nvml);
    weft_diag_destroy(why);
    return err;
}

/* -- The table of devices ------------------------------------------------------------------- */

/* The first word of a row's name ("a100" of "a100-40") as a word of NVML's name. */
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
        /* NVML tells all of the memory, the table what a process can use. */
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

static bool is_row(const weft_device_type *type, const char *name)
{
    for (size_t i = 0; i < type->n_mig; i++)
        if (strcmp(type->mig[i].name, name) == 0)
            return true;
    return false;
}

void weft_machine_differences(const weft_machine_gpu *gpu, weft_arena *arena,
                              const char *const **out, size_t *out_n)
{
    lines l = {0};
    const weft_device_type *type = gpu->type;
    if (!type)
        WEFT_VEC_PUSH(arena, &l, "the table of devices has no such GPU");
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
        /* Variants with or without engines that Weft does not use are no news. */
        if (!strpbrk(p->name, "+-") && !is_row(type, p->name))
            WEFT_VEC_PUSH(arena, &l,
                          weft_arena_printf(arena, "%s: not in the table (%u SMs, %.2f GiB)",
                                            p->name, p->sms, (double)p->mem_bytes / 0x1p30));
    }
    *out = l.at;
    *out_n = l.len;
}
