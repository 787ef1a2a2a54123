#pragma once

// The calls that launched GPU work, as their hooks saw them. API records are made from these where
// CUPTI is not to record calls itself (call_join.h).
//
// Each thread writes to its own ring without a lock; the injector's thread reads all rings. Bounds:
// kCalls in a thread's ring (32 KiB, mapped at its first call while the log is on); when it is
// full, further calls are counted as lost.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bpf/hook_notes.h"
#include "injector/session_abi.h"
#include "injector/stream_numbers.h"

namespace gpuperf::injector {

enum class CallKind : uint8_t { kLaunch, kGraph, kCopy, kSet, kWait };

// X(function, GPUPERF_SYNC_*): driver functions in which a thread waits for the GPU. Numbered after
// enum gpuperf_hook_entry.
#define GPUPERF_WAIT_ENTRIES(X)                    \
  X(cuStreamSynchronize, GPUPERF_SYNC_STREAM)      \
  X(cuStreamSynchronize_ptsz, GPUPERF_SYNC_STREAM) \
  X(cuEventSynchronize, GPUPERF_SYNC_EVENT)        \
  X(cuCtxSynchronize, GPUPERF_SYNC_CONTEXT)        \
  X(cuCtxSynchronize_v2, GPUPERF_SYNC_CONTEXT)
enum : uint16_t {
  kLastHookEntry = GPUPERF_HOOK_COUNT - 1,
#define GPUPERF_WAIT_INDEX(name, type) kEntry_##name,
  GPUPERF_WAIT_ENTRIES(GPUPERF_WAIT_INDEX)
#undef GPUPERF_WAIT_INDEX
      kLoggedEntries
};

struct LoggedCall {
  uint64_t start_mono_ns;  // right before the call entered the driver
  uint64_t size;           // of the work, see CallTarget
  uint32_t duration_ns;    // at most 4.3 s
  uint32_t stream;         // as CUPTI numbers it
  uint32_t tid;
  uint16_t result;  // CUresult
  uint16_t entry;   // enum gpuperf_hook_entry, or one of GPUPERF_WAIT_ENTRIES
};
static_assert(sizeof(LoggedCall) == 32);

// One thread's ring.
class CallRing {
 public:
  static constexpr uint32_t kCalls = 1024;

  // Owning thread. A signal handler's call that interrupts another is lost. True: the ring should
  // be drained now, returned after every half ring.
  bool add(const LoggedCall& call);
  // Injector's thread: passes on the calls added since the last time, oldest first.
  template <typename Take>
  void take(Take take_call) {
    const LoggedCall* const calls = calls_.load(std::memory_order_acquire);
    const uint32_t end = written_.load(std::memory_order_acquire);
    for (uint32_t at = read_.load(std::memory_order_relaxed); at != end; ++at) {
      take_call(calls[at % kCalls]);
      read_.store(at + 1, std::memory_order_release);
    }
  }
  uint64_t lost_count() const { return lost_.load(std::memory_order_relaxed); }

 private:
  LoggedCall* make();

  // The owning thread's cache line. It reads read_ only when the ring seems full, so a launch waits
  // for nothing here.
  alignas(64) std::atomic<LoggedCall*> calls_ = nullptr;
  std::atomic<uint64_t> lost_ = 0;
  std::atomic<uint32_t> written_ = 0;
  uint32_t read_seen_ = 0;
  bool is_busy_ = false;
  alignas(64) std::atomic<uint32_t> read_ = 0;
};

// What kind of call a driver entry is.
CallKind get_call_kind(uint32_t entry);
// GPUPERF_SYNC_* of an entry in which a thread waits.
uint32_t get_sync_type(uint32_t entry);
const char* get_entry_name(uint32_t entry);

// Encodes a grid and block as CallTarget::size; never 0.
uint64_t make_size(const uint32_t (&grid)[3], const uint32_t (&block)[3]);

// A call's stream and the size of its work, from its arguments: six in registers, the rest from
// `stack` on. Thread: the calling one, before its call.
struct CallTarget {
  uint32_t stream = kNoStream;
  uint64_t size = 0;     // make_size() of a kernel, bytes of a copy or memset; 0 = unknown
  bool has_work = true;  // false: there is nothing to do, or it becomes part of a graph
};
CallTarget find_call_target(uint32_t entry, const uint64_t* arguments, const uint64_t* stack);

}  // namespace gpuperf::injector
