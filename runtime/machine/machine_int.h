/* Shared by the files of the machine: NVML as loaded by dlopen, and reading GPUs through it. */
#ifndef WEFT_RUNTIME_MACHINE_MACHINE_INT_H
#define WEFT_RUNTIME_MACHINE_MACHINE_INT_H

#include "base/dynlib.h"
#include "runtime/machine/machine.h"
#include "runtime/machine/nvml_api.h"

/* NVML, loaded and initialised. */
typedef struct weft_nvml {
    weft_dynlib *lib; /* NULL: the functions belong to a test */
    weft_nvml_syms fn;
} weft_nvml;

/* NODEV: no library, or it cannot be initialised; the message names the files tried or NVML's
 * error.
 */
WEFT_MUST_USE weft_err weft_nvml__open(weft_diag *diag, weft_nvml *out);
/* A zero-initialised one is allowed. */
void weft_nvml__close(weft_nvml *nvml);
/* A result in words: "no permission (4)". */
const char *weft_nvml__text(weft_nvml_result result);
/* Adds a NODEV error "CALL: RESULT" about the item `on` (NULL: none). */
weft_err weft_nvml__error(weft_diag *diag, const char *call, const char *on,
                          weft_nvml_result result);

/* Reads what NVML tells; the rest is unknown (machine_health.c). */
void weft_nvml__read_health(const weft_nvml *nvml, weft_nvml_device device,
                            weft_machine_health *out);

/* Reads all GPUs into `arena`. */
WEFT_MUST_USE weft_err weft_machine__read_gpus(const weft_nvml *nvml, weft_arena *arena,
                                               weft_diag *diag, weft_machine *out);
/* The row of the device table for NVML's name of a GPU ("NVIDIA A100-SXM4-40GB"), its memory, and
 * its number of SMs (0: unknown). NULL: none. */
const weft_device_type *weft_machine__find_type(const char *name, uint64_t mem_bytes, uint32_t sms);

#endif
