#include "daemon/slow/gpu_during_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "daemon/model/session_names.h"
#include "daemon/view/frame_text.h"
#include "daemon/view/launch_starts.h"
#include "daemon/view/path_weights.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxKernels = 5;
constexpr size_t kMaxOthers = 3;
// A call cannot return before what it waited for has ended, but CUPTI's clock and the probe's
// differ: by 0.15 us on an H200, and by what CUPTI needs to convert the GPU's.
constexpr uint64_t kClockSlackNs = 10'000;

// The union of stretches that come by their begin.
class Union {
 public:
  void add(uint64_t from_ns, uint64_t to_ns) {
    from_ns = std::max(from_ns, end_ns_);
    if (from_ns >= to_ns) return;
    total_ns_ += to_ns - from_ns;
    end_ns_ = to_ns;
  }
  uint64_t total_ns() const { return total_ns_; }

 private:
  uint64_t end_ns_ = 0;
  uint64_t total_ns_ = 0;
};

struct Span {
  uint64_t from_ns = 0;
  uint64_t to_ns = 0;
};

// The part of [from, to) within the call; empty where from_ns >= to_ns.
Span clip(uint64_t from_ns, uint64_t to_ns, const CallInCapture& call) {
  const uint64_t end_ns = call.start_mono_ns + call.duration_ns;
  return {std::clamp(from_ns, call.start_mono_ns, end_ns),
          std::clamp(to_ns, call.start_mono_ns, end_ns)};
}

Span clip(const CaptureWork& work, const CallInCapture& call) {
  return clip(work.start_mono_ns, work.start_mono_ns + work.duration_ns, call);
}

uint64_t measure_union(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::from_ns);
  Union all;
  for (const Span& span : spans) all.add(span.from_ns, span.to_ns);
  return all.total_ns();
}

template <typename Row, typename Time>
void sort_by_time(std::vector<Row>& rows, Time Row::*time, size_t most = SIZE_MAX) {
  std::stable_sort(rows.begin(), rows.end(),
                   [time](const Row& left, const Row& right) { return left.*time > right.*time; });
  if (rows.size() > most) rows.resize(most);
}

// What one launcher launched of one kernel.
struct LauncherTime {
  uint64_t total_ns = 0;
  uint32_t first_launch = kNoIndex;
};
// API function, operation, thread, frame.
using LauncherKey = std::tuple<uint32_t, uint32_t, uint32_t, std::string>;
struct KernelWork {
  GpuKernelTime row;
  std::map<LauncherKey, LauncherTime> launchers;
};

// Reads one capture for all the calls in it.
class CaptureReader {
 public:
  CaptureReader(const Capture& capture, std::span<const OtherGpuWork> others, size_t max_longest)
      : capture_(capture),
        others_(others),
        max_longest_(max_longest),
        is_counted_(find_counted_work(capture)),
        has_work_(capture.launches.size()),
        starts_(capture.launches.size()),
        frames_(capture.stacks.size()) {
    for (const CaptureWork& work : capture.work) {
      if (work.launch < has_work_.size()) has_work_[work.launch] = true;
    }
    for (const LaunchStart& start : list_launch_starts(capture).starts) {
      starts_[start.launch] = start;
    }
  }

  GpuDuringCall read(const CallInCapture& call);

 private:
  void add_busy(const CallInCapture& call, GpuDuringCall& gpu) const;
  GpuCounterWindow average_counters(const GpuUuid& uuid, const CallInCapture& call) const;
  void add_kernels(const CallInCapture& call, GpuDuringCall& gpu);
  void add_copies(const CallInCapture& call, GpuDuringCall& gpu) const;
  void add_others(const CallInCapture& call, GpuDuringCall& gpu) const;
  void add_own(const CallInCapture& call, GpuDuringCall& gpu) const;
  void add_awaited(const CallInCapture& call, GpuDuringCall& gpu);
  void add_longest(const CallInCapture& call, GpuDuringCall& gpu) const;
  GpuWorkSpan make_span(const CaptureWork& work) const;
  void add_missing(const CallInCapture& call, GpuDuringCall& gpu) const;
  bool waits(const CallInCapture& call) const;
  template <typename Row>  // a launch or a wait
  bool is_within(const Row& row, const CallInCapture& call) const;
  const std::string& get_frame(uint32_t stack);
  LauncherKey make_key(const CaptureLaunch& launch);
  GpuLauncher make_launcher(uint32_t launch, const CallInCapture& call);

