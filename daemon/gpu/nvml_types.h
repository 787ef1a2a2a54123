#pragma once

// The part of NVIDIA's NVML that the daemon uses, declared here so that building needs no CUDA
// toolkit. Source of every name, number and layout: nvml.h of CUDA 12.2 to 13.0; where it is
// installed, tests/abi compares them.

#include <cstddef>
#include <cstdint>

namespace gpuperf {

struct NvmlDeviceObject;                   // nvmlDevice_st, opaque
using NvmlDevice = NvmlDeviceObject*;      // nvmlDevice_t
struct NvmlEventSetObject;                 // nvmlEventSet_st, opaque
using NvmlEventSet = NvmlEventSetObject*;  // nvmlEventSet_t

struct NvmlGpmSampleObject;                  // nvmlGpmSample_st, opaque
using NvmlGpmSample = NvmlGpmSampleObject*;  // nvmlGpmSample_t

// nvmlReturn_t: an open set, newer drivers have more.
using NvmlReturn = int;
inline constexpr NvmlReturn kNvmlSuccess = 0;
inline constexpr NvmlReturn kNvmlUninitialized = 1;
inline constexpr NvmlReturn kNvmlInvalidArgument = 2;
inline constexpr NvmlReturn kNvmlNotSupported = 3;
inline constexpr NvmlReturn kNvmlNoPermission = 4;
inline constexpr NvmlReturn kNvmlInsufficientSize = 7;
inline constexpr NvmlReturn kNvmlDriverNotLoaded = 9;
inline constexpr NvmlReturn kNvmlTimeout = 10;
inline constexpr NvmlReturn kNvmlFunctionNotFound = 13;
inline constexpr NvmlReturn kNvmlGpuIsLost = 15;
inline constexpr NvmlReturn kNvmlResetRequired = 16;
inline constexpr NvmlReturn kNvmlVersionMismatch = 18;  // library and kernel module differ
inline constexpr NvmlReturn kNvmlUnknown = 999;

// nvmlValueType_t
inline constexpr unsigned kNvmlDouble = 0;
inline constexpr unsigned kNvmlUnsignedInt = 1;
inline constexpr unsigned kNvmlUnsignedLong = 2;
inline constexpr unsigned kNvmlUnsignedLongLong = 3;
inline constexpr unsigned kNvmlSignedLongLong = 4;
inline constexpr unsigned kNvmlSignedInt = 5;

union NvmlValue {  // nvmlValue_t
  double as_double;
  int as_int;
  unsigned as_unsigned;
  unsigned long as_unsigned_long;
  unsigned long long as_unsigned_long_long;
  long long as_signed_long_long;
};

struct NvmlFieldValue {     // nvmlFieldValue_t
  unsigned field_id = 0;    // in
  unsigned scope_id = 0;    // in; 0 = the whole GPU
  long long timestamp = 0;  // unix time in us
  long long latency_us = 0;
  unsigned value_type = 0;
  NvmlReturn result = 0;
  NvmlValue value{};
};

struct NvmlUtilization {  // nvmlUtilization_t, percent
  unsigned gpu = 0;
  unsigned memory = 0;
};

struct NvmlMemory {  // nvmlMemory_t, bytes; `used` has what the driver keeps for itself in it
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

struct NvmlMemoryV2 {  // nvmlMemory_v2_t, bytes
  unsigned version = 0;
  unsigned long long total = 0;
  unsigned long long reserved = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
// NVML_STRUCT_VERSION(Memory, 2)
inline constexpr unsigned kNvmlMemoryV2 = sizeof(NvmlMemoryV2) | 2u << 24;

struct NvmlPciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16] = {};
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned pci_device_id = 0;
  unsigned pci_subsystem_id = 0;
  char bus_id[32] = {};
};

struct NvmlProcessInfo {  // nvmlProcessInfo_v2_t, which ..._v2 and ..._v3 fill
  unsigned pid = 0;
  unsigned long long used_gpu_memory = 0;  // all bits set = not known
  unsigned gpu_instance_id = 0;
  unsigned compute_instance_id = 0;
};

struct NvmlEventData {  // nvmlEventData_t
  NvmlDevice device = nullptr;
  unsigned long long event_type = 0;
  unsigned long long event_data = 0;  // of an XID event: the XID
  unsigned gpu_instance_id = 0;
  unsigned compute_instance_id = 0;
};

struct NvmlGpmSupport {  // nvmlGpmSupport_t
  unsigned version = 1;  // in; NVML_GPM_SUPPORT_VERSION
  unsigned is_supported_device = 0;
};

struct NvmlGpmMetric {       // nvmlGpmMetric_t
  unsigned metric_id = 0;    // in
  NvmlReturn result = 0;     // value is valid only on success
  double value = 0;          // NaN where a counter cannot be computed
  const char* short_name{};  // metricInfo; texts of the library
  const char* long_name{};
  const char* unit{};
};

// nvmlGpmMetricsGet_t. NVIDIA's has room for NVML_GPM_METRIC_MAX metrics, a number that grows with
// its header; the library reads and writes only `count` of them.
inline constexpr size_t kGpmMetricsAtOnce = 13;
struct NvmlGpmMetricsGet {
  unsigned version = 1;  // in; NVML_GPM_METRICS_GET_VERSION
  unsigned count = 0;    // in
  NvmlGpmSample sample1 = nullptr;
  NvmlGpmSample sample2 = nullptr;
  NvmlGpmMetric metrics[kGpmMetricsAtOnce];
};

// nvmlGpmMetricId_t: percent, and MiB per second for PCIe and NVLink
enum NvmlGpmMetricId : unsigned {
  kGpmGraphics = 1,
  kGpmSm = 2,
  kGpmSmOccupancy = 3,
  kGpmInteger = 4,
  kGpmAnyTensor = 5,
  kGpmDram = 10,
  kGpmFp64 = 11,
  kGpmFp32 = 12,
  kGpmFp16 = 13,
  kGpmPcieTransmit = 20,
  kGpmPcieReceive = 21,
  kGpmNvlinkReceive = 60,
  kGpmNvlinkTransmit = 61,
};

// nvmlEventType*
inline constexpr unsigned long long kNvmlEventSingleBitEcc = 0x1;
inline constexpr unsigned long long kNvmlEventDoubleBitEcc = 0x2;
inline constexpr unsigned long long kNvmlEventXid = 0x8;

// nvmlClockType_t, nvmlTemperatureSensors_t, NVML_FEATURE_ENABLED
inline constexpr int kNvmlClockSm = 1;
inline constexpr int kNvmlClockMemory = 2;
inline constexpr int kNvmlTemperatureGpu = 0;
inline constexpr unsigned kNvmlFeatureEnabled = 1;

// Sizes of texts: NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE,
// NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE.
inline constexpr size_t kNvmlNameBytes = 96;
inline constexpr size_t kNvmlUuidBytes = 96;
inline constexpr size_t kNvmlDriverVersionBytes = 80;

// NVML_FI_DEV_*
enum NvmlField : unsigned {
  kFieldEccCorrectedVolatile = 3,     // ECC_SBE_VOL_TOTAL
  kFieldEccUncorrectedVolatile = 4,   // ECC_DBE_VOL_TOTAL
  kFieldEccCorrectedAggregate = 5,    // ECC_SBE_AGG_TOTAL
  kFieldEccUncorrectedAggregate = 6,  // ECC_DBE_AGG_TOTAL
  kFieldRetiredCorrected = 29,        // RETIRED_SBE, pages
  kFieldRetiredUncorrected = 30,      // RETIRED_DBE, pages
  kFieldRetirePending = 31,           // RETIRED_PENDING
  kFieldPowerCapNs = 74,              // PERF_POLICY_POWER = CLOCKS_EVENT_REASON_SW_POWER_CAP
  kFieldSyncBoostNs = 76,             // PERF_POLICY_SYNC_BOOST = CLOCKS_EVENT_REASON_SYNC_BOOST
  kFieldEnergyMj = 83,                // TOTAL_ENERGY_CONSUMPTION, since the driver was loaded
  kFieldPcieReplays = 94,             // PCIE_REPLAY_COUNTER
  kFieldRemappedCorrected = 142,
  kFieldRemappedUncorrected = 143,
  kFieldRemapPending = 144,
  kFieldRemapFailed = 145,
  kFieldPowerAverageMw = 185,  // over a second
  kFieldPowerInstantMw = 186,
  // CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN and, each one more, HW_THERM_SLOWDOWN and
  // HW_POWER_BRAKE_SLOWDOWN have two numbers: those of drivers 575 and, in headers from CUDA 13.0
  // on, others, because the first ones were power smoothing's in drivers 570 and 580. Which of
  // them a driver speaks is found out: see field_values.h.
  kFieldSwThermalNsOld = 251,
  kFieldSwThermalNsNew = 269,
};

}  // namespace gpuperf
