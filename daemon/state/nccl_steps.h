#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "daemon/model/drops.h"
#include "daemon/model/nccl_rows.h"

namespace gpuperf {

// Puts the operations of a communicator's local ranks side by side: the n-th one of each rank is
// the same operation, because NCCL asks all ranks to call them in one order.
//
// Thread: loop only; times are passed in. Ranks are told by slots, from 0. Bounds: a rank may be
// kMaxSteps ahead of another; then the oldest steps leave as they are, counted (kNcclStepsFull).
class NcclSteps {
 public:
  static constexpr size_t kMaxSteps = 1'024;
  // How long a step waits for its kernels' records, where they are expected: they come when the
  // kernel has ended and a buffer is flushed.
  static constexpr uint64_t kKernelWaitNs = 5'000'000'000;

  struct Arrival {
    uint64_t start_mono_ns = 0;      // 0 = not yet
    uint64_t gpu_start_mono_ns = 0;  // 0 = not recorded
    uint64_t gpu_end_mono_ns = 0;
    bool operator==(const Arrival&) const = default;
  };
  struct Step {
    NcclOperation operation{};
    uint64_t bytes = 0;
    uint64_t newest_mono_ns = 0;      // begin of the rank that began it last so far
    std::vector<Arrival> arrivals{};  // by slot; a missing one has not arrived
    bool operator==(const Step&) const = default;
  };
  struct Slot {
    bool is_active = true;
    bool expects_kernels = false;
  };
  struct Place {
    uint64_t number = 0;
    bool is_same = true;  // as what the other ranks do in this step
  };
  struct Missing {
    uint64_t number = 0;
    std::vector<size_t> slots{};
  };

  explicit NcclSteps(DropCounters& drops) : drops_(drops) {}

  Place add(size_t slot, NcclOperation operation, uint64_t bytes, uint64_t start_mono_ns);
  // Nothing where the step has left.
  void set_gpu(size_t slot, uint64_t number, uint64_t start_mono_ns, uint64_t end_mono_ns);
  // The oldest step once all active slots have arrived and their kernels are known, or will not be.
  std::optional<Step> take(const std::vector<Slot>& slots, uint64_t now_mono_ns);
  // The first step that some active slots have begun and others have not.
  std::optional<Missing> find_missing(const std::vector<Slot>& slots) const;
  const Step& get(uint64_t number) const { return steps_[number - first_]; }
  // Of steps that the slot has begun so far.
  uint64_t get_next(size_t slot) const { return slot < next_.size() ? next_[slot] : 0; }
  size_t size() const { return steps_.size(); }

 private:
  bool is_complete(const Step& step, const std::vector<Slot>& slots, uint64_t now_mono_ns) const;

  DropCounters& drops_;
  uint64_t first_ = 0;  // number of the oldest
  std::deque<Step> steps_;
  std::vector<uint64_t> next_;  // by slot
};

}  // namespace gpuperf
