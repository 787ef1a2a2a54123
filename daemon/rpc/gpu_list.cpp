#include "daemon/rpc/gpu_list.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/model/xids.h"
#include "daemon/rpc/gpu_counters_to_proto.h"

namespace gpuperf {
namespace {

constexpr const char* kNotYet = "not read yet, or disabled: stats.gpu_interval_ms";

v1::GpuState to_proto(GpuState state) {
  switch (state) {
    case GpuState::kOk:
      return v1::GPU_STATE_OK;
    case GpuState::kLimited:
      return v1::GPU_STATE_LIMITED;
    case GpuState::kSlowed:
      return v1::GPU_STATE_SLOWED;
    case GpuState::kFailing:
      return v1::GPU_STATE_FAILING;
    case GpuState::kLost:
      return v1::GPU_STATE_LOST;
  }
  return v1::GPU_STATE_UNSPECIFIED;  // only reached with a value outside the enum
}

uint64_t get_age_ns(int64_t mono_ns, int64_t now_mono_ns) {
  if (mono_ns == 0) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(now_mono_ns - mono_ns, 1));
}

// Sets an optional field where there is a value.
template <typename Message, typename Field, typename Value>
void set(Message& message, void (Message::*setter)(Field), const std::optional<Value>& value) {
  if (value) (message.*setter)(static_cast<Field>(*value));
}

std::optional<double> divide_by_1000(const std::optional<uint64_t>& value) {
  return value ? std::optional(static_cast<double>(*value) / 1000) : std::nullopt;
}

// What limits the clocks now: trouble first; of the rest, what says most.
std::string describe_limits(const GpuHealth& gpu) {
  std::string text;
  for (const LimitWeight weight :
       {LimitWeight::kSlowed, LimitWeight::kLimited, LimitWeight::kNormal}) {
    for (const ClockLimitRow& row : clock_limit_rows()) {
      const bool active = gpu.clock_limits[static_cast<size_t>(row.limit)].is_active;
      if (row.weight != weight || !active) continue;
      text += (text.empty() ? "" : ", ") + std::string(row.words);
    }
  }
  return text;
}

void add_limits(const GpuHealth& gpu, int64_t now_mono_ns, v1::Gpu& message) {
  if (!gpu.has_clock_limits) return;
  message.set_limited_by(describe_limits(gpu));
  for (const ClockLimitRow& row : clock_limit_rows()) {
    const ClockLimitState& state = gpu.clock_limits[static_cast<size_t>(row.limit)];
    v1::GpuClockLimit& limit = *message.add_clock_limits();
    limit.set_reason(std::string(row.label));
    limit.set_description(std::string(row.words));
    limit.set_active(state.is_active);
    limit.set_active_ns(get_age_ns(state.since_mono_ns, now_mono_ns));
    set(limit, &v1::GpuClockLimit::set_total_ns, state.total_ns);
    limit.set_minute_ratio(state.minute_ratio);
  }
}

void add_xids(const GpuHealth& gpu, v1::Gpu& message) {
  std::vector<std::pair<uint32_t, XidCount>> xids(gpu.xids.begin(), gpu.xids.end());
  std::ranges::stable_sort(xids, [](const auto& a, const auto& b) {
    return a.second.last_unix_ns > b.second.last_unix_ns;
  });
  for (const auto& [code, count] : xids) {
    const XidRow row = get_xid(code);
    v1::GpuXid& xid = *message.add_xids();
    xid.set_xid(code);
    xid.set_count(count.count);
    xid.set_last_unix_ns(static_cast<uint64_t>(count.last_unix_ns));
    xid.set_meaning(std::string(row.meaning));
    xid.set_advice(std::string(row.advice));
  }
  for (const XidEvent& event : gpu.recent_xids) {
    v1::GpuXidEvent& recent = *message.add_recent_xids();
    recent.set_xid(event.xid);
    recent.set_unix_ns(static_cast<uint64_t>(event.unix_ns));
  }
}

void set_memory_health(const GpuHealth& gpu, v1::Gpu& message) {
  v1::GpuEcc& ecc = *message.mutable_ecc();
  set(ecc, &v1::GpuEcc::set_corrected_volatile, gpu.ecc.corrected_volatile);
  set(ecc, &v1::GpuEcc::set_uncorrected_volatile, gpu.ecc.uncorrected_volatile);
  set(ecc, &v1::GpuEcc::set_corrected_aggregate, gpu.ecc.corrected_aggregate);
  set(ecc, &v1::GpuEcc::set_uncorrected_aggregate, gpu.ecc.uncorrected_aggregate);
  ecc.set_events(gpu.ecc_events);
  v1::GpuRepair& repair = *message.mutable_repair();
  set(repair, &v1::GpuRepair::set_remapped_corrected, gpu.repair.remapped_corrected);
  set(repair, &v1::GpuRepair::set_remapped_uncorrected, gpu.repair.remapped_uncorrected);
  set(repair, &v1::GpuRepair::set_remap_pending, gpu.repair.remap_pending);
  set(repair, &v1::GpuRepair::set_remap_failed, gpu.repair.remap_failed);
  set(repair, &v1::GpuRepair::set_retired_corrected, gpu.repair.retired_corrected);
  set(repair, &v1::GpuRepair::set_retired_uncorrected, gpu.repair.retired_uncorrected);
  set(repair, &v1::GpuRepair::set_retire_pending, gpu.repair.retire_pending);
}

void set_pcie(const PcieState& state, v1::GpuPcie& pcie) {
  set(pcie, &v1::GpuPcie::set_generation, state.generation);
  set(pcie, &v1::GpuPcie::set_width_lanes, state.width_lanes);
  set(pcie, &v1::GpuPcie::set_max_generation, state.max_generation);
  set(pcie, &v1::GpuPcie::set_max_width_lanes, state.max_width_lanes);
  set(pcie, &v1::GpuPcie::set_replays, state.replays);
}

void add_parts(const GpuHealth& gpu, int64_t now_mono_ns, v1::Gpu& message) {
  set(message, &v1::Gpu::set_mig_enabled, gpu.is_mig_enabled);
  for (const MigInstance& instance : gpu.mig_instances) {
    v1::GpuMigInstance& part = *message.add_mig_instances();
    part.set_uuid(to_valid_utf8(instance.uuid_text));
    part.set_gpu_instance(instance.gpu_instance);
    part.set_compute_instance(instance.compute_instance);
    set(part, &v1::GpuMigInstance::set_memory_used_bytes, instance.memory_used_bytes);
    set(part, &v1::GpuMigInstance::set_memory_total_bytes, instance.memory_total_bytes);
    const auto counters = gpu.instance_counters.find(instance.gpu_instance);
    if (counters == gpu.instance_counters.end()) continue;
    *part.mutable_counters() = to_proto(counters->second, now_mono_ns);
  }
  for (const GpuProcessMemory& process : gpu.processes) {
    v1::GpuProcess& row = *message.add_processes();
    row.set_pid(process.pid);
    set(row, &v1::GpuProcess::set_memory_bytes, process.memory_bytes);
  }
}

void set_speed(const GpuHealth& gpu, v1::Gpu& message) {
  set(message, &v1::Gpu::set_utilization_ratio, gpu.utilization_ratio);
  set(message, &v1::Gpu::set_memory_utilization_ratio, gpu.memory_utilization_ratio);
  set(message, &v1::Gpu::set_memory_used_bytes, gpu.memory_used_bytes);
  set(message, &v1::Gpu::set_memory_total_bytes, gpu.memory_total_bytes);
  set(message, &v1::Gpu::set_power_watts, divide_by_1000(gpu.power_mw));
  set(message, &v1::Gpu::set_power_limit_watts, divide_by_1000(gpu.power_limit_mw));
  set(message, &v1::Gpu::set_energy_joules, divide_by_1000(gpu.energy_mj));
  set(message, &v1::Gpu::set_sm_clock_hz, gpu.sm_clock_hz);
  set(message, &v1::Gpu::set_sm_clock_max_hz, gpu.sm_clock_max_hz);
  set(message, &v1::Gpu::set_memory_clock_hz, gpu.memory_clock_hz);
  set(message, &v1::Gpu::set_memory_clock_max_hz, gpu.memory_clock_max_hz);
  set(message, &v1::Gpu::set_temperature_celsius, gpu.temperature_celsius);
}

}  // namespace

