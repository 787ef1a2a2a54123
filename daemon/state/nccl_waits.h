#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpuperf {

// How long ranks waited for the last one to begin an operation. Time is counted once: where ranks
// begin several operations ahead of the last one, each of its late begins ends the same wait.
class NcclWaits {
 public:
  struct Start {
    size_t slot = 0;
    uint64_t mono_ns = 0;
  };
  struct Wait {
    size_t late_slot = 0;
    uint64_t begin_mono_ns = 0;         // since then all others waited for it alone
    uint64_t caused_ns = 0;             // until it began
    std::vector<uint64_t> waited_ns{};  // in the order of the starts
    bool operator==(const Wait&) const = default;
  };

  // Of one operation; later operations come later. Empty: fewer than two ranks.
  std::optional<Wait> add(const std::vector<Start>& starts);

 private:
  uint64_t counted_until_mono_ns_ = 0;
};

}  // namespace gpuperf
