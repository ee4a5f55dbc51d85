/* Our declarations of NVML against NVIDIA's header, where there is one: values, sizes, offsets and
 * prototypes, at compile time. conform/cuda_headers compiles this file with the headers of several
 * drivers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef WEFT_NVML_HEADERS
#include "runtime/machine/nvml_api.h"

#include <nvml.h>

/* 13.0 renamed nvmlDeviceGetCurrentClocksThrottleReasons; every driver has the old name. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define VALUE(ours, theirs) \
    _Static_assert((unsigned long long)(ours) == (unsigned long long)(theirs), #theirs)
VALUE(WEFT_NVML_SUCCESS, NVML_SUCCESS);
VALUE(WEFT_NVML_UNINITIALIZED, NVML_ERROR_UNINITIALIZED);
VALUE(WEFT_NVML_INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT);
VALUE(WEFT_NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
VALUE(WEFT_NVML_NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
VALUE(WEFT_NVML_NOT_FOUND, NVML_ERROR_NOT_FOUND);
VALUE(WEFT_NVML_INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE);
VALUE(WEFT_NVML_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
VALUE(WEFT_NVML_TIMEOUT, NVML_ERROR_TIMEOUT);
VALUE(WEFT_NVML_FUNCTION_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND);
VALUE(WEFT_NVML_GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST);
VALUE(WEFT_NVML_LIB_RM_VERSION_MISMATCH, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
VALUE(WEFT_NVML_IN_USE, NVML_ERROR_IN_USE);
VALUE(WEFT_NVML_INSUFFICIENT_RESOURCES, NVML_ERROR_INSUFFICIENT_RESOURCES);
VALUE(WEFT_NVML_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
VALUE(WEFT_NVML_UNKNOWN, NVML_ERROR_UNKNOWN);

VALUE(WEFT_NVML_NAME_BYTES, NVML_DEVICE_NAME_V2_BUFFER_SIZE);
VALUE(WEFT_NVML_UUID_BYTES, NVML_DEVICE_UUID_V2_BUFFER_SIZE);
VALUE(WEFT_NVML_VERSION_BYTES, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
VALUE(WEFT_NVML_CLOCK_SM, NVML_CLOCK_SM);
VALUE(WEFT_NVML_CLOCK_MEM, NVML_CLOCK_MEM);
VALUE(WEFT_NVML_COMPUTE_DEFAULT, NVML_COMPUTEMODE_DEFAULT);
VALUE(WEFT_NVML_COMPUTE_PROHIBITED, NVML_COMPUTEMODE_PROHIBITED);
VALUE(WEFT_NVML_COMPUTE_EXCLUSIVE_PROCESS, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
VALUE(WEFT_NVML_ECC_CORRECTED, NVML_MEMORY_ERROR_TYPE_CORRECTED);
VALUE(WEFT_NVML_ECC_UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
VALUE(WEFT_NVML_ECC_VOLATILE, NVML_VOLATILE_ECC);
VALUE(WEFT_NVML_SLOW_SETTING, nvmlClocksThrottleReasonApplicationsClocksSetting);
VALUE(WEFT_NVML_SLOW_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap);
VALUE(WEFT_NVML_SLOW_THERMAL, nvmlClocksThrottleReasonSwThermalSlowdown);
VALUE(WEFT_NVML_SLOW_HW_THERMAL, nvmlClocksThrottleReasonHwThermalSlowdown);
VALUE(WEFT_NVML_SLOW_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
VALUE(WEFT_NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
VALUE(WEFT_NVML_CI_ENGINES_SHARED, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED);
VALUE(WEFT_NVML_GI_PROFILE_V2, nvmlGpuInstanceProfileInfo_v2);
VALUE(WEFT_NVML_GPM_VERSION, NVML_GPM_METRICS_GET_VERSION);
VALUE(WEFT_NVML_GPM_VERSION, NVML_GPM_SUPPORT_VERSION);
VALUE(WEFT_NVML_GPM_SM_UTIL, NVML_GPM_METRIC_SM_UTIL);
VALUE(WEFT_NVML_GPM_SM_OCCUPANCY, NVML_GPM_METRIC_SM_OCCUPANCY);
VALUE(WEFT_NVML_GPM_ANY_TENSOR_UTIL, NVML_GPM_METRIC_ANY_TENSOR_UTIL);
VALUE(WEFT_NVML_GPM_DRAM_BW_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL);

#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define FIELD(ours, field, theirs, of_theirs)                                      \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, of_theirs) &&         \
                       sizeof((ours *)0)->field == sizeof((theirs *)0)->of_theirs, \
                   #theirs "." #of_theirs)
SIZE(weft_nvml_memory, nvmlMemory_t);
FIELD(weft_nvml_memory, total, nvmlMemory_t, total);
FIELD(weft_nvml_memory, used, nvmlMemory_t, used);
SIZE(weft_nvml_utilization, nvmlUtilization_t);
FIELD(weft_nvml_utilization, gpu, nvmlUtilization_t, gpu);
SIZE(weft_nvml_attributes, nvmlDeviceAttributes_t);
FIELD(weft_nvml_attributes, sms, nvmlDeviceAttributes_t, multiprocessorCount);
FIELD(weft_nvml_attributes, gi_slices, nvmlDeviceAttributes_t, gpuInstanceSliceCount);
FIELD(weft_nvml_attributes, ci_slices, nvmlDeviceAttributes_t, computeInstanceSliceCount);
FIELD(weft_nvml_attributes, mem_mb, nvmlDeviceAttributes_t, memorySizeMB);
SIZE(weft_nvml_placement, nvmlGpuInstancePlacement_t);
FIELD(weft_nvml_placement, start, nvmlGpuInstancePlacement_t, start);
SIZE(weft_nvml_gi_profile, nvmlGpuInstanceProfileInfo_t);
FIELD(weft_nvml_gi_profile, slices, nvmlGpuInstanceProfileInfo_t, sliceCount);
FIELD(weft_nvml_gi_profile, count, nvmlGpuInstanceProfileInfo_t, instanceCount);
FIELD(weft_nvml_gi_profile, sms, nvmlGpuInstanceProfileInfo_t, multiprocessorCount);
FIELD(weft_nvml_gi_profile, mem_mb, nvmlGpuInstanceProfileInfo_t, memorySizeMB);
SIZE(weft_nvml_gi_profile_v2, nvmlGpuInstanceProfileInfo_v2_t);
FIELD(weft_nvml_gi_profile_v2, slices, nvmlGpuInstanceProfileInfo_v2_t, sliceCount);
FIELD(weft_nvml_gi_profile_v2, mem_mb, nvmlGpuInstanceProfileInfo_v2_t, memorySizeMB);
FIELD(weft_nvml_gi_profile_v2, name, nvmlGpuInstanceProfileInfo_v2_t, name);
SIZE(weft_nvml_gi_info, nvmlGpuInstanceInfo_t);
FIELD(weft_nvml_gi_info, profile_id, nvmlGpuInstanceInfo_t, profileId);
FIELD(weft_nvml_gi_info, placement, nvmlGpuInstanceInfo_t, placement);
SIZE(weft_nvml_ci_profile, nvmlComputeInstanceProfileInfo_t);
FIELD(weft_nvml_ci_profile, sms, nvmlComputeInstanceProfileInfo_t, multiprocessorCount);
SIZE(weft_nvml_event, nvmlEventData_t);
FIELD(weft_nvml_event, type, nvmlEventData_t, eventType);
FIELD(weft_nvml_event, data, nvmlEventData_t, eventData);
FIELD(weft_nvml_event, gi, nvmlEventData_t, gpuInstanceId);
SIZE(weft_nvml_gpm_support, nvmlGpmSupport_t);
FIELD(weft_nvml_gpm_support, supported, nvmlGpmSupport_t, isSupportedDevice);
SIZE(weft_nvml_gpm_metric, nvmlGpmMetric_t);
FIELD(weft_nvml_gpm_metric, result, nvmlGpmMetric_t, nvmlReturn);
FIELD(weft_nvml_gpm_metric, value, nvmlGpmMetric_t, value);
FIELD(weft_nvml_gpm_metrics, n, nvmlGpmMetricsGet_t, numMetrics);
FIELD(weft_nvml_gpm_metrics, sample1, nvmlGpmMetricsGet_t, sample1);
FIELD(weft_nvml_gpm_metrics, sample2, nvmlGpmMetricsGet_t, sample2);
/* An array that later drivers made longer. */
_Static_assert(offsetof(weft_nvml_gpm_metrics, metric) == offsetof(nvmlGpmMetricsGet_t, metrics),
               "nvmlGpmMetricsGet_t.metrics");