  const Capture& capture_;
  const std::span<const OtherGpuWork> others_;
  const size_t max_longest_;
  const std::vector<bool> is_counted_;              // by work
  std::vector<bool> has_work_;                      // by launch
  std::vector<LaunchStart> starts_;                 // by launch; of none: launch = kNoIndex
  std::vector<std::optional<std::string>> frames_;  // by stack, once asked for
};

void CaptureReader::add_busy(const CallInCapture& call, GpuDuringCall& gpu) const {
  Union all;
  std::array<Union, 4> kinds;
  std::vector<Union> devices(capture_.devices.size());
  for (size_t i = 0; i < capture_.work.size(); ++i) {
    const CaptureWork& work = capture_.work[i];
    const Span span = clip(work, call);
    all.add(span.from_ns, span.to_ns);
    if (is_counted_[i]) kinds[static_cast<size_t>(work.kind)].add(span.from_ns, span.to_ns);
    const uint32_t device = find_device(capture_, work);
    if (device != kNoIndex) devices[device].add(span.from_ns, span.to_ns);
  }
  gpu.busy_ns = all.total_ns();
  gpu.idle_ns = call.duration_ns - gpu.busy_ns;
  gpu.kernel_ns = kinds[static_cast<size_t>(WorkKind::kKernel)].total_ns();
  gpu.copy_ns = kinds[static_cast<size_t>(WorkKind::kCopy)].total_ns();
  gpu.set_ns = kinds[static_cast<size_t>(WorkKind::kSet)].total_ns();
  gpu.graph_ns = kinds[static_cast<size_t>(WorkKind::kGraph)].total_ns();
  for (size_t i = 0; i < devices.size(); ++i) {
    gpu.devices.push_back({.uuid = format_gpu_uuid(capture_.devices[i].uuid),
                           .number = capture_.devices[i].number,
                           .busy_ns = devices[i].total_ns(),
                           .idle_ns = call.duration_ns - devices[i].total_ns(),
                           .counters = average_counters(capture_.devices[i].uuid, call)});
  }
}

// Over whole windows: all that have a part of the call in them.
GpuCounterWindow CaptureReader::average_counters(const GpuUuid& uuid,
                                                 const CallInCapture& call) const {
  GpuCounterWindow average;
  std::array<double, kGpuCounters> sums{};
  std::array<double, kGpuCounters> weights{};
  for (const GpuCounterRecord& record : capture_.gpu_counters) {
    const GpuCounterWindow& window = record.window;
    const bool overlaps =
        window.overlaps(call.start_mono_ns, call.start_mono_ns + call.duration_ns);
    if (!overlaps || record.uuid != uuid || record.gpu_instance) continue;
    if (average.end_mono_ns == 0) average.start_mono_ns = window.start_mono_ns;
    average.end_mono_ns = window.end_mono_ns;
    const auto weight = static_cast<double>(window.end_mono_ns - window.start_mono_ns);
    for (size_t i = 0; i < kGpuCounters; ++i) {
      if (!window.values[i]) continue;
      sums[i] += static_cast<double>(*window.values[i]) * weight;
      weights[i] += weight;
    }
  }
  for (size_t i = 0; i < kGpuCounters; ++i) {
    if (weights[i] > 0) average.values[i] = static_cast<uint64_t>(sums[i] / weights[i] + 0.5);
  }
  return average;
}

void CaptureReader::add_kernels(const CallInCapture& call, GpuDuringCall& gpu) {
  std::map<std::pair<WorkKind, uint32_t>, KernelWork> kernels;
  for (size_t i = 0; i < capture_.work.size(); ++i) {
    const CaptureWork& work = capture_.work[i];
    const Span span = clip(work, call);
    const bool is_graph = work.kind == WorkKind::kGraph;
    if (span.from_ns >= span.to_ns || !is_counted_[i]) continue;
    if (!is_graph && work.kind != WorkKind::kKernel) continue;
    KernelWork& kernel = kernels[{work.kind, is_graph ? work.graph_id : work.kernel}];
    GpuKernelTime& row = kernel.row;
    if (row.count++ == 0) {
      row.kernel = get_work_name(capture_, work);
      const CaptureKernel* name = is_graph ? nullptr : find_row(capture_.kernels, work.kernel);
      row.short_name = name == nullptr ? row.kernel : name->short_name;
    }
    row.total_ns += span.to_ns - span.from_ns;
    row.longest_ns = std::max(row.longest_ns, work.duration_ns);
    const CaptureLaunch* launch = find_row(capture_.launches, work.launch);
    if (launch == nullptr) continue;
    LauncherTime& launcher = kernel.launchers[make_key(*launch)];
    launcher.total_ns += span.to_ns - span.from_ns;
    launcher.first_launch = std::min(launcher.first_launch, work.launch);
  }
  for (auto& [key, kernel] : kernels) {
    const auto most = std::ranges::max_element(
        kernel.launchers, {}, [](const auto& entry) { return entry.second.total_ns; });
    if (most != kernel.launchers.end()) {
      kernel.row.launcher = make_launcher(most->second.first_launch, call);
      kernel.row.launcher_ns = most->second.total_ns;
    }
    gpu.kernels.push_back(std::move(kernel.row));
  }
  sort_by_time(gpu.kernels, &GpuKernelTime::total_ns);
  for (size_t i = kMaxKernels; i < gpu.kernels.size(); ++i) {
    ++gpu.other_kernels;
    gpu.other_kernels_ns += gpu.kernels[i].total_ns;
  }
  if (gpu.kernels.size() > kMaxKernels) gpu.kernels.resize(kMaxKernels);
}

