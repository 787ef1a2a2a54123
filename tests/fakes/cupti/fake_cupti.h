#pragma once

// Inside of the fake libcupti: CUPTI 13.0.1's Activity and Callback API as far as profilers use it,
// with the rules that were seen on an H200. FAKE_CUPTI_MAJOR is 12 or 13.
//
// One lock guards all of it, and the callbacks for buffers are called with it held, on the thread
// that needs them: a client that calls back into CUPTI from there aborts, as it may hang for real.

#include <cupti.h>

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/fakes/cupti/fake_cuda.h"

// What tests may ask of it, by dlsym.
struct FakeCuptiState {
  bool is_attached = false;  // it hangs in the driver
  bool has_subscriber = false;
  bool has_foreign_clock = false;
  uint64_t enabled_kinds = 0;  // by CUpti_ActivityKind
  uint64_t finalised = 0;
  uint64_t subscriptions = 0;  // asked for, whoever by
  uint64_t buffers_requested = 0;
  uint64_t buffers_refused = 0;  // a client had none
  uint64_t buffers_out = 0;      // given to CUPTI and not back
  uint64_t records = 0;          // written into buffers
  uint64_t dropped = 0;
  uint64_t forced_incomplete = 0;  // handed over without an end
  uint64_t samplings = 0;          // how often PC sampling began
  bool is_sampling = false;
};
extern "C" {
void fake_cupti_read_state(FakeCuptiState* state);
// The next `count` kernels come without times: the device's buffers are full.
void fake_cupti_set_untimed(uint64_t count);
// The next `count` kernels end before they begin.
void fake_cupti_set_reversed(uint64_t count);
// A function by its name fails from now on with CUPTI_ERROR_UNKNOWN; null = none does. Also by
// FAKE_CUPTI_FAIL in the environment.
void fake_cupti_set_failing(const char* function);
}

namespace fake_cupti {

// Every thing an address of a name is given for.
struct FakeName {
  uint32_t id;
  const char* name;
};

// The names in records are CUPTI's own: after the end they are gone, and who reads one crashes.
class Names {
 public:
  const char* keep(const char* name);
  void forget_all();

 private:
  std::map<std::string, const char*> names_;  // each in a page of its own
};

class Activities {
 public:
  CUptiResult register_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                 CUpti_BuffersCallbackCompleteFunc complete);
  CUptiResult enable(CUpti_ActivityKind kind, bool is_on);
  // One function of the API; only what is on as a kind can be switched, once CUDA is up.
  void enable_call(bool is_driver, uint32_t callback_id, bool is_on);
  CUptiResult flush(bool is_forced);
  size_t take_dropped();
  void register_clock(CUpti_TimestampCallbackFunc clock);
  uint64_t read_clock();
  void forget_all();
  bool is_on(CUpti_ActivityKind kind) const { return (kinds_.load() >> kind & 1) != 0; }
  bool is_any_on() const { return kinds_ != 0; }
  bool has_recorded_calls() const { return has_recorded_calls_; }
  bool has_recorded_allocations() const { return has_recorded_allocations_; }

  void on_work(const FakeWork& work);
  void on_exit(const FakeCall& call);

  void read_state(FakeCuptiState& state);
  std::atomic<uint64_t> untimed = 0;
  std::atomic<uint64_t> reversed = 0;

 private:
  Names names_;
  // Correlation ids begin with 1 again after the end (seen on an H100).
  uint32_t ids_before_ = 0;
  struct Pending {
    uint8_t* start;  // the record's two fields, filled in when the work is over
    uint64_t start_ticks;
    uint64_t end_ticks;
    uint64_t end_unix_ns;
  };
  struct Buffer {
    uint8_t* bytes = nullptr;
    size_t size = 0;
    size_t used = 0;
    std::vector<Pending> pending;
  };
  template <typename Record>
  void put(Record& record, uint64_t start_unix_ns, uint64_t end_unix_ns);
  void put_kernel(const FakeWork& work);
  void put_copy(const FakeWork& work);
  void put_memory(const FakeWork& work);
  std::atomic<bool> has_recorded_calls_ = false;
  std::atomic<bool> has_recorded_allocations_ = false;
  uint8_t* reserve(size_t bytes);
  bool finish(Buffer& buffer, bool is_forced);
  void deliver(Buffer& buffer);
  uint64_t to_ticks(uint64_t unix_ns);
  uint64_t to_span_ticks(int64_t span_ns) const;

  std::recursive_mutex lock_;
  bool in_client_ = false;
  std::atomic<uint64_t> kinds_ = 0;
  std::bitset<2048> calls_[2];
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  CUpti_TimestampCallbackFunc clock_ = nullptr;
  uint64_t first_ticks_ = 0;  // of the foreign clock, when it came
  uint64_t first_unix_ns_ = 0;
  double ticks_per_ns_ = 0;
  Buffer current_;
  std::deque<Buffer> full_;
  FakeCuptiState counts_;
};

// Size of a record of this version; 0 = no such kind.
size_t record_bytes(CUpti_ActivityKind kind);
bool is_failing(const char* function);
// PC sampling.
bool is_sampling();
void note_kernel(const FakeWork& work);
void read_sampling(FakeCuptiState& state);
Activities& activities();
void attach();

}  // namespace fake_cupti
