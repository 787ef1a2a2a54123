#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/base/shares.h"
#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/self_report.h"
#include "daemon/state/device_memory.h"
#include "daemon/state/flat_table.h"
#include "daemon/state/instruction_table.h"
#include "daemon/state/session_memory.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// One process that has, or had, a session. Made and changed by GpuProcesses only.
struct GpuProcess {
  struct KernelSlot {
    std::shared_ptr<KernelRow> row;
    mutable bool shared = false;  // some snapshot holds `row`: copy before changing it
    std::unique_ptr<InstructionTable> instructions;  // null = it was never sampled
  };

  GpuProcess(DropCounters& drops, const SessionEntry& session)
      : account(session.memory(), session.holder()),
        memory(drops, DeviceMemory::kMaxAddresses, &account) {}

  SessionMemory::Account account;  // first: what follows uses it
  std::shared_ptr<GpuProcessRow> row;
  mutable bool shared = false;  // likewise
  std::vector<KernelSlot> kernels;
  std::map<uint64_t, uint32_t> kernel_indexes;  // by serial of the name
  FlatTable<uint32_t, uint32_t> graph_indexes;  // by graph id
  CubinLinesByCrc cubins;                       // of modules that samples name
  DeviceMemory memory;
  std::vector<uint32_t> devices;  // numbers of the GPUs it has used
  uint32_t open_sessions = 0;
  uint32_t sessions = 0;  // ever
  int64_t closed_mono_ns = 0;
};

// What one more duration adds to a histogram is accounted for where it is added: twice, because a
// snapshot may hold the row as it was.
inline void add_duration(SessionMemory::Account& account, DurationTotals& totals,
                         uint64_t duration_ns) {
  const size_t before = totals.histogram.bytes();
  add_duration(totals, duration_ns);
  if (totals.histogram.bytes() != before) account.add(2 * (totals.histogram.bytes() - before));
}

// The rows of processes with sessions and of their kernels, and what remains of processes that were
// forgotten: one row per (kernel, owner), so that the sums that metrics show never fall.
//
// Thread: loop only; times are passed in. Rows handed out by `fill` never change: the next change
// copies. Bounds: a process leaves `keep_exited` after its last session ended, and earlier, oldest
// first and counted (kGpuProcessesFull), when more than `max_exited_processes` or
// `max_exited_bytes` are kept, of its user or in total, or `max_kernel_rows` are in use. A kernel
// that finds no row, or no bytes in its process's account, counts as kernel "other" of its process
// (kGpuKernelsFull). A (kernel, owner), or an owner, beyond `max_series`, or beyond a sixteenth of
// it for one user beside root, is marked folded, counted (kGpuSeriesFull), and ends among the rows
// of owner "other". A process tells kMaxGraphs graphs apart (kGpuGraphsFull). Memory: a kernel's
// row is 1 to 2 KB.
class GpuProcesses {
 public:
  struct Limits {
    std::chrono::seconds keep_exited{600};
    size_t max_exited_processes = 1'000;
    size_t max_kernel_rows = 16'384;
    size_t max_series = 8'192;
    uint64_t max_exited_bytes = uint64_t{16} << 20;  // a sixteenth of it of one user beside root
  };
  static constexpr size_t kMaxGraphs = 256;

  GpuProcesses(const Limits& limits, DropCounters& drops)
      : limits_(limits),
        drops_(drops),
        rows_({.total = limits.max_kernel_rows, .kept_for_root = limits.max_kernel_rows / 8}),
        series_(share_series(limits)),
        owners_(share_series(limits)) {}
  GpuProcesses(const GpuProcesses&) = delete;
  GpuProcesses& operator=(const GpuProcesses&) = delete;

  // One session more; the process stays where it is until `close` was called as often.
  GpuProcess& open(const SessionEntry& session);
  void close(GpuProcess& process, int64_t now_mono_ns);
  void set_keep_exited(std::chrono::seconds keep_exited) {
    loop_thread_.check();
    limits_.keep_exited = keep_exited;
  }
  void expire(int64_t now_mono_ns);

  // Where the process keeps a kernel; good as long as the process.
  uint32_t get_kernel(GpuProcess& process, const KernelTextPtr& name);
  uint32_t get_graph(GpuProcess& process, uint32_t graph_id);
  // What may be changed now.
  static KernelTotals& change_kernel(GpuProcess& process, uint32_t index) {
    return change(process.kernels[index]).totals;
  }
  static KernelRow& change_kernel_row(GpuProcess& process, uint32_t index) {
    return change(process.kernels[index]);
  }
  static GpuProcessRow& change(GpuProcess& process);

  // Sets kernels and processes, and what remains of those that were forgotten.
  void fill(GpuReport& report) const;
  void fill(SelfReport& report) const {
    report.add(Bound::kGpuKernels, rows_.used(), limits_.max_kernel_rows);
    report.add(Bound::kGpuSeries, series_.used(), limits_.max_series);
  }
  const std::map<ProcessKey, GpuProcess>& processes() const { return processes_; }

 private:
  using SeriesKey = std::pair<uint64_t, Owner>;  // serial of the kernel's name
  struct RetiredKernel {
    GpuProcess::KernelSlot slot;  // its row is null until it was retired
    uint32_t uid = 0;             // of series_
    uint32_t rows = 0;            // of processes that are known, which will be retired here
  };
  struct OwnerSlot {
    std::shared_ptr<GpuProcessRow> row;  // null until a process with this owner was forgotten
    mutable bool shared = false;
  };

  static Shares::Limits share_series(const Limits& limits) {
    return {.total = limits.max_series,
            .kept_for_root = limits.max_series / 8,
            .of_user = limits.max_series / 16};
  }

  static KernelRow& change(GpuProcess::KernelSlot& slot) {
    if (slot.shared) slot.row = std::make_shared<KernelRow>(*slot.row);
    slot.shared = false;
    return *slot.row;
  }
  bool find_row(GpuProcess& process);
  bool reserve_series(uint64_t serial, const Owner& owner, Shares::Holder holder);
  bool reserve_owner(const Owner& owner, Shares::Holder holder);
  void set_exited(GpuProcess& process, bool exited);
  void forget_oldest() { forget(exited_.begin()); }
  bool forget_oldest_of(uint32_t uid);  // false = it has none
  void forget(std::deque<ProcessKey>::iterator exited);
  void retire(const KernelRow& row);
  void retire(const GpuProcessRow& row);

  // Loop thread only.
  ThreadChecker loop_thread_;
  Limits limits_;
  DropCounters& drops_;
  std::map<ProcessKey, GpuProcess> processes_;
  std::deque<ProcessKey> exited_;  // oldest first; a process that came back is in it no more
  Shares rows_;                    // of kernels, of all processes
  Shares exited_bytes_{{}};        // only counted here
  std::map<SeriesKey, RetiredKernel> retired_kernels_;
  Shares series_;  // of retired_kernels_, but what others are folded into
  Shares owners_;  // of retired_processes_, likewise
  std::map<Owner, OwnerSlot> retired_processes_;
};

}  // namespace gpuperf
