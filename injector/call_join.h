#pragma once

// Finds for each piece of work that CUPTI has recorded the hooked call that caused it. CUPTI says
// which call by a number that only its own records of calls have (the correlation id); these cost
// every launch, and after them CUPTI cannot be finalized (docs/decisions/0012-cupti.md).
//
// A stream works in order, and each call that gives it work leaves one record. So the calls of a
// stream and its records, from the first launch on, are one sequence that two sides tell: each
// piece of work is of the first call on its stream that none has taken, is of its kind and size
// (grid and block of a kernel, bytes of a copy or memset) and began before it. Where that fails
// (work without a call, two threads' calls of one size on one stream at once, anything lost), the
// order proves nothing any more: the join stops for good, and the collector has CUPTI record the
// calls.
//
// In a process that has just begun, CUPTI records from cuInit on, and calls are logged once a
// daemon has its hooks count, a moment later. Work from before the first call that was logged is
// passed over; where there was some, a stream's first pair is believed only if the work began
// promptly, so that none from before can stand between. After restart() the same holds of work from
// before that.
//
// Thread: injector's. Bounds: kCallsMax calls and kWorksMax pieces of work that wait, kStreamsMax
// streams; a further one breaks the join. Calls leave after kCallPatienceNs, for their work may be
// queued so long.

#include <cstddef>
#include <cstdint>

#include "injector/call_log.h"

namespace gpuperf::injector {

class CallJoin {
 public:
  static constexpr size_t kCallsMax = size_t{1} << 17;
  static constexpr size_t kWorksMax = size_t{1} << 17;
  static constexpr size_t kManyCalls = size_t{1} << 14;
  static constexpr size_t kStreamsMax = 1024;
  static constexpr uint64_t kCallPatienceNs = 60'000'000'000;
  // A call is logged when it ends, and then its work may be over.
  static constexpr uint64_t kSettleNs = 50'000'000;
  static constexpr uint64_t kPromptNs = 200'000;  // from a call's end to its work

  struct Call {
    uint64_t start_unix_ns;
    uint64_t size;
    uint32_t duration_ns;
    uint32_t stream;
    uint32_t tid;
    uint16_t result;
    uint16_t entry;
  };
  struct Work {
    uint64_t start_unix_ns;
    uint64_t end_unix_ns;
    uint64_t size;  // as of the call
    uint32_t correlation_id;
    uint32_t stream;
    CallKind kind;
  };
  class Sink {
   public:
    virtual void take(const Call& call, uint32_t correlation_id) = 0;

   protected:
    ~Sink() = default;
  };

  void add(const Call& call);
  void add(const Work& work);
  // Gives each call that was found with its work's correlation id. After all records of work that
  // has ended were added.
  void join(uint64_t now_unix_ns, Sink& sink);
  // The same of all work: nothing more is to come. Returns how many calls have no work.
  size_t finish(Sink& sink);
  // Something was lost; `why` in words, for good.
  void break_off(const char* why);
  // What was given is forgotten; calls from now on are complete.
  void restart(uint64_t now_unix_ns);
  // So many wait that the next join() takes milliseconds.
  bool is_full() const { return call_count_ >= kManyCalls; }
  bool is_broken() const { return why_broken_ != nullptr; }
  // Null = it is not.
  const char* why_broken() const { return why_broken_; }

 private:
  struct Span {
    size_t first = 0;
    size_t end = 0;
  };
  bool make_room();
  Span find_calls(uint32_t stream) const;
  bool is_begun(uint32_t stream) const;
  bool is_from_before(const Work& work, Span calls) const;
  // These say why it cannot go on; null = it can.
  const char* begin_stream(const Work& work, Span calls);
  const char* join_work(const Work& work, Span& calls, Call& last, Sink& sink);
  const char* join_stream(Span works, uint64_t now_unix_ns, Sink& sink);
  void join_works(uint64_t now_unix_ns, Sink& sink);
  void sweep(uint64_t given_up_unix_ns);

  Call* calls_ = nullptr;  // by stream, then start, once sorted
  Work* works_ = nullptr;  // by stream, then correlation id
  size_t call_count_ = 0;
  size_t work_count_ = 0;
  uint32_t begun_[kStreamsMax] = {};  // streams that had a pair
  size_t begun_count_ = 0;
  uint64_t first_call_unix_ns_ = UINT64_MAX;
  bool had_earlier_work_ = false;  // than the first call
  uint64_t restart_unix_ns_ = 0;   // since then calls are complete; 0 = since the first one
  const char* why_broken_ = nullptr;
};

}  // namespace gpuperf::injector
