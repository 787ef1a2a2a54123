#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/stack.h"
#include "daemon/model/trace_event.h"

namespace gpuperf {

// Which launches were captured into which CUDA graphs, and which of these a graph launch replays:
// followed from the begin of a capture over the graph and the executables made of it to their
// launches.
//
// Thread: loop only. Bounds: kMaxLaunches captured launches in all graphs that are alive or open;
// a graph beyond it stays unknown (kTraceTablesFull). What ended without its call being seen
// leaves with its process.
class GraphSites {
 public:
  static constexpr size_t kMaxLaunches = size_t{1} << 21;
  // A launch of a batch, by its index, that replays a graph whose capture is known.
  using Replay = std::pair<size_t, CapturedGraphPtr>;
  // Null = not known.
  using FindSite = std::function<const TraceSite*(uint64_t site_id)>;

  explicit GraphSites(DropCounters& drops) : drops_(drops) {}

  // In the order of the launches. The batch's sites are known to `find_site` already.
  std::vector<Replay> apply(const TraceBatch& batch, const FindSite& find_site);
  void apply(const ProcessExited& exited);

  // Graphs whose capture ended since the last time: their stacks are to be named.
  std::vector<CapturedGraphPtr> take_ended() { return std::exchange(ended_, {}); }
  // One per site of the graph; from now on launches replay it with these.
  void set_stacks(const CapturedGraphPtr& graph, std::span<const StackPtr> stacks);
  // Of open captures and of graphs that anybody holds.
  size_t count_launches() const { return *launches_; }

 private:
  // A capture that has begun. With several at once in one process, a launch is of the one that its
  // own thread began; another thread's could be of any of them.
  struct Open {
    CapturedGraph graph;
    uint64_t stream = 0;
    bool is_certain = true;  // every launch of it was told, and none of another
    std::map<std::tuple<uint64_t, uint32_t, uint32_t>, uint32_t> sites;  // site, function, tid
  };
  struct Process {
    std::vector<Open> open;                                 // newest first
    std::unordered_map<uint64_t, CapturedGraphPtr> graphs;  // by CUgraph
    std::unordered_map<uint64_t, CapturedGraphPtr> execs;   // by CUgraphExec
  };

  Process* find(const ProcessKey& process);
  CapturedGraphPtr find_exec(const TraceLaunch& launch);
  void note_captured(const TraceLaunch& launch, const FindSite& find_site);
  void note_call(const TraceGraphCall& call);
  void begin_capture(Process& process, const TraceGraphCall& call);
  void end_capture(Process& process, const TraceGraphCall& call);
  CapturedGraphPtr keep(CapturedGraph graph);

  ThreadChecker loop_thread_;
  DropCounters& drops_;
  std::map<std::pair<uint32_t, uint64_t>, Process> processes_;  // by pid and start
  std::vector<CapturedGraphPtr> ended_;
  // See count_launches(); graphs that are held elsewhere give theirs back from other threads.
  std::shared_ptr<std::atomic<size_t>> launches_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace gpuperf
