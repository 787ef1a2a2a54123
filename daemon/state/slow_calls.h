#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/state/recent_processes.h"

namespace gpuperf {

// Keeps the slow calls worth showing: the worst K of every (function, process), whenever they
// happened, and the most recent N.
//
// Thread: loop only. Calls are moved in and never change afterwards; `drops` must outlive it.
// Bounds: at most `recent` + `max_worst_calls` calls. When a new (function, process) would pass the
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
  };

  SlowCalls(const Limits& limits, DropCounters& drops);
  SlowCalls(const SlowCalls&) = delete;
  SlowCalls& operator=(const SlowCalls&) = delete;

  // Gives the call the next id when it has none (0); ids given by the caller must rise. Returns the
  // call as it is kept and shown.
  std::shared_ptr<const SlowCall> add(SlowCall call);

  // A call may still be added after the exit of its process.
  void apply(const ProcessExited& exited);

  // Sets the slow calls, in order of their ids, each once.
  void fill(Snapshot& snapshot) const;

 private:
  using CallPtr = std::shared_ptr<const SlowCall>;
  using ListKey = std::pair<ProcessKey, uint32_t>;  // process first: its lists stand together
  struct WorstList {
    std::vector<CallPtr> calls;  // heap, the shortest on top
    uint64_t last_id = 0;
    bool exited = false;
    std::list<ListKey>::iterator arrival;  // in arrivals_
  };
  using WorstLists = std::map<ListKey, WorstList>;

  void keep_worst(const CallPtr& call);
  void drop_oldest_recent();
  WorstList& get_list(const ListKey& key);
  WorstLists::iterator erase_list(WorstLists::iterator entry);

  // Set once in the constructor.
  const Limits limits_;
  DropCounters& drops_;
  // Loop thread only.
  uint64_t last_id_ = 0;
  std::deque<CallPtr> recent_;  // oldest first
  WorstLists worst_;
  std::list<ListKey> arrivals_;  // of worst_, the list with the oldest last arrival first
  size_t worst_calls_ = 0;
  RecentProcesses exited_;
};

}  // namespace gpuperf
