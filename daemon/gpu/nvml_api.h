#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "daemon/gpu/nvml_types.h"

namespace gpuperf {

// NVML's functions as found at run time. An empty one is not in this driver's library: what it
// would tell is left out. Tests make tables of their own.
//
// Thread: any; NVML locks for itself. Whoever calls must hold the table: it keeps the library
// mapped. Any call may take long or, where a GPU is lost, for ever.
struct NvmlApi {
  std::shared_ptr<void> library;  // last to go

  std::function<NvmlReturn()> init;
  std::function<NvmlReturn()> shutdown;
  std::function<const char*(NvmlReturn)> error_string;
  std::function<NvmlReturn(char*, unsigned)> system_driver_version;
  std::function<NvmlReturn(unsigned*)> device_count;
  std::function<NvmlReturn(unsigned, NvmlDevice*)> device_by_index;
  std::function<NvmlReturn(NvmlDevice, char*, unsigned)> name;
  std::function<NvmlReturn(NvmlDevice, char*, unsigned)> uuid;
  std::function<NvmlReturn(NvmlDevice, NvmlPciInfo*)> pci_info;
  std::function<NvmlReturn(NvmlDevice, int, NvmlFieldValue*)> field_values;
  std::function<NvmlReturn(NvmlDevice, NvmlUtilization*)> utilization;
  std::function<NvmlReturn(NvmlDevice, NvmlMemory*)> memory;
  std::function<NvmlReturn(NvmlDevice, NvmlMemoryV2*)> memory_v2;
  std::function<NvmlReturn(NvmlDevice, int, unsigned*)> clock_mhz;
  std::function<NvmlReturn(NvmlDevice, int, unsigned*)> max_clock_mhz;
  std::function<NvmlReturn(NvmlDevice, unsigned long long*)> clock_limits;
  std::function<NvmlReturn(NvmlDevice, int, unsigned*)> temperature;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> power_usage_mw;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> power_limit_mw;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> pcie_generation;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> pcie_width;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> max_pcie_generation;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> max_pcie_width;
  std::function<NvmlReturn(NvmlDevice, unsigned*, NvmlProcessInfo*)> processes;
  std::function<NvmlReturn(NvmlDevice, unsigned*, unsigned*)> mig_mode;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> max_mig_count;
  std::function<NvmlReturn(NvmlDevice, unsigned, NvmlDevice*)> mig_by_index;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> gpu_instance;
  std::function<NvmlReturn(NvmlDevice, unsigned*)> compute_instance;
  std::function<NvmlReturn(NvmlDevice, NvmlGpmSupport*)> gpm_support;
  std::function<NvmlReturn(NvmlGpmSample*)> gpm_sample_alloc;
  std::function<NvmlReturn(NvmlGpmSample)> gpm_sample_free;
  std::function<NvmlReturn(NvmlDevice, NvmlGpmSample)> gpm_sample;
  std::function<NvmlReturn(NvmlDevice, unsigned, NvmlGpmSample)> gpm_mig_sample;
  std::function<NvmlReturn(NvmlGpmMetricsGet*)> gpm_metrics;
  std::function<NvmlReturn(NvmlEventSet*)> event_set_create;
  std::function<NvmlReturn(NvmlEventSet)> event_set_free;
  std::function<NvmlReturn(NvmlDevice, unsigned long long*)> supported_events;
  std::function<NvmlReturn(NvmlDevice, unsigned long long, NvmlEventSet)> register_events;
  std::function<NvmlReturn(NvmlEventSet, NvmlEventData*, unsigned)> event_wait;
};

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// NOT_FOUND: there is no such library. Everything else says what is wrong with it.
Result<std::shared_ptr<const NvmlApi>> load_nvml(const std::string& library = kNvmlLibrary);

// "GPU is lost" as the driver words it.
std::string describe_nvml(const NvmlApi& api, NvmlReturn code);

}  // namespace gpuperf
