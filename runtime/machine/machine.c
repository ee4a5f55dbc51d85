/* What this machine has: the CPUs of the process, its GPUs as NVML reports them, the MPS control
 * program. Reads only. */
#include "runtime/machine/machine_int.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
