#include "daemon/state/learned_steps.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "daemon/model/argument_plan.h"
#include "daemon/state/step_assembly.h"

namespace gpuperf {
namespace {

// What was learned long ago counts less and less.
constexpr uint64_t kTurnsMax = 1'024;
constexpr double kRecentTurns = 32;
// A turn that is part of the next step ends so long before it at most, or within its own length.
constexpr uint64_t kPauseNs = 1'000'000;
// Ids of tokens are 8 bytes in PyTorch, 4 in engines that save them.
constexpr uint64_t kTokenIdBytes[] = {8, 4};
constexpr uint64_t kMaxSequences = 65'536;

uint64_t get_bytes(const ReportedCall& copy, const ArgumentPlan& plan) {
  if (!copy.values) return 0;
  uint64_t bytes = plan.rules.element_bytes[0];
  for (const uint8_t factor : plan.rules.byte_factors) {
    if (factor != 0) bytes *= copy.values->values[factor - 1U];
  }
  return bytes;
}

// Waits for one copy. The others wait for all of a stream or of the device.
bool is_event_wait(const Function& function) {
  return function.symbol.find("Event") != std::string::npos;
}

}  // namespace

void LearnedSteps::take_copy(const ReportedCall& copy, const Function& function,
                             std::vector<Step>& steps) {
  if (unawaited_.size() == kMaxUnawaited) {
    complete(unawaited_.front().step.returned_mono_ns, StepQuality::kDerived, steps);
  }
  if (threads_.size() >= kMaxThreads && !threads_.contains(copy.tid)) {
    threads_.erase(std::ranges::min_element(
        threads_, {}, [](const auto& entry) { return entry.second.results_mono_ns; }));
  }
  unawaited_.push_back({.step = {.process = copy.process,
                                 .tid = copy.tid,
                                 .function_id = copy.function_id,
                                 .start_mono_ns = copy.turn.start_mono_ns,
                                 .returned_mono_ns = get_end_ns(copy),
                                 .completed_mono_ns = get_end_ns(copy),
                                 .is_learned = true,
                                 .site = copy.stack_id},
                        .bytes = get_bytes(copy, *function.arguments),
                        .product_rows = copy.turn.product_rows,
                        .graphs = copy.turn.graphs});
}

void LearnedSteps::take_wait(const ReportedCall& wait, const Function& function,
                             std::vector<Step>& steps) {
  const auto is_after = [&wait](const Turn& turn) {
    return turn.step.returned_mono_ns <= wait.start_mono_ns;
  };
  while (!unawaited_.empty() && is_after(unawaited_.front())) {
    complete(get_end_ns(wait), StepQuality::kExact, steps);
    if (is_event_wait(function)) return;
  }
}

void LearnedSteps::expire(uint64_t now_mono_ns, std::vector<Step>& steps) {
  while (!unawaited_.empty() && unawaited_.front().step.returned_mono_ns + kHoldNs <= now_mono_ns) {
    complete(unawaited_.front().step.returned_mono_ns, StepQuality::kDerived, steps);
  }
}

void LearnedSteps::end(std::vector<Step>& steps) { expire(UINT64_MAX, steps); }

// The oldest copy's turn: its results are there.
void LearnedSteps::complete(uint64_t end_mono_ns, StepQuality quality, std::vector<Step>& steps) {
  Turn turn = unawaited_.front();
  unawaited_.pop_front();
  Thread& thread = threads_[turn.step.tid];
  const uint64_t before_ns = std::exchange(thread.results_mono_ns, end_mono_ns);
  if (turn.step.start_mono_ns == 0) turn.step.start_mono_ns = before_ns;
  turn.step.completed_mono_ns = end_mono_ns;
  turn.step.completed_quality = quality;
  // Of the first turn of a thread whose launches no probe sees the beginning is not known.
  const bool is_first = !std::exchange(has_started_, true);
  if (is_first || turn.step.start_mono_ns == 0 || turn.step.start_mono_ns > end_mono_ns) return;
  learn(turn);
  if (!has_learned_) {
    held_.push_back(turn);
    has_learned_ = held_.size() == kTurnsToLearn;
    if (!has_learned_) return;
    for (const Turn& held : std::exchange(held_, {})) decide(held, steps);
    return;
  }
  decide(turn, steps);
}

void LearnedSteps::learn(const Turn& turn) {
  if (sites_.size() >= kMaxSites && !sites_.contains(turn.step.site)) {
    sites_.erase(std::ranges::min_element(
        sites_, {}, [](const auto& entry) { return entry.second.get_time_ns(); }));
  }
  Site& site = sites_[turn.step.site];
  site.lengths_ns[site.turns % site.lengths_ns.size()] = get_duration_ns(turn.step);
  site.turns += 1;
  Thread& thread = threads_[turn.step.tid];
  if (std::exchange(thread.site, turn.step.site) == turn.step.site) site.repeats += 1;
  site.divisor_bytes = std::gcd(site.divisor_bytes, turn.bytes);
  graph_turns_ += ((turn.graphs == 0 ? 0 : 1) - graph_turns_) / kRecentTurns;
  if (site.turns < kTurnsMax) return;
  for (auto& [id, known] : sites_) {
    known.turns = (known.turns + 1) / 2;
    known.repeats /= 2;
  }
}

uint64_t LearnedSteps::Site::get_length_ns() const {
  std::array<uint64_t, std::tuple_size_v<decltype(lengths_ns)>> sorted = lengths_ns;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(std::min(turns, sorted.size()));
  if (end == sorted.begin()) return 0;
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

bool LearnedSteps::ends_steps(const Site& site) const {
  uint64_t all_ns = 0, most_ns = 0, most_length_ns = 0;  // of the site with the most time
  for (const auto& [id, other] : sites_) {
    if (other.turns < kTurnsOfSite) continue;
    const uint64_t length_ns = other.get_length_ns();
    const uint64_t time_ns = other.turns * length_ns;
    all_ns += time_ns;
    if (time_ns > most_ns) most_length_ns = length_ns;
    most_ns = std::max(most_ns, time_ns);
  }
  if (all_ns == 0) return true;
  const uint64_t length_ns = site.get_length_ns();
  const bool repeats = site.repeats * kShareOfRepeats >= site.turns;
  return length_ns * kShareOfLength >= most_length_ns ||
         (repeats && site.turns * length_ns * kShareOfTime >= all_ns);
}

void LearnedSteps::decide(const Turn& turn, std::vector<Step>& steps) {
  const auto site = sites_.find(turn.step.site);
  Thread& thread = threads_[turn.step.tid];
  const uint64_t part_ns = thread.part_end_mono_ns - thread.part_start_mono_ns;
  const bool has_part =
      thread.part_end_mono_ns != 0 &&
      thread.part_end_mono_ns + std::max(kPauseNs, part_ns) >= turn.step.start_mono_ns;
  const uint64_t start_ns = has_part ? thread.part_start_mono_ns : turn.step.start_mono_ns;
  if (site == sites_.end() || !ends_steps(site->second)) {
    thread.part_start_mono_ns = start_ns;
    thread.part_end_mono_ns = turn.step.completed_mono_ns;
    return;
  }
  thread.part_end_mono_ns = 0;
  Step& step = steps.emplace_back(turn.step);
  step.start_mono_ns = std::min(start_ns, step.start_mono_ns);
  describe(turn, step);
}

void LearnedSteps::describe(const Turn& turn, Step& step) const {
  const uint64_t divisor_bytes = sites_.at(turn.step.site).divisor_bytes;
  const auto* id_bytes = std::ranges::find_if(
      kTokenIdBytes, [&](uint64_t bytes) { return divisor_bytes % bytes == 0; });
  if (divisor_bytes != 0 && id_bytes != std::end(kTokenIdBytes)) {
    const uint64_t sequences = turn.bytes / *id_bytes;
    // A larger one would be of something else for each token, as of its logits.
    const bool is_known = divisor_bytes == *id_bytes;
    const bool fits = turn.product_rows == 0 || sequences <= turn.product_rows;
    if (fits && sequences <= kMaxSequences) {
      step.sequences = {sequences, is_known ? StepQuality::kDerived : StepQuality::kEstimated};
    }
  }
  if (turn.product_rows != 0) {
    // Graphs are captured for some numbers of tokens: a step takes the next larger one.
    step.tokens = {turn.product_rows,
                   turn.graphs == 0 ? StepQuality::kDerived : StepQuality::kEstimated};
  }
  const uint64_t sequences = step.sequences.value;
  if (turn.graphs != 0 && sequences != 0 && sequences * 2 >= step.tokens.value) {
    step.tokens = step.sequences;
    step.phase = StepPhase::kDecode;
  } else if (step.tokens.value != 0 && sequences != 0) {
    step.phase = step.tokens.value == sequences ? StepPhase::kDecode : StepPhase::kPrefill;
  } else if (turn.graphs == 0 && graph_turns_ >= kGraphTurns) {
    step.phase = StepPhase::kPrefill;
  }
  if (step.phase == StepPhase::kUnknown) return;
  // A prefill may have decoding sequences in it.
  const bool is_derived = step.phase == StepPhase::kDecode && turn.product_rows != 0 &&
                          step.sequences.quality == StepQuality::kDerived;
  step.phase_quality = is_derived ? StepQuality::kDerived : StepQuality::kEstimated;
}

}  // namespace gpuperf