void CaptureReader::add_copies(const CallInCapture& call, GpuDuringCall& gpu) const {
  std::map<std::string, GpuCopyTime> copies;
  for (const CaptureWork& work : capture_.work) {
    const Span span = clip(work, call);
    const bool is_set = work.kind == WorkKind::kSet;
    if (span.from_ns >= span.to_ns || (!is_set && work.kind != WorkKind::kCopy)) continue;
    const std::string direction(get_copy_direction_name(is_set, work.direction));
    GpuCopyTime& row = copies[direction];
    row.direction = direction;
    row.total_ns += span.to_ns - span.from_ns;
    ++row.count;
    row.bytes += work.bytes;
  }
  for (auto& [direction, row] : copies) gpu.copies.push_back(std::move(row));
  sort_by_time(gpu.copies, &GpuCopyTime::total_ns);
}

void CaptureReader::add_others(const CallInCapture& call, GpuDuringCall& gpu) const {
  std::map<uint32_t, GpuOtherProcess> processes;
  std::vector<Span> all;
  for (size_t i = 0; i < capture_.devices.size(); ++i) {
    std::vector<Span> of_device;
    for (const OtherGpuWork& other : others_) {
      if (other.device_uuid != capture_.devices[i].uuid) continue;
      for (const auto& [from_ns, to_ns] : other.stretches_mono_ns) {
        const Span span = clip(from_ns, to_ns, call);
        if (span.from_ns >= span.to_ns) continue;
        of_device.push_back(span);
        GpuOtherProcess& row = processes[other.pid];
        row.pid = other.pid;
        row.comm = other.comm;
        row.busy_ns += span.to_ns - span.from_ns;
      }
    }
    all.insert(all.end(), of_device.begin(), of_device.end());
    gpu.devices[i].others_ns = measure_union(std::move(of_device));
  }
  gpu.others_ns = measure_union(std::move(all));
  for (auto& [pid, row] : processes) gpu.others.push_back(std::move(row));
  sort_by_time(gpu.others, &GpuOtherProcess::busy_ns, kMaxOthers);
}

// Its middle lies in the call: the clocks of the two differ.
template <typename Row>
bool CaptureReader::is_within(const Row& row, const CallInCapture& call) const {
  const CaptureThread* thread = find_row(capture_.threads, row.thread);
  const uint64_t middle_ns = row.start_mono_ns + row.duration_ns / 2;
  return thread != nullptr && thread->tid == call.tid && middle_ns >= call.start_mono_ns &&
         middle_ns < call.start_mono_ns + call.duration_ns;
}

void CaptureReader::add_own(const CallInCapture& call, GpuDuringCall& gpu) const {
  std::vector<bool> is_own(capture_.launches.size());
  for (size_t i = 0; i < capture_.launches.size(); ++i) {
    const CaptureLaunch& launch = capture_.launches[i];
    if (launch.match == LaunchMatch::kNoCall || !is_within(launch, call)) continue;
    is_own[i] = true;
    ++gpu.own.launches;
    if (!has_work_[i]) ++gpu.own.without_work;
    const LaunchStart& start = starts_[i];
    if (start.launch == kNoIndex) continue;
    gpu.own.stream_wait_ns += start.stream_wait_ns;
    gpu.own.device_wait_ns += start.latency_ns - start.stream_wait_ns;
  }
  for (size_t i = 0; i < capture_.work.size(); ++i) {
    const CaptureWork& work = capture_.work[i];
    if (!is_counted_[i] || work.launch >= is_own.size() || !is_own[work.launch]) continue;
    gpu.own.run_ns += work.duration_ns;
  }
}

