#include "daemon/state/nccl_waits.h"

#include <algorithm>

namespace gpuperf {

std::optional<NcclWaits::Wait> NcclWaits::add(const std::vector<Start>& starts) {
  if (starts.size() < 2) return std::nullopt;
  const auto last = std::ranges::max_element(starts, {}, &Start::mono_ns);
  uint64_t second_ns = 0;
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    if (start != last) second_ns = std::max(second_ns, start->mono_ns);
  }
  Wait wait{.late_slot = last->slot, .begin_mono_ns = std::max(second_ns, counted_until_mono_ns_)};
  const auto get_wait_ns = [&](uint64_t since_ns) {
    const uint64_t begin_ns = std::max(since_ns, counted_until_mono_ns_);
    return last->mono_ns - std::min(last->mono_ns, begin_ns);
  };
  wait.caused_ns = get_wait_ns(second_ns);
  for (const Start& start : starts) wait.waited_ns.push_back(get_wait_ns(start.mono_ns));
  counted_until_mono_ns_ = std::max(counted_until_mono_ns_, last->mono_ns);
  return wait;
}

}  // namespace gpuperf
