#include "daemon/state/gpu_processes.h"

#include <algorithm>

#include "daemon/state/kernel_texts.h"

namespace gpuperf {
namespace {

constexpr uint64_t kSnapshotsToo = 2;  // a snapshot may hold a row as it was
constexpr uint64_t kAllocationBytes = 64;
constexpr uint64_t kKernelBytes =
    kSnapshotsToo * (sizeof(KernelRow) + kAllocationBytes) + 2 * kAllocationBytes;
constexpr uint64_t kUsersShare = 16;  // of exited rows: one of so many
constexpr uint64_t kGraphBytes = kSnapshotsToo * sizeof(GraphTotals);
constexpr uint64_t kProcessBytes = kSnapshotsToo * sizeof(GpuProcessRow) + sizeof(GpuProcess);

}  // namespace

GpuProcessRow& GpuProcesses::change(GpuProcess& process) {
  if (process.shared) process.row = std::make_shared<GpuProcessRow>(*process.row);
  process.shared = false;
  return *process.row;
}

GpuProcess& GpuProcesses::open(const SessionEntry& session) {
  loop_thread_.check();
  const ProcessKey& key = session.row().facts.process;
  const Owner& owner = session.row().facts.owner;
  const auto [entry, is_new] = processes_.try_emplace(key, drops_, session);
  GpuProcess& process = entry->second;
  if (is_new) {
    process.account.add(kProcessBytes);
    process.row = std::make_shared<GpuProcessRow>();
    process.row->process = key;
    process.row->owner = owner;
    process.row->folded = !reserve_owner(owner, session.holder());
  } else if (process.open_sessions == 0) {
    std::erase(exited_, key);
    exited_bytes_.give_back(process.account.holder(), process.account.bytes());
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
  const Shares::Holder holder = process.account.holder();
  exited_bytes_.add(holder, process.account.bytes());
  while (exited_.size() > limits_.max_exited_processes ||
         exited_bytes_.used() > limits_.max_exited_bytes) {
    drops_.add(DropCause::kGpuProcessesFull);
    forget_oldest();
  }
  while (holder.uid != 0 &&
         exited_bytes_.of_user(holder.uid) > limits_.max_exited_bytes / kUsersShare) {
    drops_.add(DropCause::kGpuProcessesFull);
    if (!forget_oldest_of(holder.uid)) return;
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
  if (name->serial == 0) {
    rows_.add(process.account.holder(), 1);
    process.account.add(kKernelBytes);
  } else if (!find_row(process)) {
    drops_.add(DropCause::kGpuKernelsFull);
    return get_kernel(process, KernelTexts::get_other());
  }
  const auto index = static_cast<uint32_t>(process.kernels.size());
  KernelRow& row =
      *process.kernels.emplace_back(GpuProcess::KernelSlot{std::make_shared<KernelRow>()}).row;
  row.name = name;
  row.process = process.row->process;
  row.owner = process.row->owner;
  row.folded = !reserve_series(name->serial, row.owner, process.account.holder());
  process.kernel_indexes[name->serial] = index;
  return index;
}

// And takes it.
bool GpuProcesses::find_row(GpuProcess& process) {
  const Shares::Holder holder = process.account.holder();
  Shares::Verdict verdict = rows_.take(holder);
  while (verdict != Shares::Verdict::kTaken && !exited_.empty()) {
    drops_.add(DropCause::kGpuProcessesFull);
    if (verdict == Shares::Verdict::kFull) {
      forget_oldest();
    } else if (!forget_oldest_of(holder.uid)) {
      break;
    }
    verdict = rows_.take(holder);
  }
  if (verdict != Shares::Verdict::kTaken) return false;
  if (process.account.take(kKernelBytes)) return true;
  rows_.give_back(holder);
  return false;
}

uint32_t GpuProcesses::get_graph(GpuProcess& process, uint32_t graph_id) {
  loop_thread_.check();
  if (const uint32_t* known = process.graph_indexes.find(graph_id)) return *known;
  std::vector<GraphTotals>& graphs = change(process).totals.graphs;
  const bool has_room = graphs.size() < kMaxGraphs && process.account.take(kGraphBytes);
  if (!has_room && graph_id != 0) {
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
bool GpuProcesses::reserve_series(uint64_t serial, const Owner& owner, Shares::Holder holder) {
  auto known = retired_kernels_.find({serial, owner});
  if (known == retired_kernels_.end()) {
    if (series_.take({.uid = holder.uid}) != Shares::Verdict::kTaken) {
      drops_.add(DropCause::kGpuSeriesFull);
      return false;
    }
    known = retired_kernels_.emplace(SeriesKey{serial, owner}, RetiredKernel{}).first;
    known->second.uid = holder.uid;
  }
  ++known->second.rows;
  return true;
}

bool GpuProcesses::reserve_owner(const Owner& owner, Shares::Holder holder) {
  if (retired_processes_.contains(owner)) return true;
  if (owners_.take({.uid = holder.uid}) != Shares::Verdict::kTaken) {
    drops_.add(DropCause::kGpuSeriesFull);
    return false;
  }
  retired_processes_[owner];
  return true;
}

bool GpuProcesses::forget_oldest_of(uint32_t uid) {
  const auto oldest = std::ranges::find_if(exited_, [&](const ProcessKey& key) {
    return processes_.at(key).account.holder().uid == uid;
  });
  if (oldest == exited_.end()) return false;
  forget(oldest);
  return true;
}

void GpuProcesses::forget(std::deque<ProcessKey>::iterator exited) {
  const auto gone = processes_.find(*exited);
  exited_.erase(exited);
  const GpuProcess& process = gone->second;
  exited_bytes_.give_back(process.account.holder(), process.account.bytes());
  for (const GpuProcess::KernelSlot& slot : process.kernels) retire(*slot.row);
  retire(*process.row);
  rows_.give_back(process.account.holder(), process.kernels.size());
  processes_.erase(gone);
}

void GpuProcesses::retire(const KernelRow& row) {
  const KernelTextPtr& name = row.folded ? KernelTexts::get_other() : row.name;
  const Owner& owner = row.folded ? other_owner() : row.owner;
  const SeriesKey key{name->serial, owner};
  if (!row.folded) {
    const auto reserved = retired_kernels_.find(key);
    if (--reserved->second.rows == 0 && reserved->second.slot.row == nullptr &&
        get_launches(row.totals) == 0) {
      series_.give_back({.uid = reserved->second.uid});
      retired_kernels_.erase(reserved);
      return;
    }
  }
  if (get_launches(row.totals) == 0) return;  // announced only
  GpuProcess::KernelSlot& slot = retired_kernels_[key].slot;
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
  report.kernels.reserve(rows_.used());
  for (const auto& [key, process] : processes_) {
    process.shared = true;
    report.processes.push_back(process.row);
    for (const GpuProcess::KernelSlot& slot : process.kernels) {
      // Announced only.
      if (get_launches(slot.row->totals) == 0 && slot.row->stalls == nullptr) continue;
      slot.shared = true;
      report.kernels.push_back(slot.row);
    }
  }
  report.retired_kernels.clear();
  for (const auto& [key, retired] : retired_kernels_) {
    const GpuProcess::KernelSlot& slot = retired.slot;
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
