#include "daemon/rpc/explain_capture.h"

#include <algorithm>
#include <string>

#include "daemon/model/display_text.h"
#include "daemon/model/session_names.h"
#include "daemon/rpc/share.h"
#include "daemon/view/time_use.h"
#include "daemon/view/time_words.h"

namespace gpuperf {
namespace {

constexpr uint32_t kDefaultFindings = 10;  // as the proto says
constexpr uint32_t kMaxFindings = 1000;

bool is_wanted(const CaptureProcess& process, const v1::ExplainCaptureRequest& request) {
  return (request.pid() == 0 || process.process.pid == request.pid()) &&
         (request.container().empty() ||
          process.owner.container.starts_with(request.container())) &&
         (request.pod().empty() || process.owner.pod == request.pod());
}

void fill_parts(const ProcessTimeUse& use, v1::ProcessTime& message) {
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (use.parts_ns[i] == 0) continue;
    v1::TimeShare& part = *message.add_parts();
    part.set_cause(static_cast<v1::TimeCause>(i));
    part.set_time_ns(use.parts_ns[i]);
    part.set_share_ratio(get_share(use.parts_ns[i], use.wall_ns));
    part.set_text(describe_cause(static_cast<TimeCause>(i)));
  }
  std::ranges::stable_sort(*message.mutable_parts(), std::ranges::greater(),
                           &v1::TimeShare::time_ns);
}

void fill_finding(const Capture& capture, const ProcessTimeUse& use, const TimeFinding& finding,
                  v1::TimeFinding& message) {
  message.set_cause(static_cast<v1::TimeCause>(get_cause(finding.reason)));
  message.set_text(to_valid_utf8(describe_finding(finding)));
  message.set_time_ns(finding.time_ns);
  message.set_share_ratio(get_share(finding.time_ns, use.wall_ns));
  message.set_stretches(finding.stretches);
  message.set_longest_ns(finding.longest_ns);
  message.set_estimated_ns(finding.estimated_ns);
  for (const std::string& frame : finding.stack) message.add_stack(to_valid_utf8(frame));
  if (finding.thread < capture.threads.size()) {
    message.set_tid(capture.threads[finding.thread].tid);
    message.set_thread_comm(to_valid_utf8(capture.threads[finding.thread].comm));
  }
  message.set_detail(to_valid_utf8(describe_detail(capture, finding)));
  message.set_advice(std::string(advise(finding.reason)));
  message.set_command(to_valid_utf8(make_command(capture, use, finding)));
}

}  // namespace

v1::ExplainCaptureResponse explain_capture(const Capture& capture,
                                           const v1::ExplainCaptureRequest& request) {
  const uint32_t limit =
      request.limit() == 0 ? kDefaultFindings : std::min(request.limit(), kMaxFindings);
  v1::ExplainCaptureResponse response;
  response.set_duration_ns(capture.duration_ns);
  for (const std::string& note : list_time_notes(capture)) response.add_notes(to_valid_utf8(note));
  for (const ProcessTimeUse& use : explain_time(capture)) {
    const CaptureProcess& process = capture.processes[use.process];
    if (!is_wanted(process, request)) continue;
    v1::ProcessTime& message = *response.add_processes();
    message.set_pid(process.process.pid);
    message.set_comm(to_valid_utf8(process.owner.comm));
    message.set_container(to_valid_utf8(process.owner.container));
    message.set_pod(to_valid_utf8(process.owner.pod));
    if (use.device < capture.devices.size()) {
      message.set_gpu(capture.devices[use.device].number);
      message.set_gpu_uuid(format_gpu_uuid(capture.devices[use.device].uuid));
    }
    message.set_wall_ns(use.wall_ns);
    message.set_verdict(static_cast<v1::TimeVerdict>(use.verdict));
    message.set_verdict_text(std::string(get_verdict_text(use.verdict)));
    message.set_summary(to_valid_utf8(summarise_use(capture, use)));
    fill_parts(use, message);
    for (size_t i = 0; i < std::min<size_t>(limit, use.findings.size()); ++i) {
      fill_finding(capture, use, use.findings[i], *message.add_findings());
    }
  }
  return response;
}

}  // namespace gpuperf
