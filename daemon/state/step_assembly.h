#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/model/argument_plan.h"
#include "daemon/model/event.h"
#include "daemon/model/step.h"

namespace gpuperf {

inline uint64_t get_end_ns(const ReportedCall& call) {
  return call.start_mono_ns + call.duration_ns;
}

// A call with the role of its function.
struct StepCall {
  const ReportedCall& call;
  const ArgumentPlan& plan;
  uint64_t threshold_ns = 0;    // of the function; 0 = none
  bool is_inside_step = false;  // the outermost probed call around it is a step
};

// Sets what the arguments of the step's own call say about tokens, sequences and phase.
void describe_by_call(const StepCall& call, Step& step);

// What the parts of one step work on, added up.
//
// Bounds: tokens are told apart for kMaxSequences sequences; with more, the split is not known.
class StepWork {
 public:
  static constexpr size_t kMaxSequences = 256;  // LLAMA_MAX_SEQ of llama.cpp

  void add(const StepCall& part);
  // Sets tokens, sequences and phase.
  void describe(Step& step) const;

  uint32_t parts() const { return parts_; }
  uint64_t first_start_mono_ns() const { return first_start_mono_ns_; }
  std::optional<uint64_t> tokens() const {
    return is_counted_ ? std::optional(tokens_) : std::nullopt;
  }

 private:
  void add_sequences(const StepCall& part, uint64_t tokens, uint64_t sequences);
  void describe_phase(Step& step) const;

  uint32_t parts_ = 0;
  uint64_t first_start_mono_ns_ = 0;
  bool is_counted_ = true;   // every part said its tokens and sequences
  bool is_split_ = true;     // how many tokens each sequence has is known
  bool is_named_ = true;     // the ids of all sequences are known
  bool has_single_ = false;  // some part had one token of each of its sequences
  bool has_longer_ = false;  // some part had more
  bool starts_with_output_ = false;
  uint64_t tokens_ = 0;
  uint64_t most_sequences_ = 0;
  std::vector<std::pair<int64_t, uint64_t>> sequences_;  // id -> tokens
};

// Makes steps of the calls of one thread, which must come in the order of their ends.
//
// A step is held until it is known when its results were there: until its thread has waited for
// them, has begun the next step, or has done neither for kHoldNs. Calls of an optimizer that follow
// each other become one step.
// Thread: one. Bounds: one step and the work of one more.
class StepAssembly {
 public:
  static constexpr uint64_t kHoldNs = 5'000'000'000;

  // Appends what the call completes to `steps`, without ids.
  void take(const StepCall& call, std::vector<Step>& steps);
  // Likewise, what has been held for kHoldNs.
  void expire(uint64_t now_mono_ns, std::vector<Step>& steps);
  // The thread has ended.
  void end(std::vector<Step>& steps);

  uint64_t last_mono_ns() const { return last_mono_ns_; }

 private:
  void begin(const StepCall& call, std::vector<Step>& steps);
  void take_wait(const StepCall& call, std::vector<Step>& steps);
  void take_optimizer(const StepCall& call, std::vector<Step>& steps);

  std::optional<Step> held_;
  StepWork work_;              // of the step whose call has not returned yet
  uint64_t last_mono_ns_ = 0;  // end of its newest call
};

}  // namespace gpuperf
