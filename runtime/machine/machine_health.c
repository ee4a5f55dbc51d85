/* What limits or endangers a GPU: reasons for low clocks, errors of its memory. */
#include "runtime/machine/machine_int.h"

static int read_slow(const weft_nvml *nvml, weft_nvml_device device)
{
    const unsigned long long power = WEFT_NVML_SLOW_POWER_CAP | WEFT_NVML_SLOW_POWER_BRAKE;
    const unsigned long long heat = WEFT_NVML_SLOW_THERMAL | WEFT_NVML_SLOW_HW_THERMAL;
    unsigned long long reasons = 0;
    if (!nvml->fn.nvmlDeviceGetCurrentClocksThrottleReasons ||
        nvml->fn.nvmlDeviceGetCurrentClocksThrottleReasons(device, &reasons) != WEFT_NVML_SUCCESS)
        return -1;
    return (reasons & WEFT_NVML_SLOW_SETTING ? WEFT_MACHINE_SLOW_SETTING : 0) |
           (reasons & power ? WEFT_MACHINE_SLOW_POWER : 0) |
           (reasons & heat ? WEFT_MACHINE_SLOW_HEAT : 0);
}

static double count_ecc(const weft_nvml *nvml, weft_nvml_device device, unsigned int kind)
{
    unsigned long long n = 0;
    return nvml->fn.nvmlDeviceGetTotalEccErrors &&
                   nvml->fn.nvmlDeviceGetTotalEccErrors(device, kind, WEFT_NVML_ECC_VOLATILE, &n) ==
                       WEFT_NVML_SUCCESS
               ? (double)n
               : -1;
}

void weft_nvml__read_health(const weft_nvml *nvml, weft_nvml_device device,
                            weft_machine_health *out)
{
    unsigned int corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    *out = (weft_machine_health){.slow = read_slow(nvml, device),
                                 .ecc_corrected = count_ecc(nvml, device, WEFT_NVML_ECC_CORRECTED),
                                 .ecc_uncorrected =
                                     count_ecc(nvml, device, WEFT_NVML_ECC_UNCORRECTED)};
    if (nvml->fn.nvmlDeviceGetRemappedRows &&
        nvml->fn.nvmlDeviceGetRemappedRows(device, &corrected, &uncorrected, &pending, &failed) ==
            WEFT_NVML_SUCCESS) {
        out->rows_pending = pending != 0;
        out->rows_failed = failed != 0;
    }
}
