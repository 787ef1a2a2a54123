#pragma once

// Steps: the turns of an inference or training loop, as calls of functions with a role show them
// (docs/steps.md).

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "daemon/model/function.h"
#include "daemon/model/histogram.h"
#include "daemon/model/step_role.h"

namespace gpuperf {

enum class StepPhase : uint8_t { kUnknown, kPrefill, kDecode, kMixed, kTrain, kOptimizer };
inline constexpr size_t kStepPhases = 6;

// How a value is known: not at all; a lower bound or a guess; from other exact values by a rule; as
// the process itself has it.
enum class StepQuality : uint8_t { kUnknown, kEstimated, kDerived, kExact };
inline constexpr size_t kStepQualities = 4;

std::string_view get_step_phase_name(StepPhase phase);
std::string_view get_step_quality_name(StepQuality quality);

struct StepNumber {
  uint64_t value = 0;
  StepQuality quality = StepQuality::kUnknown;
  bool operator==(const StepNumber&) const = default;
};

struct Step {
  uint64_t id = 0;  // 1 and up, in the order in which steps are complete
  ProcessKey process;
  uint32_t tid = 0;
  uint32_t function_id = 0;  // whose call it is; of an optimizer the first
  uint32_t calls = 1;        // of an optimizer: operators; of others 1
  uint64_t start_mono_ns = 0;
  uint64_t returned_mono_ns = 0;   // the call
  uint64_t completed_mono_ns = 0;  // its thread had the results; at least `returned_mono_ns`
  // kExact: the thread waited for the results. kDerived: it did not, so this is the call's return;
  // work of a GPU may have gone on.
  StepQuality completed_quality = StepQuality::kDerived;
  StepPhase phase = StepPhase::kUnknown;
  StepQuality phase_quality = StepQuality::kUnknown;
  StepNumber tokens;
  StepNumber sequences;
  uint64_t threshold_ns = 0;  // a step that takes at least this long is slow; 0 = none
  bool is_learned = false;    // no function said that this is a step: LearnedSteps
  uint64_t site = 0;          // then: id of the stack its results are read at; 0 = none was taken
  bool operator==(const Step&) const = default;
};
inline uint64_t get_duration_ns(const Step& step) {
  return step.completed_mono_ns - step.start_mono_ns;
}
inline bool is_slow(const Step& step) {
  return step.threshold_ns != 0 && get_duration_ns(step) >= step.threshold_ns;
}

// Steps of one phase.
struct StepTotals {
  Histogram durations;
  uint64_t total_ns = 0;
  uint64_t slow = 0;
  std::array<uint64_t, kStepQualities> tokens{};  // by how they are known
  bool operator==(const StepTotals&) const = default;
};
uint64_t get_token_count(const StepTotals& totals);
void add_step(StepTotals& totals, const Step& step);

// Where a process hangs that had steps.
enum class StepStall : uint8_t { kNone, kInStep, kBetweenSteps };
inline constexpr size_t kStepStalls = 3;
std::string_view get_step_stall_name(StepStall stall);  // of kNone empty

// The steps of one process.
struct StepProcess {
  ProcessKey process;
  bool exited = false;
  uint32_t function_id = 0;  // of its newest step
  std::array<StepTotals, kStepPhases> phases;
  Histogram periods;        // from the start of a step to that of the next
  std::deque<Step> recent;  // the newest, oldest first
  std::deque<Step> slow;    // the newest slow ones, oldest first
  uint64_t last_start_mono_ns = 0;
  StepStall stall = StepStall::kNone;
  uint64_t stalled_mono_ns = 0;  // since when; 0 = it does not hang
  uint64_t stalls = 0;           // so far
};

// kNone where it has none.
StepRole get_step_role(const FunctionList& functions, uint32_t function_id);

// Steps of one function and phase over all processes, living and gone. Only grows.
struct StepSeries {
  uint32_t function_id = 0;
  StepPhase phase = StepPhase::kUnknown;
  StepTotals totals;
};

struct StepReport {
  std::vector<std::shared_ptr<const StepProcess>> processes;  // ordered by key
  std::vector<StepSeries> series;
  std::array<uint64_t, kStepStalls> stalls{};   // so far, by where
  std::array<uint64_t, kStepStalls> stalled{};  // processes that hang now, by where
};

}  // namespace gpuperf
