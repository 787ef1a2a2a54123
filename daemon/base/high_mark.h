#pragma once

#include <atomic>
#include <cstdint>

namespace gpuperf {

// How high a level was at most since it was last asked for: what a look at the level of now misses.
//
// Thread: any.
class HighMark {
 public:
  void note(uint64_t level) {
    level_.store(level, std::memory_order_relaxed);
    uint64_t highest = highest_.load(std::memory_order_relaxed);
    while (level > highest &&
           !highest_.compare_exchange_weak(highest, level, std::memory_order_relaxed)) {
    }
  }
  // The next time begins with the level of now.
  uint64_t take() {
    return highest_.exchange(level_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> level_ = 0;
  std::atomic<uint64_t> highest_ = 0;
};

}  // namespace gpuperf
