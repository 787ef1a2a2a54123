#pragma once

// What a capture adds up to: the figures beside every picture of it.

#include <array>
#include <cstdint>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/model/histogram.h"

namespace gpuperf {

// What the host thread that gave a device its next work did while the device had none.
enum class IdleCause : uint8_t {
  kUnknown,    // nothing began after it, or nobody knows who launched that
  kElsewhere,  // neither of the others: its own code, a call that launches nothing, no CPU
  kWaiting,    // in a call that waits for a GPU
  kLaunching,  // in calls that launch, the one that ended the idle time included
  kLaunched    // back from that call: the work was on its way to the device
};
inline constexpr size_t kIdleCauses = 5;

// A stretch between two pieces of work in which a device had none. All of them add up to idle_ns.
struct DeviceGap {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t launch = kNoIndex;  // of the work that ended it
  // Adds up to the duration. Where calls overlap, a wait counts before a launch.
  std::array<uint64_t, kIdleCauses> split_ns{};
  IdleCause cause = IdleCause::kUnknown;  // that with most of the split
  bool operator==(const DeviceGap&) const = default;
};

struct DeviceSummary {
  uint32_t device = kNoIndex;
  uint64_t work = 0;     // pieces of it
  uint64_t busy_ns = 0;  // of the window with any work on it: the union over streams and processes
  uint64_t idle_ns = 0;  // between its first and its last work
  // The rest of the window. What the device did then is not known: the capture may have begun
  // before its processes told, and ended while their last work went on.
  uint64_t edges_ns = 0;
  uint64_t gaps = 0;
  std::array<uint64_t, kIdleCauses> idle_split_ns{};  // over all gaps
  std::vector<DeviceGap> longest_gaps;                // at most 20, longest first
  bool operator==(const DeviceSummary&) const = default;
};

// A launch is queued from the start of its call until its first piece of work begins: a graph is
// one, whatever it is made of.
struct StreamSummary {
  uint32_t stream = kNoIndex;
  uint64_t work = 0;
  uint64_t busy_ns = 0;  // sum of its work, the part outside the window too
  uint64_t max_queue_depth = 0;
  double average_queue_depth = 0;  // over the window, weighted with time
  bool operator==(const StreamSummary&) const = default;
};

struct KernelSummary {
  uint32_t kernel = kNoIndex;  // kNoIndex = those without a name
  uint64_t count = 0;
  uint64_t total_ns = 0;
  uint64_t min_ns = 0;
  uint64_t avg_ns = 0;
  uint64_t p50_ns = 0;  // exact: the smallest with at least half of them at or below it
  uint64_t p99_ns = 0;
  uint64_t max_ns = 0;
  // Over those that were the first work of their launch; 0 = none.
  uint64_t latencies = 0;
  uint64_t latency_p50_ns = 0;
  uint64_t latency_p99_ns = 0;
  bool operator==(const KernelSummary&) const = default;
};

// GPU work under one probed call, told apart by the shape of a GEMM. A graph whose nodes are known
// counts with these.
struct OperationSummary {
  uint32_t function = kNoIndex;  // kNoIndex = no probed call was around the launch
  std::array<uint64_t, 4> shape{};
  uint64_t launches = 0;
  uint64_t work = 0;
  uint64_t gpu_ns = 0;
  bool operator==(const OperationSummary&) const = default;
};

// From the start of a launch call to the start of its first work, in two parts: as long as work
// that began before it on the same stream had not ended, it waited for the stream; the rest for the
// device, which includes the call itself and the way to the device.
struct LaunchLatency {
  Histogram latency;
  Histogram stream_wait;  // launches that did not wait for the stream are in it with 0
  Histogram device_wait;
  uint64_t latency_ns = 0;  // sums
  uint64_t stream_wait_ns = 0;
  uint64_t device_wait_ns = 0;
  uint64_t before_call = 0;  // begun before their call, by clocks that differ: nowhere else counted
  bool operator==(const LaunchLatency&) const = default;
};

struct CopySummary {
  bool is_set = false;
  uint8_t direction = 0;  // of copies: GPUPERF_MEMCPY_*
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t total_ns = 0;
  bool operator==(const CopySummary&) const = default;
};

struct CaptureSummary {
  std::vector<DeviceSummary> devices;  // by index
  std::vector<StreamSummary> streams;  // by index
  // Most GPU time first.
  std::vector<KernelSummary> kernels;
  std::vector<OperationSummary> innermost;  // by the innermost probed call around the launch
  std::vector<OperationSummary> outermost;  // by the outermost
  std::vector<CopySummary> copies;
  LaunchLatency launch_latency;
  uint64_t gpu_ns = 0;  // sum of all work; a graph whose nodes are known is theirs
  bool operator==(const CaptureSummary&) const = default;
};

CaptureSummary summarise(const Capture& capture);

}  // namespace gpuperf
