#pragma once

// GPU memory that processes hold, by the calls that allocate and release it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/model/function.h"

namespace gpuperf {

struct Stack;

// How memory came to be. Order = names in memory.cpp.
enum class MemoryKind : uint8_t {
  kDevice,      // cuMemAlloc, cuMemAllocPitch
  kAsync,       // cuMemAllocAsync, cuMemAllocFromPoolAsync: pieces of a pool
  kVirtual,     // cuMemCreate, mapped by cuMemMap
  kArray,       // cuArrayCreate, cuMipmappedArrayCreate
  kManaged,     // cuMemAllocManaged: on a GPU, in host memory or both
  kPinned,      // cuMemAllocHost, cuMemHostAlloc: host memory
  kRegistered,  // cuMemHostRegister: the process's own host memory, pinned
  kImported,    // cuIpcOpenMemHandle and the like: another process's, of unknown size
};
inline constexpr size_t kMemoryKindCount = static_cast<size_t>(MemoryKind::kImported) + 1;
// "device", "async", "virtual", "array", "managed", "pinned", "registered", "imported".
std::string_view get_memory_name(MemoryKind kind);
// It lies on a GPU for sure: what the driver reports of a process has it.
constexpr bool is_on_gpu(MemoryKind kind) { return kind <= MemoryKind::kArray; }

// Bytes as asked for, before the driver rounds up.
struct MemoryTotals {
  uint64_t live_bytes = 0;
  uint64_t live_count = 0;
  uint64_t peak_bytes = 0;
  uint64_t allocated_bytes = 0;
  uint64_t allocations = 0;
  uint64_t released_bytes = 0;
  uint64_t releases = 0;
  bool operator==(const MemoryTotals&) const = default;
};
void add_allocation(MemoryTotals& totals, uint64_t bytes);
void add_release(MemoryTotals& totals, uint64_t bytes);
// Peaks are added up: at most that much.
void merge_totals(MemoryTotals& totals, const MemoryTotals& other);

// Why the numbers of a process may not be what it holds. Bits.
enum MemoryGap : uint32_t {
  kMemoryLateStart = 1,        // it ran before its calls were reported
  kMemoryUnknownReleases = 2,  // of what was never seen allocated
  kMemoryMissedReleases = 4,   // an address was given out anew without its release being reported
  kMemoryTableFull = 8,        // allocations beyond a limit
  kMemoryLostCalls = 16,       // reports were lost while it ran
  kMemoryUnreadable = 32,      // a call's arguments or result could not be read
  kMemorySuspended = 64,       // the overhead budget suspended the functions
  kMemoryContextEnded = 128,   // a context ended, and which allocations were its is not known
};
inline constexpr size_t kMemoryGaps = 8;
// Sentences for people, of the bits set.
std::vector<std::string_view> describe_memory_gaps(uint32_t gaps);

// Memory that grows without end, as far as can be told.
struct MemoryGrowth {
  uint64_t window_ns = 0;  // watched; it grew all the time
  uint64_t grown_bytes = 0;
  uint64_t grown_count = 0;
  bool is_leak = false;  // false: the rest of the process grows, too, or it may be a warm-up
  bool operator==(const MemoryGrowth&) const = default;
};

// What one stack of a process allocated, of one kind.
struct MemorySite {
  MemoryKind kind{};
  uint32_t function_id = 0;            // outermost probed function of the last allocation
  std::shared_ptr<const Stack> stack;  // null = none was taken, or it has no names yet
  MemoryTotals totals;
  uint64_t oldest_mono_ns = 0;  // start of the oldest live allocation, as of the last window
  std::optional<MemoryGrowth> growth;
};

// What NVML reports of a process on a GPU.
struct MemoryOnGpu {
  uint32_t index = 0;
  uint64_t used_bytes = 0;
  bool operator==(const MemoryOnGpu&) const = default;
};

struct MemoryProcess {
  ProcessKey process;
  Owner owner;                 // empty = not known yet
  bool exited = false;         // what it held then is `live`: its driver released it
  uint64_t first_mono_ns = 0;  // start of its first reported call
  uint32_t gaps = 0;           // bits of MemoryGap
  uint64_t unknown_releases = 0;
  uint64_t missed_releases = 0;
  std::array<MemoryTotals, kMemoryKindCount> kinds{};  // by MemoryKind
  uint64_t on_gpu_peak_bytes = 0;  // of the kinds that are on a GPU for sure, together
  bool has_leaked = false;         // some site was taken for a leak, now or before
  std::vector<MemorySite> sites;   // most live bytes first
  std::vector<MemoryOnGpu> gpus;   // as NVML reported them last; empty = not reported
  // Of those bytes less ours, at the lowest: context, modules, pools. Empty = not reported.
  std::optional<uint64_t> least_rest_bytes;
};
uint64_t get_on_gpu_bytes(const MemoryProcess& process);  // live
uint64_t get_used_bytes(const MemoryProcess& process);    // by NVML, on all GPUs
inline bool is_leak(const MemorySite& site) { return site.growth && site.growth->is_leak; }
// Of all its leaks.
double get_leak_bytes_per_second(const MemoryProcess& process);

struct MemoryHolder {
  ProcessKey process;
  Owner owner;
  uint64_t live_bytes = 0;             // on GPUs, by its calls
  std::optional<uint64_t> used_bytes;  // by NVML
  std::vector<MemorySite> sites;       // the largest, of what is on a GPU
};

// An allocation that failed for lack of memory, and those like it that followed.
struct OutOfMemory {
  uint64_t id = 0;  // 1 and up
  uint64_t unix_ns = 0;
  uint64_t last_unix_ns = 0;
  uint64_t times = 1;
  ProcessKey process;
  uint32_t tid = 0;
  Owner owner;
  MemoryKind kind{};
  uint32_t function_id = 0;  // outermost probed function
  uint64_t asked_bytes = 0;
  uint64_t stack_id = 0;  // raw
  std::shared_ptr<const Stack> stack;
  std::vector<uint32_t> gpus;         // where the process is, by index; empty = not known
  std::vector<MemoryHolder> holders;  // of these GPUs at that moment, most memory first
};

struct MemoryReport {
  std::vector<std::shared_ptr<const MemoryProcess>> processes;    // by key
  std::vector<std::shared_ptr<const OutOfMemory>> out_of_memory;  // newest first
  std::vector<std::pair<Owner, uint64_t>> out_of_memory_counts;   // since start; only grow
};

}  // namespace gpuperf
