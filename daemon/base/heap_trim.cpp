#include "daemon/base/heap_trim.h"

#include <malloc.h>

#include <algorithm>

namespace gpuperf {

bool HeapTrim::look(int64_t now_mono_ns) {
  if (now_mono_ns - looked_mono_ns_ < kPeriodNs) return false;
  looked_mono_ns_ = now_mono_ns;
  const struct mallinfo2 heap = mallinfo2();
  most_bytes_ = std::max(most_bytes_, heap.uordblks);
  if (most_bytes_ - heap.uordblks < kWorthBytes) return false;
  (void)malloc_trim(0);
  most_bytes_ = heap.uordblks;
  return true;
}

}  // namespace gpuperf
