#include "daemon/view/pprof.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <map>
#include <utility>
#include <vector>

#include "daemon/model/session_names.h"
#include "daemon/view/call_path.h"
#include "daemon/view/gzip.h"
#include "daemon/view/kernel_samples.h"
#include "daemon/view/pprof_tables.h"
#include "daemon/view/rows.h"
#include "daemon/view/sample_rows.h"
#include "pprof/profile.pb.h"

namespace gpuperf {
namespace {

using perftools::profiles::Profile;
using perftools::profiles::Sample;

class PprofWriter {
 public:
  PprofWriter(const Capture& capture, const ViewOptions& options)
      : capture_(capture),
        options_(with_lines(options)),
        paths_(capture_, options_.path),
        samples_(options.with_stalls ? sum_samples(capture) : std::map<uint32_t, KernelStalls>()),
        tables_(capture_, paths_, profile_) {}

  std::string write() {
    add_header();
    for (const SampleRow& row : list_samples(capture_, options_, paths_)) add_samples(row);
    profile_.AppendToString(&bytes_);
    return to_gzip(bytes_);
  }

 private:
  // By their text with lines, frames are found again.
  static ViewOptions with_lines(ViewOptions options) {
    options.path.with_lines = true;
    return options;
  }

  void set_type(std::string_view name, std::string_view unit,
                perftools::profiles::ValueType& type) {
    type.set_type(tables_.find_text(name));
    type.set_unit(tables_.find_text(unit));
  }

  void add_header() {
    set_type(get_time_name(options_.weight), "nanoseconds", *profile_.add_sample_type());
    const bool is_gpu = options_.weight == ViewWeight::kGpuTime;
    set_type(is_gpu ? "launches" : "calls", "count", *profile_.add_sample_type());
    if (is_gpu) set_type("work", "count", *profile_.add_sample_type());
    profile_.set_default_sample_type(tables_.find_text(get_time_name(options_.weight)));
    set_type(get_time_name(options_.weight), "nanoseconds", *profile_.mutable_period_type());
    profile_.set_period(1);  // every nanosecond is in it: nothing is sampled
    profile_.set_time_nanos(static_cast<int64_t>(capture_.start_unix_ns));
    profile_.set_duration_nanos(static_cast<int64_t>(capture_.duration_ns));
    profile_.add_comment(
        tables_.find_text(fmt::format("gpuperf {}: capture {} {} of {}", capture_.version,
                                      capture_.id, capture_.name, capture_.host)));
  }

  // One for each stall reason, where its kernel was sampled. The first one has its counts.
  void add_samples(SampleRow row) {
    const CaptureWork* work = find_row(capture_.work, row.work);
    const bool is_kernel = work != nullptr && work->kind == WorkKind::kKernel;
    const auto found = is_kernel ? samples_.find(work->kernel) : samples_.end();
    if (found == samples_.end()) return add_sample(row, "");
    for (const StallTime& part : split_by_stall(found->second, row.time_ns)) {
      row.time_ns = part.time_ns;
      add_sample(row, get_stall_name(part.stall).name);
      row.calls = row.pieces = 0;
    }
  }

  void add_sample(const SampleRow& row, std::string_view stall) {
    Sample& sample = sample_;
    sample.Clear();
    if (row.gpu_frame != kNoIndex) sample.add_location_id(tables_.find_location(row.gpu_frame));
    const std::vector<uint32_t>& frames = paths_.get_frames(row.path);
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      sample.add_location_id(tables_.find_location(*frame));
    }
    sample.add_value(static_cast<int64_t>(row.time_ns));
    sample.add_value(static_cast<int64_t>(row.calls));
    if (const CaptureWork* work = find_row(capture_.work, row.work)) {
      sample.add_value(static_cast<int64_t>(row.pieces));
      add_work_labels(*work, sample);
      if (!stall.empty()) tables_.add_text_label("stall", stall, sample);
    }
    add_process_labels(row.process, sample);
    append_sample();
  }

  // Profile.sample with its length; protobuf's fields may come in any order, and a million samples
  // would take ten times the memory as objects.
  void append_sample() {
    constexpr uint8_t kTag = 2 << 3 | 2;
    const size_t size = sample_.ByteSizeLong();
    uint8_t header[1 + 5];
    header[0] = kTag;
    const uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(size), header + 1);
    bytes_.append(reinterpret_cast<const char*>(header), static_cast<size_t>(end - header));
    sample_.AppendToString(&bytes_);
  }

  void add_work_labels(const CaptureWork& work, Sample& sample) {
    const CaptureKernel* kernel = find_row(capture_.kernels, work.kernel);
    if (work.kind == WorkKind::kKernel && kernel != nullptr) {
      tables_.add_text_label("kernel", kernel->name, sample);
    }
    const CaptureStream* stream = find_row(capture_.streams, work.stream);
    if (stream == nullptr) return;
    if (const CaptureDevice* device = find_row(capture_.devices, stream->device)) {
      tables_.add_text_label("device", std::to_string(device->number), sample);
      tables_.add_text_label("gpu_uuid", format_gpu_uuid(device->uuid), sample);
    }
    if (stream->stream != UINT32_MAX) {
      tables_.add_text_label("stream", std::to_string(stream->stream), sample);
    }
  }

  void add_process_labels(uint32_t index, Sample& sample) {
    const CaptureProcess* process = find_row(capture_.processes, index);
    if (process == nullptr) return;
    const Owner& owner = process->owner;
    tables_.add_text_label("process", fmt::format("{} ({})", owner.comm, process->process.pid),
                           sample);
    tables_.add_number_label("pid", process->process.pid, sample);
    tables_.add_text_label("comm", owner.comm, sample);
    tables_.add_text_label("container", owner.container, sample);
    tables_.add_text_label("pod", owner.pod, sample);
  }

  const Capture& capture_;
  const ViewOptions options_;
  Profile profile_;    // without samples
  Sample sample_;      // used again
  std::string bytes_;  // of samples
  PathTable paths_;
  const std::map<uint32_t, KernelStalls> samples_;  // by kernel
  PprofTables tables_;
};

}  // namespace

std::string render_pprof(const Capture& capture, const ViewOptions& options) {
  return PprofWriter(capture, options).write();
}

}  // namespace gpuperf
