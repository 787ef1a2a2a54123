#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "daemon/base/shares.h"
#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/gpu_health.h"
#include "daemon/model/memory.h"
#include "daemon/model/self_report.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/process_memory.h"

namespace gpuperf {

// GPU memory of all processes, and the allocations that failed for lack of it.
//
// Thread: loop only; no I/O, times are passed in. `drops` must outlive it. Bounds: `max_pieces`
// live pieces of memory (80 bytes each, twice), half of which one process may have and an eighth is
// kept for root; `max_sites` stacks (600 bytes each) and `max_processes`; beyond, memory is not
// counted (kMemoryFull), or counted without its stack (kMemorySitesFull). kExited processes that
// have gone and kIncidents failed allocations are kept, the newest.
class MemoryTable {
 public:
  struct Limits {
    size_t max_pieces = size_t{1} << 18;
    size_t max_sites = size_t{1} << 14;
    size_t max_processes = 1'024;
  };
  static constexpr size_t kExited = 64;
  static constexpr size_t kIncidents = 128;
  static constexpr size_t kOwners = 256;  // that failures are counted by
  // Failures of one stack within that are one incident: allocators try again.
  static constexpr uint64_t kSameIncidentNs = 10'000'000'000;
  static constexpr size_t kHolders = 8;
  static constexpr size_t kHolderSites = 3;
  // Calls of a process may be reported after its exit was.
  static constexpr int64_t kExitDelayNs = 2'000'000'000;

  // What others know of a process, when its first call is reported.
  struct Facts {
    uint32_t uid = 0;
    bool is_late = false;  // it may have allocated before
  };
  struct Sources {
    std::function<Facts(const ProcessKey&)> find_facts;
    std::function<Owner(const ProcessKey&)> find_owner;  // without comm: not known yet
    std::function<uint64_t(uint64_t mono_ns)> to_unix_ns;
  };
  // A stack to be named: set_stack() or set_incident_stack() is called with it.
  struct Unnamed {
    ProcessKey process;
    uint64_t stack_id = 0;
    uint32_t site = 0;
    uint64_t incident = 0;  // not 0: of that incident
  };
  using IncidentPtr = std::shared_ptr<const OutOfMemory>;

  MemoryTable(const Limits& limits, Sources sources, DropCounters& drops);
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  // In the order of their ends.
  void apply(const Function& function, const ReportedCall& call);
  void apply(const ProcessExited& exited, int64_t now_mono_ns);
  void apply(const GpuHealthReport& report);
  // Of every process whose first call was reported since then.
  void add_gaps(uint32_t gaps, uint64_t since_mono_ns = 0);
  void set_stack(const Unnamed& named, const std::shared_ptr<const Stack>& stack);
  // About once a second, or more often.
  void advance(int64_t now_mono_ns);

  std::vector<Unnamed> take_unnamed() { return std::exchange(unnamed_, {}); }
  // New ones, once their process's owner is known.
  std::vector<IncidentPtr> take_incidents();
  std::shared_ptr<const MemoryReport> make_report() const;
  void fill(SelfReport& report) const;

 private:
  struct Process {
    std::unique_ptr<ProcessMemory> memory;
    int64_t exited_mono_ns = 0;  // 0 = it runs
    uint64_t failures = 0;       // not counted yet: its owner is not known
  };
  using ProcessPtr = std::shared_ptr<const MemoryProcess>;

  Process* find_process(const ReportedCall& call);
  void set_incident_stack(uint64_t id, const std::shared_ptr<const Stack>& stack);
  void note_failure(Process& process, const MemoryCall& memory, const ReportedCall& call);
  void add_incident(const Process& process, const MemoryCall& memory, const ReportedCall& call,
                    uint64_t unix_ns);
  std::vector<MemoryHolder> list_holders(const std::vector<uint32_t>& gpus) const;
  void set_owner(Process& process);
  void count_failures(Process& process);
  void retire(Process& process);

  const Limits limits_;
  const Sources sources_;
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  Shares pieces_, sites_;
  std::map<ProcessKey, Process> processes_;
  std::deque<ProcessPtr> exited_;                       // oldest first
  std::deque<std::shared_ptr<OutOfMemory>> incidents_;  // oldest first
  uint64_t last_incident_ = 0;
  std::map<Owner, uint64_t> incident_counts_;
  std::shared_ptr<const GpuHealthReport> gpus_;
  std::vector<Unnamed> unnamed_;
  std::vector<uint64_t> new_incidents_;  // ids, of those whose stacks have names
  int64_t window_mono_ns_ = 0;
};

}  // namespace gpuperf
