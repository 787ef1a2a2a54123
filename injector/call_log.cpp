#include "injector/call_log.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "injector/hook_code.h"

namespace gpuperf::injector {
namespace {

constexpr uint8_t kNone = UINT8_MAX;
constexpr uint8_t kInConfig = UINT8_MAX - 1;  // cuLaunchKernelEx: behind its first argument
// CUlaunchConfig: seven 32-bit words (grid, block, shared memory), then hStream.
constexpr size_t kConfigStreamWords = 8;
// cuLaunchKernel, cuLaunchCooperativeKernel: function, grid, block, shared memory, stream.
constexpr uint8_t kBehindDimensions = 8;
struct Entry {
  const char* name;
  CallKind kind;
  uint8_t stream_argument;  // kNone: the default stream
  uint8_t size_argument;    // of a copy or memset; kNone: unknown
  uint8_t size_each;
  bool is_per_thread;  // its default stream is per thread
};

constexpr bool begins_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}
constexpr bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr Entry make_entry(const char* text, uint8_t arguments) {
  const std::string_view name = text;
  Entry entry = {text, CallKind::kCopy, kNone, kNone, 1, has(name, "_pt")};
  if (begins_with(name, "cuGraphLaunch")) {
    entry.kind = CallKind::kGraph;
    entry.stream_argument = 1;
  } else if (begins_with(name, "cuLaunch")) {
    entry.kind = CallKind::kLaunch;
    if (begins_with(name, "cuLaunchKernelEx")) {
      entry.stream_argument = kInConfig;
    } else if (begins_with(name, "cuLaunchGridAsync")) {
      entry.stream_argument = 3;
    } else if (arguments >= 10) {
      entry.stream_argument = kBehindDimensions;
    }
  } else {
    const bool is_async = has(name, "Async");
    if (begins_with(name, "cuMemset")) entry.kind = CallKind::kSet;
    if (is_async) entry.stream_argument = static_cast<uint8_t>(arguments - 1);
    const bool is_flat = !has(name, "2D") && !has(name, "3D") && !has(name, "Batch") &&
                         !has(name, "Peer") && !has(name, "toA") && !has(name, "Ato");
    if (is_flat) entry.size_argument = 2;
    if (is_flat && has(name, "D16")) entry.size_each = 2;
    if (is_flat && has(name, "D32")) entry.size_each = 4;
  }
  return entry;
}

constexpr Entry kEntries[kLoggedEntries] = {
#define GPUPERF_ENTRY(name, arguments) make_entry(#name, arguments),
    GPUPERF_HOOK_ENTRIES(GPUPERF_ENTRY)
#undef GPUPERF_ENTRY
#define GPUPERF_ENTRY(name, type) {#name, CallKind::kWait, kNone, kNone, 1, false},
        GPUPERF_WAIT_ENTRIES(GPUPERF_ENTRY)
#undef GPUPERF_ENTRY
};

constexpr uint32_t kSyncTypes[] = {
#define GPUPERF_TYPE(name, type) type,
    GPUPERF_WAIT_ENTRIES(GPUPERF_TYPE)
#undef GPUPERF_TYPE
};

}  // namespace

__attribute__((noinline, cold)) LoggedCall* CallRing::make() {
  const int error = errno;
  void* made = mmap(nullptr, kCalls * sizeof(LoggedCall), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = error;
  if (made == MAP_FAILED) return nullptr;
  calls_.store(static_cast<LoggedCall*>(made), std::memory_order_release);
  return static_cast<LoggedCall*>(made);
}

bool CallRing::add(const LoggedCall& call) {
  if (is_busy_) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  is_busy_ = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  LoggedCall* calls = calls_.load(std::memory_order_relaxed);
  if (calls == nullptr) [[unlikely]]
    calls = make();
  const uint32_t written = written_.load(std::memory_order_relaxed);
  if (written - read_seen_ == kCalls) read_seen_ = read_.load(std::memory_order_acquire);
  const bool has_room = calls != nullptr && written - read_seen_ != kCalls;
  if (has_room) {
    calls[written % kCalls] = call;
    written_.store(written + 1, std::memory_order_release);
  } else {
    lost_.fetch_add(1, std::memory_order_relaxed);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  is_busy_ = false;
  return has_room && (written + 1) % (kCalls / 2) == 0;
}

CallKind get_call_kind(uint32_t entry) { return kEntries[entry].kind; }
uint32_t get_sync_type(uint32_t entry) { return kSyncTypes[entry - GPUPERF_HOOK_COUNT]; }
const char* get_entry_name(uint32_t entry) { return kEntries[entry].name; }

uint64_t make_size(const uint32_t (&grid)[3], const uint32_t (&block)[3]) {
  uint64_t size = 1;
  for (const uint32_t length : {grid[0], grid[1], grid[2], block[0], block[1], block[2]}) {
    size = (size ^ length) * 0x9e3779b97f4a7c15u;
    size ^= size >> 32;
  }
  return size | 1;
}

CallTarget find_call_target(uint32_t entry, const uint64_t* arguments, const uint64_t* stack) {
  const Entry& row = kEntries[entry];
  const auto get = [arguments, stack](uint8_t index) {
    return index < kRegisterArguments ? arguments[index] : stack[index - kRegisterArguments];
  };
  CallTarget target;
  uint64_t stream = 0;
  if (row.stream_argument == kInConfig) {
    const auto* config = reinterpret_cast<const uint32_t*>(arguments[0]);
    if (config == nullptr) return target;
    target.size = make_size({config[0], config[1], config[2]}, {config[3], config[4], config[5]});
    std::memcpy(&stream, config + kConfigStreamWords, sizeof(stream));
  } else if (row.stream_argument != kNone) {
    stream = get(row.stream_argument);
  }
  if (row.stream_argument == kBehindDimensions) {
    uint32_t lengths[6];
    for (uint8_t i = 0; i < 6; ++i) lengths[i] = static_cast<uint32_t>(get(i + 1));
    target.size =
        make_size({lengths[0], lengths[1], lengths[2]}, {lengths[3], lengths[4], lengths[5]});
  }
  if (row.size_argument != kNone) {
    target.size = get(row.size_argument) * row.size_each;
    target.has_work = target.size != 0;
  }
  target.stream = find_stream_number(stream, row.is_per_thread, target.has_work);
  return target;
}

}  // namespace gpuperf::injector
