// The daemon's own declarations of NVML against NVIDIA's header. Built where nvml.h is installed.

#include <gtest/gtest.h>
#include <nvml.h>

#include "daemon/gpu/nvml_types.h"

namespace gpuperf {
namespace {

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs))
#define SAME_PLACE(ours, field, theirs, their_field)                      \
  static_assert(offsetof(ours, field) == offsetof(theirs, their_field) && \
                sizeof(ours::field) == sizeof(theirs::their_field))

SAME_SIZE(NvmlReturn, nvmlReturn_t);
SAME_SIZE(NvmlValue, nvmlValue_t);

SAME_SIZE(NvmlFieldValue, nvmlFieldValue_t);
SAME_PLACE(NvmlFieldValue, field_id, nvmlFieldValue_t, fieldId);
SAME_PLACE(NvmlFieldValue, scope_id, nvmlFieldValue_t, scopeId);
SAME_PLACE(NvmlFieldValue, timestamp, nvmlFieldValue_t, timestamp);
SAME_PLACE(NvmlFieldValue, latency_us, nvmlFieldValue_t, latencyUsec);
SAME_PLACE(NvmlFieldValue, value_type, nvmlFieldValue_t, valueType);
SAME_PLACE(NvmlFieldValue, result, nvmlFieldValue_t, nvmlReturn);
SAME_PLACE(NvmlFieldValue, value, nvmlFieldValue_t, value);

SAME_SIZE(NvmlUtilization, nvmlUtilization_t);
SAME_PLACE(NvmlUtilization, gpu, nvmlUtilization_t, gpu);
SAME_PLACE(NvmlUtilization, memory, nvmlUtilization_t, memory);

SAME_SIZE(NvmlMemory, nvmlMemory_t);
SAME_PLACE(NvmlMemory, total, nvmlMemory_t, total);
SAME_PLACE(NvmlMemory, free, nvmlMemory_t, free);
SAME_PLACE(NvmlMemory, used, nvmlMemory_t, used);

SAME_SIZE(NvmlMemoryV2, nvmlMemory_v2_t);
SAME_PLACE(NvmlMemoryV2, total, nvmlMemory_v2_t, total);
SAME_PLACE(NvmlMemoryV2, reserved, nvmlMemory_v2_t, reserved);
SAME_PLACE(NvmlMemoryV2, free, nvmlMemory_v2_t, free);
SAME_PLACE(NvmlMemoryV2, used, nvmlMemory_v2_t, used);
static_assert(kNvmlMemoryV2 == nvmlMemory_v2);

SAME_SIZE(NvmlPciInfo, nvmlPciInfo_t);
SAME_PLACE(NvmlPciInfo, bus_id, nvmlPciInfo_t, busId);

SAME_SIZE(NvmlProcessInfo, nvmlProcessInfo_t);
SAME_PLACE(NvmlProcessInfo, pid, nvmlProcessInfo_t, pid);
SAME_PLACE(NvmlProcessInfo, used_gpu_memory, nvmlProcessInfo_t, usedGpuMemory);

SAME_SIZE(NvmlEventData, nvmlEventData_t);
SAME_PLACE(NvmlEventData, device, nvmlEventData_t, device);
SAME_PLACE(NvmlEventData, event_type, nvmlEventData_t, eventType);
SAME_PLACE(NvmlEventData, event_data, nvmlEventData_t, eventData);

#ifdef NVML_GPM_METRICS_GET_VERSION  // since CUDA 11.8
SAME_SIZE(NvmlGpmSample, nvmlGpmSample_t);
SAME_SIZE(NvmlGpmSupport, nvmlGpmSupport_t);
SAME_PLACE(NvmlGpmSupport, version, nvmlGpmSupport_t, version);
SAME_PLACE(NvmlGpmSupport, is_supported_device, nvmlGpmSupport_t, isSupportedDevice);
SAME_SIZE(NvmlGpmMetric, nvmlGpmMetric_t);
SAME_PLACE(NvmlGpmMetric, metric_id, nvmlGpmMetric_t, metricId);
SAME_PLACE(NvmlGpmMetric, result, nvmlGpmMetric_t, nvmlReturn);
SAME_PLACE(NvmlGpmMetric, value, nvmlGpmMetric_t, value);
SAME_PLACE(NvmlGpmMetricsGet, version, nvmlGpmMetricsGet_t, version);
SAME_PLACE(NvmlGpmMetricsGet, count, nvmlGpmMetricsGet_t, numMetrics);
SAME_PLACE(NvmlGpmMetricsGet, sample1, nvmlGpmMetricsGet_t, sample1);
SAME_PLACE(NvmlGpmMetricsGet, sample2, nvmlGpmMetricsGet_t, sample2);
static_assert(offsetof(NvmlGpmMetricsGet, metrics) == offsetof(nvmlGpmMetricsGet_t, metrics) &&
              kGpmMetricsAtOnce <= NVML_GPM_METRIC_MAX);
static_assert(NvmlGpmSupport().version == NVML_GPM_SUPPORT_VERSION &&
              NvmlGpmMetricsGet().version == NVML_GPM_METRICS_GET_VERSION);