/* Prototypes: the table's with NVIDIA's types in the place of ours. */
#define weft_nvml_result        nvmlReturn_t
#define weft_nvml_device        nvmlDevice_t
#define weft_nvml_gi            nvmlGpuInstance_t
#define weft_nvml_ci            nvmlComputeInstance_t
#define weft_nvml_gpm_sample    nvmlGpmSample_t
#define weft_nvml_events        nvmlEventSet_t
#define weft_nvml_memory        nvmlMemory_t
#define weft_nvml_utilization   nvmlUtilization_t
#define weft_nvml_attributes    nvmlDeviceAttributes_t
#define weft_nvml_placement     nvmlGpuInstancePlacement_t
#define weft_nvml_gi_profile    nvmlGpuInstanceProfileInfo_t
#define weft_nvml_gi_profile_v2 nvmlGpuInstanceProfileInfo_v2_t
#define weft_nvml_gi_info       nvmlGpuInstanceInfo_t
#define weft_nvml_ci_profile    nvmlComputeInstanceProfileInfo_t
#define weft_nvml_event         nvmlEventData_t
#define weft_nvml_gpm_support   nvmlGpmSupport_t
#define weft_nvml_gpm_metrics   nvmlGpmMetricsGet_t
#define NVML_SYM(name, need, args) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), nvmlReturn_t(*) args), #name);
#include "runtime/machine/nvml_syms.def"
#undef NVML_SYM

/* What was compared is compared when this file compiles; here the number of it. */
static void test_nvml_api__equals_nvidias_header(void **state)
{
    (void)state;
    int n = 0;
#define NVML_SYM(name, need, args) n++;
#include "runtime/machine/nvml_syms.def"
#undef NVML_SYM
    print_message("%d functions of NVML\n", n);
    assert_true(n > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nvml_api__equals_nvidias_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    print_message("skipped: no folder has nvml.h of a CUDA toolkit\n");
    return 77;
}
#endif
