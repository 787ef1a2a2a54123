#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/state/flat_table.h"
#include "daemon/state/session_memory.h"

namespace gpuperf {

// Joins the API calls of one session with the work they caused on the GPU, by correlation id, in
// whichever order the two halves come.
//
// Thread: loop only; times are passed in. Ids wrap, so an entry lives for 60 s at most. Bounds:
// `max_entries` (40 bytes each, twice), and what `account` gives; when full, the oldest half leave.
// A half that leaves alone is counted: kJoin{Launches,Work}{Full,Expired}; calls that launch
// nothing count only while the session sends no others than those that do (`expects_work`). A
// launch's entry leaves with its kernel. The nodes of a graph share their launch's id and come over
// time: the earliest is reported once none has come for kGraphSettleNs. Not here: whether the times
// of the two halves make sense.
class LaunchJoin {
 public:
  static constexpr uint64_t kMaxAgeNs = 60'000'000'000;
  static constexpr uint64_t kGraphSettleNs = 2'000'000'000;
  static constexpr size_t kMaxEntries = size_t{1} << 18;

  struct Api {
    uint32_t correlation_id = 0;
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    bool expects_work = true;
  };
  enum class WorkKind : uint8_t {
    kSingle,   // the only work of its call: a kernel, a whole graph
    kSeveral,  // the call may cause more of it: a copy; of no interest itself
    kNode,     // part of a graph
  };
  struct Work {
    uint32_t correlation_id = 0;
    uint64_t start_ns = 0;
    uint32_t target = 0;  // the caller's, given back
    WorkKind kind = WorkKind::kSingle;
  };
  struct Match {
    uint64_t api_start_ns = 0;
    uint64_t api_end_ns = 0;
    uint64_t work_start_ns = 0;
    uint32_t target = 0;
    bool is_graph_node = false;
    bool operator==(const Match&) const = default;
  };

  // `account`, where there is one, must outlive it.
  explicit LaunchJoin(DropCounters& drops, size_t max_entries = kMaxEntries,
                      SessionMemory::Account* account = nullptr)
      : max_entries_(max_entries), drops_(drops), account_(account) {}

  // Work of kind kSeveral gives no match.
  std::optional<Match> add(const Api& api, int64_t now_mono_ns);
  std::optional<Match> add(const Work& work, int64_t now_mono_ns);

  // Say so some records ahead of `add`: where many wait, looking for one costs most of the time.
  void prefetch(uint32_t correlation_id) const { entries_.prefetch(correlation_id); }

  // Lets old entries go; the graph launches that are settled by now. Looks at most once a second,
  // less often where very many wait.
  std::vector<Match> expire(int64_t now_mono_ns);
  // CUPTI began anew and gives ids again: what began before has nothing to do with what comes.
  void forget_before(uint64_t mono_ns);

  size_t size() const { return entries_.size(); }

 private:
  enum class State : uint8_t { kApi, kApiUsed, kWork, kNodes, kApiAndNodes };
  struct Entry {
    uint64_t api_start_ns = 0;
    uint64_t work_start_ns = 0;
    uint32_t api_duration_ns = 0;  // at most 4.3 s: then a delay after it is 4.3 s too long
    uint32_t touched_ms = 0;       // since some moment; wraps after 49 days, ages are 60 s
    uint32_t target = 0;
    State state = State::kApi;
    bool expects_work = true;
  };

  static uint32_t to_ms(int64_t mono_ns) { return static_cast<uint32_t>(mono_ns / 1'000'000); }
  static Match make_match(const Entry& entry);
  bool find_room(uint32_t now_ms);  // for one more; false = there is none
  void make_room(uint32_t now_ms);
  void count_lost(const Entry& entry, bool is_full);

  // Set once in the constructor.
  const size_t max_entries_;
  DropCounters& drops_;
  SessionMemory::Account* const account_;  // may be null
  // Loop thread only.
  ThreadChecker loop_thread_;
  FlatTable<uint32_t, Entry, 4> entries_;  // calls of a thread get ids in order
  int64_t looked_mono_ns_ = 0;
};

}  // namespace gpuperf
