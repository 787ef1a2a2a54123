#include "daemon/model/step.h"

#include <algorithm>
#include <numeric>

namespace gpuperf {
namespace {

constexpr StepRoleRow kRoles[] = {
    {StepRole::kStep, "step", "Each call is a step."},
    {StepRole::kPart, "step_part",
     "A call inside a step that says what the step works on, such as one micro-batch."},
    {StepRole::kWait, "step_wait",
     "A call that waits for the results of the step before it on its thread."},
    {StepRole::kBackward, "backward", "Each call is a step of phase train."},
    {StepRole::kOptimizer, "optimizer",
     "An operator of an optimizer: calls that follow each other are one step of phase optimizer."},
    {StepRole::kOperator, "operator",
     "ggml_cpu_extra_compute_forward of ggml, which begins each operator of a step: counted at its "
     "entry, never timed by itself."},
    {StepRole::kResultCopy, "result_copy",
     "A copy: of those that copy to the host what the GPU was given to compute, some end steps. "
     "Which, is learned."},
    {StepRole::kResultWait, "result_wait", "A call that waits for such copies."},
};

}  // namespace

std::span<const StepRoleRow> step_role_rows() { return kRoles; }

std::optional<StepRole> find_step_role(std::string_view name) {
  const auto* row = std::ranges::find(kRoles, name, &StepRoleRow::name);
  if (row == std::end(kRoles)) return std::nullopt;
  return row->role;
}

StepRole get_step_role(const FunctionList& functions, uint32_t function_id) {
  if (function_id >= functions.size() || functions[function_id].arguments == nullptr) {
    return StepRole::kNone;
  }
  return functions[function_id].arguments->step_role;
}

std::string_view get_step_phase_name(StepPhase phase) {
  switch (phase) {
    case StepPhase::kUnknown:
      return "unknown";
    case StepPhase::kPrefill:
      return "prefill";
    case StepPhase::kDecode:
      return "decode";
    case StepPhase::kMixed:
      return "mixed";
    case StepPhase::kTrain:
      return "train";
    case StepPhase::kOptimizer:
      return "optimizer";
  }
  return "";
}

std::string_view get_step_quality_name(StepQuality quality) {
  switch (quality) {
    case StepQuality::kUnknown:
      return "unknown";
    case StepQuality::kEstimated:
      return "estimated";
    case StepQuality::kDerived:
      return "derived";
    case StepQuality::kExact:
      return "exact";
  }
  return "";
}

std::string_view get_step_stall_name(StepStall stall) {
  switch (stall) {
    case StepStall::kNone:
      return "";
    case StepStall::kInStep:
      return "in_step";
    case StepStall::kBetweenSteps:
      return "between_steps";
  }
  return "";
}

uint64_t get_token_count(const StepTotals& totals) {
  return std::accumulate(totals.tokens.begin(), totals.tokens.end(), uint64_t{0});
}

void add_step(StepTotals& totals, const Step& step) {
  const uint64_t duration_ns = get_duration_ns(step);
  totals.durations.add(bucket_of(duration_ns), 1);
  totals.total_ns += duration_ns;
  totals.slow += is_slow(step) ? 1 : 0;
  totals.tokens[static_cast<size_t>(step.tokens.quality)] += step.tokens.value;
}

}  // namespace gpuperf
