#include "daemon/view/timeline.h"

#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "daemon/model/session_names.h"
#include "daemon/view/rows.h"
#include "daemon/view/trace_counters.h"

namespace gpuperf {
namespace {

// Above every pid and tid of Linux (PID_MAX_LIMIT, 2^22).
constexpr uint32_t kFirstMadePid = 5'000'000;
// Unlike those, too: a thread with the id of its process is taken for its main thread.
constexpr uint32_t kFirstMadeTid = 6'000'000;

class IdMaker {
 public:
  explicit IdMaker(uint32_t first_made) : next_(first_made) {}

  // `wanted` if nobody has it, else a new one.
  uint32_t take(uint32_t wanted) {
    return wanted != 0 && taken_.insert(wanted).second ? wanted : make();
  }
  uint32_t make() {
    while (!taken_.insert(next_).second) ++next_;
    return next_;
  }

 private:
  absl::flat_hash_set<uint32_t> taken_;
  uint32_t next_;
};

bool is_graph(const Capture& capture, const TraceSlice& slice) {
  return slice.kind == SliceKind::kWork && capture.work[slice.index].kind == WorkKind::kGraph;
}

uint64_t end_of(const TraceSlice& slice) { return slice.start_mono_ns + slice.duration_ns; }

// The slices that are open at a time, outermost first.
class OpenSlices {
 public:
  void close_until(uint64_t mono_ns) {
    while (!open_.empty() && end_of(open_.back()) <= mono_ns) open_.pop_back();
  }
  const TraceSlice* innermost() const { return open_.empty() ? nullptr : &open_.back(); }
  void open(const TraceSlice& slice) { open_.push_back(slice); }

 private:
  std::vector<TraceSlice> open_;
};

void sort_outer_first(std::vector<TraceSlice>& slices) {
  std::sort(slices.begin(), slices.end(), [](const TraceSlice& left, const TraceSlice& right) {
    return std::tuple(left.start_mono_ns, right.duration_ns, left.kind, left.index) <
           std::tuple(right.start_mono_ns, left.duration_ns, right.kind, right.index);
  });
}

// One track; what reaches out of the slice around it is cut.
void nest(std::vector<TraceSlice>& slices) {
  sort_outer_first(slices);
  OpenSlices open;
  for (TraceSlice& slice : slices) {
    open.close_until(slice.start_mono_ns);
    const TraceSlice* outer = open.innermost();
    if (outer != nullptr && end_of(slice) > end_of(*outer)) {
      slice.duration_ns = end_of(*outer) - slice.start_mono_ns;
      slice.is_cut = true;
    }
    open.open(slice);
  }
}

// As many tracks as it takes for nothing to overlap; the nodes of a graph lie within it.
std::vector<std::vector<TraceSlice>> spread(const Capture& capture,
                                            std::vector<TraceSlice> slices) {
  sort_outer_first(slices);
  std::vector<OpenSlices> open;
  std::vector<std::vector<TraceSlice>> lanes;
  for (const TraceSlice& slice : slices) {
    size_t lane = 0;
    for (; lane < open.size(); ++lane) {
      open[lane].close_until(slice.start_mono_ns);
      const TraceSlice* outer = open[lane].innermost();
      if (outer == nullptr) break;
      if (is_graph(capture, *outer) && end_of(*outer) >= end_of(slice)) break;
    }
    if (lane == open.size()) {
      open.emplace_back();
      lanes.emplace_back();
      if (lane == 0) lanes[0].reserve(slices.size());
    }
    open[lane].open(slice);
    lanes[lane].push_back(slice);
  }
  return lanes;
}

class TimelineMaker {
 public:
  explicit TimelineMaker(const Capture& capture) : capture_(capture) {}

  Timeline make() {
    add_groups();
    add_threads();
    add_steps();
    add_streams();
    add_gaps();
    add_lone_waits();
    timeline_.start_mono_ns = capture_.start_mono_ns;
    for (const TraceTrack& track : timeline_.tracks) {
      if (track.slices.empty()) continue;
      timeline_.start_mono_ns =
          std::min(timeline_.start_mono_ns, track.slices.front().start_mono_ns);
    }
    timeline_.counters = make_counters(capture_, timeline_);
    return std::move(timeline_);
  }

