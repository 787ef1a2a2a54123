// Buffers, clocks and which kinds are on.

#include <sys/mman.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fakes/cupti/fake_cupti.h"

namespace fake_cupti {
namespace {

uint64_t read_unix_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Of two readings, to convert between clocks from the first record on.
constexpr uint64_t kFirstBaseNs = 1'000'000;
constexpr uint64_t kPairNs = 1'000;
constexpr size_t kPageBytes = 4096;

}  // namespace

CUptiResult Activities::register_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (request == nullptr || complete == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::scoped_lock lock(lock_);
  request_ = request;
  complete_ = complete;  // for buffers that are out, too
  return CUPTI_SUCCESS;
}

CUptiResult Activities::enable(CUpti_ActivityKind kind, bool is_on) {
  if (record_bytes(kind) == 0) return CUPTI_ERROR_INVALID_KIND;
  const std::scoped_lock lock(lock_);
  if (is_on) attach();
  fake_cuda_note_switch();
  const bool is_call = kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER;
  if (is_call && is_on) calls_[kind == CUPTI_ACTIVITY_KIND_DRIVER].set();
  if (is_on) {
    kinds_ |= uint64_t{1} << kind;
  } else {
    kinds_ &= ~(uint64_t{1} << kind);
  }
  return CUPTI_SUCCESS;
}

void Activities::enable_call(bool is_driver, uint32_t callback_id, bool is_on) {
  const std::scoped_lock lock(lock_);
  const auto kind = is_driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  if (callback_id >= calls_[is_driver].size()) return;
  // Seen with 13.0: once CUDA is up, switching one function on where its kind is off does nothing.
  if (is_on && !this->is_on(kind) && fake_cuda_is_up()) return;
  if (is_on && !this->is_on(kind)) {
    calls_[is_driver].reset();
    kinds_ |= uint64_t{1} << kind;
    attach();
  }
  calls_[is_driver][callback_id] = is_on;
  if (calls_[is_driver].none()) kinds_ &= ~(uint64_t{1} << kind);
}

void Activities::register_clock(CUpti_TimestampCallbackFunc clock) {
  const std::scoped_lock lock(lock_);
  clock_ = clock;
  if (clock == nullptr) return;
  first_unix_ns_ = read_unix_ns();
  first_ticks_ = clock();
  while (read_unix_ns() - first_unix_ns_ < kFirstBaseNs) {
  }
}

uint64_t Activities::read_clock() {
  const auto clock = clock_;
  return clock != nullptr ? clock() : read_unix_ns();
}

// Extrapolated from now, by the slope since the clock came. What lies between the two readings of
// now is kept short: a thread may lose its CPU there.
uint64_t Activities::to_ticks(uint64_t unix_ns) {
  if (clock_ == nullptr) return unix_ns;
  uint64_t now_unix_ns = 0, now_ticks = 0, took_ns = UINT64_MAX;
  for (int i = 0; i < 10 && took_ns > kPairNs; ++i) {
    now_unix_ns = read_unix_ns();
    now_ticks = clock_();
    took_ns = read_unix_ns() - now_unix_ns;
  }
  ticks_per_ns_ = static_cast<double>(now_ticks - first_ticks_) /
                  static_cast<double>(now_unix_ns - first_unix_ns_);
  return now_ticks + to_span_ticks(static_cast<int64_t>(unix_ns - now_unix_ns));
}

uint64_t Activities::to_span_ticks(int64_t span_ns) const {
  if (clock_ == nullptr) return static_cast<uint64_t>(span_ns);
  return static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(span_ns) * ticks_per_ns_));
}

