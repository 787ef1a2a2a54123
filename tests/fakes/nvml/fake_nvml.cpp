// A libnvidia-ml.so.1 that answers what a script says, for tests on hosts without a GPU.
//
// The script is the file that GPUPERF_FAKE_NVML names, read anew at every call, so that a test can
// change the GPUs while a daemon runs. Lines "key=value"; a line that is not there is the default:
//   gpus=1                        number of GPUs
//   driver=580.65.06
//   return.FUNCTION=3             this function answers that code (any of its calls)
//   delay.FUNCTION=20             it takes so many milliseconds more
//   hang.FUNCTION=1               it does not come back while the line is there
//   N.lost=1                      GPU N answers "GPU is lost" to everything
//   N.FIELD=VALUE                 a value of GPU N, see kDefaults; "-" = not supported
//   N.field.ID=VALUE              a field value that has no name here, unsigned long long
//   N.gpm.ID=VALUE                metric ID of GPM of GPU N, in the units of nvml.h; "nan" = NaN
//   N.gpm_supported=0             GPU N has no GPM
//   N.mig=1                       GPU N is in MIG mode with one instance, GPU instance 3; its
//   metrics are
//                                 those of N.mig_gpm.ID
//   events=0:8:79,1:2:0           notices, as GPU:event type:data; each is told once, in order

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/gpu/nvml_types.h"

namespace gpuperf {
namespace {

using Script = std::map<std::string, std::string>;

const Script kDefaults = {
    {"name", "NVIDIA H200"},
    {"power_mw", "512000"},
    {"power_limit_mw", "700000"},
    {"energy_mj", "123456789"},
    {"utilization", "87"},
    {"memory_utilization", "41"},
    {"memory_used", "48318382080"},    // 45 GiB
    {"memory_total", "150323855360"},  // 140 GiB
    {"sm_mhz", "1755"},
    {"sm_max_mhz", "1980"},
    {"memory_mhz", "3201"},
    {"memory_max_mhz", "3201"},
    {"reasons", "0"},
    {"temperature", "54"},
    {"ecc_corrected", "0"},
    {"ecc_uncorrected", "0"},
    {"ecc_corrected_aggregate", "2"},
    {"ecc_uncorrected_aggregate", "0"},
    {"remapped_corrected", "0"},
    {"remapped_uncorrected", "0"},
    {"remap_pending", "0"},
    {"remap_failed", "0"},
    {"pcie_replays", "5"},
    {"pcie_generation", "5"},
    {"pcie_width", "16"},
    {"power_cap_ns", "0"},
    {"sync_boost_ns", "0"},
    {"sw_thermal_ns", "0"},
    {"hw_thermal_ns", "0"},
    {"power_brake_ns", "0"},
    {"thermal_field", "251"},
    {"mig", "-"},
    {"gpm_supported", "1"},
    {"gpm.1", "98.5"},    // graphics engine
    {"gpm.2", "97.25"},   // SMs
    {"gpm.3", "12.75"},   // occupancy
    {"gpm.5", "83.5"},    // tensor
    {"gpm.10", "14.5"},   // DRAM
    {"gpm.12", "0.5"},    // FP32
    {"gpm.13", "0"},      // FP16
    {"gpm.20", "12"},     // PCIe sent, MiB/s
    {"gpm.21", "2048"},   // PCIe received, MiB/s
    {"mig_gpm.2", "50"},  // SMs of the MIG instance
    {"mig_gpm.5", "25"},
    {"process_pid", "0"},
    {"process_memory", "1073741824"},
};

// Devices are their number plus one, so that none is null.
struct NvmlDeviceObject* make_device(unsigned index) {
  return reinterpret_cast<NvmlDeviceObject*>(static_cast<uintptr_t>(index) + 1);
}
unsigned get_index(NvmlDevice device) {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device) - 1);
}

Script read_script() {
  Script script;
  const char* path = std::getenv("GPUPERF_FAKE_NVML");
  std::ifstream file(path ? path : "");
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) script[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return script;
}

