#pragma once

// What is known of the use of time, in plain words: the same in reports and from `gpuperfctl why`.

#include <string>
#include <string_view>
#include <vector>

#include "daemon/view/time_use.h"

namespace gpuperf {

// "host computing".
std::string_view get_cause_text(TimeCause cause);
// "GPU idle: host computing".
std::string describe_cause(TimeCause cause);
// "launch-bound".
std::string_view get_verdict_text(TimeVerdict verdict);

// "launch-bound: the GPU had work for 2.7 % of 5.000 s, and waited for the host for 95.1 %."
std::string summarise_use(const Capture& capture, const ProcessTimeUse& use);

// "Of 32 decode steps (llama_decode), half took at most 12.0 ms."
std::string summarise_steps(const Capture& capture, const StepUse& use);
// "The longest took 31.2 ms, 1.200 s into the capture." Empty where there is one only.
std::string describe_longest(const Capture& capture, const StepUse& use);

// "in cudnnBackendFinalize, on the CPU".
std::string describe_finding(const TimeFinding& finding);
// What else is known: who ended waits, what went before. Empty = nothing.
std::string describe_detail(const Capture& capture, const TimeFinding& finding);
// What to do about it; empty = nothing can be said.
std::string_view advise(TimeReason reason);
// The command that shows more of it.
std::string make_command(const Capture& capture, const ProcessTimeUse& use,
                         const TimeFinding& finding);

// What the capture lacks, and what that does to these figures: a sentence each.
std::vector<std::string> list_time_notes(const Capture& capture);

}  // namespace gpuperf
