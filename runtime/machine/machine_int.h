/* Shared by the files that look at this machine: NVML once loaded, and what is read through it. */
#ifndef WEFT_RUNTIME_MACHINE_MACHINE_INT_H
#define WEFT_RUNTIME_MACHINE_MACHINE_INT_H

#include "base/dynlib.h"
#include "runtime/machine/machine.h"
#include "runtime/machine/nvml_api.h"

/* NVML, initialised. */
typedef struct weft_nvml {
    weft_dynlib *lib; /* NULL: the functions are someone else's (tests) */
    weft_nvml_syms fn;
} weft_nvml;

/* NODEV names what was looked for, or what NVML said. */
WEFT_MUST_USE weft_err weft_nvml__open(weft_diag *diag, weft_nvml *out);
/* A zeroed one is fine. */
void weft_nvml__close(weft_nvml *nvml);
/* "no permission (4)" */
const char *weft_nvml__text(weft_nvml_result result);
/* Adds the error of a call that changes or must not fail. */
weft_err weft_nvml__error(weft_diag *diag, const char *call, const char *on,
                          weft_nvml_result result);

/* Reads GPUs through NVML. */
WEFT_MUST_USE weft_err weft_machine__read_gpus(const weft_nvml *nvml, weft_arena *arena,
                                               weft_diag *diag, weft_machine *out);
/* The row of the table of devices for what NVML calls a GPU ("NVIDIA A100-SXM4-40GB"), with so much
 * memory and so many SMs (0: not known); NULL: none. */
const weft_device_type *weft_machine__find_type(const char *name, uint64_t mem_bytes, uint32_t sms);

#endif
