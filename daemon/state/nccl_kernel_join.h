#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/nccl_communicator.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// Finds the kernels that calls of NCCL launched: a kernel's correlation id names the API call that
// launched it, and that call lies within the call of NCCL on its thread. Both halves come in any
// order, from the BPF programs and from sessions.
//
// Thread: loop only; times are passed in. Bounds: kMaxLaunches calls of each thread, of which the
// oldest leave; of each session kMaxApis API calls and kMaxKernels kernels that wait for their
// other half, and what its account gives. What finds no room or no half is counted (kNcclJoinFull,
// kNcclKernelsExpired). Kernels of graphs are no call's: they are left out.
class NcclKernelJoin {
 public:
  static constexpr size_t kMaxLaunches = 4'096;
  static constexpr size_t kMaxApis = 65'536;
  static constexpr size_t kMaxKernels = 4'096;
  // An API call whose call of NCCL has not been reported by then has none.
  static constexpr uint64_t kApiWaitNs = 5'000'000'000;
  static constexpr uint64_t kKernelWaitNs = 10'000'000'000;
  // A kernel's record comes when it has ended, which a late rank may put off.
  static constexpr uint64_t kLaunchedWaitNs = 60'000'000'000;
  // Calls are told by the monotonic clock, API calls by the wall clock, converted: the two may
  // differ by as much.
  static constexpr uint64_t kClockNs = 20'000;

  struct Work {
    uint64_t communicator = 0;
    NcclCommunicator::Place place;
  };
  // `is_first`: the first kernel of its work.
  using OnKernel = std::function<void(const Work& work, bool is_first, uint64_t start_mono_ns,
                                      uint64_t end_mono_ns)>;

  NcclKernelJoin(DropCounters& drops, OnKernel on_kernel)
      : drops_(drops), on_kernel_(std::move(on_kernel)) {}
  NcclKernelJoin(const NcclKernelJoin&) = delete;
  NcclKernelJoin& operator=(const NcclKernelJoin&) = delete;

  void follow(SessionRegistry& sessions);
  // A call that launches; in order of their ends.
  void add(const ProcessKey& process, uint32_t tid, uint64_t start_mono_ns, uint64_t end_mono_ns,
           const Work& work);
  void forget(const ProcessKey& process) { processes_.erase(process); }
  // It has a session that records kernels now.
  bool is_recorded(const ProcessKey& process) const;
  // Kernels that wait in the session that has most of them.
  size_t count_waiting() const;

 private:
  struct Launch {
    uint64_t start_mono_ns = 0;
    uint64_t end_mono_ns = 0;
    Work work;
    bool has_kernel = false;
  };
  using LaunchPtr = std::shared_ptr<Launch>;
  using Threads = std::map<uint32_t, std::deque<LaunchPtr>>;  // by tid
  struct Api {
    uint64_t start_mono_ns = 0;
    uint32_t correlation_id = 0;
    uint32_t tid = 0;
  };
  struct Launched {
    LaunchPtr launch;
    uint64_t found_mono_ns = 0;
  };
  struct Kernel {
    uint64_t start_mono_ns = 0;
    uint64_t end_mono_ns = 0;
  };
  struct Session;

  void apply(Session& session, const SessionBatch& batch, uint64_t now_mono_ns);
  void learn(Session& session, const std::vector<KernelName>& names);
  void add(Session& session, const KernelRecord& record);
  void add(Session& session, const Threads& threads, const ApiRecord& record);
  void match(Session& session, uint64_t now_mono_ns);
  void match_apis(Session& session, const Threads& threads, uint64_t now_mono_ns);
  void match_kernels(Session& session, uint64_t now_mono_ns);

  // Set once in the constructor.
  DropCounters& drops_;
  const OnKernel on_kernel_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  std::map<ProcessKey, Threads, ProcessOrder> processes_;
  std::set<Session*> sessions_;  // open ones
};

}  // namespace gpuperf
