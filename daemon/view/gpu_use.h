#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// What a GPU did for one process. Where several kinds of work ran at once, the first of these
// counts.
enum class GpuUseKind : uint8_t {
  kComputing,      // kernels and graphs
  kCommunicating,  // kernels of NCCL
  kCopying,        // copies and sets
  kIdle            // no work of the process
};

struct GpuStretch {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  GpuUseKind kind = GpuUseKind::kIdle;
  // The work that ran: of several of the kind the one that began first. Of an idle stretch, the
  // work that ended it; kNoIndex = none did.
  uint32_t work = kNoIndex;
  bool operator==(const GpuStretch&) const = default;
};

// Time without more.
struct TimeSpan {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

// One process on one GPU of the capture, through the whole window without holes.
struct GpuUse {
  uint32_t process = kNoIndex;
  uint32_t device = kNoIndex;
  std::vector<GpuStretch> stretches;
};

// Each process on each GPU on which it had work in the window, by process, then by device.
std::vector<GpuUse> list_gpu_uses(const Capture& capture);

// When each process had work on each GPU.
class BusyTimes {
 public:
  explicit BusyTimes(const std::vector<GpuUse>& uses);

  // The first time in [begin_ns, end_ns) in which another process had work there.
  std::optional<TimeSpan> find_other(uint32_t process, uint32_t device, uint64_t begin_ns,
                                     uint64_t end_ns) const;

 private:
  // By process and device; each by time, without overlaps.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<TimeSpan>> by_use_;
};

}  // namespace gpuperf
