#include "daemon/capture/graph_sites.h"

#include <algorithm>
#include <tuple>

namespace gpuperf {

// Its launches count until the last of its users is gone, whichever thread that is on.
CapturedGraphPtr GraphSites::keep(CapturedGraph graph) {
  const auto release = [launches = launches_](const CapturedGraph* kept) {
    *launches -= kept->launches.size();
    delete kept;
  };
  return {new CapturedGraph(std::move(graph)), release};
}

std::vector<GraphSites::Replay> GraphSites::apply(const TraceBatch& batch,
                                                  const FindSite& find_site) {
  loop_thread_.check();
  std::vector<Replay> replays;
  std::vector<const TraceGraphCall*> calls;
  for (const TraceGraphCall& call : batch.graph_calls) calls.push_back(&call);
  std::ranges::stable_sort(calls, {}, &TraceGraphCall::mono_ns);
  std::vector<size_t> launches;
  for (size_t i = 0; i < batch.launches.size(); ++i) {
    const TraceLaunch& launch = batch.launches[i];
    if (launch.is_captured || launch.exec != 0) launches.push_back(i);
  }
  const auto get_time = [&batch](size_t i) { return batch.launches[i].mono_ns; };
  std::ranges::stable_sort(launches, {}, get_time);
  auto call = calls.begin();
  for (const size_t i : launches) {
    while (call != calls.end() && (*call)->mono_ns <= get_time(i)) note_call(**call++);
    const TraceLaunch& launch = batch.launches[i];
    if (launch.is_captured) note_captured(launch, find_site);
    if (auto graph = find_exec(launch)) replays.emplace_back(i, std::move(graph));
  }
  while (call != calls.end()) note_call(**call++);
  std::ranges::sort(replays, {}, &Replay::first);
  return replays;
}

GraphSites::Process* GraphSites::find(const ProcessKey& process) {
  const auto found = processes_.find({process.pid, process.start_boot_ns});
  return found == processes_.end() ? nullptr : &found->second;
}

CapturedGraphPtr GraphSites::find_exec(const TraceLaunch& launch) {
  const Process* process = launch.exec == 0 ? nullptr : find(launch.process);
  if (process == nullptr) return nullptr;
  const auto exec = process->execs.find(launch.exec);
  return exec == process->execs.end() ? nullptr : exec->second;
}

void GraphSites::note_captured(const TraceLaunch& launch, const FindSite& find_site) {
  Process* process = find(launch.process);
  if (process == nullptr) return;
  std::vector<Open>& open = process->open;
  // The newest first: ends of captures may be missed.
  auto own = std::ranges::find(open, launch.tid, [](const Open& one) { return one.graph.tid; });
  if (own == open.end() && open.size() == 1) own = open.begin();
  if (own == open.end()) {
    for (Open& one : open) one.is_certain = false;
    return;
  }
  const TraceSite* site = find_site(launch.site_id);
  const bool is_full = *launches_ >= kMaxLaunches;
  if (site == nullptr || is_full) {
    if (is_full) drops_.add(DropCause::kTraceTablesFull);
    own->is_certain = false;
    return;
  }
  CapturedGraph& graph = own->graph;
  const auto [place, is_new] = own->sites.try_emplace(
      {launch.site_id, launch.function_id, launch.tid}, static_cast<uint32_t>(graph.sites.size()));
  if (is_new) {
    graph.sites.push_back({.site = *site, .function_id = launch.function_id, .tid = launch.tid});
  }
  graph.launches.push_back(place->second);
  ++*launches_;
}

void GraphSites::note_call(const TraceGraphCall& call) {
  Process& process = processes_[{call.process.pid, call.process.start_boot_ns}];
  switch (call.call) {
    case GPUPERF_GRAPH_CAPTURE_BEGAN:
      return begin_capture(process, call);
    case GPUPERF_GRAPH_CAPTURE_ENDED:
      return end_capture(process, call);
    case GPUPERF_GRAPH_INSTANTIATED:
    case GPUPERF_GRAPH_UPDATED: {
      const auto graph = process.graphs.find(call.source);
      process.execs.erase(call.handle);
      if (graph != process.graphs.end()) process.execs.emplace(call.handle, graph->second);
      return;
    }
    case GPUPERF_GRAPH_EXEC_DESTROYED:
      process.execs.erase(call.handle);
      return;
    case GPUPERF_GRAPH_DESTROYED:
      process.graphs.erase(call.handle);
      return;
    case GPUPERF_GRAPH_NONE:
    case GPUPERF_GRAPH_LAUNCHED:
      return;
  }
}

void GraphSites::begin_capture(Process& process, const TraceGraphCall& call) {
  constexpr size_t kMaxOpen = 64;  // of one process; more have not been ended
  std::vector<Open>& open = process.open;
  if (open.size() >= kMaxOpen) {
    *launches_ -= open.back().graph.launches.size();
    open.pop_back();
  }
  open.insert(open.begin(), {.graph = {.process = call.process, .tid = call.tid},
                             .stream = call.handle,
                             .is_certain = call.is_followed});
}

// A stream's capture is ended on that stream, mostly by the thread that began it; the stream that
// each thread has of its own goes by one handle in all of them.
void GraphSites::end_capture(Process& process, const TraceGraphCall& call) {
  process.graphs.erase(call.handle);  // another one that had this handle is gone
  std::vector<Open>& open = process.open;
  auto own = std::ranges::find_if(open, [&call](const Open& one) {
    return one.stream == call.source && one.graph.tid == call.tid;
  });
  if (own == open.end()) own = std::ranges::find(open, call.source, &Open::stream);
  if (own == open.end()) return;
  Open ended = std::move(*own);
  open.erase(own);
  if (call.handle == 0 || !ended.is_certain || ended.graph.launches.empty()) {
    *launches_ -= ended.graph.launches.size();
    return;
  }
  ended.graph.captured_mono_ns = call.mono_ns;
  CapturedGraphPtr graph = keep(std::move(ended.graph));
  process.graphs.emplace(call.handle, graph);
  ended_.push_back(std::move(graph));
}

void GraphSites::apply(const ProcessExited& exited) {
  loop_thread_.check();
  Process* process = find(exited.process);
  if (process == nullptr) return;
  for (const Open& open : process->open) *launches_ -= open.graph.launches.size();
  processes_.erase({exited.process.pid, exited.process.start_boot_ns});
}

void GraphSites::set_stacks(const CapturedGraphPtr& graph, std::span<const StackPtr> stacks) {
  loop_thread_.check();
  Process* process = find(graph->process);
  if (process == nullptr || stacks.size() != graph->sites.size()) return;
  CapturedGraph named = *graph;
  for (size_t i = 0; i < stacks.size(); ++i) named.sites[i].stack = stacks[i];
  *launches_ += named.launches.size();
  const CapturedGraphPtr kept = keep(std::move(named));
  for (auto* known : {&process->graphs, &process->execs}) {
    for (auto& [handle, one] : *known) {
      if (one == graph) one = kept;
    }
  }
}

}  // namespace gpuperf
