#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gpuperf {

// For maps from a process to a row with `exited_mono_ns`, when it exited; 0 = it runs, as far as is
// known.

// Whether `rows` has room for one more of `max`: where it is full, the row that exited first
// leaves.
template <typename Rows>
bool make_room(Rows& rows, size_t max) {
  if (rows.size() < max) return true;
  const auto rank = [](const auto& entry) {
    return entry.second.exited_mono_ns == 0 ? INT64_MAX : entry.second.exited_mono_ns;
  };
  const auto first = std::ranges::min_element(rows, {}, rank);
  if (first == rows.end() || first->second.exited_mono_ns == 0) return false;
  rows.erase(first);
  return true;
}

// Removes the rows that exited `keep` ago or longer.
template <typename Rows>
void erase_exited(Rows& rows, std::chrono::seconds keep, int64_t now_mono_ns) {
  const int64_t keep_ns = std::chrono::nanoseconds(keep).count();
  std::erase_if(rows, [&](const auto& entry) {
    const int64_t exited_ns = entry.second.exited_mono_ns;
    return exited_ns != 0 && exited_ns + keep_ns <= now_mono_ns;
  });
}

}  // namespace gpuperf
