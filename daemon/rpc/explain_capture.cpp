#include "daemon/rpc/explain_capture.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "daemon/model/display_text.h"
#include "daemon/model/session_names.h"
#include "daemon/rpc/share.h"
#include "daemon/view/time_use.h"
#include "daemon/view/time_words.h"
#include "daemon/view/view_header.h"

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

using TimeShares = google::protobuf::RepeatedPtrField<v1::TimeShare>;

void fill_parts(const std::array<uint64_t, kTimeCauses>& parts_ns, uint64_t all_ns,
                TimeShares& parts) {
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (parts_ns[i] == 0) continue;
    v1::TimeShare& part = *parts.Add();
    part.set_cause(static_cast<v1::TimeCause>(i));
    part.set_time_ns(parts_ns[i]);
    part.set_share_ratio(get_share(parts_ns[i], all_ns));
    part.set_text(describe_cause(static_cast<TimeCause>(i)));
  }
  std::ranges::stable_sort(parts, std::ranges::greater(), &v1::TimeShare::time_ns);
}

// `all_ns`: what it is a share of.
void fill_finding(const Capture& capture, const ProcessTimeUse& use, const TimeFinding& finding,
                  uint64_t all_ns, v1::TimeFinding& message) {
  message.set_cause(static_cast<v1::TimeCause>(get_cause(finding.reason)));
  message.set_text(to_valid_utf8(describe_finding(finding)));
  message.set_time_ns(finding.time_ns);
  message.set_share_ratio(get_share(finding.time_ns, all_ns));
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

void fill_steps(const Capture& capture, const ProcessTimeUse& use, const StepUse& steps,
                uint32_t limit, v1::StepsTime& message) {
  if (steps.function < capture.functions.size()) {
    message.set_category(to_valid_utf8(capture.functions[steps.function].category));
    message.set_function(to_valid_utf8(capture.functions[steps.function].name));
  }
  message.set_phase(static_cast<v1::StepPhase>(steps.phase));
  message.set_steps(steps.steps);
  message.set_total_ns(steps.total_ns);
  message.set_median_ns(steps.median_ns);
  fill_parts(steps.parts_ns, steps.total_ns, *message.mutable_parts());
  message.set_summary(to_valid_utf8(summarise_steps(capture, steps)));
  message.set_longest_offset_ns(steps.longest_start_mono_ns - capture.start_mono_ns);
  message.set_longest_ns(steps.longest_ns);
  message.set_longest_tokens(steps.longest_tokens);
  message.set_usual_tokens(steps.usual_tokens);
  message.set_longest_summary(describe_longest(capture, steps));
  message.set_asked(steps.is_asked);
  fill_parts(steps.longest_parts_ns, steps.longest_ns, *message.mutable_longest_parts());
  for (size_t i = 0; i < std::min<size_t>(limit, steps.differences.size()); ++i) {
    v1::StepDifference& difference = *message.add_differences();
    fill_finding(capture, use, steps.differences[i].finding, steps.longest_ns,
                 *difference.mutable_finding());
    difference.set_usual_ns(steps.differences[i].usual_ns);
  }
}

// By the clock of the capture; nullopt = it began before that, or none is asked for.
std::optional<uint64_t> get_step_mono_ns(const Capture& capture, uint64_t start_unix_ns) {
  if (start_unix_ns + kStepSlackNs < capture.start_unix_ns) return std::nullopt;
  return capture.start_mono_ns + start_unix_ns - capture.start_unix_ns;
}

Status describe_missing_step(const Capture& capture, uint64_t start_unix_ns) {
  const bool is_before = start_unix_ns < capture.start_unix_ns;
  const uint64_t from_ns = std::min(start_unix_ns, capture.start_unix_ns);
  return absl::NotFoundError(fmt::format(
      "capture {} does not have the step as a whole: the step began {} {} the capture did, which "
      "is {} long; a capture that has it is needed (the flight recorder holds the last seconds)",
      capture.id, format_duration(std::max(start_unix_ns, capture.start_unix_ns) - from_ns),
      is_before ? "before" : "after", format_duration(capture.duration_ns)));
}

}  // namespace

Result<v1::ExplainCaptureResponse> explain_capture(const Capture& capture,
                                                   const v1::ExplainCaptureRequest& request) {
  const uint64_t asked_unix_ns = request.step_start_unix_ns();
  const uint32_t limit =
      request.limit() == 0 ? kDefaultFindings : std::min(request.limit(), kMaxFindings);
  v1::ExplainCaptureResponse response;
  response.set_duration_ns(capture.duration_ns);
  for (const std::string& note : list_time_notes(capture)) response.add_notes(to_valid_utf8(note));
  for (const ProcessTimeUse& use :
       explain_time(capture, get_step_mono_ns(capture, asked_unix_ns))) {
    const CaptureProcess& process = capture.processes[use.process];
    if (!is_wanted(process, request)) continue;
    if (asked_unix_ns != 0 && std::ranges::none_of(use.steps, &StepUse::is_asked)) continue;
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
    fill_parts(use.parts_ns, use.wall_ns, *message.mutable_parts());
    for (size_t i = 0; i < std::min<size_t>(limit, use.findings.size()); ++i) {
      fill_finding(capture, use, use.findings[i], use.wall_ns, *message.add_findings());
    }
    for (const StepUse& steps : use.steps) {
      if (asked_unix_ns != 0 && !steps.is_asked) continue;
      fill_steps(capture, use, steps, limit, *message.add_steps());
    }
  }
  if (asked_unix_ns != 0 && response.processes().empty()) {
    return describe_missing_step(capture, asked_unix_ns);
  }
  return response;
}

}  // namespace gpuperf
