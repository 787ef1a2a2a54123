#include "daemon/model/capture.h"

#include "daemon/model/session_names.h"

namespace gpuperf {

std::string_view get_launch_match_name(LaunchMatch match) {
  switch (match) {
    case LaunchMatch::kExact:
      return "exact";
    case LaunchMatch::kAmbiguous:
      return "ambiguous";
    case LaunchMatch::kNoHit:
      return "no_hit";
    case LaunchMatch::kNoCall:
      return "no_call";
  }
  return "unknown";
}

std::string_view get_host_state_name(HostState state) {
  switch (state) {
    case HostState::kOnCpuUser:
      return "user";
    case HostState::kOnCpuSyscall:
      return "system_call";
    case HostState::kOnCpuFault:
      return "page_fault";
    case HostState::kRunnable:
      return "runnable";
    case HostState::kThrottled:
      return "throttled";
    default:
      return get_wait_kind_name(get_wait_kind(state));
  }
}

std::string_view get_work_kind_name(WorkKind kind) {
  switch (kind) {
    case WorkKind::kKernel:
      return "kernel";
    case WorkKind::kCopy:
      return "copy";
    case WorkKind::kSet:
      return "set";
    case WorkKind::kGraph:
      return "graph";
  }
  return "unknown";
}

std::string get_work_name(const Capture& capture, const CaptureWork& work) {
  switch (work.kind) {
    case WorkKind::kKernel:
      return work.kernel < capture.kernels.size() ? capture.kernels[work.kernel].name : "kernel";
    case WorkKind::kCopy:
      return "copy " + std::string(get_copy_direction_name(false, work.direction));
    case WorkKind::kSet:
      return "set";
    case WorkKind::kGraph:
      return "graph " + std::to_string(work.graph_id);
  }
  return "unknown";
}

std::string get_short_work_name(const Capture& capture, const CaptureWork& work) {
  const bool is_kernel = work.kind == WorkKind::kKernel && work.kernel < capture.kernels.size();
  return is_kernel ? capture.kernels[work.kernel].short_name : get_work_name(capture, work);
}

}  // namespace gpuperf
