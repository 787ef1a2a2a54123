#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "daemon/base/shares.h"
#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/state/busy_intervals.h"

namespace gpuperf {

// How busy each GPU was, over all processes that tell.
//
// Thread: loop only; times are passed in. Owns its GPUs, which never leave: their counters only
// grow. Bounds: kMaxDevices, an eighth of which is kept for root's processes; further ones are not
// followed, counted (kGpuDevicesFull). Of a GPU that is in use 230 KB, or 290 KB where kernels of
// NCCL run, and 8 bytes per interval of the last 5 s (BusyIntervals). A record that says it ended
// later than kMaxAheadNs from now is not believed (kGpuFutureRecords): one would close the time in
// which all others lie. What comes too late is counted (kGpuLateRecords) and its length kept.
class GpuActivities {
 public:
  static constexpr size_t kMaxDevices = 128;
  static constexpr uint64_t kMaxAheadNs = 1'000'000'000;
  static constexpr uint32_t kNone = UINT32_MAX;

  enum class Kind { kKernel, kNcclKernel, kCopy, kGraph };

  explicit GpuActivities(DropCounters& drops) : drops_(drops) {}
  GpuActivities(const GpuActivities&) = delete;
  GpuActivities& operator=(const GpuActivities&) = delete;

  // The number of a GPU; a new one where it was not seen before. A zero uuid stands for the GPU
  // with that ordinal in that process. kNone = no room.
  uint32_t get_device(const GpuUuid& uuid, const ProcessKey& process, uint32_t ordinal,
                      uint32_t uid = 0);
  void add(uint32_t device, Kind kind, uint64_t start_ns, uint64_t duration_ns,
           int64_t now_mono_ns);

  // One of the sessions that use a GPU has collected so long since the last expire().
  void note_collected(uint32_t device, uint64_t collected_ns);
  // Gives back what GPUs that rest kept of their last seconds.
  void expire(int64_t now_mono_ns);

  // In order of first use; `processes` is left to the caller. GPUs that did nothing are left out,
  // and their number is in `numbers` no more.
  std::vector<GpuActivity> list(std::vector<uint32_t>& numbers) const;

 private:
  struct Device {
    explicit Device(BusyIntervals::Budget& budget)
        : busy(budget), kernel(budget), copy(budget), graph(budget) {}
    GpuActivity facts;
    BusyIntervals busy;
    BusyIntervals kernel;
    BusyIntervals copy;
    BusyIntervals graph;
    // Like `busy`, without kernels of NCCL; empty until the first of those.
    std::optional<BusyIntervals> without_nccl;
    uint64_t collected_ns = UINT64_MAX;  // the least of its sessions' since the last expire()
  };
  using Key = std::tuple<GpuUuid, ProcessKey, uint32_t>;

  static BusyIntervals& get_intervals(Device& device, Kind kind);

  // Set once in the constructor.
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  BusyIntervals::Budget budget_;
  std::deque<Device> devices_;
  Shares shares_{{.total = kMaxDevices, .kept_for_root = kMaxDevices / 8}};  // of devices_
  std::map<Key, uint32_t> numbers_;
};

}  // namespace gpuperf