bool CaptureReader::waits(const CallInCapture& call) const {
  return call.waits_for_gpu || std::ranges::any_of(capture_.waits, [&](const CaptureWait& wait) {
           return is_within(wait, call);
         });
}

void CaptureReader::add_awaited(const CallInCapture& call, GpuDuringCall& gpu) {
  if (!waits(call)) return;
  const uint64_t return_ns = call.start_mono_ns + call.duration_ns;
  const CaptureWork* last = nullptr;
  uint64_t last_end_ns = call.start_mono_ns;
  for (size_t i = 0; i < capture_.work.size(); ++i) {
    const uint64_t end_ns = capture_.work[i].start_mono_ns + capture_.work[i].duration_ns;
    if (!is_counted_[i] || end_ns <= last_end_ns || end_ns > return_ns + kClockSlackNs) continue;
    last = &capture_.work[i];
    last_end_ns = end_ns;
  }
  if (last == nullptr) return;
  const Span span = clip(*last, call);
  gpu.awaited = {.name = get_work_name(capture_, *last),
                 .total_ns = span.to_ns - span.from_ns,
                 .duration_ns = last->duration_ns,
                 .before_return_ns = return_ns - std::min(return_ns, last_end_ns)};
  const CaptureLaunch* launch = find_row(capture_.launches, last->launch);
  if (launch == nullptr) return;
  gpu.awaited->launcher = make_launcher(last->launch, call);
  if (last->start_mono_ns > launch->start_mono_ns) {
    gpu.awaited->queued_ns = last->start_mono_ns - launch->start_mono_ns;
  }
  const LaunchStart& start = starts_[last->launch];
  if (start.launch != kNoIndex) gpu.awaited->stream_wait_ns = start.stream_wait_ns;
}

void CaptureReader::add_longest(const CallInCapture& call, GpuDuringCall& gpu) const {
  std::vector<std::pair<uint64_t, uint32_t>> pieces;  // time in the call, work
  for (uint32_t i = 0; i < capture_.work.size(); ++i) {
    const Span span = clip(capture_.work[i], call);
    if (is_counted_[i] && span.from_ns < span.to_ns)
      pieces.push_back({span.to_ns - span.from_ns, i});
  }
  gpu.work_count = pieces.size();
  std::ranges::stable_sort(pieces, std::ranges::greater(), &std::pair<uint64_t, uint32_t>::first);
  if (pieces.size() > max_longest_) pieces.resize(max_longest_);
  // The work of a capture stands by its start.
  std::ranges::sort(pieces, {}, &std::pair<uint64_t, uint32_t>::second);
  for (const auto& [ns, work] : pieces) gpu.longest.push_back(make_span(capture_.work[work]));
}

GpuWorkSpan CaptureReader::make_span(const CaptureWork& work) const {
  GpuWorkSpan span{.name = get_work_name(capture_, work),
                   .start_mono_ns = work.start_mono_ns,
                   .duration_ns = work.duration_ns,
                   .stream = UINT32_MAX,
                   .bytes = work.bytes};
  const CaptureKernel* kernel =
      work.kind == WorkKind::kKernel ? find_row(capture_.kernels, work.kernel) : nullptr;
  span.short_name = kernel == nullptr ? span.name : kernel->short_name;
  if (const auto* device = find_row(capture_.devices, find_device(capture_, work))) {
    span.device_uuid = format_gpu_uuid(device->uuid);
    span.device_number = device->number;
  }
  if (const auto* stream = find_row(capture_.streams, work.stream)) span.stream = stream->stream;
  if (const auto* launch = find_row(capture_.launches, work.launch)) {
    span.correlation_id = launch->correlation_id;
  }
  return span;
}

