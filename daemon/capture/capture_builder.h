#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/capture/launch_match.h"
#include "daemon/model/capture.h"
#include "daemon/model/function.h"
#include "daemon/model/kernel_stalls.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/trace_event.h"

namespace gpuperf {

// What a capture is to hold, and what it is called.
struct CaptureScope {
  uint64_t id = 0;
  std::string name;
  std::string trigger;
  uint64_t start_mono_ns = 0;
  uint64_t end_mono_ns = 0;
  uint64_t start_unix_ns = 0;
  bool all_processes = true;
  std::vector<ProcessKey> processes;  // where not all
  bool cpu = true;
  bool gpu = true;
  // Work and waits that began before the window and ended in it, too; and launches of kernels and
  // graphs from before its end whose work did not come.
  bool with_overlap = false;
  uint64_t lost_events = 0;  // there was no room for
  uint64_t lost_hits = 0;    // of all processes, while it ran
};

// What is known of things that events only number.
struct CaptureNames {
  std::function<Owner(const ProcessKey&)> get_owner;
  std::function<std::string(uint32_t pid, uint32_t tid)> read_thread_comm;  // empty = not known
  const FunctionList* functions = nullptr;
  std::string host;
  std::string version;
};

// Makes a capture of a window of the recorder: joins launches with calls and work, and gives all of
// it names but the stacks, which are named in between.
//
// Thread: any, one at a time; the window and the names must outlive it. Memory: some 120 bytes an
// event beside the capture itself.
class CaptureBuilder {
 public:
  struct StackKey {
    ProcessKey process;
    uint64_t stack_id = 0;
    StackPtr known;  // not null = it has its names already
  };

  CaptureBuilder(const TraceWindow& window, const CaptureScope& scope, const CaptureNames& names);

  // The stacks to be named, in the order that finish() wants them in.
  const std::vector<StackKey>& stacks() const { return stack_keys_; }
  // Null = could not be had.
  Capture finish(std::span<const StackPtr> stacks);

 private:
  struct Work {
    CaptureWork row;
    uint32_t correlation_id = 0;
    bool has_no_node = false;  // its node had no room in the event
  };
  // A launch of a graph whose capture is known.
  struct Replay {
    uint32_t launch = kNoIndex;  // of the capture
    uint32_t captured = 0;       // of captured_
  };
  // A piece of work that is a node of such a graph.
  struct Node {
    uint32_t captured = 0;
    uint32_t graph_id = 0;
    uint32_t launch = kNoIndex;
    uint32_t node_id = 0;
    uint32_t work = kNoIndex;
  };
  struct Wait {
    CaptureWait row;
    uint32_t correlation_id = 0;
  };
  struct FunctionFacts {
    uint32_t function = kNoIndex;  // of the capture
    uint32_t plain_name = kNoIndex;
    bool may_launch = false;
    bool launches_kernels = false;
  };
  // Of one process, while it is read.
  struct Process {
    std::vector<LaunchHit> hits;
    std::vector<LaunchCall> calls;
    std::vector<Work> work;
    std::vector<Wait> waits;
    std::vector<Replay> replays;
    std::vector<uint32_t> other_work;  // correlation ids of work outside of the window
    MatchOptions options;
  };
  // Indices of one epoch's tables in the capture's.
  struct Epoch {
    const TraceTables* tables = nullptr;
    std::vector<uint32_t> processes;
    std::vector<uint32_t> streams;
    std::vector<uint32_t> shapes;
    std::vector<uint32_t> kernels;
    std::vector<uint32_t> captured;
  };

  void read(const TraceWindow::Part& part);
  void read(const TraceEvent& event, Epoch& epoch, uint32_t process_index);
  void read_call(const TraceEvent& event, const Epoch& epoch, uint32_t process_index);
  void read_thread_time(const TraceEvent& event, const Epoch& epoch, uint32_t process_index);
  void read_work(const TraceEvent& event, Epoch& epoch, uint32_t process_index);
  void read_step(const TraceEvent& event, uint32_t process_index);
  void read_gap(const TraceEvent& event, uint32_t process_index);
  void read_stall(const TraceEvent& event, Epoch& epoch, uint32_t process_index);
  void read_gpu_counters();
  bool is_in_window(const TraceEvent& event) const;
  bool overlaps_window(const TraceEvent& event) const;
  bool is_without_work(const LaunchCall& call, const std::vector<uint32_t>& with_work);

  void join(uint32_t process_index);
  void add_launches(uint32_t process_index, const LaunchMatches& matches);
  void add_lone_hits(uint32_t process_index, const LaunchMatches& matches);
  void add_work(uint32_t process_index);
  void set_site(CaptureLaunch& launch, uint32_t process_index, uint64_t site_id);
  void place_nodes(uint32_t process_index);
  std::vector<Node> list_nodes(uint32_t process_index);
  std::vector<uint32_t> find_node_ids(const CapturedGraph& graph, std::span<const Node> exec);
  bool is_replay_of(const CapturedGraph& graph, std::span<const Node> nodes);
  uint32_t get_capture_site(uint32_t process_index, uint32_t captured, uint32_t site);

  uint32_t get_process(Epoch& epoch, uint32_t index);
  uint32_t get_stream(Epoch& epoch, uint32_t index, uint32_t process_index);
  uint32_t get_shape(Epoch& epoch, uint32_t index);
  uint32_t get_kernel(Epoch& epoch, uint32_t index);
  uint32_t get_captured(Epoch& epoch, uint32_t index);
  uint32_t get_thread(uint32_t process_index, uint32_t tid);
  uint32_t get_function(const std::string& category, const std::string& name);
  const FunctionFacts& get_probed(uint32_t function_id);
  const FunctionFacts& get_api(bool is_driver, uint32_t callback_id);
  uint32_t get_plain_name(std::string_view name);
  std::string_view get_plain_text(uint32_t plain_name) const;
  uint32_t get_stack(uint32_t process_index, uint64_t stack_id, const StackPtr& known = nullptr);
  uint32_t get_operation(const TraceSite& site);
  void keep_stacks(std::span<const StackPtr> stacks);
  void sort_by_start();

  // Set once in the constructor.
  const TraceWindow& window_;
  const CaptureScope& scope_;
  const CaptureNames& names_;
  // Filled step by step.
  Capture capture_;
  std::vector<Process> processes_;  // by the capture's index
  std::vector<StackKey> stack_keys_;
  std::map<const TraceTables*, Epoch> epochs_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> threads_;
  std::map<std::pair<std::string, std::string>, uint32_t> functions_;
  std::unordered_map<uint32_t, FunctionFacts> probed_functions_;
  std::unordered_map<uint64_t, FunctionFacts> apis_;
  std::map<std::string, uint32_t, std::less<>> plain_names_;
  std::unordered_map<uint64_t, uint32_t> stacks_;
  std::vector<CapturedGraphPtr> captured_ = {nullptr};
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> capture_sites_;  // by captured_ and its site
  std::unordered_map<uint64_t, uint32_t> operations_;                // by site
  std::map<std::string_view, uint32_t> kernels_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, StallCount> stalls_;  // as CaptureStall
};

}  // namespace gpuperf
