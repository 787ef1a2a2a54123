#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/state/flat_table.h"
#include "daemon/state/session_memory.h"

namespace gpuperf {

// What memory one process holds on its GPUs, from the allocations and releases that were seen.
//
// Thread: loop only. `drops` must outlive it. Bounds: `max_addresses` live allocations (40 bytes
// each, twice), as far as `account` gives the bytes, and kMaxRows rows; an allocation beyond is
// counted (kGpuAddressesFull), and what is shown is incomplete from then on.
class DeviceMemory {
 public:
  static constexpr size_t kMaxAddresses = size_t{1} << 18;
  static constexpr size_t kMaxRows = 64;  // of a process: GPUs times kinds

  // `account`, where there is one, must outlive it.
  explicit DeviceMemory(DropCounters& drops, size_t max_addresses = kMaxAddresses,
                        SessionMemory::Account* account = nullptr)
      : max_addresses_(max_addresses), drops_(drops), account_(account) {}

  // `rows`: those of this process, by GPU and kind in order of first use. False = something was
  // missed: a release of what was never allocated, an allocation where there is one, no room.
  bool apply(const MemoryRecord& record, const GpuUuid& uuid, uint32_t ordinal,
             std::vector<GpuMemoryRow>& rows);
  // The process has ended, and its driver has released everything.
  void release_all(std::vector<GpuMemoryRow>& rows);

 private:
  struct Allocation {
    uint64_t bytes = 0;
    uint32_t row = 0;
  };

  bool find_room();  // for one more; false = there is none
  static uint32_t find_row(const GpuUuid& uuid, uint32_t ordinal, uint8_t memory,
                           std::vector<GpuMemoryRow>& rows);

  // Set once in the constructor.
  const size_t max_addresses_;
  DropCounters& drops_;
  SessionMemory::Account* const account_;  // may be null
  // Loop thread only.
  ThreadChecker loop_thread_;
  FlatTable<uint64_t, Allocation> allocations_;  // by address
};

}  // namespace gpuperf
