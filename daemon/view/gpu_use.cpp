#include "daemon/view/gpu_use.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "daemon/model/kernel_name.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

constexpr size_t kBusyKinds = static_cast<size_t>(GpuUseKind::kIdle);

GpuUseKind find_kind(const Capture& capture, const CaptureWork& work) {
  switch (work.kind) {
    case WorkKind::kCopy:
    case WorkKind::kSet:
      return GpuUseKind::kCopying;
    case WorkKind::kGraph:
      return GpuUseKind::kComputing;
    case WorkKind::kKernel:
      break;
  }
  const CaptureKernel* kernel = find_row(capture.kernels, work.kernel);
  const bool is_nccl = kernel != nullptr && is_nccl_kernel(kernel->short_name);
  return is_nccl ? GpuUseKind::kCommunicating : GpuUseKind::kComputing;
}

// One piece of work begins or ends.
struct Edge {
  uint64_t at_ns = 0;
  bool begins = false;
  uint32_t work = kNoIndex;
};

class Sweep {
 public:
  Sweep(const Capture& capture, uint64_t begin_ns) : capture_(capture), at_ns_(begin_ns) {}

  void take(const Edge& edge) {
    advance(edge.at_ns);
    std::set<uint32_t>& running =
        running_[static_cast<size_t>(find_kind(capture_, capture_.work[edge.work]))];
    if (edge.begins) {
      end_idle(edge.work);
      running.insert(edge.work);  // by start: the capture's work is
    } else {
      running.erase(edge.work);
    }
  }
  std::vector<GpuStretch> finish(uint64_t end_ns) {
    advance(end_ns);
    return std::move(stretches_);
  }

 private:
  void advance(uint64_t to_ns) {
    if (to_ns <= at_ns_) return;
    GpuStretch stretch{.begin_ns = at_ns_, .end_ns = to_ns};
    for (size_t kind = 0; kind < kBusyKinds; ++kind) {
      if (running_[kind].empty()) continue;
      stretch.kind = static_cast<GpuUseKind>(kind);
      stretch.work = *running_[kind].begin();
      break;
    }
    at_ns_ = to_ns;
    GpuStretch* last = stretches_.empty() ? nullptr : &stretches_.back();
    if (last != nullptr && last->kind == stretch.kind && last->work == stretch.work) {
      last->end_ns = to_ns;
    } else {
      stretches_.push_back(stretch);
    }
  }
  void end_idle(uint32_t work) {
    if (stretches_.empty()) return;
    GpuStretch& last = stretches_.back();
    if (last.kind == GpuUseKind::kIdle && last.work == kNoIndex) last.work = work;
  }

  const Capture& capture_;
  uint64_t at_ns_;
  std::array<std::set<uint32_t>, kBusyKinds> running_;
  std::vector<GpuStretch> stretches_;
};

}  // namespace

std::vector<GpuUse> list_gpu_uses(const Capture& capture) {
  const uint64_t begin_ns = capture.start_mono_ns;
  const uint64_t end_ns = begin_ns + capture.duration_ns;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Edge>> edges;
  for (uint32_t i = 0; i < capture.work.size(); ++i) {
    const CaptureWork& work = capture.work[i];
    const CaptureStream* stream = find_row(capture.streams, work.stream);
    const uint32_t device = find_device(capture, work);
    if (device == kNoIndex || stream->process >= capture.processes.size()) continue;
    const uint64_t from_ns = std::clamp(work.start_mono_ns, begin_ns, end_ns);
    const uint64_t to_ns = std::clamp(work.start_mono_ns + work.duration_ns, begin_ns, end_ns);
    if (from_ns >= to_ns) continue;
    std::vector<Edge>& list = edges[{stream->process, device}];
    list.push_back({from_ns, true, i});
    list.push_back({to_ns, false, i});
  }
  std::vector<GpuUse> uses;
  for (auto& [key, list] : edges) {
    std::ranges::sort(list, {}, [](const Edge& edge) {
      return std::tuple(edge.at_ns, edge.begins, edge.work);  // ends first
    });
    Sweep sweep(capture, begin_ns);
    for (const Edge& edge : list) sweep.take(edge);
    uses.push_back({.process = key.first, .device = key.second, .stretches = sweep.finish(end_ns)});
  }
  return uses;
}

BusyTimes::BusyTimes(const std::vector<GpuUse>& uses) {
  for (const GpuUse& use : uses) {
    for (const GpuStretch& stretch : use.stretches) {
      if (stretch.kind == GpuUseKind::kIdle) continue;
      by_use_[{use.process, use.device}].push_back({stretch.begin_ns, stretch.end_ns});
    }
  }
}

std::optional<TimeSpan> BusyTimes::find_other(uint32_t process, uint32_t device, uint64_t begin_ns,
                                              uint64_t end_ns) const {
  std::optional<TimeSpan> first;
  for (const auto& [key, spans] : by_use_) {
    if (key.first == process || key.second != device) continue;
    const auto at = std::ranges::partition_point(
        spans, [&](const TimeSpan& span) { return span.end_ns <= begin_ns; });
    if (at == spans.end() || at->begin_ns >= end_ns) continue;
    const TimeSpan found{std::max(at->begin_ns, begin_ns), std::min(at->end_ns, end_ns)};
    if (!first || found.begin_ns < first->begin_ns) first = found;
  }
  return first;
}

}  // namespace gpuperf