 private:
  void add_groups() {
    for (const CaptureProcess& process : capture_.processes) {
      timeline_.groups.push_back({fmt::format("{} ({})", process.owner.comm, process.process.pid),
                                  ids_.take(process.process.pid), kNoIndex});
    }
    for (uint32_t i = 0; i < capture_.devices.size(); ++i) {
      const CaptureDevice& device = capture_.devices[i];
      timeline_.groups.push_back(
          {fmt::format("GPU {} {}", device.number, format_gpu_uuid(device.uuid)), ids_.make(), i,
           device.uuid});
    }
    std::set<GpuUuid> known;
    for (const CaptureDevice& device : capture_.devices) known.insert(device.uuid);
    for (const GpuCounterRecord& record : capture_.gpu_counters) {
      if (!known.insert(record.uuid).second) continue;
      timeline_.groups.push_back(
          {fmt::format("GPU {} {}", record.gpu, format_gpu_uuid(record.uuid)), ids_.make(),
           kNoIndex, record.uuid});
    }
  }

  uint32_t group_of_process(uint32_t process) {
    return process < capture_.processes.size() ? process : unknown_group();
  }
  uint32_t group_of_device(uint32_t device) {
    if (device >= capture_.devices.size()) return unknown_group();
    return static_cast<uint32_t>(capture_.processes.size()) + device;
  }
  // For what belongs to nothing known; made when it is needed.
  uint32_t unknown_group() {
    if (unknown_group_ == kNoIndex) {
      unknown_group_ = static_cast<uint32_t>(timeline_.groups.size());
      timeline_.groups.push_back({"unknown", ids_.make(), kNoIndex});
    }
    return unknown_group_;
  }

  template <typename Row>
  void collect(const std::vector<Row>& rows, SliceKind kind,
               std::vector<std::vector<TraceSlice>>& slices) {
    for (uint32_t i = 0; i < rows.size(); ++i) {
      const bool is_known = rows[i].thread < capture_.threads.size();
      if (!is_known && kind == SliceKind::kWait) continue;  // add_lone_waits()
      slices[is_known ? rows[i].thread : capture_.threads.size()].push_back(
          {rows[i].start_mono_ns, rows[i].duration_ns, i, kind, false});
    }
  }

  // Vectors that grow leave twice their size behind.
  void reserve(std::vector<std::vector<TraceSlice>>& slices) {
    std::vector<size_t> counts(slices.size());
    const auto count = [&](const auto& rows) {
      for (const auto& row : rows) ++counts[std::min<size_t>(row.thread, counts.size() - 1)];
    };
    count(capture_.calls);
    count(capture_.launches);
    count(capture_.waits);
    for (size_t i = 0; i < slices.size(); ++i) slices[i].reserve(counts[i]);
  }

  void add_threads() {
    std::vector<std::vector<TraceSlice>> slices(capture_.threads.size() + 1);
    reserve(slices);
    collect(capture_.calls, SliceKind::kCall, slices);
    collect(capture_.launches, SliceKind::kLaunch, slices);
    collect(capture_.waits, SliceKind::kWait, slices);
    std::vector<uint32_t> thread_ids;
    for (const CaptureThread& thread : capture_.threads) {
      thread_ids.push_back(track_ids_.take(thread.tid));
    }
    for (uint32_t i = 0; i < capture_.threads.size(); ++i) {
      const CaptureThread& thread = capture_.threads[i];
      nest(slices[i]);
      timeline_.tracks.push_back({fmt::format("{} ({})", thread.comm, thread.tid),
                                  group_of_process(thread.process), thread_ids[i], true,
                                  std::move(slices[i])});
    }
    if (slices.back().empty()) return;
    add_lanes("unknown threads", unknown_group(), std::move(slices.back()));
  }

  void add_lanes(const std::string& name, uint32_t group, std::vector<TraceSlice> slices) {
    size_t number = 0;
    for (std::vector<TraceSlice>& lane : spread(capture_, std::move(slices))) {
      timeline_.tracks.push_back({number == 0 ? name : fmt::format("{} +{}", name, number), group,
                                  track_ids_.make(), false, std::move(lane)});
      ++number;
    }
  }

  // They end after their call does: not among its thread's calls.
  void add_steps() {
    std::vector<std::vector<TraceSlice>> slices(capture_.threads.size() + 1);
    collect(capture_.steps, SliceKind::kStep, slices);
    for (uint32_t i = 0; i < capture_.threads.size(); ++i) {
      const CaptureThread& thread = capture_.threads[i];
      add_lanes(fmt::format("steps of {} ({})", thread.comm, thread.tid),
                group_of_process(thread.process), std::move(slices[i]));
    }
    if (slices.back().empty()) return;
    add_lanes("steps of unknown threads", unknown_group(), std::move(slices.back()));
  }

