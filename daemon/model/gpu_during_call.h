#pragma once

// What the GPUs of a process did while one of its calls took long. Source: CUPTI's records of its
// session, joined with launches in the flight recorder. Times of work are clipped to the call
// unless they say otherwise.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/gpu_counters.h"
#include "daemon/model/gpu_uuid.h"

namespace gpuperf {

// When one GPU worked for another process: by start, without overlaps.
struct OtherGpuWork {
  uint32_t pid = 0;
  std::string comm;
  GpuUuid device_uuid{};
  std::vector<std::pair<uint64_t, uint64_t>> stretches_mono_ns;  // begin, end
  bool operator==(const OtherGpuWork&) const = default;
};

// The call that gave a GPU its work. An empty one is not known.
struct GpuLauncher {
  std::string function;   // of the API: "cudaLaunchKernel"
  std::string operation;  // innermost probed call around it, of no name of the API; empty = none
  std::string frame;      // innermost line of Python, or named function outside the CUDA libraries
  uint32_t tid = 0;
  std::string comm;                // of the thread; empty = not known
  bool is_calling_thread = false;  // the one that made the slow call
  uint64_t start_mono_ns = 0;      // of the launch call; of several, of the first
  bool operator==(const GpuLauncher&) const = default;
};

// One kernel, or a graph as a whole, over all its work in the call.
struct GpuKernelTime {
  std::string kernel;      // demangled, in full; "graph 7"
  std::string short_name;  // without parameters
  uint64_t total_ns = 0;   // sum; work on several streams at once counts each
  uint64_t count = 0;
  uint64_t longest_ns = 0;   // of one, not clipped
  GpuLauncher launcher;      // who launched most of it
  uint64_t launcher_ns = 0;  // how much of total_ns that is
  bool operator==(const GpuKernelTime&) const = default;
};

// Copies of one direction, or sets.
struct GpuCopyTime {
  std::string direction;  // "host_to_device", …; "set"
  uint64_t total_ns = 0;  // sum
  uint64_t count = 0;
  uint64_t bytes = 0;  // of these copies in full
  bool operator==(const GpuCopyTime&) const = default;
};

// One GPU that the process used in that time. busy_ns and idle_ns add up to the call's duration.
struct GpuDeviceTime {
  std::string uuid;        // "GPU-8f1ab2c3-…"; empty = not known
  uint32_t number = 0;     // CUDA's, in that process
  uint64_t busy_ns = 0;    // by this process: the union of its work
  uint64_t idle_ns = 0;    // the rest
  uint64_t others_ns = 0;  // busy by other processes that have sessions: the union of their work
  // Of the whole GPU, all processes together, over the seconds that contain the call.
  GpuCounterWindow counters;
  bool operator==(const GpuDeviceTime&) const = default;
};

// Another process with a session, on the same GPUs.
struct GpuOtherProcess {
  uint32_t pid = 0;
  std::string comm;
  uint64_t busy_ns = 0;  // union of its work there
  bool operator==(const GpuOtherProcess&) const = default;
};

// What the slow call itself gave the GPU to do. A launch waits from the start of its call until its
// first work begins: for its stream as long as earlier work there had not ended, for the device the
// rest, which includes the call and the way to the device.
struct GpuOwnWork {
  uint64_t launches = 0;        // calls of the API in it that launched
  uint64_t without_work = 0;    // of them: their work was not seen
  uint64_t run_ns = 0;          // sum of their work, not clipped
  uint64_t stream_wait_ns = 0;  // sums over launches
  uint64_t device_wait_ns = 0;
  bool operator==(const GpuOwnWork&) const = default;
};

// The work that ended last before the call returned: what a synchronising call waited for.
struct GpuAwaitedWork {
  std::string name;               // as GpuKernelTime::kernel; "copy host_to_device", "set"
  uint64_t total_ns = 0;          // within the call
  uint64_t duration_ns = 0;       // of all of it
  uint64_t queued_ns = 0;         // from the start of its launch call until it began; 0 = not known
  uint64_t stream_wait_ns = 0;    // of that: for earlier work on its stream
  uint64_t before_return_ns = 0;  // from its end to the call's return
  GpuLauncher launcher;
  bool operator==(const GpuAwaitedWork&) const = default;
};

// One thing that a GPU did, or part of which it did, during the call; not clipped.
struct GpuWorkSpan {
  std::string name;  // as GpuKernelTime::kernel; "copy host_to_device", "set"
  std::string short_name;
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  std::string device_uuid;      // empty = not known
  uint32_t device_number = 0;   // CUDA's, in that process
  uint32_t stream = 0;          // CUPTI's number; UINT32_MAX = none, or not known
  uint32_t correlation_id = 0;  // of its process; 0 = not known
  uint64_t bytes = 0;           // of copies and sets
  bool operator==(const GpuWorkSpan&) const = default;
};

struct GpuDuringCall {
  // busy_ns and idle_ns add up to the call's duration; both 0 = not known, and `missing` says why.
  uint64_t busy_ns = 0;  // any GPU with work of this process: the union
  uint64_t idle_ns = 0;
  // Likewise unions; work of two kinds at once counts in both.
  uint64_t kernel_ns = 0;
  uint64_t copy_ns = 0;
  uint64_t set_ns = 0;
  uint64_t graph_ns = 0;               // graphs whose kernels are not known
  std::vector<GpuKernelTime> kernels;  // most time first, at most 5
  uint64_t other_kernels = 0;          // names beyond those
  uint64_t other_kernels_ns = 0;       // sum of their time
  std::vector<GpuCopyTime> copies;     // most time first
  std::vector<GpuDeviceTime> devices;
  std::vector<GpuOtherProcess> others;  // most time first, at most 3
  uint64_t others_ns = 0;               // busy by any other process: the union over `devices`
  GpuOwnWork own;
  std::optional<GpuAwaitedWork>
      awaited;  // of calls that wait for the GPU; empty = nothing ended in it
  // Why the figures may be too small, for people: empty = they are complete.
  std::vector<std::string> missing;
  // The pieces of work that took most of the call, by start; only as many as somebody exports.
  std::vector<GpuWorkSpan> longest;
  uint64_t work_count = 0;  // pieces in all
  bool operator==(const GpuDuringCall&) const = default;
};

// Whether there are figures.
inline bool is_known(const GpuDuringCall& gpu) { return gpu.busy_ns + gpu.idle_ns > 0; }

}  // namespace gpuperf
