#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuperf {

// One heap for all threads; call before the first of them. Trimming any other than the main one
// leaves what is free at its end, 8 MiB where a large table was the last to grow there. Few threads
// here allocate at once, and each has a cache of its own.
void set_up_heap();

// Gives memory that was freed back to the kernel: the heap keeps a page whose neighbour is in use.
//
// Thread: one. Looks at most every kPeriodNs, which takes some 10 us. Trims when kWorthBytes fewer
// are in use than at some time since the last trim, and that has settled: it takes some ms for 100
// MiB, and what is in use rises and falls while much is going on. Trims every kLongestNs in any
// case: of what is taken and freed between two looks nothing is seen.
class HeapTrim {
 public:
  static constexpr int64_t kPeriodNs = 2'000'000'000;
  static constexpr int64_t kLongestNs = 30'000'000'000;
  static constexpr size_t kWorthBytes = size_t{1} << 19;

  // Whether it trimmed.
  bool look(int64_t now_mono_ns);
  size_t used_bytes() const { return used_bytes_; }  // allocated, at the last look

 private:
  int64_t looked_mono_ns_ = 0;
  int64_t trimmed_mono_ns_ = 0;
  size_t used_bytes_ = 0;  // at the last look
  size_t most_bytes_ = 0;  // at any look since the last trim
};

}  // namespace gpuperf
