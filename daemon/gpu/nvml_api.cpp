#include "daemon/gpu/nvml_api.h"

#include <dlfcn.h>

#include <initializer_list>
#include <utility>

namespace gpuperf {
namespace {

// The first of the names that the library has: the newest version of a function stands first.
template <typename Returned, typename... Arguments>
void find_symbol(void* library, std::initializer_list<const char*> names,
                 std::function<Returned(Arguments...)>& function) {
  for (const char* name : names) {
    if (void* address = dlsym(library, name)) {
      function = reinterpret_cast<Returned (*)(Arguments...)>(address);
      return;
    }
  }
}

void find_device_symbols(void* library, NvmlApi& api) {
  find_symbol(library, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, api.device_count);
  find_symbol(library, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
              api.device_by_index);
  find_symbol(library, {"nvmlDeviceGetName"}, api.name);
  find_symbol(library, {"nvmlDeviceGetUUID"}, api.uuid);
  find_symbol(library, {"nvmlDeviceGetPciInfo_v3"}, api.pci_info);  // _v2 fills another struct
  find_symbol(library, {"nvmlDeviceGetFieldValues"}, api.field_values);
  find_symbol(library, {"nvmlDeviceGetUtilizationRates"}, api.utilization);
  find_symbol(library, {"nvmlDeviceGetMemoryInfo"}, api.memory);
  find_symbol(library, {"nvmlDeviceGetMemoryInfo_v2"}, api.memory_v2);
  find_symbol(library, {"nvmlDeviceGetClockInfo"}, api.clock_mhz);
  find_symbol(library, {"nvmlDeviceGetMaxClockInfo"}, api.max_clock_mhz);
  find_symbol(
      library,
      {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
      api.clock_limits);
  find_symbol(library, {"nvmlDeviceGetTemperature"}, api.temperature);
  find_symbol(library, {"nvmlDeviceGetPowerUsage"}, api.power_usage_mw);
  find_symbol(library, {"nvmlDeviceGetEnforcedPowerLimit"}, api.power_limit_mw);
  find_symbol(library, {"nvmlDeviceGetCurrPcieLinkGeneration"}, api.pcie_generation);
  find_symbol(library, {"nvmlDeviceGetCurrPcieLinkWidth"}, api.pcie_width);
  find_symbol(library, {"nvmlDeviceGetMaxPcieLinkGeneration"}, api.max_pcie_generation);
  find_symbol(library, {"nvmlDeviceGetMaxPcieLinkWidth"}, api.max_pcie_width);
  // The first version fills a smaller struct; it ended with driver 450.
  find_symbol(
      library,
      {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
      api.processes);
}

void find_mig_symbols(void* library, NvmlApi& api) {
  find_symbol(library, {"nvmlDeviceGetMigMode"}, api.mig_mode);
  find_symbol(library, {"nvmlDeviceGetMaxMigDeviceCount"}, api.max_mig_count);
  find_symbol(library, {"nvmlDeviceGetMigDeviceHandleByIndex"}, api.mig_by_index);
  find_symbol(library, {"nvmlDeviceGetGpuInstanceId"}, api.gpu_instance);
  find_symbol(library, {"nvmlDeviceGetComputeInstanceId"}, api.compute_instance);
}

void find_gpm_symbols(void* library, NvmlApi& api) {
  find_symbol(library, {"nvmlGpmQueryDeviceSupport"}, api.gpm_support);
  find_symbol(library, {"nvmlGpmSampleAlloc"}, api.gpm_sample_alloc);
  find_symbol(library, {"nvmlGpmSampleFree"}, api.gpm_sample_free);
  find_symbol(library, {"nvmlGpmSampleGet"}, api.gpm_sample);
  find_symbol(library, {"nvmlGpmMigSampleGet"}, api.gpm_mig_sample);
  find_symbol(library, {"nvmlGpmMetricsGet"}, api.gpm_metrics);
}

void find_event_symbols(void* library, NvmlApi& api) {
  find_symbol(library, {"nvmlEventSetCreate"}, api.event_set_create);
  find_symbol(library, {"nvmlEventSetFree"}, api.event_set_free);
  find_symbol(library, {"nvmlDeviceGetSupportedEventTypes"}, api.supported_events);
  find_symbol(library, {"nvmlDeviceRegisterEvents"}, api.register_events);
  // The first version fills only the first three fields: all that is used here.
  find_symbol(library, {"nvmlEventSetWait_v2", "nvmlEventSetWait"}, api.event_wait);
}

}  // namespace

Result<std::shared_ptr<const NvmlApi>> load_nvml(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    std::string text = error ? error : library + ": cannot be loaded";
    // The loader has no code for "there is none"; one that is there is named with its path.
    const bool missing = text.starts_with(library + ": cannot open shared object file: No such");
    return missing ? absl::NotFoundError(text) : absl::UnavailableError(text);
  }
  auto api = std::make_shared<NvmlApi>();
  api->library = std::shared_ptr<void>(handle, [](void* mapped) { (void)dlclose(mapped); });
  find_symbol(handle, {"nvmlInit_v2", "nvmlInit"}, api->init);
  find_symbol(handle, {"nvmlShutdown"}, api->shutdown);
  find_symbol(handle, {"nvmlErrorString"}, api->error_string);
  find_symbol(handle, {"nvmlSystemGetDriverVersion"}, api->system_driver_version);
  find_device_symbols(handle, *api);
  find_mig_symbols(handle, *api);
  find_gpm_symbols(handle, *api);
  find_event_symbols(handle, *api);
  if (!api->init || !api->shutdown || !api->device_count || !api->device_by_index || !api->uuid) {
    return absl::UnavailableError(library + ": has not the functions of NVML");
  }
  return std::shared_ptr<const NvmlApi>(std::move(api));
}

std::string describe_nvml(const NvmlApi& api, NvmlReturn code) {
  const char* text = api.error_string ? api.error_string(code) : nullptr;
  return text ? text : "NVML error " + std::to_string(code);
}

}  // namespace gpuperf