std::string get(const Script& script, const std::string& key, const std::string& otherwise) {
  const auto found = script.find(key);
  return found == script.end() ? otherwise : found->second;
}

// Delay, hang and answer that the script has for a function; empty = answer as usual.
std::optional<NvmlReturn> enter(const char* function, NvmlDevice device = nullptr) {
  Script script = read_script();
  const int delay_ms = std::atoi(get(script, std::string("delay.") + function, "0").c_str());
  if (delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  while (script.contains(std::string("hang.") + function)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    script = read_script();
  }
  const std::string answer = get(script, std::string("return.") + function, "");
  if (!answer.empty()) return std::atoi(answer.c_str());
  if (device == nullptr) return std::nullopt;
  if (get(script, std::to_string(get_index(device)) + ".lost", "0") != "0") return kNvmlGpuIsLost;
  return std::nullopt;
}

std::optional<std::string> find_value(unsigned index, const std::string& key) {
  const auto known = kDefaults.find(key);
  const std::string value = get(read_script(), std::to_string(index) + "." + key,
                                known == kDefaults.end() ? "-" : known->second);
  if (value == "-") return std::nullopt;
  return value;
}

template <typename Number>
NvmlReturn answer(const char* function, NvmlDevice device, const std::string& key, Number* number) {
  if (const auto code = enter(function, device)) return *code;
  const auto value = find_value(get_index(device), key);
  if (!value) return kNvmlNotSupported;
  *number = static_cast<Number>(std::strtoull(value->c_str(), nullptr, 0));
  return kNvmlSuccess;
}

NvmlReturn copy_text(const std::string& text, char* buffer, unsigned bytes) {
  if (text.size() >= bytes) return kNvmlInsufficientSize;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return kNvmlSuccess;
}

std::string get_field_key(unsigned index, unsigned id) {
  static const std::map<unsigned, std::string> kNames = {
      {kFieldEccCorrectedVolatile, "ecc_corrected"},
      {kFieldEccUncorrectedVolatile, "ecc_uncorrected"},
      {kFieldEccCorrectedAggregate, "ecc_corrected_aggregate"},
      {kFieldEccUncorrectedAggregate, "ecc_uncorrected_aggregate"},
      {kFieldPowerCapNs, "power_cap_ns"},
      {kFieldSyncBoostNs, "sync_boost_ns"},
      {kFieldEnergyMj, "energy_mj"},
      {kFieldPcieReplays, "pcie_replays"},
      {kFieldRemappedCorrected, "remapped_corrected"},
      {kFieldRemappedUncorrected, "remapped_uncorrected"},
      {kFieldRemapPending, "remap_pending"},
      {kFieldRemapFailed, "remap_failed"},
      {kFieldPowerAverageMw, "power_mw"},
      {kFieldPowerInstantMw, "power_mw"}};
  const auto first = static_cast<unsigned>(
      std::strtoul(find_value(index, "thermal_field").value_or("0").c_str(), nullptr, 0));
  if (first != 0 && id == first) return "sw_thermal_ns";
  if (first != 0 && id == first + 1) return "hw_thermal_ns";
  if (first != 0 && id == first + 2) return "power_brake_ns";
  const auto name = kNames.find(id);
  return name == kNames.end() ? "field." + std::to_string(id) : name->second;
}

constexpr unsigned kMigBit = 1u << 16;  // of a device that is a MIG instance
constexpr unsigned kFakeGpuInstance = 3;

// What a sample remembers: the GPU it is of.
struct FakeSample {
  unsigned gpu = 0;
  bool is_mig = false;
  bool is_taken = false;
};
FakeSample* get_sample(NvmlGpmSample sample) { return reinterpret_cast<FakeSample*>(sample); }

void answer_metric(const FakeSample& sample, NvmlGpmMetric& metric) {
  const std::string key = (sample.is_mig ? "mig_gpm." : "gpm.") + std::to_string(metric.metric_id);
  const auto value = find_value(sample.gpu, key);
  metric.result = value ? kNvmlSuccess : kNvmlNotSupported;
  if (value) metric.value = std::strtod(value->c_str(), nullptr);
}

std::atomic<size_t> told_events = 0;

// The next notice that was not told yet.
std::optional<NvmlEventData> take_event() {
  std::vector<NvmlEventData> events;
  std::istringstream list(get(read_script(), "events", ""));
  for (std::string item; std::getline(list, item, ',');) {
    unsigned gpu = 0;
    unsigned long long type = 0, data = 0;
    if (std::sscanf(item.c_str(), "%u:%llu:%llu", &gpu, &type, &data) != 3) continue;
    events.push_back({.device = make_device(gpu), .event_type = type, .event_data = data});
  }
  if (told_events >= events.size()) return std::nullopt;
  return events[told_events++];
}

}  // namespace
}  // namespace gpuperf

