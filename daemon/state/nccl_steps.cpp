#include "daemon/state/nccl_steps.h"

#include <algorithm>
#include <utility>

namespace gpuperf {
namespace {

bool has_arrived(const NcclSteps::Step& step, size_t slot) {
  return slot < step.arrivals.size() && step.arrivals[slot].start_mono_ns != 0;
}

}  // namespace

NcclSteps::Place NcclSteps::add(size_t slot, NcclOperation operation, uint64_t bytes,
                                uint64_t start_mono_ns) {
  if (slot >= next_.size()) next_.resize(slot + 1, 0);
  const uint64_t number = next_[slot]++;
  if (number < first_) return {.number = number};  // it has left without this rank
  if (number == first_ + steps_.size()) {
    if (steps_.size() == kMaxSteps) {
      drops_.add(DropCause::kNcclStepsFull);
      steps_.pop_front();
      ++first_;
    }
    steps_.push_back({.operation = operation, .bytes = bytes});
  }
  Step& step = steps_[number - first_];
  if (slot >= step.arrivals.size()) step.arrivals.resize(slot + 1);
  step.arrivals[slot].start_mono_ns = start_mono_ns;
  step.newest_mono_ns = std::max(step.newest_mono_ns, start_mono_ns);
  return {.number = number, .is_same = step.operation == operation && step.bytes == bytes};
}

void NcclSteps::set_gpu(size_t slot, uint64_t number, uint64_t start_mono_ns,
                        uint64_t end_mono_ns) {
  if (number < first_ || number - first_ >= steps_.size()) return;
  Step& step = steps_[number - first_];
  if (!has_arrived(step, slot)) return;
  Arrival& arrival = step.arrivals[slot];
  const bool is_first = arrival.gpu_start_mono_ns == 0;
  arrival.gpu_start_mono_ns =
      is_first ? start_mono_ns : std::min(arrival.gpu_start_mono_ns, start_mono_ns);
  arrival.gpu_end_mono_ns = std::max(arrival.gpu_end_mono_ns, end_mono_ns);
}

bool NcclSteps::is_complete(const Step& step, const std::vector<Slot>& slots,
                            uint64_t now_mono_ns) const {
  const bool is_waited_for = now_mono_ns < step.newest_mono_ns + kKernelWaitNs;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (!slots[slot].is_active) continue;
    if (!has_arrived(step, slot)) return false;
    const bool is_timed = step.arrivals[slot].gpu_start_mono_ns != 0;
    if (!is_timed && slots[slot].expects_kernels && is_waited_for) return false;
  }
  return true;
}

std::optional<NcclSteps::Step> NcclSteps::take(const std::vector<Slot>& slots,
                                               uint64_t now_mono_ns) {
  if (steps_.empty() || !is_complete(steps_.front(), slots, now_mono_ns)) return std::nullopt;
  Step step = std::move(steps_.front());
  steps_.pop_front();
  ++first_;
  return step;
}

std::optional<NcclSteps::Missing> NcclSteps::find_missing(const std::vector<Slot>& slots) const {
  uint64_t number = UINT64_MAX;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot].is_active) number = std::min(number, get_next(slot));
  }
  if (number == UINT64_MAX) return std::nullopt;
  number = std::max(number, first_);
  if (number >= first_ + steps_.size()) return std::nullopt;
  const Step& step = steps_[number - first_];
  Missing missing{.number = number};
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot].is_active && !has_arrived(step, slot)) missing.slots.push_back(slot);
  }
  if (missing.slots.empty()) return std::nullopt;
  return missing;
}

}  // namespace gpuperf
