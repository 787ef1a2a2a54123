#pragma once

// What injected processes tell, checked and on the daemon's clock. A session is one connection of
// one process; ids of names, shapes and places are those of the session, and every id in a record
// was announced before it.

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "daemon/model/attach.h"
#include "daemon/model/cubin_lines.h"
#include "daemon/model/function.h"
#include "daemon/model/gpu_uuid.h"

namespace gpuperf {

struct KernelRecord {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t correlation_id = 0;
  uint32_t name_id = 0;
  uint32_t shape_id = 0;
  uint32_t place_id = 0;
  uint32_t graph_id = 0;  // 0 = not from a graph
  uint32_t node_id = 0;
  uint32_t flags = 0;  // GPUPERF_KERNEL_*
  bool operator==(const KernelRecord&) const = default;
};

// A copy or a set.
struct CopyRecord {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t bytes = 0;
  uint32_t correlation_id = 0;
  uint32_t place_id = 0;
  uint32_t graph_id = 0;
  uint32_t node_id = 0;
  bool is_set = false;
  bool is_async = false;
  uint8_t direction = 0;      // GPUPERF_MEMCPY_*; of a set 0
  uint8_t source_memory = 0;  // GPUPERF_MEMORY_*; of a set 0
  uint8_t target_memory = 0;  // GPUPERF_MEMORY_*
  bool operator==(const CopyRecord&) const = default;
};

struct ApiRecord {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t correlation_id = 0;
  uint32_t tid = 0;  // in the daemon's pid namespace; 0 = the thread has gone
  uint32_t callback_id = 0;
  uint32_t return_value = 0;
  bool is_driver = false;
  bool is_hooked = false;  // seen by a launch hook, not by CUPTI
  bool has_work = true;    // false: it is known to be of none
  bool operator==(const ApiRecord&) const = default;
};

struct GraphRecord {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t correlation_id = 0;
  uint32_t graph_id = 0;
  uint32_t place_id = 0;
  bool operator==(const GraphRecord&) const = default;
};

struct SyncRecord {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t correlation_id = 0;
  uint32_t type = 0;  // GPUPERF_SYNC_*
  uint32_t place_id = 0;
  bool operator==(const SyncRecord&) const = default;
};

struct MemoryRecord {
  uint64_t mono_ns = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t place_id = 0;
  uint8_t memory = 0;  // GPUPERF_MEMORY_*
  bool is_release = false;
  bool is_from_pool = false;
  bool operator==(const MemoryRecord&) const = default;
};

struct OverheadRecord {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t type = 0;  // GPUPERF_OVERHEAD_*
  bool operator==(const OverheadRecord&) const = default;
};

// Less was collected for a while, by enum gpuperf_session_cause.
struct SessionGap {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t cause = 0;
  bool operator==(const SessionGap&) const = default;
};

struct KernelName {
  uint32_t id = 0;
  std::string text;  // mangled, as sent: any bytes but no zero
  bool is_cut = false;
  bool operator==(const KernelName&) const = default;
};

struct LaunchShape {
  uint32_t id = 0;
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  std::array<uint32_t, 3> cluster{};
  uint32_t shared_memory_bytes = 0;
  uint32_t registers_per_thread = 0;
  uint32_t local_memory_bytes = 0;
  bool operator==(const LaunchShape&) const = default;
};

// What one multiprocessor (SM) of a device has room for. 0 = unknown.
struct SmLimits {
  uint32_t count = 0;  // of SMs
  uint32_t threads = 0;
  uint32_t blocks = 0;
  uint32_t registers = 0;
  uint32_t shared_memory_bytes = 0;
  uint32_t shared_memory_reserved_bytes = 0;  // of each block, by the driver
  bool operator==(const SmLimits&) const = default;
};

struct Place {
  uint32_t id = 0;
  uint32_t device = 0;  // CUDA ordinal in that process
  uint32_t context = 0;
  uint32_t stream = 0;  // UINT32_MAX = none, or not known
  GpuUuid device_uuid{};
  SmLimits sm;
  bool operator==(const Place&) const = default;
};

// Of one instruction of a kernel: how often warps were found there, and in what state.
struct StallRecord {
  struct Count {
    uint32_t stall = 0;  // enum gpuperf_stall
    uint32_t samples = 0;
    uint32_t idle_samples = 0;  // of those: while no warp of the scheduler issued
    bool operator==(const Count&) const = default;
  };
  uint32_t name_id = 0;
  uint32_t pc_offset_bytes = 0;  // from the kernel's beginning
  uint64_t cubin_crc = 0;        // of its module, by CUPTI
  std::vector<Count> counts;
  bool operator==(const StallRecord&) const = default;
};

// A time in which a device was sampled.
struct SamplingRecord {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t samples = 0;          // all
  uint64_t dropped_samples = 0;  // of those: by the hardware
  uint64_t other_samples = 0;    // of those: of kernels that CUPTI does not tell
  uint32_t place_id = 0;
  uint32_t period = 0;  // each SM every 2^this cycles
  bool was_full = false;
  bool operator==(const SamplingRecord&) const = default;
};

struct SessionOpened {
  uint64_t session_id = 0;  // never 0, never used again
  ProcessKey process;
  Owner owner;
  uint32_t uid = 0;
  uint32_t contract_version = 0;  // spoken: the smaller of both
  std::string injector_version;
  int64_t mono_ns = 0;  // when
  AttachFacts attach;   // of a process that was attached to while it ran
  bool operator==(const SessionOpened&) const = default;
};

// One batch of one session. Dictionaries first: its records may use them.
struct SessionBatch {
  uint64_t session_id = 0;
  std::vector<KernelName> names;
  std::vector<LaunchShape> shapes;
  std::vector<Place> places;
  std::vector<KernelRecord> kernels;
  std::vector<CopyRecord> copies;
  std::vector<ApiRecord> apis;
  std::vector<GraphRecord> graphs;
  std::vector<SyncRecord> syncs;
  std::vector<MemoryRecord> memory;
  std::vector<OverheadRecord> overheads;
  std::vector<SessionGap> gaps;
  std::vector<StallRecord> stalls;
  std::vector<SamplingRecord> samplings;
  std::vector<CubinLines> cubins;  // of modules that samples name; entries of a dictionary
  bool operator==(const SessionBatch&) const = default;
};

inline uint64_t count_records(const SessionBatch& batch) {
  return batch.kernels.size() + batch.copies.size() + batch.apis.size() + batch.graphs.size() +
         batch.syncs.size() + batch.memory.size() + batch.overheads.size() + batch.gaps.size() +
         batch.stalls.size() + batch.samplings.size();
}

// How a session is, by its own account; counts since its process began.
struct SessionStatus {
  uint64_t session_id = 0;
  uint64_t enabled_kinds = 0;
  uint64_t records_sent = 0;
  std::array<uint64_t, 10> losses{};  // by enum gpuperf_session_loss
  uint64_t cupti_overhead_ns = 0;
  uint64_t injector_cpu_ns = 0;
  uint64_t clock_error_ns = 0;  // 0 = not known yet
  uint64_t yields = 0;
  uint32_t state = 0;  // enum gpuperf_session_state
  uint32_t cause = 0;  // enum gpuperf_session_cause
  uint32_t level = 0;  // GPUPERF_SESSION_LEVEL_*
  uint32_t sample_every = 1;
  uint32_t cupti_version = 0;
  uint32_t driver_version = 0;
  bool is_clock_foreign = false;
  uint32_t buffer_mib = 0;
  std::string detail;
  uint64_t mono_ns = 0;       // by the sender's CLOCK_MONOTONIC
  uint64_t hooked_calls = 0;  // calls through launch hooks; 0 = none, or not asked for
  // What launch hooks took, in calls picked at random.
  uint64_t timed_hooks = 0;
  uint64_t timed_hooks_ns = 0;
  // By the daemon's account.
  uint64_t received_records = 0;
  uint64_t rejected_records = 0;  // of records that made no sense; what and why: DropCounters
  bool operator==(const SessionStatus&) const = default;
};

struct SessionClosed {
  uint64_t session_id = 0;
  std::string reason;  // "process ended", "refused: ...", for people
  int64_t mono_ns = 0;
  bool operator==(const SessionClosed&) const = default;
};

// REALTIME stepped against MONOTONIC: times around it are off by up to step_ns.
struct ClockStepped {
  int64_t mono_ns = 0;
  int64_t step_ns = 0;
  bool operator==(const ClockStepped&) const = default;
};

using SessionEvent =
    std::variant<SessionOpened, SessionBatch, SessionStatus, SessionClosed, ClockStepped>;

// Which sessions an order is for. Both 0: all, and those to come.
struct SessionTarget {
  uint32_t pid = 0;         // 0 = whichever
  uint64_t session_id = 0;  // 0 = whichever
  bool operator==(const SessionTarget&) const = default;
};

// What a session is asked to do. Posted to the ingest thread.
struct SessionOrder {
  enum class Mode { kRun, kPause, kOff };
  Mode mode = Mode::kRun;
  bool is_later =
      false;  // kRun: a process that would pay until it is older waits for another order
  uint64_t enabled_kinds = 0;  // GPUPERF_SESSION_BIT; 0 = all
  uint32_t sample_every = 1;
  uint32_t burst_flags = 0;  // GPUPERF_SESSION_BURST_*
  uint32_t burst_ms = 0;
  bool operator==(const SessionOrder&) const = default;
};

}  // namespace gpuperf
