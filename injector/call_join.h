#pragma once

// Matches each piece of GPU work that CUPTI recorded to the hooked call that launched it. CUPTI
// identifies the call by its correlation id, which only CUPTI's own call records carry. Those
// records add a cost to every launch, and once they have been on, CUPTI cannot be finalized
// (docs/decisions/0012-cupti.md).
//
// A stream executes in order, and each call that gives it work leaves one record. So from the first
// launch on, a stream's calls and its records are the same sequence seen from two sides. Each piece
// of work belongs to the first unmatched call on its stream that has its kind and size (grid and
// block of a kernel, bytes of a copy or memset) and began before it. If that fails (work without a
// call, two threads' calls of one size on one stream at once, anything lost), the order proves
// nothing any more: the join stops for good, and the collector has CUPTI record the calls.
//
// In a new process, CUPTI records from cuInit on, but calls are logged only once a daemon has the
// hooks count, a moment later. Work from before the first logged call is skipped. If there was any,
// a stream's first pair is trusted only if the work began promptly, so that no earlier work can be
// in between. After restart() the same applies to work from before the restart.
//
// Thread: injector's. Bounds: kCallsMax waiting calls, kWorksMax waiting pieces of work,
// kStreamsMax streams; one more breaks the join. Calls expire after kCallPatienceNs, because their
// work may be queued that long.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "injector/call_log.h"

namespace gpuperf::injector {

class CallJoin {
 public:
  static constexpr size_t kCallsMax = size_t{1} << 17;
  static constexpr size_t kWorksMax = size_t{1} << 17;
  static constexpr size_t kManyCalls = size_t{1} << 14;
  static constexpr size_t kStreamsMax = 1024;
  static constexpr uint64_t kCallPatienceNs = 60'000'000'000;
  // A call is logged when it ends; its work may be over by then.
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
    uint64_t size;  // same meaning as in Call
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
  // Passes each matched call to `sink` with the correlation id of its work. Call it after adding
  // all records of work that has ended.
  void join(uint64_t now_unix_ns, Sink& sink);
  // The same for all work: nothing more will come. Calls without work are lost.
  void finish(Sink& sink);
  // Stops the join for good because something was lost; `why` in words.
  void break_off(const char* why);
  // Forgets the calls that wait for their work.
  void drop();
  // How many calls were forgotten without work since the last time this was asked.
  size_t take_lost() { return std::exchange(lost_count_, 0); }
  // Forgets everything added so far; the log of calls is complete from now on.
  void restart(uint64_t now_unix_ns);
  // So many calls wait that the next join() takes milliseconds.
  bool is_full() const { return call_count_ >= kManyCalls; }
  bool is_broken() const { return why_broken_ != nullptr; }
  // Null = not broken.
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
  // These return why the join cannot go on; null = it can.
  const char* begin_stream(const Work& work, Span calls);
  const char* join_work(const Work& work, Span& calls, Call& last, Sink& sink);
  const char* join_stream(Span works, uint64_t now_unix_ns, Sink& sink);
  void join_works(uint64_t now_unix_ns, Sink& sink);
  void sweep(uint64_t given_up_unix_ns);

  Call* calls_ = nullptr;  // by stream, then start, once sorted
  Work* works_ = nullptr;  // by stream, then correlation id
  size_t call_count_ = 0;
  size_t work_count_ = 0;
  uint32_t begun_[kStreamsMax] = {};  // streams that have had a pair
  size_t begun_count_ = 0;
  uint64_t first_call_unix_ns_ = UINT64_MAX;
  bool had_earlier_work_ = false;  // earlier than the first call
  uint64_t restart_unix_ns_ = 0;   // calls are complete since then; 0 = since the first one
  const char* why_broken_ = nullptr;
  size_t lost_count_ = 0;
};

}  // namespace gpuperf::injector
