#include "daemon/state/step_assembly.h"

#include <algorithm>
#include <utility>

namespace gpuperf {
namespace {

Step make_step(const StepCall& call) {
  const uint64_t end_ns = get_end_ns(call.call);
  return {.process = call.call.process,
          .tid = call.call.tid,
          .function_id = call.call.function_id,
          .start_mono_ns = call.call.start_mono_ns,
          .returned_mono_ns = end_ns,
          .completed_mono_ns = end_ns,
          .threshold_ns = call.threshold_ns};
}

}  // namespace

void StepAssembly::take(const StepCall& call, std::vector<Step>& steps) {
  last_mono_ns_ = std::max(last_mono_ns_, get_end_ns(call.call));
  switch (call.plan.step_role) {
    case StepRole::kNone:
    case StepRole::kOperator:    // StepOperators
    case StepRole::kResultCopy:  // LearnedSteps
    case StepRole::kResultWait:
      return;
    case StepRole::kStep:
    case StepRole::kBackward:
      return begin(call, steps);
    case StepRole::kPart:
      work_.add(call);
      // Of a step whose function is not probed: it is all that is seen of the step.
      if (!call.is_inside_step) begin(call, steps);
      return;
    case StepRole::kWait:
      return take_wait(call, steps);
    case StepRole::kOptimizer:
      return take_optimizer(call, steps);
  }
}

void StepAssembly::begin(const StepCall& call, std::vector<Step>& steps) {
  end(steps);
  Step step = make_step(call);
  // Parts end before their step does. Those from before it are of one that was not seen.
  const bool has_parts = work_.parts() != 0 && work_.first_start_mono_ns() >= step.start_mono_ns;
  const StepWork work = std::exchange(work_, {});
  if (call.plan.step_role == StepRole::kBackward) {
    step.phase = StepPhase::kTrain;
    step.phase_quality = StepQuality::kExact;
  } else {
    describe_by_call(call, step);
    if (has_parts) {
      // A call that fails has worked on less than it was given, or its parts are not what they are
      // taken for.
      const bool is_whole = step.tokens.quality == StepQuality::kUnknown ||
                            work.tokens() == std::optional(step.tokens.value);
      step.phase = StepPhase::kUnknown;
      step.phase_quality = StepQuality::kUnknown;
      if (is_whole) work.describe(step);
      if (!is_whole) step.tokens.quality = StepQuality::kEstimated;
    }
  }
  held_ = step;
}

// The first wait after a step; a later one waits for nothing new.
void StepAssembly::take_wait(const StepCall& call, std::vector<Step>& steps) {
  const bool is_after = held_ && !call.is_inside_step && held_->phase != StepPhase::kOptimizer &&
                        call.call.start_mono_ns >= held_->returned_mono_ns;
  if (!is_after) return;
  held_->completed_mono_ns = get_end_ns(call.call);
  held_->completed_quality = StepQuality::kExact;
  end(steps);
}

void StepAssembly::take_optimizer(const StepCall& call, std::vector<Step>& steps) {
  if (call.is_inside_step) return;  // an operator of another one's
  if (!held_ || held_->phase != StepPhase::kOptimizer) {
    end(steps);
    held_ = make_step(call);
    held_->phase = StepPhase::kOptimizer;
    held_->phase_quality = StepQuality::kExact;
    return;
  }
  held_->calls += 1;
  held_->returned_mono_ns = get_end_ns(call.call);
  held_->completed_mono_ns = held_->returned_mono_ns;
}

void StepAssembly::expire(uint64_t now_mono_ns, std::vector<Step>& steps) {
  if (held_ && held_->returned_mono_ns + kHoldNs <= now_mono_ns) end(steps);
}

void StepAssembly::end(std::vector<Step>& steps) {
  if (held_) steps.push_back(*std::exchange(held_, std::nullopt));
}

}  // namespace gpuperf
