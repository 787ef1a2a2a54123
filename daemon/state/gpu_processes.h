#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/state/device_memory.h"
#include "daemon/state/flat_table.h"

namespace gpuperf {

// One process that has, or had, a session. Made and changed by GpuProcesses only.
struct GpuProcess {
  struct KernelSlot {
    std::shared_ptr<KernelRow> row;
    mutable bool shared = false;  // some snapshot holds `row`: copy before changing it
  };

  explicit GpuProcess(DropCounters& drops) : memory(drops) {}

  std::shared_ptr<GpuProcessRow> row;
  mutable bool shared = false;  // likewise
  std::vector<KernelSlot> kernels;
  std::map<uint64_t, uint32_t> kernel_indexes;  // by serial of the name
  FlatTable<uint32_t, uint32_t> graph_indexes;  // by graph id
  DeviceMemory memory;
  std::vector<uint32_t> devices;  // numbers of the GPUs it has used
  uint32_t open_sessions = 0;
  uint32_t sessions = 0;  // ever
  int64_t closed_mono_ns = 0;
};

// The rows of processes with sessions and of their kernels, and what remains of processes that were
// forgotten: one row per (kernel, owner), so that the sums that metrics show never fall.
//
// Thread: loop only; times are passed in. Rows handed out by `fill` never change: the next change
// copies. Bounds: a process leaves `keep_exited` after its last session ended, and earlier, oldest
// first and counted (kGpuProcessesFull), when more than `max_exited_processes` are kept or
// `max_kernel_rows` are in use. A kernel that finds no row then counts as kernel "other" of its
// process (kGpuKernelsFull). A (kernel, owner), or an owner, beyond `max_series` is marked folded,
// counted (kGpuSeriesFull), and ends among the rows of owner "other". A process tells
// kMaxGraphs graphs apart (kGpuGraphsFull). Memory: a kernel's row is 1 to 2 KB.
class GpuProcesses {
 public:
  struct Limits {
    std::chrono::seconds keep_exited{600};
    size_t max_exited_processes = 1'000;
    size_t max_kernel_rows = 16'384;
    size_t max_series = 8'192;
  };
  static constexpr size_t kMaxGraphs = 256;

  GpuProcesses(const Limits& limits, DropCounters& drops) : limits_(limits), drops_(drops) {}
  GpuProcesses(const GpuProcesses&) = delete;
  GpuProcesses& operator=(const GpuProcesses&) = delete;

  // One session more; the process stays where it is until `close` was called as often.
  GpuProcess& open(const ProcessKey& key, const Owner& owner);
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
  static GpuProcessRow& change(GpuProcess& process);

  // Sets kernels and processes, and what remains of those that were forgotten.
  void fill(GpuReport& report) const;
  const std::map<ProcessKey, GpuProcess>& processes() const { return processes_; }

 private:
  using SeriesKey = std::pair<uint64_t, Owner>;  // serial of the kernel's name
  struct OwnerSlot {
    std::shared_ptr<GpuProcessRow> row;  // null until a process with this owner was forgotten
    mutable bool shared = false;
  };

  static KernelRow& change(GpuProcess::KernelSlot& slot) {
    if (slot.shared) slot.row = std::make_shared<KernelRow>(*slot.row);
    slot.shared = false;
    return *slot.row;
  }
  bool reserve_series(uint64_t serial, const Owner& owner);
  bool reserve_owner(const Owner& owner);
  void set_exited(GpuProcess& process, bool exited);
  void forget_oldest();
  void retire(const KernelRow& row);
  void retire(const GpuProcessRow& row);

  // Loop thread only.
  ThreadChecker loop_thread_;
  Limits limits_;
  DropCounters& drops_;
  std::map<ProcessKey, GpuProcess> processes_;
  std::deque<ProcessKey> exited_;  // oldest first; a process that came back is in it no more
  size_t kernel_rows_ = 0;
  std::map<SeriesKey, GpuProcess::KernelSlot> retired_kernels_;  // rows are null until retired
  std::map<Owner, OwnerSlot> retired_processes_;
};

}  // namespace gpuperf
