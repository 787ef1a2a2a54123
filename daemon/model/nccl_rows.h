#pragma once

// How collective communication of this host's ranks does, as the snapshot shows it. Sources: calls
// of NCCL (model/event, ReportedCall), kernels of injected processes (model/session), /proc.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/model/function.h"

namespace gpuperf {

enum class NcclOperation {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kSendReceive,  // to or from single ranks
  kMixed,        // several of the above in one group of calls
};
inline constexpr size_t kNcclOperations = 10;
// "all_reduce", "send_receive".
std::string_view get_nccl_operation_name(NcclOperation operation);

// Size of the whole message, as nccl-tests gives it, of an operation whose calls give `bytes`: with
// what all ranks contribute or receive where a call names one rank's share. 0 ranks = not known:
// `bytes`.
uint64_t get_nccl_message_bytes(NcclOperation operation, uint64_t bytes, uint32_t ranks);
// Bus bandwidth = message bytes / time x this; 0 = it has none, or the number of ranks is not
// known.
double get_nccl_bus_factor(NcclOperation operation, uint32_t ranks);

// What a thread did at a look.
enum class NcclActivity {
  kUnknown,
  kStopped,    // by a signal, or a debugger
  kRunning,    // on a CPU
  kThrottled,  // by a CPU quota
  kRunnable,   // without a CPU
  kIo,         // waits for a file, pipe or socket
  kLock,       // waits for a lock or another thread
  kSleep,      // sleeps for a time
  kDriver,     // waits in a device's driver
  kOtherWait,  // waits for something else
};
inline constexpr size_t kNcclActivities = 10;
// "stopped", "running", "cpu_quota", "no_cpu", "io", "lock", "sleep", "driver", "other_wait";
// "unknown".
std::string_view get_nccl_activity_name(NcclActivity activity);

// By what the begin of an operation on a rank is told: its call, or its kernel.
enum class NcclBasis { kHost, kGpu };
inline constexpr size_t kNcclBases = 2;
std::string_view get_nccl_basis_name(NcclBasis basis);  // "host", "gpu"

// One operation of one rank.
struct NcclRankTotals {
  uint64_t calls = 0;
  uint64_t bytes = 0;  // as the calls gave them
  uint64_t host_ns = 0;
  uint64_t timed_calls = 0;  // whose kernels were recorded
  uint64_t gpu_ns = 0;       // of those, waits for other ranks included
  bool operator==(const NcclRankTotals&) const = default;
};

// One operation of one size on a communicator, over its local ranks.
struct NcclSizeRow {
  NcclOperation operation{};
  uint64_t size_bytes = 0;  // messages of this size up to, but without, twice of it; 0 = of 0
  uint64_t count = 0;       // an operation of all ranks counts once
  uint64_t bytes = 0;       // of messages
  uint64_t timed = 0;       // with a kernel that was recorded
  uint64_t timed_bytes = 0;
  uint64_t timed_ns = 0;  // of the shortest kernel of each: it waited least
  uint64_t min_ns = 0;    // of those the shortest
  bool operator==(const NcclSizeRow&) const = default;
};

// One rank that runs on this host, on one communicator.
struct NcclRankRow {
  ProcessKey process;
  uint32_t tid = 0;   // of its last call
  uint64_t comm = 0;  // the handle
  std::optional<uint32_t> rank;
  bool is_rank_inferred = false;  // from the environment of its process
  uint64_t collectives = 0;       // so far seen
  uint32_t last_function_id = FunctionRegistry::kFull;
  uint64_t last_start_mono_ns = 0;
  uint64_t last_end_mono_ns = 0;
  uint64_t last_stack_id = 0;                      // of a RawStack; 0 = none
  NcclActivity activity = NcclActivity::kUnknown;  // at the last look
  uint32_t syscall = UINT32_MAX;                   // it was in; UINT32_MAX = none
  std::array<uint64_t, kNcclBases> waited_ns{};    // for the last local rank
  std::array<uint64_t, kNcclBases> caused_ns{};    // that all others waited for it alone
  std::array<NcclRankTotals, kNcclOperations> operations{};
  bool operator==(const NcclRankRow&) const = default;
};

// The rank that the others waited for most in the last window.
struct NcclLateness {
  size_t rank_index = 0;  // in the communicator's rows
  NcclBasis basis{};
  uint64_t covered_ns = 0;      // the window, or the part of it whose kernels were recorded
  uint64_t steps = 0;           // operations of all local ranks in it
  uint64_t late_steps = 0;      // in which it was the last by kNoticeableNs or more
  uint64_t caused_ns = 0;       // that all others waited for it
  uint64_t host_caused_ns = 0;  // as much of covered_ns by calls
  std::array<uint32_t, kNcclActivities> activities{};  // what it did meanwhile; looks
  double get_share() const {
    return static_cast<double>(caused_ns) / static_cast<double>(covered_ns);
  }
  bool operator==(const NcclLateness&) const = default;
};

// Some ranks have begun an operation that others have not begun for long.
struct NcclStall {
  uint64_t step = 0;  // number of the operation on the communicator, from 0
  NcclOperation operation{};
  int64_t since_mono_ns = 0;          // when the last of those that wait began it
  std::vector<size_t> missing_ranks;  // indexes in the communicator's rows
  bool operator==(const NcclStall&) const = default;
};

struct NcclCommunicatorRow {
  uint64_t id = 0;                // the same on all hosts where it is identified
  bool is_identified = false;     // its creation was seen; else it is one rank's handle
  bool is_in_step = true;         // calls of its local ranks agree
  uint32_t ranks = 0;             // on all hosts; 0 = not known
  bool is_size_inferred = false;  // from the environment
  std::vector<NcclRankRow> local_ranks;
  std::vector<NcclSizeRow> sizes;  // by operation, then size
  std::optional<NcclLateness> lateness;
  std::optional<NcclStall> stall;
};

struct NcclReport {
  std::vector<std::shared_ptr<const NcclCommunicatorRow>> communicators;  // in order of creation
  uint64_t calls = 0;  // of NCCL that were reported
};

}  // namespace gpuperf