// Room for one record, in a buffer that the client is asked for where the last one is full. Null:
// it had none.
uint8_t* Activities::reserve(size_t bytes) {
  if (in_client_) {
    std::fprintf(stderr, "fake CUPTI: called from within a client's buffer callback\n");
    std::abort();
  }
  if (current_.bytes != nullptr && current_.used + bytes > current_.size) {
    full_.push_back(std::move(current_));
    current_ = {};
  }
  while (!full_.empty() && finish(full_.front(), false)) {
    deliver(full_.front());
    full_.pop_front();
  }
  if (current_.bytes == nullptr) {
    if (request_ == nullptr) return nullptr;
    size_t records_max = 0;
    ++counts_.buffers_requested;
    in_client_ = true;
    request_(&current_.bytes, &current_.size, &records_max);
    in_client_ = false;
    if (current_.bytes == nullptr || current_.size < bytes) {
      current_ = {};
      ++counts_.buffers_refused;
      ++counts_.dropped;
      return nullptr;
    }
    if (reinterpret_cast<uintptr_t>(current_.bytes) % ACTIVITY_RECORD_ALIGNMENT != 0) {
      std::fprintf(stderr, "fake CUPTI: a buffer is not aligned\n");
      std::abort();
    }
    ++counts_.buffers_out;
  }
  uint8_t* at = current_.bytes + current_.used;
  current_.used += bytes;
  ++counts_.records;
  return at;
}

// Fills in the times of work that is over. True: the buffer may be handed over.
bool Activities::finish(Buffer& buffer, bool is_forced) {
  const uint64_t now = read_unix_ns();
  std::vector<Pending> still;
  for (const Pending& pending : buffer.pending) {
    if (pending.end_unix_ns > now) {
      still.push_back(pending);
      continue;
    }
    std::memcpy(pending.start, &pending.start_ticks, sizeof(uint64_t));
    std::memcpy(pending.start + sizeof(uint64_t), &pending.end_ticks, sizeof(uint64_t));
  }
  if (is_forced) counts_.forced_incomplete += still.size();
  buffer.pending = std::move(still);
  return is_forced || buffer.pending.empty();
}

void Activities::deliver(Buffer& buffer) {
  --counts_.buffers_out;
  in_client_ = true;
  complete_(nullptr, 0, buffer.bytes, buffer.size, buffer.used);
  in_client_ = false;
}

CUptiResult Activities::flush(bool is_forced) {
  const std::scoped_lock lock(lock_);
  if (in_client_) {
    std::fprintf(stderr, "fake CUPTI: flush from within a client's buffer callback\n");
    std::abort();
  }
  if (current_.bytes != nullptr) {
    full_.push_back(std::move(current_));
    current_ = {};
  }
  std::deque<Buffer> kept;
  for (Buffer& buffer : full_) {
    if (finish(buffer, is_forced)) {
      deliver(buffer);
    } else {
      kept.push_back(std::move(buffer));
    }
  }
  full_ = std::move(kept);
  return CUPTI_SUCCESS;
}

size_t Activities::take_dropped() {
  const std::scoped_lock lock(lock_);
  static uint64_t told = 0;
  const uint64_t count = counts_.dropped - told;
  told = counts_.dropped;
  return count;
}

const char* Names::keep(const char* name) {
  const char*& kept = names_[name];
  if (kept == nullptr) {
    void* page =
        mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return name;
    kept = std::strncpy(static_cast<char*>(page), name, kPageBytes - 1);
  }
  return kept;
}

void Names::forget_all() {
  for (const auto& [_, kept] : names_) (void)munmap(const_cast<char*>(kept), kPageBytes);
  names_.clear();
}

void Activities::forget_all() {
  const std::scoped_lock lock(lock_);
  (void)flush(true);
  kinds_ = 0;
  ids_before_ = fake_cuda_last_correlation_id();
  request_ = nullptr;
  complete_ = nullptr;
  clock_ = nullptr;
  names_.forget_all();
}

void Activities::read_state(FakeCuptiState& state) {
  const std::scoped_lock lock(lock_);
  state = counts_;
  state.enabled_kinds = kinds_;
  state.has_foreign_clock = clock_ != nullptr;
}

}  // namespace fake_cupti
