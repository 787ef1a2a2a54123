#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuperf {

// Gives memory that was freed back to the kernel: the heap keeps a page whose neighbour is in use.
//
// Thread: one. Looks at most every kPeriodNs, which takes some 10 us, and trims when kWorthBytes
// fewer are in use than at some time since the last trim: some ms for 100 MiB.
class HeapTrim {
 public:
  static constexpr int64_t kPeriodNs = 2'000'000'000;
  static constexpr size_t kWorthBytes = size_t{2} << 20;

  // Whether it trimmed.
  bool look(int64_t now_mono_ns);

 private:
  int64_t looked_mono_ns_ = 0;
  size_t most_bytes_ = 0;  // in use at once since the last trim
};

}  // namespace gpuperf
