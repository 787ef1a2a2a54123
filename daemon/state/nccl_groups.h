#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/nccl_call.h"

namespace gpuperf {

// What one or more calls of a rank give a communicator to do at once: a call by itself, or all of
// a group that are for one communicator.
struct NcclWork {
  ProcessKey process;
  uint32_t tid = 0;
  uint64_t comm = 0;
  NcclOperation operation{};
  uint32_t calls = 0;
  uint64_t bytes = 0;  // as the calls gave them; of kSendReceive those sent, or else received
  uint32_t sends = 0;  // of kSendReceive
  uint32_t receives = 0;
  bool are_sizes_equal = true;    // of kSendReceive
  bool is_launch_shared = false;  // with works of other communicators: kernels are not told apart
  uint64_t start_mono_ns = 0;     // of the first call
  uint64_t host_ns = 0;           // in all of its calls; the end of a group is of its last work
  // Of the call within which the kernel is launched: the end of the group, where there is one.
  uint64_t launch_start_mono_ns = 0;
  uint64_t launch_end_mono_ns = 0;
  uint32_t function_id = 0;  // of its last call
  uint64_t stack_id = 0;
  bool operator==(const NcclWork&) const = default;
};

// Puts calls together that NCCL does together: those between ncclGroupStart and the end of the
// outermost group.
//
// Thread: loop only. Bounds: kMaxGroups threads in a group, kMaxCalls calls in one; further calls
// are counted (kNcclGroupsFull) and not put together.
class NcclGroups {
 public:
  static constexpr size_t kMaxGroups = 4'096;
  static constexpr size_t kMaxCalls = 4'096;

  explicit NcclGroups(DropCounters& drops) : drops_(drops) {}

  // Of kOperation, kGroupStart and kGroupEnd, in order of their ends. What is to be done now.
  std::vector<NcclWork> add(const NcclCall& call);
  void forget(const ProcessKey& process);
  size_t count() const { return groups_.size(); }

 private:
  struct Group {
    uint32_t depth = 0;
    std::vector<NcclCall> calls;
  };
  struct ThreadOrder {
    bool operator()(const std::pair<ProcessKey, uint32_t>& a,
                    const std::pair<ProcessKey, uint32_t>& b) const {
      if (ProcessOrder()(a.first, b.first)) return true;
      return !ProcessOrder()(b.first, a.first) && a.second < b.second;
    }
  };

  ThreadChecker loop_thread_;
  DropCounters& drops_;
  std::map<std::pair<ProcessKey, uint32_t>, Group, ThreadOrder> groups_;  // open ones
};

}  // namespace gpuperf
