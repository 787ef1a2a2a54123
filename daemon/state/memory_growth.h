#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "daemon/model/memory.h"

namespace gpuperf {

// Tells memory that only grows from memory that comes and goes: by the least that was live in each
// of the last windows, which short-lived allocations do not raise.
//
// It grows where the least rose in most windows, in bytes and in pieces, never fell, and did not
// slow down: caches and pools fill quickly at first and then stop. A block that is replaced by a
// larger one grows in bytes only.
//
// Thread: one. A value.
class GrowthWindows {
 public:
  static constexpr size_t kWindows = 8;
  static constexpr size_t kRises = 6;  // of kWindows

  void end_window(uint64_t least_bytes, uint64_t least_count, uint64_t releases) {
    std::ranges::copy(marks_.begin() + 1, marks_.end(), marks_.begin());
    marks_.back() = {least_bytes, least_count, releases};
    marks_known_ = std::min(marks_known_ + 1, marks_.size());
  }

  bool is_growing() const {
    return marks_known_ == marks_.size() && rises(&Mark::bytes) && rises(&Mark::count);
  }
  // Within the windows.
  bool has_released() const {
    return marks_known_ > 1 && marks_.back().releases > oldest().releases;
  }
  MemoryGrowth get(uint64_t window_ns) const {
    return {.window_ns = kWindows * window_ns,
            .grown_bytes = marks_.back().bytes - marks_.front().bytes,
            .grown_count = marks_.back().count - marks_.front().count};
  }

 private:
  struct Mark {
    uint64_t bytes = 0;
    uint64_t count = 0;
    uint64_t releases = 0;
  };

  const Mark& oldest() const { return marks_[marks_.size() - marks_known_]; }
  bool rises(uint64_t Mark::*value) const {
    size_t rises = 0;
    for (size_t i = 1; i < marks_.size(); ++i) {
      if (marks_[i].*value < marks_[i - 1].*value) return false;
      rises += marks_[i].*value > marks_[i - 1].*value ? 1 : 0;
    }
    const uint64_t middle = marks_[kWindows / 2].*value;
    const uint64_t before = middle - marks_.front().*value;
    const uint64_t after = marks_.back().*value - middle;
    return rises >= kRises && 2 * after >= before;
  }

  std::array<Mark, kWindows + 1> marks_{};  // the newest last
  size_t marks_known_ = 0;
};

// Growth of one site in windows of two lengths: short ones find a fast leak within a minute, long
// ones a slow one.
class SiteGrowth {
 public:
  static constexpr uint64_t kShortNs = 5'000'000'000;
  static constexpr size_t kShortPerLong = 12;

  void note(const MemoryTotals& totals) {
    least_.bytes = std::min(least_.bytes, totals.live_bytes);
    least_.count = std::min(least_.count, totals.live_count);
  }
  // Of kShortNs.
  void end_window(const MemoryTotals& totals) {
    note(totals);
    short_.end_window(least_.bytes, least_.count, totals.releases);
    long_least_.bytes = std::min(long_least_.bytes, least_.bytes);
    long_least_.count = std::min(long_least_.count, least_.count);
    least_ = {totals.live_bytes, totals.live_count};
    if (++windows_ % kShortPerLong != 0) return;
    long_.end_window(long_least_.bytes, long_least_.count, totals.releases);
    long_least_ = least_;
  }

  bool is_growing() const { return short_.is_growing(); }
  bool is_steady() const { return short_.has_released() && !is_growing(); }
  // `is_rest_steady`: the process is past its warm-up. Growth in long windows is a leak in any
  // case.
  std::optional<MemoryGrowth> judge(bool is_rest_steady) const {
    if (long_.is_growing()) {
      MemoryGrowth growth = long_.get(kShortNs * kShortPerLong);
      growth.is_leak = true;
      return growth;
    }
    if (!short_.is_growing()) return std::nullopt;
    MemoryGrowth growth = short_.get(kShortNs);
    growth.is_leak = is_rest_steady;
    return growth;
  }

 private:
  struct Least {
    uint64_t bytes = 0;
    uint64_t count = 0;
  };

  GrowthWindows short_, long_;
  Least least_, long_least_;  // of the windows that last
  size_t windows_ = 0;
};

}  // namespace gpuperf
