#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/call_nesting.h"
#include "daemon/view/call_path.h"

namespace gpuperf {

// A piece of time of one thread in which it did one thing.
struct HostPiece {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint32_t call = kNoIndex;  // innermost call it was in, of HostTime::calls(); kNoIndex = none
  // kNoIndex: on the CPU, as far as is known. Else of the capture's thread times: off the CPU, or
  // the sample that stands for this piece.
  uint32_t time = kNoIndex;
  uint32_t path = kNoIndex;   // where, as well as is known
  bool is_estimated = false;  // the path is that of stacks nearby, or the state is not known
  bool is_gpu_wait = false;   // outside of known calls: it waited for a GPU, as CUPTI recorded
};

// What each thread of a capture did at each moment.
//
// Thread: one. Borrows the capture and the table.
class HostTime {
 public:
  HostTime(const Capture& capture, PathTable& table);

  const std::vector<NestedCall>& calls() const { return calls_; }
  // Every piece of [begin_ns, end_ns), in order and without holes.
  void for_each_piece(uint32_t thread, uint64_t begin_ns, uint64_t end_ns,
                      const std::function<void(const HostPiece&)>& visit);
  // The innermost call that the thread was in; kNoIndex = none.
  uint32_t find_call(uint32_t thread, uint64_t at_ns) const;
  // Whether a thread waited for a GPU then, as CUPTI recorded.
  bool is_waiting_for_gpu(uint32_t thread, uint64_t at_ns) const;
  // Whether the states of the thread are known: it had one in the capture.
  bool has_states(uint32_t thread) const {
    return !threads_[thread].states.empty() || !threads_[thread].samples.empty();
  }
  // Whether the thread was in a call at some time of it.
  bool has_call_in(uint32_t thread, uint64_t begin_ns, uint64_t end_ns) const;

 private:
  struct Segment {  // of time in calls
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
    uint32_t call = kNoIndex;
  };
  struct Evidence {
    uint64_t at_ns = 0;
    uint32_t path = kNoIndex;
  };
  struct Wait {
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
  };
  struct Thread {
    std::vector<Segment> segments;
    std::vector<uint32_t> states;   // thread times with a duration
    std::vector<uint32_t> samples;  // without
    std::vector<Evidence> evidence;
    std::vector<Wait> waits;
  };

  void add_segments();
  void add_states();
  void add_evidence();
  void cut_at_wait(uint32_t thread, HostPiece& piece) const;
  void visit_states(uint32_t thread, HostPiece piece,
                    const std::function<void(const HostPiece&)>& visit);
  void visit_on_cpu(uint32_t thread, HostPiece piece,
                    const std::function<void(const HostPiece&)>& visit);
  uint32_t find_path_near(uint32_t thread, uint64_t begin_ns, uint64_t end_ns);

  const Capture& capture_;
  PathTable& table_;
  std::vector<NestedCall> calls_;
  std::vector<Thread> threads_;  // by the capture's index
};

}  // namespace gpuperf