// NOLINTBEGIN: names and parameters are NVIDIA's.
using namespace gpuperf;
#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED NvmlReturn nvmlInit_v2() { return enter("nvmlInit").value_or(kNvmlSuccess); }
EXPORTED NvmlReturn nvmlShutdown() { return enter("nvmlShutdown").value_or(kNvmlSuccess); }
EXPORTED const char* nvmlErrorString(NvmlReturn code) {
  switch (code) {
    case kNvmlUninitialized:
      return "Uninitialized";
    case kNvmlNotSupported:
      return "Not Supported";
    case kNvmlDriverNotLoaded:
      return "Driver Not Loaded";
    case kNvmlGpuIsLost:
      return "GPU is lost";
    case kNvmlVersionMismatch:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}
EXPORTED NvmlReturn nvmlSystemGetDriverVersion(char* buffer, unsigned bytes) {
  if (const auto code = enter("nvmlSystemGetDriverVersion")) return *code;
  return copy_text(get(read_script(), "driver", "580.65.06"), buffer, bytes);
}
EXPORTED NvmlReturn nvmlDeviceGetCount_v2(unsigned* count) {
  if (const auto code = enter("nvmlDeviceGetCount")) return *code;
  *count = static_cast<unsigned>(std::atoi(get(read_script(), "gpus", "1").c_str()));
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* device) {
  if (const auto code = enter("nvmlDeviceGetHandleByIndex", make_device(index))) return *code;
  *device = make_device(index);
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetName(NvmlDevice device, char* buffer, unsigned bytes) {
  if (const auto code = enter("nvmlDeviceGetName", device)) return *code;
  return copy_text(find_value(get_index(device), "name").value_or(""), buffer, bytes);
}
EXPORTED NvmlReturn nvmlDeviceGetUUID(NvmlDevice device, char* buffer, unsigned bytes) {
  if (const auto code = enter("nvmlDeviceGetUUID", device)) return *code;
  char text[64];
  std::snprintf(text, sizeof text, "%s-0123abcd-0000-1111-2222-%012x",
                (get_index(device) & kMigBit) != 0 ? "MIG" : "GPU", get_index(device));
  return copy_text(text, buffer, bytes);
}
EXPORTED NvmlReturn nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* pci) {
  if (const auto code = enter("nvmlDeviceGetPciInfo", device)) return *code;
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", 0x19 + get_index(device));
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetFieldValues(NvmlDevice device, int count, NvmlFieldValue* fields) {
  if (const auto code = enter("nvmlDeviceGetFieldValues", device)) return *code;
  for (int i = 0; i < count; ++i) {
    const std::string key = get_field_key(get_index(device), fields[i].field_id);
    const auto value = find_value(get_index(device), key);
    fields[i].result = value ? kNvmlSuccess : kNvmlNotSupported;
    if (!value) continue;
    const bool is_milliwatt = key == "power_mw";
    fields[i].value_type = is_milliwatt ? kNvmlUnsignedInt : kNvmlUnsignedLongLong;
    const unsigned long long number = std::strtoull(value->c_str(), nullptr, 0);
    if (is_milliwatt) {
      fields[i].value.as_unsigned = static_cast<unsigned>(number);
    } else {
      fields[i].value.as_unsigned_long_long = number;
    }
  }
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetUtilizationRates(NvmlDevice device, NvmlUtilization* percent) {
  const NvmlReturn code =
      answer("nvmlDeviceGetUtilizationRates", device, "utilization", &percent->gpu);
  if (code != kNvmlSuccess) return code;
  return answer("nvmlDeviceGetUtilizationRates", device, "memory_utilization", &percent->memory);
}
EXPORTED NvmlReturn nvmlDeviceGetMemoryInfo_v2(NvmlDevice device, NvmlMemoryV2* memory) {
  if (memory->version != kNvmlMemoryV2) return kNvmlInvalidArgument;
  const NvmlReturn code =
      answer("nvmlDeviceGetMemoryInfo_v2", device, "memory_total", &memory->total);
  if (code != kNvmlSuccess) return code;
  return answer("nvmlDeviceGetMemoryInfo_v2", device, "memory_used", &memory->used);
}
EXPORTED NvmlReturn nvmlDeviceGetClockInfo(NvmlDevice device, int clock, unsigned* mhz) {
  return answer("nvmlDeviceGetClockInfo", device, clock == kNvmlClockSm ? "sm_mhz" : "memory_mhz",
                mhz);
}
EXPORTED NvmlReturn nvmlDeviceGetMaxClockInfo(NvmlDevice device, int clock, unsigned* mhz) {
  return answer("nvmlDeviceGetMaxClockInfo", device,
                clock == kNvmlClockSm ? "sm_max_mhz" : "memory_max_mhz", mhz);
}
// Only the older name, as before driver 535.
EXPORTED NvmlReturn nvmlDeviceGetCurrentClocksThrottleReasons(NvmlDevice device,
                                                              unsigned long long* bits) {
  return answer("nvmlDeviceGetCurrentClocksEventReasons", device, "reasons", bits);
}
EXPORTED NvmlReturn nvmlDeviceGetTemperature(NvmlDevice device, int, unsigned* celsius) {
  return answer("nvmlDeviceGetTemperature", device, "temperature", celsius);
}
EXPORTED NvmlReturn nvmlDeviceGetEnforcedPowerLimit(NvmlDevice device, unsigned* milliwatt) {
  return answer("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit_mw", milliwatt);
}
EXPORTED NvmlReturn nvmlDeviceGetCurrPcieLinkGeneration(NvmlDevice device, unsigned* generation) {
  return answer("nvmlDeviceGetCurrPcieLinkGeneration", device, "pcie_generation", generation);
}
EXPORTED NvmlReturn nvmlDeviceGetCurrPcieLinkWidth(NvmlDevice device, unsigned* width) {
  return answer("nvmlDeviceGetCurrPcieLinkWidth", device, "pcie_width", width);
}
EXPORTED NvmlReturn nvmlDeviceGetMigMode(NvmlDevice device, unsigned* current, unsigned* pending) {
  *pending = 0;
  return answer("nvmlDeviceGetMigMode", device, "mig", current);
}
EXPORTED NvmlReturn nvmlDeviceGetMaxMigDeviceCount(NvmlDevice device, unsigned* count) {
  if (const auto code = enter("nvmlDeviceGetMaxMigDeviceCount", device)) return *code;
  *count = 7;
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetMigDeviceHandleByIndex(NvmlDevice device, unsigned index,
                                                        NvmlDevice* mig) {
  if (const auto code = enter("nvmlDeviceGetMigDeviceHandleByIndex", device)) return *code;
  if (index != 0) return 6;  // NVML_ERROR_NOT_FOUND
  *mig = make_device(get_index(device) | kMigBit);
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetGpuInstanceId(NvmlDevice, unsigned* id) {
  *id = kFakeGpuInstance;
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetComputeInstanceId(NvmlDevice, unsigned* id) {
  *id = 0;
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlGpmQueryDeviceSupport(NvmlDevice device, NvmlGpmSupport* support) {
  if (support->version != 1) return kNvmlInvalidArgument;
  return answer("nvmlGpmQueryDeviceSupport", device, "gpm_supported",
                &support->is_supported_device);
}
EXPORTED NvmlReturn nvmlGpmSampleAlloc(NvmlGpmSample* sample) {
  if (const auto code = enter("nvmlGpmSampleAlloc")) return *code;
  *sample = reinterpret_cast<NvmlGpmSample>(new FakeSample());
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlGpmSampleFree(NvmlGpmSample sample) {
  delete get_sample(sample);
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlGpmSampleGet(NvmlDevice device, NvmlGpmSample sample) {
  if (const auto code = enter("nvmlGpmSampleGet", device)) return *code;
  *get_sample(sample) = {.gpu = get_index(device), .is_taken = true};
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlGpmMigSampleGet(NvmlDevice device, unsigned gpu_instance,
                                        NvmlGpmSample sample) {
  if (const auto code = enter("nvmlGpmMigSampleGet", device)) return *code;
  if (gpu_instance != kFakeGpuInstance) return kNvmlInvalidArgument;
  *get_sample(sample) = {.gpu = get_index(device), .is_mig = true, .is_taken = true};
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlGpmMetricsGet(NvmlGpmMetricsGet* request) {
  if (const auto code = enter("nvmlGpmMetricsGet")) return *code;
  const FakeSample& newest = *get_sample(request->sample2);
  if (request->version != 1 || !newest.is_taken || !get_sample(request->sample1)->is_taken) {
    return kNvmlInvalidArgument;
  }
  for (unsigned i = 0; i < request->count; ++i) answer_metric(newest, request->metrics[i]);
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned* count,
                                                            NvmlProcessInfo* infos) {
  unsigned pid = 0;
  const NvmlReturn code =
      answer("nvmlDeviceGetComputeRunningProcesses", device, "process_pid", &pid);
  if (code != kNvmlSuccess) return code;
  const unsigned room = *count;
  *count = pid == 0 ? 0 : 1;
  if (*count == 0) return kNvmlSuccess;
  if (room == 0) return kNvmlInsufficientSize;
  infos[0].pid = pid;
  return answer("nvmlDeviceGetComputeRunningProcesses", device, "process_memory",
                &infos[0].used_gpu_memory);
}
EXPORTED NvmlReturn nvmlEventSetCreate(NvmlEventSet* set) {
  if (const auto code = enter("nvmlEventSetCreate")) return *code;
  static int object = 0;
  *set = reinterpret_cast<NvmlEventSet>(&object);
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlEventSetFree(NvmlEventSet) {
  return enter("nvmlEventSetFree").value_or(kNvmlSuccess);
}
EXPORTED NvmlReturn nvmlDeviceGetSupportedEventTypes(NvmlDevice device, unsigned long long* types) {
  if (const auto code = enter("nvmlDeviceGetSupportedEventTypes", device)) return *code;
  *types = kNvmlEventXid | kNvmlEventDoubleBitEcc;
  return kNvmlSuccess;
}
EXPORTED NvmlReturn nvmlDeviceRegisterEvents(NvmlDevice device, unsigned long long types,
                                             NvmlEventSet) {
  if (const auto code = enter("nvmlDeviceRegisterEvents", device)) return *code;
  return (types & ~(kNvmlEventXid | kNvmlEventDoubleBitEcc)) == 0 ? kNvmlSuccess
                                                                  : kNvmlNotSupported;
}
EXPORTED NvmlReturn nvmlEventSetWait_v2(NvmlEventSet, NvmlEventData* data, unsigned timeout_ms) {
  if (const auto code = enter("nvmlEventSetWait")) return *code;
  for (unsigned waited_ms = 0; waited_ms < timeout_ms; waited_ms += 20) {
    if (const auto event = take_event()) {
      *data = *event;
      return kNvmlSuccess;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return kNvmlTimeout;
}
// NOLINTEND
