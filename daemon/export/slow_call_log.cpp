#include "daemon/export/slow_call_log.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/model/display_text.h"

namespace gpuperf {
namespace {

// The callers nearest the call say who made it; the whole stack is in the API.
constexpr size_t kFramesShown = 5;
// Told apart: of a call in flight nobody knows yet how long it takes, and it comes again once it
// has returned.
constexpr LogEvent kReturned{"slow_call", "eda5299cbeca4ecbb2eaf6bd3b827770"};
constexpr LogEvent kInFlight{"slow_call", "f652278d2251493c876662c8e13a8892"};

// "inner+0x1c <- outer+0x20 <- main+0x8"
std::string join_frames(const std::vector<StackFrame>& stack) {
  std::string joined;
  for (size_t i = 0; i < std::min(kFramesShown, stack.size()); ++i) {
    if (i > 0) joined += " <- ";
    joined += format_frame(stack[i]);
  }
  return joined;
}

}  // namespace

SlowCallLog::SlowCallLog(uint32_t lines_per_second, const Clock& clock, DropCounters& drops,
                         Sink sink)
    : clock_(clock),
      drops_(drops),
      sink_(std::move(sink)),
      lines_per_second_(lines_per_second),
      limiter_(lines_per_second) {}

void SlowCallLog::set_rate(uint32_t lines_per_second) {
  loop_thread_.check();
  lines_per_second_ = lines_per_second;
  limiter_.set_burst(lines_per_second);
}

void SlowCallLog::on_slow_call(const std::shared_ptr<const SlowCall>& call) {
  loop_thread_.check();
  if (lines_per_second_ == 0) return;
  const LogLimiter::Decision decision = limiter_.admit(clock_.mono_ns());
  if (!decision.allowed) {
    drops_.add(DropCause::kLogRateLimited);
    return;
  }
  const SlowCallEvent& event = call->event;
  const bool in_flight = event.in_flight && !call->is_gone;
  sink_(in_flight ? kInFlight : kReturned,
        {{"id", std::to_string(call->id)},
         {"category", call->category},
         {"function", call->function},
         {"duration_ns", std::to_string(event.duration_ns)},
         {"threshold_ns", std::to_string(event.threshold_ns)},
         {"pid", std::to_string(event.process.pid)},
         {"tid", std::to_string(event.tid)},
         {"comm", event.comm},
         {"container", event.owner.container},
         {"pod", event.owner.pod},
         {"namespace", event.owner.pod_namespace},
         {"return_value", format_return_value(*call)},
         {"in_flight", in_flight ? "true" : "false"},
         {"explanation", call->explanation},
         {"stack", join_frames(get_frames(call->user_stack))},
         {"suppressed_count", std::to_string(decision.suppressed_count)}});
}

}  // namespace gpuperf
