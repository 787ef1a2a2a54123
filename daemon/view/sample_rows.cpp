#include "daemon/view/sample_rows.h"

#include <array>
#include <utility>

#include "daemon/view/call_nesting.h"
#include "daemon/view/frame_text.h"
#include "daemon/view/path_weights.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

class SampleRows {
 public:
  // `place`: the stream or the process that tells samples of one path apart.
  SampleRow& find(uint32_t path, uint32_t gpu_frame, uint32_t place) {
    const std::array<uint32_t, 3> key{path, gpu_frame, place};
    const auto [found, is_new] = index_.try_emplace(key, rows_.size());
    if (is_new) rows_.push_back({.path = path, .gpu_frame = gpu_frame});
    return rows_[found->second];
  }
  std::vector<SampleRow> take() { return std::move(rows_); }

 private:
  std::vector<SampleRow> rows_;
  absl::flat_hash_map<std::array<uint32_t, 3>, size_t> index_;
};

std::vector<SampleRow> weigh_gpu_time(const Capture& capture, const ViewOptions& options,
                                      PathTable& table) {
  SampleRows rows;
  const std::vector<bool> is_counted = find_counted_work(capture);
  std::vector<bool> has_work(capture.launches.size());
  for (uint32_t i = 0; i < capture.work.size(); ++i) {
    if (!is_counted[i]) continue;
    const CaptureWork& work = capture.work[i];
    const CaptureLaunch* launch = find_row(capture.launches, work.launch);
    const CaptureLaunch* site = launch;
    if (options.by_capture_site && work.capture_site < capture.capture_sites.size()) {
      site = &capture.capture_sites[work.capture_site];
    }
    const uint32_t path =
        site == nullptr ? table.find_path_without_launch(work) : table.find_path(*site);
    SampleRow& row = rows.find(path, table.find_gpu_frame(work), work.stream);
    if (row.pieces == 0) {
      row.work = i;
      const CaptureStream* stream = find_row(capture.streams, work.stream);
      row.process = stream == nullptr ? kNoIndex : stream->process;
    }
    row.time_ns += work.duration_ns;
    ++row.pieces;
    if (launch == nullptr || has_work[work.launch]) continue;
    has_work[work.launch] = true;
    ++row.calls;
  }
  return rows.take();
}

std::vector<SampleRow> weigh_host_time(const Capture& capture, ViewWeight weight,
                                       PathTable& table) {
  SampleRows rows;
  for (const NestedCall& call : nest_calls(capture, table)) {
    const uint64_t time_ns = get_self_ns(call, weight);
    if (time_ns == 0) continue;
    const uint32_t thread = call.call == kNoIndex ? capture.launches[call.launch].thread
                                                  : capture.calls[call.call].thread;
    const CaptureThread* thread_row = find_row(capture.threads, thread);
    const uint32_t process = thread_row == nullptr ? kNoIndex : thread_row->process;
    SampleRow& row = rows.find(call.path, kNoIndex, process);
    row.process = process;
    row.time_ns += time_ns;
    ++row.calls;
  }
  return rows.take();
}

}  // namespace

std::vector<SampleRow> list_samples(const Capture& capture, const ViewOptions& options,
                                    PathTable& table) {
  return options.weight == ViewWeight::kGpuTime ? weigh_gpu_time(capture, options, table)
                                                : weigh_host_time(capture, options.weight, table);
}

std::string_view get_time_name(ViewWeight weight) {
  switch (weight) {
    case ViewWeight::kGpuTime:
      return "gpu_time";
    case ViewWeight::kCpuTime:
      return "cpu_time";
    case ViewWeight::kOffCpuTime:
      return "off_cpu_time";
    case ViewWeight::kIdleTime:
      return "idle_time";
  }
  return "gpu_time";
}

SourceFrames::SourceFrames(const Capture& capture) {
  for (const StackFrame& frame : capture.frames) {
    frames_.emplace(make_frame_text(frame, true), &frame);
  }
}

const StackFrame* SourceFrames::find(const std::string& text) const {
  const auto found = frames_.find(text);
  return found == frames_.end() ? nullptr : found->second;
}

std::string get_function_name(const StackFrame& frame) {
  return frame.symbol.empty() ? make_frame_text(frame, false) : frame.symbol;
}

}  // namespace gpuperf
