#include "daemon/app/gpu_memory_part.h"

#include <time.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "daemon/app/kernel_part.h"

namespace gpuperf {
namespace {

constexpr int64_t kReportPeriodNs = 1'000'000'000;
// From when probes of a file are attached until the snapshot says so, at most.
constexpr int64_t kProbesDelayNs = 10'000'000'000;

constexpr LogEvent kOutOfGpuMemory{"out of GPU memory", "7d2f4b2ce1b04c4c8a3fd0a3a84a5f1e"};

uint64_t read_boot_ns() {
  timespec now{};
  (void)clock_gettime(CLOCK_BOOTTIME, &now);  // cannot fail with this clock
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

GpuMemoryPart::GpuMemoryPart(Core& core, const KernelPart& kernel)
    : Part(core),
      kernel_(kernel),
      attached_boot_ns_(read_boot_ns()),
      table_({}, make_sources(), core.drops) {}

MemoryTable::Sources GpuMemoryPart::make_sources() {
  return {.find_facts = [this](const ProcessKey& process) { return find_facts(process); },
          .find_owner =
              [this](const ProcessKey& process) { return get_owner(*core_.board.get(), process); },
          .to_unix_ns =
              [this](uint64_t mono_ns) {
                return static_cast<uint64_t>(
                    core_.clock.unix_from_mono_ns(static_cast<int64_t>(mono_ns)));
              }};
}

MemoryTable::Facts GpuMemoryPart::find_facts(const ProcessKey& process) {
  return {.uid = users_.find(process.pid, process.start_boot_ns),
          .is_late = process.start_boot_ns < attached_boot_ns_};
}

bool GpuMemoryPart::is_reported(uint32_t function_id) const {
  const auto functions = core_.registry.get();
  if (function_id >= functions->size()) return false;
  const auto& plan = (*functions)[function_id].arguments;
  return plan != nullptr && plan->report == CallReport::kMemory;
}

void GpuMemoryPart::apply(const std::vector<Suspension>& suspensions) {
  const bool is_blind = std::ranges::any_of(suspensions, [this](const Suspension& suspension) {
    return is_reported(suspension.function_id);
  });
  if (is_blind) table_.add_gaps(kMemorySuspended);
}

// The first process that maps a file calls it before it is probed.
void GpuMemoryPart::look_at_probes(int64_t now_mono_ns) {
  const auto snapshot = core_.board.get();
  if (snapshot->probes == nullptr) return;
  const auto attached = static_cast<size_t>(
      std::ranges::count_if(snapshot->probes->probes, [this](const ProbeRow& probe) {
        return is_placed(probe.state) && is_reported(probe.function_id);
      }));
  if (attached > attached_) {
    attached_boot_ns_ = read_boot_ns();
    table_.add_gaps(kMemoryLateStart,
                    static_cast<uint64_t>(std::max<int64_t>(now_mono_ns - kProbesDelayNs, 0)));
  }
  attached_ = attached;
}

void GpuMemoryPart::advance(int64_t now_mono_ns) {
  const uint64_t lost_calls = core_.drops.get(DropCause::kBpfReportRingFull);
  if (std::exchange(lost_calls_, lost_calls) != lost_calls) table_.add_gaps(kMemoryLostCalls);
  table_.advance(now_mono_ns);
  name_stacks();
  log_incidents();
  if (now_mono_ns - report_mono_ns_ < kReportPeriodNs) return;
  report_mono_ns_ = now_mono_ns;
  look_at_probes(now_mono_ns);
  report_ = table_.make_report();
}

void GpuMemoryPart::name_stacks() {
  for (const MemoryTable::Unnamed& unnamed : table_.take_unnamed()) {
    const auto on_named = [this, unnamed](const StackPtr& stack) {
      table_.set_stack(unnamed, stack);
    };
    if (!kernel_.name_stack(unnamed.process, unnamed.stack_id, on_named)) on_named(nullptr);
  }
}

void GpuMemoryPart::log_incidents() {
  const auto functions = core_.registry.get();
  for (const MemoryTable::IncidentPtr& incident : table_.take_incidents()) {
    const auto [is_allowed, suppressed] = log_limiter_.admit(core_.clock.mono_ns());
    if (!is_allowed) continue;
    const MemoryHolder nobody;
    const MemoryHolder& most = incident->holders.empty() ? nobody : incident->holders.front();
    log_warn(kOutOfGpuMemory,
             {{"incident", std::to_string(incident->id)},
              {"pid", std::to_string(incident->process.pid)},
              {"comm", incident->owner.comm},
              {"function", (*functions)[incident->function_id].name},
              {"kind", std::string(get_memory_name(incident->kind))},
              {"asked_bytes", std::to_string(incident->asked_bytes)},
              {"most_pid", std::to_string(most.process.pid)},
              {"most_bytes", std::to_string(most.used_bytes.value_or(most.live_bytes))},
              {"suppressed", std::to_string(suppressed)}});
  }
}

void GpuMemoryPart::fill(Snapshot& snapshot) const {
  snapshot.memory = report_;
  table_.fill(snapshot.self);
}

}  // namespace gpuperf
