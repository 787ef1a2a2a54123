#pragma once

// Tracks what other CUPTI clients in this process have begun and not ended, from their calls.
//
// Thread: under the collector's lock.

#include <cstdint>

#include "injector/cupti_records.h"

namespace gpuperf::injector {

// What another client's call means for us.
enum class ForeignCall {
  kRegister,  // registers buffers: ours would be lost, theirs filled with our records
  kEnable,    // a record kind
  kDisable,
  kEnableRuntimeCall,  // one API function, by its callback id
  kEnableDriverCall,
  kDisableRuntimeCall,
  kDisableDriverCall,
  kProfileBegin,  // counters and samples, incompatible with tracing
  kProfileEnd,
  kFinalize,
  kClock,
  kSubscribe,  // harmless
  kUse,        // harmless, of a client that is recording
};

// A set of callback ids.
class CallSet {
 public:
  void set(uint32_t id, bool is_in) {
    if (id >= CallClasses::kCountMax || has(id) == is_in) return;
    words_[id / 64] ^= uint64_t{1} << id % 64;
    count_ = is_in ? count_ + 1 : count_ - 1;
  }
  void clear() { *this = {}; }
  bool is_empty() const { return count_ == 0; }

 private:
  bool has(uint32_t id) const { return (words_[id / 64] >> id % 64 & 1) != 0; }

  uint64_t words_[CallClasses::kCountMax / 64] = {};
  uint32_t count_ = 0;
};

class ForeignClients {
 public:
  // Notes a call before it takes effect. True: we must have released CUPTI by then.
  bool note(ForeignCall call, uint32_t kind, uint64_t now_ms);
  // All that other clients began has ended, some time ago.
  bool are_done(uint64_t now_ms) const;
  // There may be a client that nobody saw begin, which may still record: are_done() awaits its
  // calls.
  void suspect(uint64_t now_ms) {
    has_been_ = true;
    last_ms_ = now_ms;
  }
  // CUPTI may hold another client's state: a subscriber, a clock.
  bool has_been() const { return has_been_; }

 private:
  bool has_been_ = false;
  uint64_t kinds_ = 0;  // by CUpti_ActivityKind
  CallSet calls_[2];    // runtime, driver
  uint32_t profiles_ = 0;
  uint64_t last_ms_ = 0;
};

}  // namespace gpuperf::injector
