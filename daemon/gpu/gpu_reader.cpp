#include "daemon/gpu/gpu_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "daemon/gpu/field_values.h"

namespace gpuperf {
namespace {

constexpr uint64_t kHzPerMhz = 1'000'000;
// "Not known" of a process's memory: NVML_VALUE_NOT_AVAILABLE, -1 as unsigned.
constexpr unsigned long long kMemoryNotKnown = ~0ULL;

// Whether the session, and not one GPU, is of no use any more.
bool is_broken(NvmlReturn code) {
  return code == kNvmlUninitialized || code == kNvmlDriverNotLoaded || code == kNvmlVersionMismatch;
}

bool is_gpu_lost(NvmlReturn code) { return code == kNvmlGpuIsLost || code == kNvmlResetRequired; }

// Up to the zero, or all of it where there is none.
template <size_t kBytes>
std::string make_text(const char (&buffer)[kBytes]) {
  return {buffer, strnlen(buffer, kBytes)};
}

}  // namespace

GpuReader::GpuReader(std::chrono::nanoseconds interval, std::shared_ptr<CallWatch> watch,
                     bool reads_counters)
    : pace_(interval), watch_(std::move(watch)), reads_counters_(reads_counters) {}

// Every call of the driver goes through here: measured, watched, and judged.
template <typename... Parameters, typename... Arguments>
NvmlReturn GpuReader::call(std::optional<GpuCall> kind, const char* name,
                           const std::function<NvmlReturn(Parameters...)>& function,
                           Arguments... arguments) {
  if (!function || is_lost_ || broken_ != kNvmlSuccess) return kNvmlFunctionNotFound;
  watch_->enter(name);
  const NvmlReturn code = function(arguments...);
  const std::chrono::nanoseconds duration = watch_->leave();
  if (kind) pace_.add(*kind, duration);
  if (is_gpu_lost(code)) is_lost_ = true;
  if (is_broken(code)) broken_ = code;
  return code;
}

std::optional<uint64_t> GpuReader::ask(
    GpuCall kind, const char* name,
    const std::function<NvmlReturn(NvmlDevice, unsigned*)>& function, NvmlDevice device) {
  unsigned value = 0;
  if (call(kind, name, function, device, &value) != kNvmlSuccess) return std::nullopt;
  return value;
}

std::optional<uint64_t> GpuReader::ask(
    GpuCall kind, const char* name,
    const std::function<NvmlReturn(NvmlDevice, int, unsigned*)>& function, NvmlDevice device,
    int which) {
  unsigned value = 0;
  if (call(kind, name, function, device, which, &value) != kNvmlSuccess) return std::nullopt;
  return value;
}

Status GpuReader::open(std::shared_ptr<const NvmlApi> api) {
  is_lost_ = false;
  broken_ = kNvmlSuccess;
  watch_->enter("nvmlInit");
  const NvmlReturn code = api->init();
  (void)watch_->leave();  // starting a GPU may take seconds; it happens once
  if (code != kNvmlSuccess) {
    return absl::UnavailableError("nvmlInit: " + describe_nvml(*api, code));
  }
  api_ = std::move(api);
  const Status opened = open_devices();
  if (!opened.ok()) close();
  return opened;
}

Status GpuReader::open_devices() {
  for (auto& [uuid, gpu] : gpus_) gpu.device = nullptr;
  char version[kNvmlDriverVersionBytes] = {};
  if (call(GpuCall::kInventory, "nvmlSystemGetDriverVersion", api_->system_driver_version,
           &version[0], static_cast<unsigned>(sizeof version)) == kNvmlSuccess) {
    driver_version_ = make_text(version);
  }
  unsigned count = 0;
  const NvmlReturn code =
      call(GpuCall::kInventory, "nvmlDeviceGetCount", api_->device_count, &count);
  if (code != kNvmlSuccess) {
    return absl::UnavailableError("nvmlDeviceGetCount: " + describe_nvml(*api_, code));
  }
  for (unsigned index = 0; index < std::min(count, kMaxGpus); ++index) {
    is_lost_ = false;
    open_device(index);
  }
  if (broken_ != kNvmlSuccess) {
    return absl::UnavailableError("NVML: " + describe_nvml(*api_, broken_));
  }
  // Known from a session before, and not in this one.
  for (auto& [uuid, gpu] : gpus_) gpu.health.is_lost = gpu.device == nullptr;
  pace_.reset();
  return absl::OkStatus();
}

void GpuReader::open_device(unsigned index) {
  NvmlDevice device = nullptr;
  if (call(GpuCall::kInventory, "nvmlDeviceGetHandleByIndex", api_->device_by_index, index,
           &device) != kNvmlSuccess) {
    return;  // lost before: it keeps its row where it has one
  }
  char text[kNvmlUuidBytes] = {};
  if (call(GpuCall::kInventory, "nvmlDeviceGetUUID", api_->uuid, device, &text[0],
           static_cast<unsigned>(sizeof text)) != kNvmlSuccess) {
    return;
  }
  const std::string uuid_text = make_text(text);
  const std::optional<GpuUuid> uuid = parse_gpu_uuid(uuid_text);
  if (!uuid || (gpus_.size() >= kMaxGpus && !gpus_.contains(*uuid))) return;
  Gpu& gpu = gpus_[*uuid];
  gpu.device = device;
  gpu.knows_thermal_field = false;
  gpu.look = {};
  gpu.health.index = index;
  gpu.health.uuid = *uuid;
  gpu.health.uuid_text = uuid_text;
}

void GpuReader::close() {
  if (!api_) return;
  free_counters();
  watch_->enter("nvmlShutdown");
  (void)api_->shutdown();  // nothing could be done about an error
  (void)watch_->leave();
  leave();
}

void GpuReader::leave() {
  api_.reset();
  for (auto& [uuid, gpu] : gpus_) {
    gpu.device = nullptr;
    gpu.counters.clear();
  }
}

std::vector<GpuHandle> GpuReader::handles() const {
  std::vector<GpuHandle> handles;
  for (const auto& [uuid, gpu] : gpus_) {
    if (gpu.device != nullptr && !gpu.health.is_lost) handles.push_back({gpu.device, uuid});
  }
  return handles;
}

Status GpuReader::read(int64_t now_mono_ns) {
  broken_ = kNvmlSuccess;
  for (auto& [uuid, gpu] : gpus_) {
    if (gpu.device == nullptr || gpu.health.is_lost) continue;
    is_lost_ = false;
    read_gpu(gpu, now_mono_ns);
    gpu.health.is_lost = is_lost_;
  }
  pace_.finish(now_mono_ns);
  if (broken_ != kNvmlSuccess) {
    return absl::UnavailableError("NVML: " + describe_nvml(*api_, broken_));
  }
  return absl::OkStatus();
}

bool GpuReader::is_any_lost() const {
  return std::ranges::any_of(gpus_, [](const auto& entry) { return entry.second.health.is_lost; });
}

void GpuReader::read_gpu(Gpu& gpu, int64_t now_mono_ns) {
  const auto is_due = [&](GpuCall kind) { return pace_.is_due(kind, now_mono_ns); };
  GpuHealth& health = gpu.health;
  GpuHealth before = health;
  if (is_due(GpuCall::kInventory)) read_inventory(gpu);
  if (is_due(GpuCall::kCounters)) read_counters(gpu, now_mono_ns);
  if (is_due(GpuCall::kFields)) read_power(gpu);
  if (is_due(GpuCall::kUtilization)) {
    NvmlUtilization percent;
    const bool told = call(GpuCall::kUtilization, "nvmlDeviceGetUtilizationRates",
                           api_->utilization, gpu.device, &percent) == kNvmlSuccess;
    health.utilization_ratio = told ? std::optional(percent.gpu / 100.0) : std::nullopt;
    health.memory_utilization_ratio = told ? std::optional(percent.memory / 100.0) : std::nullopt;
  }
  if (is_due(GpuCall::kMemory)) {
    read_memory(gpu.device, health.memory_used_bytes, health.memory_total_bytes);
  }
  if (is_due(GpuCall::kClocks)) read_clocks(gpu);
  if (is_due(GpuCall::kClockLimits)) {
    unsigned long long bits = 0;
    const bool told = call(GpuCall::kClockLimits, "nvmlDeviceGetCurrentClocksEventReasons",
                           api_->clock_limits, gpu.device, &bits) == kNvmlSuccess;
    gpu.look.active_bits = told ? std::optional<uint64_t>(bits) : std::nullopt;
    health.has_clock_limits = told;
  }
  if (is_due(GpuCall::kTemperature)) {
    health.temperature_celsius = ask(GpuCall::kTemperature, "nvmlDeviceGetTemperature",
                                     api_->temperature, gpu.device, kNvmlTemperatureGpu);
  }
  if (is_due(GpuCall::kEcc)) read_ecc(gpu);
  if (is_due(GpuCall::kProcesses)) read_processes(gpu);
  if (is_due(GpuCall::kPcie)) read_pcie(gpu);
  if (is_due(GpuCall::kRepair)) read_repair(gpu);
  if (is_lost_ || broken_ != kNvmlSuccess) {
    health = std::move(before);  // what was last known stays, and is of one moment
    return;
  }
  gpu.look.mono_ns = now_mono_ns;
  gpu.limits.add(gpu.look);
  health.clock_limits = gpu.limits.states();
  health.read_mono_ns = now_mono_ns;
}

// One batch. False: the GPU or the library has no batches.
bool GpuReader::read_fields(GpuCall kind, Gpu& gpu, std::span<NvmlFieldValue> fields) {
  return call(kind, "nvmlDeviceGetFieldValues", api_->field_values, gpu.device,
              static_cast<int>(fields.size()), fields.data()) == kNvmlSuccess;
}

void GpuReader::read_power(Gpu& gpu) {
  GpuHealth& health = gpu.health;
  std::vector<NvmlFieldValue> batch;
  const auto add = [&](unsigned field_id) { batch.push_back({.field_id = field_id}); };
  for (const unsigned id : {kFieldPowerAverageMw, kFieldPowerInstantMw, kFieldEnergyMj,
                            kFieldPowerCapNs, kFieldSyncBoostNs, kFieldPcieReplays}) {
    add(id);
  }
  for (const unsigned first : {kFieldSwThermalNsOld, kFieldSwThermalNsNew}) {
    if (gpu.knows_thermal_field && first != gpu.thermal_field) continue;
    for (unsigned id = first; id < first + 3; ++id) add(id);
  }
  const bool told = read_fields(GpuCall::kFields, gpu, batch);
  if (!told) batch.clear();
  if (told && !gpu.knows_thermal_field) {
    gpu.thermal_field = find_thermal_fields(batch);
    gpu.knows_thermal_field = true;
  }
  health.power_mw = find_field(batch, kFieldPowerAverageMw);
  if (!health.power_mw) health.power_mw = find_field(batch, kFieldPowerInstantMw);
  if (!health.power_mw) {
    health.power_mw =
        ask(GpuCall::kFields, "nvmlDeviceGetPowerUsage", api_->power_usage_mw, gpu.device);
  }
  health.energy_mj = find_field(batch, kFieldEnergyMj);
  health.pcie.replays = find_field(batch, kFieldPcieReplays);
  const auto set_total = [&](ClockLimit limit, unsigned field_id) {
    gpu.look.total_ns[static_cast<size_t>(limit)] = find_field(batch, field_id);
  };
  set_total(ClockLimit::kPowerCap, kFieldPowerCapNs);
  set_total(ClockLimit::kSyncBoost, kFieldSyncBoostNs);
  if (gpu.thermal_field == 0) return;
  set_total(ClockLimit::kSwThermal, gpu.thermal_field);
  set_total(ClockLimit::kHwThermal, gpu.thermal_field + 1);
  set_total(ClockLimit::kPowerBrake, gpu.thermal_field + 2);
}

// The second version leaves out what the driver keeps for itself, as nvidia-smi does.
void GpuReader::read_memory(NvmlDevice device, std::optional<uint64_t>& used_bytes,
                            std::optional<uint64_t>& total_bytes) {
  NvmlMemoryV2 memory{.version = kNvmlMemoryV2};
  if (call(GpuCall::kMemory, "nvmlDeviceGetMemoryInfo_v2", api_->memory_v2, device, &memory) ==
      kNvmlSuccess) {
    used_bytes = memory.used;
    total_bytes = memory.total;
    return;
  }
  NvmlMemory older;
  const bool told = call(GpuCall::kMemory, "nvmlDeviceGetMemoryInfo", api_->memory, device,
                         &older) == kNvmlSuccess;
  used_bytes = told ? std::optional<uint64_t>(older.used) : std::nullopt;
  total_bytes = told ? std::optional<uint64_t>(older.total) : std::nullopt;
}

void GpuReader::read_clocks(Gpu& gpu) {
  const auto read = [&](const auto& function, const char* name, int clock) {
    const std::optional<uint64_t> mhz = ask(GpuCall::kClocks, name, function, gpu.device, clock);
    return mhz ? std::optional(*mhz * kHzPerMhz) : std::nullopt;
  };
  gpu.health.sm_clock_hz = read(api_->clock_mhz, "nvmlDeviceGetClockInfo", kNvmlClockSm);
  gpu.health.memory_clock_hz = read(api_->clock_mhz, "nvmlDeviceGetClockInfo", kNvmlClockMemory);
}

void GpuReader::read_ecc(Gpu& gpu) {
  std::array<NvmlFieldValue, 4> batch{{{.field_id = kFieldEccCorrectedVolatile},
                                       {.field_id = kFieldEccUncorrectedVolatile},
                                       {.field_id = kFieldEccCorrectedAggregate},
                                       {.field_id = kFieldEccUncorrectedAggregate}}};
  if (!read_fields(GpuCall::kEcc, gpu, batch)) return;
  gpu.health.ecc = {.corrected_volatile = read_field(batch[0]),
                    .uncorrected_volatile = read_field(batch[1]),
                    .corrected_aggregate = read_field(batch[2]),
                    .uncorrected_aggregate = read_field(batch[3])};
}

void GpuReader::read_processes(Gpu& gpu) {
  std::array<NvmlProcessInfo, kMaxProcesses> infos{};
  unsigned count = kMaxProcesses;
  // INSUFFICIENT_SIZE: there are more; the list before is as good as a part of it.
  if (call(GpuCall::kProcesses, "nvmlDeviceGetComputeRunningProcesses", api_->processes, gpu.device,
           &count, infos.data()) != kNvmlSuccess) {
    return;
  }
  std::vector<GpuProcessMemory> processes;
  for (const NvmlProcessInfo& info : std::span(infos).first(std::min(count, kMaxProcesses))) {
    const bool known = info.used_gpu_memory != kMemoryNotKnown;
    processes.push_back(
        {.pid = info.pid,
         .memory_bytes = known ? std::optional<uint64_t>(info.used_gpu_memory) : std::nullopt});
  }
  std::ranges::sort(processes, [](const GpuProcessMemory& a, const GpuProcessMemory& b) {
    return std::tuple(b.memory_bytes.value_or(0), a.pid) <
           std::tuple(a.memory_bytes.value_or(0), b.pid);
  });
  gpu.health.processes = std::move(processes);
}

void GpuReader::read_pcie(Gpu& gpu) {
  const auto read = [&](const auto& function, const char* name) {
    return ask(GpuCall::kPcie, name, function, gpu.device);
  };
  PcieState& pcie = gpu.health.pcie;
  pcie.generation = read(api_->pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  pcie.width_lanes = read(api_->pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  pcie.max_generation = read(api_->max_pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  pcie.max_width_lanes = read(api_->max_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
}

void GpuReader::read_repair(Gpu& gpu) {
  std::array<NvmlFieldValue, 7> batch{{{.field_id = kFieldRemappedCorrected},
                                       {.field_id = kFieldRemappedUncorrected},
                                       {.field_id = kFieldRemapPending},
                                       {.field_id = kFieldRemapFailed},
                                       {.field_id = kFieldRetiredCorrected},
                                       {.field_id = kFieldRetiredUncorrected},
                                       {.field_id = kFieldRetirePending}}};
  if (!read_fields(GpuCall::kRepair, gpu, batch)) return;
  gpu.health.repair = {.remapped_corrected = read_field(batch[0]),
                       .remapped_uncorrected = read_field(batch[1]),
                       .remap_pending = read_field(batch[2]),
                       .remap_failed = read_field(batch[3]),
                       .retired_corrected = read_field(batch[4]),
                       .retired_uncorrected = read_field(batch[5]),
                       .retire_pending = read_field(batch[6])};
}

void GpuReader::read_inventory(Gpu& gpu) {
  GpuHealth& health = gpu.health;
  char name[kNvmlNameBytes] = {};
  if (call(GpuCall::kInventory, "nvmlDeviceGetName", api_->name, gpu.device, &name[0],
           static_cast<unsigned>(sizeof name)) == kNvmlSuccess) {
    health.name = make_text(name);
  }
  NvmlPciInfo pci;
  if (call(GpuCall::kInventory, "nvmlDeviceGetPciInfo", api_->pci_info, gpu.device, &pci) ==
      kNvmlSuccess) {
    health.pci_bus_id = make_text(pci.bus_id);
  }
  const auto read_max_clock = [&](int clock) {
    const std::optional<uint64_t> mhz = ask(GpuCall::kInventory, "nvmlDeviceGetMaxClockInfo",
                                            api_->max_clock_mhz, gpu.device, clock);
    return mhz ? std::optional(*mhz * kHzPerMhz) : std::nullopt;
  };
  health.sm_clock_max_hz = read_max_clock(kNvmlClockSm);
  health.memory_clock_max_hz = read_max_clock(kNvmlClockMemory);
  health.power_limit_mw =
      ask(GpuCall::kInventory, "nvmlDeviceGetEnforcedPowerLimit", api_->power_limit_mw, gpu.device);
  read_mig(gpu);
}

void GpuReader::read_mig(Gpu& gpu) {
  GpuHealth& health = gpu.health;
  unsigned current = 0, pending = 0;
  const bool told = call(GpuCall::kInventory, "nvmlDeviceGetMigMode", api_->mig_mode, gpu.device,
                         &current, &pending) == kNvmlSuccess;
  health.is_mig_enabled = told ? std::optional(current == kNvmlFeatureEnabled) : std::nullopt;
  health.mig_instances.clear();
  if (!health.is_mig_enabled.value_or(false)) return;
  const uint64_t count = std::min<uint64_t>(
      ask(GpuCall::kInventory, "nvmlDeviceGetMaxMigDeviceCount", api_->max_mig_count, gpu.device)
          .value_or(0),
      kMaxMigInstances);
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    char text[kNvmlUuidBytes] = {};
    if (call(GpuCall::kInventory, "nvmlDeviceGetMigDeviceHandleByIndex", api_->mig_by_index,
             gpu.device, i, &device) != kNvmlSuccess ||
        call(GpuCall::kInventory, "nvmlDeviceGetUUID", api_->uuid, device, &text[0],
             static_cast<unsigned>(sizeof text)) != kNvmlSuccess) {
      continue;  // not every place has an instance
    }
    MigInstance instance{.uuid_text = make_text(text)};
    instance.uuid = parse_gpu_uuid(instance.uuid_text).value_or(GpuUuid{});
    const auto read = [&](const auto& function, const char* name) {
      return static_cast<uint32_t>(ask(GpuCall::kInventory, name, function, device).value_or(0));
    };
    instance.gpu_instance = read(api_->gpu_instance, "nvmlDeviceGetGpuInstanceId");
    instance.compute_instance = read(api_->compute_instance, "nvmlDeviceGetComputeInstanceId");
    read_memory(device, instance.memory_used_bytes, instance.memory_total_bytes);
    health.mig_instances.push_back(std::move(instance));
  }
}

// In MIG mode there is a reader for each GPU instance that has a compute instance; those of
// instances that are gone are freed.
void GpuReader::read_counters(Gpu& gpu, int64_t now_mono_ns) {
  GpuHealth& health = gpu.health;
  if (!reads_counters_) {
    health.counters.reason = "switched off: stats.gpu_counters";
    return;
  }
  std::set<std::optional<uint32_t>> wanted;
  for (const MigInstance& instance : health.mig_instances) wanted.insert(instance.gpu_instance);
  const bool is_mig = health.is_mig_enabled.value_or(false);
  if (is_mig) {
    health.counters.window = {};
    health.counters.reason = "in MIG mode, they are read per GPU instance";
    health.counters.has_failed = false;
  } else {
    wanted = {std::nullopt};
  }
  const GpuCounterReader::Call call_driver = [this](bool is_regular, const char* name,
                                                    const auto& function) {
    return call(is_regular ? std::optional(GpuCall::kCounters) : std::nullopt, name, function);
  };
  for (auto reader = gpu.counters.begin(); reader != gpu.counters.end();) {
    if (wanted.contains(reader->first)) {
      ++reader;
      continue;
    }
    reader->second.free_samples(call_driver);
    reader = gpu.counters.erase(reader);
  }
  std::erase_if(health.instance_counters,
                [&](const auto& entry) { return !is_mig || !wanted.contains(entry.first); });
  for (const std::optional<uint32_t>& instance : wanted) {
    const auto [reader, is_new] = gpu.counters.try_emplace(instance, api_, gpu.device, instance);
    reader->second.read(call_driver, now_mono_ns,
                        instance ? health.instance_counters[*instance] : health.counters);
  }
}

void GpuReader::free_counters() {
  for (auto& [uuid, gpu] : gpus_) {
    for (auto& [instance, reader] : gpu.counters) {
      reader.free_samples([this](bool, const char* name, const auto& function) {
        watch_->enter(name);
        const NvmlReturn code = function();
        (void)watch_->leave();
        return code;
      });
    }
  }
}

GpuHealthReport GpuReader::make_report() const {
  GpuHealthReport report{.driver_version = driver_version_, .costs = pace_.costs()};
  for (const auto& [uuid, gpu] : gpus_) report.gpus.push_back(gpu.health);
  std::ranges::sort(report.gpus, {}, &GpuHealth::index);
  return report;
}

}  // namespace gpuperf
