#include "daemon/base/heap_trim.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

namespace gpuperf {

void set_up_heap() { (void)mallopt(M_ARENA_MAX, 1); }

bool HeapTrim::look(int64_t now_mono_ns) {
  if (now_mono_ns - looked_mono_ns_ < kPeriodNs) return false;
  looked_mono_ns_ = now_mono_ns;
  const size_t now_bytes = mallinfo2().uordblks;
  const size_t before_bytes = std::exchange(used_bytes_, now_bytes);
  most_bytes_ = std::max(most_bytes_, now_bytes);
  const size_t change_bytes = std::max(before_bytes, now_bytes) - std::min(before_bytes, now_bytes);
  const bool is_worth = most_bytes_ - now_bytes >= kWorthBytes && change_bytes < kWorthBytes;
  if (!is_worth && now_mono_ns - trimmed_mono_ns_ < kLongestNs) return false;
  (void)malloc_trim(0);
  trimmed_mono_ns_ = now_mono_ns;
  most_bytes_ = now_bytes;
  return true;
}

}  // namespace gpuperf