static_assert(kGpmGraphics == NVML_GPM_METRIC_GRAPHICS_UTIL && kGpmSm == NVML_GPM_METRIC_SM_UTIL &&
              kGpmSmOccupancy == NVML_GPM_METRIC_SM_OCCUPANCY &&
              kGpmInteger == NVML_GPM_METRIC_INTEGER_UTIL &&
              kGpmAnyTensor == NVML_GPM_METRIC_ANY_TENSOR_UTIL &&
              kGpmDram == NVML_GPM_METRIC_DRAM_BW_UTIL && kGpmFp64 == NVML_GPM_METRIC_FP64_UTIL &&
              kGpmFp32 == NVML_GPM_METRIC_FP32_UTIL && kGpmFp16 == NVML_GPM_METRIC_FP16_UTIL &&
              kGpmPcieTransmit == NVML_GPM_METRIC_PCIE_TX_PER_SEC &&
              kGpmPcieReceive == NVML_GPM_METRIC_PCIE_RX_PER_SEC &&
              kGpmNvlinkReceive == NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC &&
              kGpmNvlinkTransmit == NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC);
#endif

static_assert(kNvmlSuccess == NVML_SUCCESS && kNvmlUninitialized == NVML_ERROR_UNINITIALIZED &&
              kNvmlInvalidArgument == NVML_ERROR_INVALID_ARGUMENT &&
              kNvmlNotSupported == NVML_ERROR_NOT_SUPPORTED &&
              kNvmlNoPermission == NVML_ERROR_NO_PERMISSION &&
              kNvmlInsufficientSize == NVML_ERROR_INSUFFICIENT_SIZE &&
              kNvmlDriverNotLoaded == NVML_ERROR_DRIVER_NOT_LOADED &&
              kNvmlTimeout == NVML_ERROR_TIMEOUT &&
              kNvmlFunctionNotFound == NVML_ERROR_FUNCTION_NOT_FOUND &&
              kNvmlGpuIsLost == NVML_ERROR_GPU_IS_LOST &&
              kNvmlResetRequired == NVML_ERROR_RESET_REQUIRED &&
              kNvmlVersionMismatch == NVML_ERROR_LIB_RM_VERSION_MISMATCH &&
              kNvmlUnknown == NVML_ERROR_UNKNOWN);
static_assert(kNvmlDouble == NVML_VALUE_TYPE_DOUBLE &&
              kNvmlUnsignedInt == NVML_VALUE_TYPE_UNSIGNED_INT &&
              kNvmlUnsignedLong == NVML_VALUE_TYPE_UNSIGNED_LONG &&
              kNvmlUnsignedLongLong == NVML_VALUE_TYPE_UNSIGNED_LONG_LONG &&
              kNvmlSignedLongLong == NVML_VALUE_TYPE_SIGNED_LONG_LONG);
static_assert(kNvmlEventSingleBitEcc == nvmlEventTypeSingleBitEccError &&
              kNvmlEventDoubleBitEcc == nvmlEventTypeDoubleBitEccError &&
              kNvmlEventXid == nvmlEventTypeXidCriticalError);
static_assert(kNvmlClockSm == NVML_CLOCK_SM && kNvmlClockMemory == NVML_CLOCK_MEM &&
              kNvmlTemperatureGpu == NVML_TEMPERATURE_GPU &&
              kNvmlFeatureEnabled == NVML_FEATURE_ENABLED);
static_assert(kNvmlNameBytes == NVML_DEVICE_NAME_V2_BUFFER_SIZE &&
              kNvmlUuidBytes == NVML_DEVICE_UUID_V2_BUFFER_SIZE &&
              kNvmlDriverVersionBytes == NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
static_assert(kFieldEccCorrectedVolatile == NVML_FI_DEV_ECC_SBE_VOL_TOTAL &&
              kFieldEccUncorrectedVolatile == NVML_FI_DEV_ECC_DBE_VOL_TOTAL &&
              kFieldEccCorrectedAggregate == NVML_FI_DEV_ECC_SBE_AGG_TOTAL &&
              kFieldEccUncorrectedAggregate == NVML_FI_DEV_ECC_DBE_AGG_TOTAL &&
              kFieldRetiredCorrected == NVML_FI_DEV_RETIRED_SBE &&
              kFieldRetiredUncorrected == NVML_FI_DEV_RETIRED_DBE &&
              kFieldRetirePending == NVML_FI_DEV_RETIRED_PENDING &&
              kFieldPowerCapNs == NVML_FI_DEV_PERF_POLICY_POWER &&
              kFieldSyncBoostNs == NVML_FI_DEV_PERF_POLICY_SYNC_BOOST &&
              kFieldEnergyMj == NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION &&
              kFieldPcieReplays == NVML_FI_DEV_PCIE_REPLAY_COUNTER &&
              kFieldRemappedCorrected == NVML_FI_DEV_REMAPPED_COR &&
              kFieldRemappedUncorrected == NVML_FI_DEV_REMAPPED_UNC &&
              kFieldRemapPending == NVML_FI_DEV_REMAPPED_PENDING &&
              kFieldRemapFailed == NVML_FI_DEV_REMAPPED_FAILURE);
#ifdef NVML_FI_DEV_POWER_AVERAGE
static_assert(kFieldPowerAverageMw == NVML_FI_DEV_POWER_AVERAGE &&
              kFieldPowerInstantMw == NVML_FI_DEV_POWER_INSTANT);
#endif

TEST(NvmlTypesTest, ThermalFieldsHaveOneOfTheNumbersThatAreAskedFor) {
#ifdef NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN
  const unsigned first = NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN;

  EXPECT_TRUE(first == kFieldSwThermalNsOld || first == kFieldSwThermalNsNew) << first;
  EXPECT_EQ(NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, first + 1);
  EXPECT_EQ(NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, first + 2);
#else
  GTEST_SKIP() << "this nvml.h is older than driver 575";
#endif
}

}  // namespace
}  // namespace gpuperf
