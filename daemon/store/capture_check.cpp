#include <spdlog/fmt/fmt.h>

#include "daemon/store/capture_file.h"

namespace gpuperf {
namespace {

constexpr uint64_t kTimeEndNs = uint64_t{1} << 62;  // sums of a start and a duration do not wrap

// Where the first bad value was found.
//
// Thread: one. Checks go on after a failure and change nothing more.
class Checker {
 public:
  // `index` names one of `size`, or nothing.
  void optional(const char* what, size_t row, uint32_t index, size_t size) {
    if (index != kNoIndex && index >= size) fail(what, row, index, size);
  }
  void required(const char* what, size_t row, uint32_t index, size_t size) {
    if (index >= size) fail(what, row, index, size);
  }
  void time(const char* what, size_t row, uint64_t start_ns, uint64_t duration_ns) {
    if (start_ns < kTimeEndNs && duration_ns < kTimeEndNs) return;
    if (status_.ok()) {
      status_ = absl::InternalError(fmt::format("{} {}: a time that no clock reaches", what, row));
    }
  }
  const Status& status() const { return status_; }

 private:
  void fail(const char* what, size_t row, uint32_t index, size_t size) {
    if (!status_.ok()) return;
    status_ = absl::InternalError(fmt::format("{} of row {}: {} of {}", what, row, index, size));
  }

  Status status_;
};

void check_tables(const Capture& capture, Checker& check) {
  for (size_t i = 0; i < capture.threads.size(); ++i) {
    check.optional("process of a thread", i, capture.threads[i].process, capture.processes.size());
  }
  for (size_t i = 0; i < capture.stacks.size(); ++i) {
    for (const uint32_t frame : capture.stacks[i].frames) {
      check.required("frame of a stack", i, frame, capture.frames.size());
    }
  }
  for (size_t i = 0; i < capture.operations.size(); ++i) {
    // Below its own: the chain ends.
    check.optional("parent of an operation", i, capture.operations[i].parent, i);
    check.optional("function of an operation", i, capture.operations[i].function,
                   capture.functions.size());
  }
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    check.optional("process of a stream", i, capture.streams[i].process, capture.processes.size());
    check.optional("device of a stream", i, capture.streams[i].device, capture.devices.size());
  }
  for (size_t i = 0; i < capture.stalls.size(); ++i) {
    check.optional("process of samples", i, capture.stalls[i].process, capture.processes.size());
    check.optional("kernel of samples", i, capture.stalls[i].kernel, capture.kernels.size());
  }
}

void check_launches(const Capture& capture, const std::vector<CaptureLaunch>& launches,
                    Checker& check) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const CaptureLaunch& launch = launches[i];
    check.time("launch", i, launch.start_mono_ns, launch.duration_ns);
    check.optional("thread of a launch", i, launch.thread, capture.threads.size());
    check.optional("function of a launch", i, launch.function, capture.functions.size());
    check.optional("stack of a launch", i, launch.stack, capture.stacks.size());
    check.optional("operation of a launch", i, launch.operation, capture.operations.size());
  }
}

void check_host_events(const Capture& capture, Checker& check) {
  for (size_t i = 0; i < capture.calls.size(); ++i) {
    const CaptureCall& call = capture.calls[i];
    check.time("call", i, call.start_mono_ns, call.duration_ns);
    check.optional("thread of a call", i, call.thread, capture.threads.size());
    check.optional("function of a call", i, call.function, capture.functions.size());
    check.optional("stack of a call", i, call.stack, capture.stacks.size());
  }
  check_launches(capture, capture.launches, check);
  check_launches(capture, capture.capture_sites, check);
  for (size_t i = 0; i < capture.waits.size(); ++i) {
    const CaptureWait& wait = capture.waits[i];
    check.time("wait", i, wait.start_mono_ns, wait.duration_ns);
    check.optional("thread of a wait", i, wait.thread, capture.threads.size());
    check.optional("stream of a wait", i, wait.stream, capture.streams.size());
  }
  for (size_t i = 0; i < capture.thread_times.size(); ++i) {
    const CaptureThreadTime& time = capture.thread_times[i];
    check.time("time of a thread", i, time.start_mono_ns, time.duration_ns);
    check.optional("thread of a time", i, time.thread, capture.threads.size());
    check.optional("stack of a time", i, time.stack, capture.stacks.size());
  }
  for (size_t i = 0; i < capture.steps.size(); ++i) {
    const CaptureStep& step = capture.steps[i];
    check.time("step", i, step.start_mono_ns, step.duration_ns);
    check.optional("thread of a step", i, step.thread, capture.threads.size());
    check.optional("function of a step", i, step.function, capture.functions.size());
  }
  for (size_t i = 0; i < capture.gaps.size(); ++i) {
    const CaptureGap& gap = capture.gaps[i];
    check.time("gap", i, gap.start_mono_ns, gap.duration_ns);
    check.optional("process of a gap", i, gap.process, capture.processes.size());
  }
}

void check_work(const Capture& capture, Checker& check) {
  for (size_t i = 0; i < capture.work.size(); ++i) {
    const CaptureWork& work = capture.work[i];
    check.time("work", i, work.start_mono_ns, work.duration_ns);
    check.optional("kernel of work", i, work.kernel, capture.kernels.size());
    check.optional("stream of work", i, work.stream, capture.streams.size());
    check.optional("launch of work", i, work.launch, capture.launches.size());
    check.optional("capture site of work", i, work.capture_site, capture.capture_sites.size());
    check.optional("shape of work", i, work.shape, capture.shapes.size());
  }
}

// A negative time is one beyond the end of time, as an unsigned one.
void check_gpu_counters(const Capture& capture, Checker& check) {
  for (size_t i = 0; i < capture.gpu_counters.size(); ++i) {
    const GpuCounterWindow& window = capture.gpu_counters[i].window;
    const auto start_ns = static_cast<uint64_t>(window.start_mono_ns);
    check.time("hardware counters", i, start_ns,
               static_cast<uint64_t>(window.end_mono_ns) - start_ns);
  }
}

}  // namespace

Status check_capture(const Capture& capture) {
  Checker check;
  check.time("capture", 0, capture.start_mono_ns, capture.duration_ns);
  check_tables(capture, check);
  check_host_events(capture, check);
  check_work(capture, check);
  check_gpu_counters(capture, check);
  return check.status();
}

}  // namespace gpuperf
