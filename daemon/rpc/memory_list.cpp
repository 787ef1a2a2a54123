#include "daemon/rpc/memory_list.h"

#include <algorithm>
#include <string>

#include "daemon/model/memory.h"
#include "daemon/rpc/function_list.h"
#include "daemon/rpc/owner_to_proto.h"
#include "daemon/rpc/stack_to_proto.h"

namespace gpuperf {
namespace {

constexpr double kMinuteNs = 60e9;

v1::MemoryUse to_proto(MemoryKind kind, const MemoryTotals& totals) {
  v1::MemoryUse use;
  use.set_kind(std::string(get_memory_name(kind)));
  use.set_live_bytes(totals.live_bytes);
  use.set_live_count(totals.live_count);
  use.set_peak_bytes(totals.peak_bytes);
  use.set_allocated_bytes(totals.allocated_bytes);
  use.set_allocations(totals.allocations);
  use.set_released_bytes(totals.released_bytes);
  use.set_releases(totals.releases);
  return use;
}

v1::MemoryGrowth to_proto(const MemoryGrowth& growth) {
  v1::MemoryGrowth message;
  message.set_leak(growth.is_leak);
  message.set_window_ns(growth.window_ns);
  message.set_grown_bytes(growth.grown_bytes);
  message.set_grown_count(growth.grown_count);
  message.set_bytes_per_minute(static_cast<double>(growth.grown_bytes) * kMinuteNs /
                               static_cast<double>(growth.window_ns));
  return message;
}

std::string find_function_name(const Snapshot& snapshot, uint32_t function_id) {
  const Function* function = find_function(snapshot, function_id);
  return function == nullptr ? "" : function->name;
}

v1::MemorySite to_proto(const Snapshot& snapshot, const MemorySite& site) {
  const MemoryTotals& totals = site.totals;
  v1::MemorySite message;
  *message.mutable_use() = to_proto(site.kind, totals);
  message.set_function(to_valid_utf8(find_function_name(snapshot, site.function_id)));
  add_frames(get_frames(site.stack), *message.mutable_stack());
  message.set_stack_id(format_stack_id(site.stack));
  const auto now_ns = static_cast<uint64_t>(snapshot.taken_mono_ns);
  if (site.oldest_mono_ns != 0) message.set_oldest_age_ns(now_ns - site.oldest_mono_ns);
  if (totals.allocations > 0) {
    message.set_unreleased_ratio(static_cast<double>(totals.live_count) /
                                 static_cast<double>(totals.allocations));
  }
  if (site.growth) *message.mutable_growth() = to_proto(*site.growth);
  return message;
}

void set_driver_figures(const MemoryProcess& process, v1::ProcessMemory& message) {
  const uint64_t used_bytes = get_used_bytes(process);
  if (used_bytes == 0) return;
  message.set_used_bytes(used_bytes);
  message.set_rest_bytes(used_bytes - std::min(used_bytes, get_on_gpu_bytes(process)));
  if (process.least_rest_bytes) message.set_least_rest_bytes(*process.least_rest_bytes);
  for (const MemoryOnGpu& gpu : process.gpus) {
    v1::MemoryOnGpu& added = *message.add_gpus();
    added.set_gpu(gpu.index);
    added.set_used_bytes(gpu.used_bytes);
  }
}

v1::ProcessMemory to_proto(const Snapshot& snapshot, const MemoryProcess& process) {
  v1::ProcessMemory message;
  message.set_pid(process.process.pid);
  message.set_start_boot_ns(process.process.start_boot_ns);
  message.set_comm(to_valid_utf8(process.owner.comm));
  set_owner(process.owner, message);
  message.set_exited(process.exited);
  message.set_live_bytes(get_on_gpu_bytes(process));
  message.set_peak_bytes(process.on_gpu_peak_bytes);
  for (size_t i = 0; i < kMemoryKindCount; ++i) {
    if (process.kinds[i].allocations == 0) continue;
    *message.add_kinds() = to_proto(static_cast<MemoryKind>(i), process.kinds[i]);
  }
  set_driver_figures(process, message);
  message.set_seen_ns(static_cast<uint64_t>(snapshot.taken_mono_ns) - process.first_mono_ns);
  for (const std::string_view gap : describe_memory_gaps(process.gaps)) {
    message.add_gaps(std::string(gap));
  }
  message.set_unknown_releases(process.unknown_releases);
  message.set_missed_releases(process.missed_releases);
  message.set_leaks(static_cast<uint32_t>(std::ranges::count_if(process.sites, is_leak)));
  return message;
}

void add_sites(const Snapshot& snapshot, const MemoryProcess& process, bool only_leaks,
               v1::ProcessMemory& message) {
  for (const MemorySite& site : process.sites) {
    if (only_leaks && !is_leak(site)) continue;
    *message.add_sites() = to_proto(snapshot, site);
  }
}

v1::MemoryHolder to_proto(const Snapshot& snapshot, const MemoryHolder& holder) {
  v1::MemoryHolder message;
  message.set_pid(holder.process.pid);
  message.set_comm(to_valid_utf8(holder.owner.comm));
  set_container(holder.owner, message);
  message.set_live_bytes(holder.live_bytes);
  if (holder.used_bytes) message.set_used_bytes(*holder.used_bytes);
  for (const MemorySite& site : holder.sites) *message.add_sites() = to_proto(snapshot, site);
  return message;
}

v1::OutOfMemory to_proto(const Snapshot& snapshot, const OutOfMemory& incident) {
  v1::OutOfMemory message;
  message.set_id(incident.id);
  message.set_unix_ns(incident.unix_ns);
  message.set_last_unix_ns(incident.last_unix_ns);
  message.set_times(incident.times);
  message.set_pid(incident.process.pid);
  message.set_tid(incident.tid);
  message.set_comm(to_valid_utf8(incident.owner.comm));
  set_container(incident.owner, message);
  message.set_kind(std::string(get_memory_name(incident.kind)));
  message.set_function(to_valid_utf8(find_function_name(snapshot, incident.function_id)));
  message.set_asked_bytes(incident.asked_bytes);
  add_frames(get_frames(incident.stack), *message.mutable_stack());
  for (const uint32_t gpu : incident.gpus) message.add_gpus(gpu);
  for (const MemoryHolder& holder : incident.holders) {
    *message.add_holders() = to_proto(snapshot, holder);
  }
  return message;
}

}  // namespace

std::vector<v1::ProcessMemory> list_memory(const Snapshot& snapshot, const RowFilter& filter,
                                           bool with_sites, bool only_leaks) {
  std::vector<v1::ProcessMemory> processes;
  if (snapshot.memory == nullptr) return processes;
  for (const auto& process : snapshot.memory->processes) {
    if (!filter.matches(process->process) || !filter.matches(process->owner)) continue;
    v1::ProcessMemory message = to_proto(snapshot, *process);
    if (only_leaks && message.leaks() == 0) continue;
    if (with_sites || only_leaks) add_sites(snapshot, *process, only_leaks, message);
    processes.push_back(std::move(message));
  }
  std::ranges::stable_sort(processes, [](const auto& a, const auto& b) {
    return a.exited() != b.exited() ? b.exited() : a.live_bytes() > b.live_bytes();
  });
  return processes;
}

std::vector<v1::OutOfMemory> list_out_of_memory(const Snapshot& snapshot, const RowFilter& filter) {
  std::vector<v1::OutOfMemory> incidents;
  if (snapshot.memory == nullptr) return incidents;
  for (const auto& incident : snapshot.memory->out_of_memory) {
    if (!filter.matches(incident->process) || !filter.matches(incident->owner)) continue;
    incidents.push_back(to_proto(snapshot, *incident));
  }
  return incidents;
}

}  // namespace gpuperf
