#include "daemon/state/gpu_processes.h"

#include <algorithm>

#include "daemon/state/kernel_texts.h"

namespace gpuperf {
namespace {}  // namespace

GpuProcessRow& GpuProcesses::change(GpuProcess& process) {
  if (process.shared) process.row = std::make_shared<GpuProcessRow>(*process.row);
  process.shared = false;
  return *process.row;
}

GpuProcess& GpuProcesses::open(const ProcessKey& key, const Owner& owner) {
  loop_thread_.check();
  const auto [entry, is_new] = processes_.try_emplace(key, drops_);
  GpuProcess& process = entry->second;
  if (is_new) {
    process.row = std::make_shared<GpuProcessRow>();
    process.row->process = key;
    process.row->owner = owner;
    process.row->folded = !reserve_owner(owner);
  } else if (process.open_sessions == 0) {
    std::erase(exited_, key);
    set_exited(process, false);
  }
  // What was allocated and released between two sessions nobody told.
  if (process.sessions++ > 0) change(process).memory_complete = false;
  ++process.open_sessions;
  return process;
}

void GpuProcesses::close(GpuProcess& process, int64_t now_mono_ns) {
  loop_thread_.check();
  if (--process.open_sessions > 0) return;
  process.closed_mono_ns = now_mono_ns;
  set_exited(process, true);
  process.memory.release_all(change(process).memory);
  exited_.push_back(process.row->process);
  while (exited_.size() > limits_.max_exited_processes) {
    drops_.add(DropCause::kGpuProcessesFull);
    forget_oldest();
  }
}

void GpuProcesses::set_exited(GpuProcess& process, bool exited) {
  change(process).exited = exited;
  for (GpuProcess::KernelSlot& slot : process.kernels) change(slot).exited = exited;
}

void GpuProcesses::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  const int64_t keep_ns = std::chrono::nanoseconds(limits_.keep_exited).count();
  while (!exited_.empty() &&
         now_mono_ns - processes_.at(exited_.front()).closed_mono_ns >= keep_ns) {
    forget_oldest();
  }
}

uint32_t GpuProcesses::get_kernel(GpuProcess& process, const KernelTextPtr& name) {
  loop_thread_.check();
  const auto known = process.kernel_indexes.find(name->serial);
  if (known != process.kernel_indexes.end()) return known->second;
  while (kernel_rows_ >= limits_.max_kernel_rows && !exited_.empty()) {
    drops_.add(DropCause::kGpuProcessesFull);
    forget_oldest();
  }
  if (kernel_rows_ >= limits_.max_kernel_rows && name->serial != 0) {
    drops_.add(DropCause::kGpuKernelsFull);
    return get_kernel(process, KernelTexts::get_other());
  }
  const auto index = static_cast<uint32_t>(process.kernels.size());
  KernelRow& row = *process.kernels.emplace_back(std::make_shared<KernelRow>()).row;
  row.name = name;
  row.process = process.row->process;
  row.owner = process.row->owner;
  row.folded = !reserve_series(name->serial, row.owner);
  process.kernel_indexes[name->serial] = index;
  ++kernel_rows_;
  return index;
}

uint32_t GpuProcesses::get_graph(GpuProcess& process, uint32_t graph_id) {
  loop_thread_.check();
  if (const uint32_t* known = process.graph_indexes.find(graph_id)) return *known;
  std::vector<GraphTotals>& graphs = change(process).totals.graphs;
  if (graphs.size() >= kMaxGraphs && graph_id != 0) {
    drops_.add(DropCause::kGpuGraphsFull);
    return get_graph(process, 0);
  }
  const auto index = static_cast<uint32_t>(graphs.size());
  graphs.push_back({.graph_id = graph_id});
  process.graph_indexes.get(graph_id) = index;
  return index;
}

// False = full: counted as "other" from the first launch on, for a sum that changes its name would
// fall.
bool GpuProcesses::reserve_series(uint64_t serial, const Owner& owner) {
  if (retired_kernels_.contains({serial, owner})) return true;
  if (retired_kernels_.size() >= limits_.max_series) {
    drops_.add(DropCause::kGpuSeriesFull);
    return false;
  }
  retired_kernels_[{serial, owner}];
  return true;
}

bool GpuProcesses::reserve_owner(const Owner& owner) {
  if (retired_processes_.contains(owner)) return true;
  if (retired_processes_.size() >= limits_.max_series) {
    drops_.add(DropCause::kGpuSeriesFull);
    return false;
  }
  retired_processes_[owner];
  return true;
}

void GpuProcesses::forget_oldest() {
  const auto oldest = processes_.find(exited_.front());
  exited_.pop_front();
  for (const GpuProcess::KernelSlot& slot : oldest->second.kernels) retire(*slot.row);
  retire(*oldest->second.row);
  kernel_rows_ -= oldest->second.kernels.size();
  processes_.erase(oldest);
}

void GpuProcesses::retire(const KernelRow& row) {
  if (get_launches(row.totals) == 0) return;  // announced only
  const KernelTextPtr& name = row.folded ? KernelTexts::get_other() : row.name;
  const Owner& owner = row.folded ? other_owner() : row.owner;
  GpuProcess::KernelSlot& slot = retired_kernels_[{name->serial, owner}];
  if (slot.row == nullptr) {
    slot.row = std::make_shared<KernelRow>();
    slot.row->name = name;
    slot.row->owner = owner;
    slot.row->exited = true;
    slot.row->folded = row.folded;
  }
  merge_totals(change(slot).totals, row.totals);
}

void GpuProcesses::retire(const GpuProcessRow& row) {
  const Owner& owner = row.folded ? other_owner() : row.owner;
  OwnerSlot& slot = retired_processes_[owner];
  auto merged = slot.row == nullptr || slot.shared
                    ? std::make_shared<GpuProcessRow>(slot.row ? *slot.row : GpuProcessRow())
                    : slot.row;
  merged->owner = owner;
  merged->exited = true;
  merged->folded = row.folded;
  merge_totals(merged->totals, row.totals);
  slot = {.row = std::move(merged)};
}

void GpuProcesses::fill(GpuReport& report) const {
  report.kernels.clear();
  report.processes.clear();
  report.kernels.reserve(kernel_rows_);
  for (const auto& [key, process] : processes_) {
    process.shared = true;
    report.processes.push_back(process.row);
    for (const GpuProcess::KernelSlot& slot : process.kernels) {
      if (get_launches(slot.row->totals) == 0) continue;  // announced only
      slot.shared = true;
      report.kernels.push_back(slot.row);
    }
  }
  report.retired_kernels.clear();
  for (const auto& [key, slot] : retired_kernels_) {
    if (slot.row == nullptr) continue;
    slot.shared = true;
    report.retired_kernels.push_back(slot.row);
  }
  report.retired_processes.clear();
  for (const auto& [owner, slot] : retired_processes_) {
    if (slot.row == nullptr) continue;
    slot.shared = true;
    report.retired_processes.push_back(slot.row);
  }
}

}  // namespace gpuperf
