#include <algorithm>
#include <string_view>

#include "daemon/state/step_assembly.h"

namespace gpuperf {
namespace {

// The value of the plan's field of this name; empty where there is none, or it could not be read.
std::optional<int64_t> find_value(const StepCall& call, std::string_view name) {
  if (!call.call.values) return std::nullopt;
  const auto& fields = call.plan.fields;
  const auto field = std::ranges::find(fields, name, &ArgumentField::name);
  if (field == fields.end() || field->capture.blob != 0) return std::nullopt;
  const auto index = static_cast<size_t>(field - fields.begin());
  if (index >= GPUPERF_VALUES || ((call.call.values->unread >> index) & 1) != 0)
    return std::nullopt;
  return get_number(*field, call.call.values->values[index]);
}

std::optional<uint64_t> find_count(const StepCall& call, std::string_view name) {
  const auto value = find_value(call, name);
  if (!value || *value < 0) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

// Of the fields that hold the ids of the first sequences of a part.
constexpr std::string_view kSequenceIds[] = {"sequence_0", "sequence_1", "sequence_2",
                                             "sequence_3", "sequence_4", "sequence_5"};

}  // namespace

void StepWork::add(const StepCall& part) {
  if (parts_++ == 0) first_start_mono_ns_ = part.call.start_mono_ns;
  const auto tokens = find_count(part, "tokens");
  const auto sequences = find_count(part, "sequences");
  if (!tokens || !sequences || *sequences == 0 || *sequences > *tokens) {
    is_counted_ = false;
    return;
  }
  if (parts_ == 1) starts_with_output_ = find_value(part, "first_output").value_or(0) != 0;
  tokens_ += *tokens;
  most_sequences_ = std::max(most_sequences_, *sequences);
  add_sequences(part, *tokens, *sequences);
}

// The tokens of a part are spread evenly, or not known by sequence but where each has one or one
// has all.
void StepWork::add_sequences(const StepCall& part, uint64_t tokens, uint64_t sequences) {
  const uint64_t each = find_count(part, "sequence_tokens").value_or(0);
  const bool is_even = tokens == sequences || sequences == 1 || each * sequences == tokens;
  if (!is_even) is_split_ = false;
  (tokens == sequences ? has_single_ : has_longer_) = true;
  if (sequences > std::size(kSequenceIds)) is_named_ = false;
  for (size_t i = 0; i < std::min<size_t>(sequences, std::size(kSequenceIds)); ++i) {
    const auto id = find_value(part, kSequenceIds[i]);
    auto known =
        std::ranges::find(sequences_, id.value_or(-1), &std::pair<int64_t, uint64_t>::first);
    const bool is_new = known == sequences_.end();
    if (!id || (is_new && sequences_.size() >= kMaxSequences)) {
      is_named_ = false;
      return;
    }
    if (is_new) known = sequences_.insert(known, {*id, 0});
    known->second += is_even ? tokens / sequences : 0;
  }
}

void StepWork::describe(Step& step) const {
  if (!is_counted_ || parts_ == 0) return;
  step.tokens = {tokens_, StepQuality::kExact};
  if (parts_ == 1) {
    step.sequences = {most_sequences_, StepQuality::kExact};
  } else if (is_named_) {
    step.sequences = {sequences_.size(), StepQuality::kExact};
  } else {
    step.sequences = {most_sequences_, StepQuality::kEstimated};  // at least
  }
  describe_phase(step);
}

void StepWork::describe_phase(Step& step) const {
  if (!is_split_) {
    // One of several sequences may have a single token. Then it wants that token's output, and
    // servers put it first.
    step.phase = starts_with_output_ ? StepPhase::kMixed : StepPhase::kPrefill;
    step.phase_quality = StepQuality::kDerived;
    return;
  }
  bool has_single = has_single_;
  bool has_longer = has_longer_;
  step.phase_quality = StepQuality::kExact;
  if (parts_ > 1 && is_named_) {
    const auto is_single = [](const auto& sequence) { return sequence.second == 1; };
    has_single = std::ranges::any_of(sequences_, is_single);
    has_longer = !std::ranges::all_of(sequences_, is_single);
  } else if (parts_ > 1) {
    step.phase_quality = StepQuality::kEstimated;
  }
  step.phase = !has_longer  ? StepPhase::kDecode
               : has_single ? StepPhase::kMixed
                            : StepPhase::kPrefill;
}

void describe_by_call(const StepCall& call, Step& step) {
  const auto tokens = find_count(call, "tokens");
  const auto sequences = find_count(call, "sequences");
  if (tokens) step.tokens = {*tokens, StepQuality::kExact};
  if (sequences) step.sequences = {*sequences, StepQuality::kExact};
  if (!tokens || *tokens == 0) return;
  if (*tokens == 1 || (sequences && *sequences == *tokens)) {
    step.phase = StepPhase::kDecode;
    step.phase_quality = StepQuality::kDerived;
  } else if (sequences && *sequences == 1) {
    step.phase = StepPhase::kPrefill;
    step.phase_quality = StepQuality::kDerived;
  } else if (sequences && *sequences > 1) {
    step.phase = StepPhase::kMixed;  // or several prompts at once
    step.phase_quality = StepQuality::kEstimated;
  }
}

}  // namespace gpuperf