void CaptureReader::add_missing(const CallInCapture& call, GpuDuringCall& gpu) const {
  gpu.missing = call.missing;
  const uint64_t end_ns = call.start_mono_ns + call.duration_ns;
  // What was lost is reported a moment later.
  const uint64_t told_ns = capture_.start_mono_ns + capture_.duration_ns;
  std::map<std::string, uint64_t> lost;
  std::map<std::string, uint64_t> gaps_ns;
  for (const CaptureGap& gap : capture_.gaps) {
    if (gap.count > 0) {
      const bool may_be_in_it =
          gap.start_mono_ns + gap.duration_ns >= call.start_mono_ns && gap.start_mono_ns <= told_ns;
      if (may_be_in_it) lost[gap.cause] += gap.count;
      continue;
    }
    const Span span = clip(gap.start_mono_ns, gap.start_mono_ns + gap.duration_ns, call);
    if (span.from_ns < span.to_ns) gaps_ns[gap.cause] += span.to_ns - span.from_ns;
  }
  for (const auto& [cause, count] : lost) {
    gpu.missing.push_back(fmt::format("{} records lost about then ({})", count, cause));
  }
  for (const auto& [cause, gap_ns] : gaps_ns) {
    gpu.missing.push_back(
        fmt::format("less was collected for {} ms of it ({})", gap_ns / 1'000'000, cause));
  }
  uint64_t without_work = 0;
  for (size_t i = 0; i < capture_.launches.size(); ++i) {
    const CaptureLaunch& launch = capture_.launches[i];
    const CaptureFunction* function = find_row(capture_.functions, launch.function);
    const bool launches_kernels =
        function != nullptr && function->name.find("Launch") != std::string::npos;
    if (has_work_[i] || launch.match == LaunchMatch::kNoCall || !launches_kernels) continue;
    if (launch.start_mono_ns < end_ns) ++without_work;
  }
  if (without_work == 0) return;
  gpu.missing.push_back(fmt::format(
      "{} launch{} of before its end {} no work by a second later: queued, running, or put into a "
      "graph",
      without_work, without_work == 1 ? "" : "es", without_work == 1 ? "has" : "have"));
}

// A line of Python says most, of one's own code before that of packages; then the innermost
// function that has a name.
const std::string& CaptureReader::get_frame(uint32_t stack) {
  static const std::string kNone;
  if (stack >= frames_.size()) return kNone;
  std::optional<std::string>& text = frames_[stack];
  if (text) return *text;
  const StackFrame* python = nullptr;
  const StackFrame* own_python = nullptr;
  const StackFrame* native = nullptr;
  for (const uint32_t index : capture_.stacks[stack].frames) {  // outermost first
    const StackFrame* frame = find_row(capture_.frames, index);
    if (frame == nullptr || frame->symbol.empty()) continue;
    const FrameKind kind = get_frame_kind(*frame);
    if (kind == FrameKind::kPython) {
      python = frame;
      if (!is_of_a_package(*frame)) own_python = frame;
    } else if (kind == FrameKind::kNative) {
      native = frame;
    }
  }
  const StackFrame* telling = own_python != nullptr ? own_python
                              : python != nullptr   ? python
                                                    : native;
  text = telling == nullptr ? "" : make_frame_text(*telling, true);
  return *text;
}

LauncherKey CaptureReader::make_key(const CaptureLaunch& launch) {
  return {launch.function, launch.operation, launch.thread, get_frame(launch.stack)};
}

GpuLauncher CaptureReader::make_launcher(uint32_t launch, const CallInCapture& call) {
  const CaptureLaunch& row = capture_.launches[launch];
  GpuLauncher launcher{.frame = get_frame(row.stack), .start_mono_ns = row.start_mono_ns};
  if (const auto* function = find_row(capture_.functions, row.function)) {
    launcher.function = function->name;
  }
  uint32_t operation = row.operation;
  while (const CaptureOperation* around = find_row(capture_.operations, operation)) {
    const CaptureFunction* function = find_row(capture_.functions, around->function);
    if (function != nullptr && function->category != "cuda") {
      launcher.operation = function->name + make_shape_text(around->shape);
      break;
    }
    // A chain goes up by index only, so it ends.
    operation = around->parent < operation ? around->parent : kNoIndex;
  }
  if (const CaptureThread* thread = find_row(capture_.threads, row.thread)) {
    launcher.tid = thread->tid;
    launcher.comm = thread->comm;
    launcher.is_calling_thread = thread->tid == call.tid;
  }
  return launcher;
}

GpuDuringCall CaptureReader::read(const CallInCapture& call) {
  GpuDuringCall gpu;
  add_busy(call, gpu);
  add_kernels(call, gpu);
  add_copies(call, gpu);
  add_others(call, gpu);
  add_own(call, gpu);
  add_awaited(call, gpu);
  if (max_longest_ > 0) add_longest(call, gpu);
  add_missing(call, gpu);
  return gpu;
}

}  // namespace

std::vector<GpuDuringCall> list_gpu_during_calls(const Capture& capture,
                                                 std::span<const CallInCapture> calls,
                                                 std::span<const OtherGpuWork> others,
                                                 size_t max_longest) {
  CaptureReader reader(capture, others, max_longest);
  std::vector<GpuDuringCall> all;
  all.reserve(calls.size());
  for (const CallInCapture& call : calls) all.push_back(reader.read(call));
  return all;
}

}  // namespace gpuperf