  void add_streams() {
    std::vector<std::vector<TraceSlice>> slices(capture_.streams.size() + 1);
    for (uint32_t i = 0; i < capture_.work.size(); ++i) {
      const CaptureWork& work = capture_.work[i];
      slices[std::min<size_t>(work.stream, capture_.streams.size())].push_back(
          {work.start_mono_ns, work.duration_ns, i, SliceKind::kWork, false});
    }
    for (uint32_t i = 0; i < capture_.streams.size(); ++i) {
      add_lanes(make_stream_name(capture_, i), group_of_device(capture_.streams[i].device),
                std::move(slices[i]));
    }
    if (slices.back().empty()) return;
    add_lanes("unknown streams", unknown_group(), std::move(slices.back()));
  }

  // Rows of `kind` by the group that `find_group` says.
  template <typename FindGroup>
  void add_by_group(const std::string& name, std::vector<TraceSlice> slices, FindGroup find_group) {
    std::vector<std::vector<TraceSlice>> by_group;
    for (const TraceSlice& slice : slices) {
      const uint32_t group = find_group(slice.index);
      if (by_group.size() <= group) by_group.resize(group + 1);
      by_group[group].push_back(slice);
    }
    for (uint32_t i = 0; i < by_group.size(); ++i) add_lanes(name, i, std::move(by_group[i]));
  }

  void add_gaps() {
    std::vector<TraceSlice> slices;
    for (uint32_t i = 0; i < capture_.gaps.size(); ++i) {
      const CaptureGap& gap = capture_.gaps[i];
      slices.push_back({gap.start_mono_ns, gap.duration_ns, i, SliceKind::kGap, false});
    }
    add_by_group("missing records", std::move(slices),
                 [&](uint32_t i) { return group_of_process(capture_.gaps[i].process); });
  }

  void add_lone_waits() {
    std::vector<TraceSlice> slices;
    for (uint32_t i = 0; i < capture_.waits.size(); ++i) {
      const CaptureWait& wait = capture_.waits[i];
      if (wait.thread < capture_.threads.size()) continue;
      slices.push_back({wait.start_mono_ns, wait.duration_ns, i, SliceKind::kWait, false});
    }
    add_by_group("waits of unknown threads", std::move(slices), [&](uint32_t i) {
      const CaptureStream* stream = find_row(capture_.streams, capture_.waits[i].stream);
      return group_of_process(stream == nullptr ? kNoIndex : stream->process);
    });
  }

  const Capture& capture_;
  IdMaker ids_{kFirstMadePid};
  IdMaker track_ids_{kFirstMadeTid};
  uint32_t unknown_group_ = kNoIndex;
  Timeline timeline_;
};

std::string make_function_name(const Capture& capture, uint32_t function) {
  const CaptureFunction* found = find_row(capture.functions, function);
  return found == nullptr || found->name.empty() ? "unknown call" : found->name;
}

std::string make_step_name(const CaptureStep& step) {
  std::string name(get_step_phase_name(step.phase));
  if (step.phase == StepPhase::kUnknown) name = "step";
  if (step.tokens.quality == StepQuality::kUnknown) return name;
  return fmt::format("{}, {} token{}", name, step.tokens.value, step.tokens.value == 1 ? "" : "s");
}

}  // namespace

Timeline make_timeline(const Capture& capture) { return TimelineMaker(capture).make(); }

bool has_flow(const Capture& capture, const CaptureWork& work) {
  const CaptureLaunch* launch = find_row(capture.launches, work.launch);
  return launch != nullptr && launch->start_mono_ns <= work.start_mono_ns;
}

std::string make_slice_name(const Capture& capture, const TraceSlice& slice) {
  switch (slice.kind) {
    case SliceKind::kCall:
      return make_function_name(capture, capture.calls[slice.index].function);
    case SliceKind::kLaunch:
      return make_function_name(capture, capture.launches[slice.index].function);
    case SliceKind::kWait:
      return fmt::format("wait for {}", get_sync_type_name(capture.waits[slice.index].type));
    case SliceKind::kWork: {
      const CaptureWork& work = capture.work[slice.index];
      const CaptureKernel* kernel = find_row(capture.kernels, work.kernel);
      if (work.kind == WorkKind::kKernel && kernel != nullptr && !kernel->short_name.empty()) {
        return kernel->short_name;
      }
      return get_work_name(capture, work);
    }
    case SliceKind::kStep:
      return make_step_name(capture.steps[slice.index]);
    case SliceKind::kGap:
      return "missing: " + capture.gaps[slice.index].cause;
  }
  return "unknown";
}

}  // namespace gpuperf
