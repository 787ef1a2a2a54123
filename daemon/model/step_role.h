#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gpuperf {

// What calls of a function say about the steps of their process: its setting `role`.
enum class StepRole : uint8_t {
  kNone,
  kStep,
  kPart,
  kWait,
  kBackward,
  kOptimizer,
  kOperator,    // of inference, within a step
  kResultCopy,  // LearnedSteps: copies to the host
  kResultWait,  // and waits for them
};

struct StepRoleRow {
  StepRole role;
  std::string_view name;  // in the configuration
  std::string_view help;
};

// All but kNone.
std::span<const StepRoleRow> step_role_rows();
std::optional<StepRole> find_step_role(std::string_view name);

constexpr bool is_learned_from(StepRole role) {
  return role == StepRole::kResultCopy || role == StepRole::kResultWait;
}

// Whether a call of it is within a step for as long as it runs.
constexpr bool is_step(StepRole role) {
  return role == StepRole::kStep || role == StepRole::kBackward || role == StepRole::kOptimizer;
}

}  // namespace gpuperf
