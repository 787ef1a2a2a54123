#include "daemon/slow/explain_gpu.h"

#include <spdlog/fmt/fmt.h>

#include "daemon/model/call_role.h"
#include "daemon/slow/explain_text.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxNameBytes = 100;
// The GPU's time is worth a word from there on.
constexpr double kWorthShare = 0.05;

bool is_most(uint64_t part_ns, const SlowCall& call) {
  return part_ns > 0 && 2 * part_ns >= call.event.duration_ns;
}

std::string describe_launcher(const GpuLauncher& launcher) {
  if (launcher.function.empty()) return "";
  std::string text = launcher.is_calling_thread
                         ? ", launched by this thread"
                         : fmt::format(", launched by thread {}{}", launcher.tid,
                                       launcher.comm.empty() ? "" : " (" + launcher.comm + ")");
  if (!launcher.frame.empty()) text += " at " + shorten_explained(launcher.frame, kMaxNameBytes);
  if (!launcher.operation.empty())
    text += " in " + shorten_explained(launcher.operation, kMaxNameBytes);
  return text;
}

// "640 ms of the call in kernel flash_fwd (3 times), launched by thread 71 (python) at forward
// (model.py:88)"
std::string describe_most_work(const GpuDuringCall& gpu) {
  const bool is_copy = !gpu.copies.empty() &&
                       (gpu.kernels.empty() || gpu.copies[0].total_ns > gpu.kernels[0].total_ns);
  if (is_copy) {
    const GpuCopyTime& copy = gpu.copies[0];
    return fmt::format("{} of the call in {}{} ({} time{})", format_explained_time(copy.total_ns),
                       copy.direction == "set" ? "" : "copies ", copy.direction, copy.count,
                       copy.count == 1 ? "" : "s");
  }
  if (gpu.kernels.empty()) return "";
  const GpuKernelTime& kernel = gpu.kernels[0];
  const bool is_graph = kernel.kernel == kernel.short_name && kernel.kernel.starts_with("graph ");
  return fmt::format("{} of the call in {}{} ({} time{}){}", format_explained_time(kernel.total_ns),
                     is_graph ? "" : "kernel ", shorten_explained(kernel.short_name, kMaxNameBytes),
                     kernel.count, kernel.count == 1 ? "" : "s",
                     describe_launcher(kernel.launcher));
}

std::string describe_idle(const SlowCall& call) {
  const double ratio =
      static_cast<double>(call.gpu->idle_ns) / static_cast<double>(call.event.duration_ns);
  if (ratio < kWorthShare) return "";
  return fmt::format(" It was idle for {:.0f} % of the call.", ratio * 100);
}

std::string describe_queue(const SlowCall& call, uint64_t waited_ns) {
  const GpuDuringCall& gpu = *call.gpu;
  const std::string work = describe_most_work(gpu);
  return fmt::format(
      "Waited {}: its work was queued {} behind earlier work on its stream, and ran {}. The GPU "
      "was busy for {}{}. Use a separate stream for it, or launch less before it.",
      format_explained_time(waited_ns), format_explained_time(gpu.own.stream_wait_ns),
      format_explained_time(gpu.own.run_ns), format_explained_time(gpu.busy_ns),
      work.empty() ? "" : ": " + work);
}

std::string describe_others(const SlowCall& call, uint64_t waited_ns) {
  const GpuDuringCall& gpu = *call.gpu;
  std::string text =
      fmt::format("Waited {} for the GPU, which ran other processes' work for {}",
                  format_explained_time(waited_ns), format_explained_time(gpu.others_ns));
  if (!gpu.others.empty()) {
    text +=
        fmt::format(": {} of it for process {} ({})", format_explained_time(gpu.others[0].busy_ns),
                    gpu.others[0].pid, gpu.others[0].comm);
  }
  return text + fmt::format(
                    ", and this one's for {}. See which processes share the GPU (gpuperfctl gpus), "
                    "and give each its own.",
                    format_explained_time(gpu.busy_ns));
}

std::string describe_work(const SlowCall& call, uint64_t waited_ns) {
  const std::string work = describe_most_work(*call.gpu);
  return fmt::format(
      "Waited {} for the GPU{}.{} Make that work shorter, launch less of it before this call, or "
      "wait later.",
      format_explained_time(waited_ns), work.empty() ? "" : ": " + work, describe_idle(call));
}

std::string describe_idle_wait(const SlowCall& call, uint64_t waited_ns) {
  const GpuDuringCall& gpu = *call.gpu;
  const std::string work = describe_most_work(gpu);
  return fmt::format(
      "Waited {}, but the GPU had no work of this process for {} of the call{}. The GPU is not the "
      "bottleneck: look for other threads that launch late (gpuperfctl trace), and for events and "
      "host functions in the stream.",
      format_explained_time(waited_ns), format_explained_time(gpu.idle_ns),
      work.empty() ? "" : ", and was busy for " + format_explained_time(gpu.busy_ns) + ": " + work);
}

}  // namespace

GpuReason find_gpu_reason(const SlowCall& call) {
  if (call.gpu == nullptr || !is_known(*call.gpu)) return GpuReason::kNone;
  const GpuDuringCall& gpu = *call.gpu;
  const CallRole role = find_call_role(call.category, call.function);
  const bool is_copy = role == CallRole::kCopy;
  if (is_copy && is_most(gpu.own.stream_wait_ns, call)) return GpuReason::kQueue;
  const bool waits = role == CallRole::kSync || role == CallRole::kFree || is_copy ||
                     (role == CallRole::kOther && gpu.awaited);
  if (!waits) return GpuReason::kNone;
  if (is_most(gpu.others_ns, call) && !is_most(gpu.busy_ns, call)) return GpuReason::kOthers;
  // A copy's own time is not what it waits for.
  if (is_most(is_copy ? gpu.kernel_ns + gpu.graph_ns : gpu.busy_ns, call)) return GpuReason::kWork;
  if (role != CallRole::kSync || !gpu.missing.empty()) return GpuReason::kNone;
  return is_most(gpu.idle_ns, call) ? GpuReason::kIdle : GpuReason::kNone;
}

std::string describe_gpu_reason(const SlowCall& call, GpuReason reason, uint64_t waited_ns) {
  switch (reason) {
    case GpuReason::kNone:
      return "";
    case GpuReason::kQueue:
      return describe_queue(call, waited_ns);
    case GpuReason::kOthers:
      return describe_others(call, waited_ns);
    case GpuReason::kWork:
      return describe_work(call, waited_ns);
    case GpuReason::kIdle:
      return describe_idle_wait(call, waited_ns);
  }
  return "";  // only reached with a value outside the enum
}

}  // namespace gpuperf
