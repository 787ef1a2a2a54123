#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/slow/recent_calls.h"
#include "daemon/state/recent_processes.h"

namespace gpuperf {

// Keeps the slow calls worth showing: the worst K of every (function, process), whenever they
// happened, the most recent N (RecentCalls), and those still in flight.
//
// A call reported in flight keeps its id when it returns. One that neither returned nor was seen
// again for kGoneAfter has left otherwise (longjmp, exception, thread's exit) and is kept as gone.
// Thread: loop only. Calls are moved in and never change afterwards; `drops` must outlive it.
// Bounds: at most `recent` + `max_worst_calls` + `max_open` calls; a call in flight beyond the last
// is reported when it returns (kInFlightFull). When a new (function, process) would pass the
// second bound, the list whose last slow call is oldest leaves, counted call by call
// (kSlowListsFull). A list of an exited process leaves once its last call is no longer recent.
// Memory: a call with 64 frames is about 10 KB (512 bytes of addresses, 64 frames of 80 bytes with
// some 60 bytes of text each), so 8,192 + 1,000 calls are 92 MB at worst; stacks of 10 frames, 20
// MB. Not here: deciding what is slow (kernel), symbols (resolve), logging.
class SlowCalls {
 public:
  struct Limits {
    size_t worst_per_function = 16;
    size_t recent = 1000;
    size_t max_worst_calls = 8'192;
    size_t max_open = 1000;
    uint64_t last_id = 0;  // given out before, in the store
  };
  // Two looks may miss a call, and its return may wait in queues.
  static constexpr int64_t kGoneAfterNs = 10'000'000'000;

  SlowCalls(const Limits& limits, DropCounters& drops);
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  // A call in flight was found again. Returns it with its new age and waits, for refresh(). Empty =
  // name and add it: it is new, or has lasted twice as long as when it was last named.
  std::optional<SlowCall> see_in_flight(const SlowCallEvent& event, int64_t now_mono_ns);
  void refresh(SlowCall call);

  struct Kept {
    std::shared_ptr<const SlowCall> call;  // as it is shown; null = no room for one in flight
    bool is_news = true;                   // false = in flight still, and reported before
  };
  // Gives the call its id.
  Kept add(SlowCall call, int64_t now_mono_ns);

  // The calls that have gone, once each, as they are kept now.
  std::vector<std::shared_ptr<const SlowCall>> collect_gone(int64_t now_mono_ns);

  // The call was not stored after all. Returns it as it is kept now.
  std::shared_ptr<const SlowCall> mark_unstored(const std::shared_ptr<const SlowCall>& call);

  // A call may still be added after the exit of its process.
  void apply(const ProcessExited& exited);

  // Sets the slow calls, in order of their ids, each once, and the last id.
  void fill(Snapshot& snapshot) const;

 private:
  using CallPtr = std::shared_ptr<const SlowCall>;
  // A thread's call by function and start: one of a kind for good.
  using OpenKey = std::tuple<ProcessKey, uint32_t, uint32_t, uint64_t>;
  struct OpenCall {
    CallPtr call;
    CallPtr added;              // what `add` made of it; `call` since may have a later age
    uint64_t named_age_ns = 0;  // when its stacks were last named
    int64_t seen_mono_ns = 0;
  };
  using ListKey = std::pair<ProcessKey, uint32_t>;  // process first: its lists stand together
  struct WorstList {
    std::vector<CallPtr> calls;  // heap, the shortest on top
    uint64_t last_kept = 0;      // when its last call was: see kept_
    bool exited = false;
    std::list<ListKey>::iterator arrival;  // in arrivals_
  };
  using WorstLists = std::map<ListKey, WorstList>;

  static OpenKey make_key(const SlowCallEvent& event);
  void keep(const CallPtr& call);
  void keep_worst(const CallPtr& call);
  WorstList& get_list(const ListKey& key);
  WorstLists::iterator erase_list(WorstLists::iterator entry);

  // Set once in the constructor.
  const Limits limits_;
  DropCounters& drops_;
  // Loop thread only.
  uint64_t last_id_ = 0;
  std::map<OpenKey, OpenCall> open_;
  uint64_t kept_ = 0;   // calls that ended so far
  RecentCalls recent_;  // by when, in kept_: not in the order of their ids
  WorstLists worst_;
  std::list<ListKey> arrivals_;  // of worst_, the list with the oldest last arrival first
  size_t worst_calls_ = 0;
  RecentProcesses exited_;
};

}  // namespace gpuperf
