#pragma once

#include <cstdint>

#include "daemon/config/config.h"
#include "daemon/model/bounds.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// The daemon's memory that is in RAM.
struct ResidentMemory {
  uint64_t bytes = 0;
  uint64_t of_files_bytes = 0;  // part of it: mapped files, shared memory
};
ResidentMemory read_resident_memory();

// What the daemon says of itself that belongs to no part: descriptors, resident memory, how long
// its threads work, and the highest levels of all bounds.
//
// Thread: loop.
class SelfObservation {
 public:
  // Takes what the parts have said, and brings it into order. Sets
  // resident_bytes. `loop_delays`: of the loop's timers. `heap_bytes`: allocated.
  void finish(Snapshot& snapshot, const Settings& settings,
              const DurationCounts::Totals& loop_delays, uint64_t heap_bytes);

 private:
  BoundHighs highs_;
  uint64_t descriptors_ = 0;  // as last counted
  int64_t next_count_ns_ = 0;
};

}  // namespace gpuperf