v1::Gpu to_proto(const GpuHealth& gpu, int64_t now_mono_ns) {
  v1::Gpu message;
  message.set_index(gpu.index);
  message.set_name(to_valid_utf8(gpu.name));
  message.set_uuid(to_valid_utf8(gpu.uuid_text));
  message.set_pci_bus_id(to_valid_utf8(gpu.pci_bus_id));
  const GpuVerdict verdict = judge_gpu(gpu, now_mono_ns);
  message.set_state(to_proto(verdict.state));
  message.set_verdict(verdict.text);
  message.set_hint(verdict.hint);
  set_speed(gpu, message);
  add_limits(gpu, now_mono_ns, message);
  set_memory_health(gpu, message);
  add_xids(gpu, message);
  set_pcie(gpu.pcie, *message.mutable_pcie());
  add_parts(gpu, now_mono_ns, message);
  *message.mutable_counters() = to_proto(gpu.counters, now_mono_ns);
  message.set_age_ns(get_age_ns(gpu.read_mono_ns, now_mono_ns));
  return message;
}

v1::ListGpusResponse list_gpus(const Snapshot& snapshot, int64_t now_mono_ns) {
  v1::ListGpusResponse response;
  if (snapshot.gpus == nullptr) {
    response.set_reason(kNotYet);
    return response;
  }
  const GpuHealthReport& report = *snapshot.gpus;
  response.set_reason(to_valid_utf8(report.reason));
  response.set_driver_version(to_valid_utf8(report.driver_version));
  response.set_events_problem(to_valid_utf8(report.events_problem));
  for (const GpuHealth& gpu : report.gpus) {
    v1::Gpu& message = *response.add_gpus();
    message = to_proto(gpu, now_mono_ns);
    message.set_driver_version(response.driver_version());
  }
  for (const GpuCallCost& cost : report.costs) {
    v1::GpuCallCost& message = *response.add_costs();
    message.set_call(cost.call);
    message.set_calls(cost.calls);
    message.set_p99_ns(cost.p99_ns);
    message.set_max_ns(cost.max_ns);
    message.set_slow_down(cost.slow_down);
  }
  return response;
}

void set_gpu_summary(const Snapshot& snapshot, int64_t now_mono_ns,
                     v1::GetStatusResponse& response) {
  if (snapshot.gpus == nullptr) return response.set_gpus_reason(kNotYet);
  const GpuHealthReport& report = *snapshot.gpus;
  response.set_gpus(static_cast<uint32_t>(report.gpus.size()));
  response.set_gpus_reason(to_valid_utf8(report.reason));
  response.set_gpus_in_trouble(
      static_cast<uint32_t>(std::ranges::count_if(report.gpus, [now_mono_ns](const GpuHealth& gpu) {
        const GpuState state = judge_gpu(gpu, now_mono_ns).state;
        return state != GpuState::kOk && state != GpuState::kLimited;
      })));
}

}  // namespace gpuperf
