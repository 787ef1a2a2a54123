#include "daemon/view/step_groups.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

// A smaller share of a step is no reason for its length.
constexpr uint64_t kLeastShare = 100;

constexpr size_t kNone = SIZE_MAX;

bool is_turn(StepPhase phase) {
  return phase == StepPhase::kTrain || phase == StepPhase::kOptimizer;
}

}  // namespace

StepGroups::StepGroups(const Capture& capture, const PathTable& table, uint32_t process,
                       std::optional<uint64_t> asked_mono_ns)
    : capture_(capture), table_(table) {
  std::vector<const CaptureStep*> trained, optimized;
  for (const CaptureStep& step : capture.steps) {
    const CaptureThread* thread = find_row(capture.threads, step.thread);
    if (thread == nullptr || thread->process != process) continue;
    if (step.phase == StepPhase::kTrain) {
      trained.push_back(&step);
    } else if (step.phase == StepPhase::kOptimizer) {
      optimized.push_back(&step);
    } else {
      add_span(step, step.start_mono_ns + step.duration_ns);
    }
  }
  add_turns(std::move(trained.empty() ? optimized : trained));
  std::ranges::stable_sort(spans_, {}, &Span::begin_ns);
  for (size_t i = 0; i < spans_.size(); ++i) kinds_[spans_[i].kind].spans.push_back(i);
  const size_t asked = asked_mono_ns ? find_asked(*asked_mono_ns) : kNone;
  for (Kind& kind : kinds_) describe(kind, asked);
}

// The one that began nearest to then. A turn of a loop may also have begun before: a step of its
// optimizer is within it.
size_t StepGroups::find_asked(uint64_t asked_mono_ns) const {
  const auto get_distance_ns = [asked_mono_ns](const Span& span) {
    return std::max(span.begin_ns, asked_mono_ns) - std::min(span.begin_ns, asked_mono_ns);
  };
  size_t nearest = kNone;
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const bool is_within = is_turn(kinds_[span.kind].use.phase) && span.begin_ns < asked_mono_ns &&
                           asked_mono_ns < span.end_ns;
    if (!is_within && get_distance_ns(span) > kStepSlackNs) continue;
    if (nearest == kNone || get_distance_ns(span) < get_distance_ns(spans_[nearest])) nearest = i;
  }
  return nearest;
}

size_t StepGroups::get_kind(uint32_t function, StepPhase phase) {
  const auto known = std::ranges::find_if(kinds_, [&](const Kind& kind) {
    return kind.use.function == function && kind.use.phase == phase;
  });
  if (known != kinds_.end()) return static_cast<size_t>(known - kinds_.begin());
  kinds_.push_back({.use = {.function = function, .phase = phase},
                    .shown = TimeGroups(capture_, table_),
                    .others = TimeGroups(capture_, table_)});
  return kinds_.size() - 1;
}

void StepGroups::add_span(const CaptureStep& step, uint64_t end_ns) {
  const uint64_t window_end_ns = capture_.start_mono_ns + capture_.duration_ns;
  if (step.start_mono_ns < capture_.start_mono_ns || end_ns > window_end_ns) return;
  if (end_ns <= step.start_mono_ns) return;
  spans_.push_back({.begin_ns = step.start_mono_ns,
                    .end_ns = end_ns,
                    .tokens = step.tokens.value,
                    .kind = get_kind(step.function, step.phase)});
}

void StepGroups::add_turns(std::vector<const CaptureStep*> steps) {
  const auto key = [](const CaptureStep* step) { return std::tie(step->thread, step->function); };
  std::ranges::stable_sort(steps, [&](const CaptureStep* a, const CaptureStep* b) {
    return std::tuple(key(a), a->start_mono_ns) < std::tuple(key(b), b->start_mono_ns);
  });
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    if (key(steps[i]) == key(steps[i + 1])) add_span(*steps[i], steps[i + 1]->start_mono_ns);
  }
}

void StepGroups::describe(Kind& kind, size_t asked) {
  const auto get_length = [this](size_t span) {
    return spans_[span].end_ns - spans_[span].begin_ns;
  };
  StepUse& use = kind.use;
  use.is_asked = std::ranges::find(kind.spans, asked) != kind.spans.end();
  const size_t shown = use.is_asked ? asked : *std::ranges::max_element(kind.spans, {}, get_length);
  spans_[shown].is_shown = true;
  use.longest_start_mono_ns = spans_[shown].begin_ns;
  use.longest_ns = get_length(shown);
  use.longest_tokens = spans_[shown].tokens;
  use.steps = kind.spans.size();
  uint64_t tokens = 0;
  for (const size_t span : kind.spans) {
    use.total_ns += get_length(span);
    tokens += spans_[span].tokens;
  }
  if (use.steps > 1) use.usual_tokens = (tokens - use.longest_tokens) / (use.steps - 1);
  const auto middle = kind.spans.begin() + static_cast<ptrdiff_t>((use.steps - 1) / 2);
  std::ranges::nth_element(kind.spans, middle, {}, get_length);
  use.median_ns = get_length(*middle);
  kind.spans = {};
}

void StepGroups::add(const TimePiece& piece) {
  while (next_ < spans_.size() && spans_[next_].begin_ns < piece.end_ns) open_.push_back(next_++);
  std::erase_if(open_, [&](size_t span) { return spans_[span].end_ns <= piece.begin_ns; });
  for (const size_t open : open_) {
    const Span& span = spans_[open];
    TimePiece within = piece;
    within.begin_ns = std::max(piece.begin_ns, span.begin_ns);
    within.end_ns = std::min(piece.end_ns, span.end_ns);
    Kind& kind = kinds_[span.kind];
    (span.is_shown ? kind.shown : kind.others).add(within);
  }
}

void StepGroups::compare(const ProcessTimeUse& shown, const ProcessTimeUse& others, StepUse& use) {
  if (use.steps < 2 && !use.is_asked) return;
  std::map<std::pair<TimeReason, std::string>, uint64_t> usual_ns;
  for (const TimeFinding& finding : others.findings) {
    usual_ns[{finding.reason, finding.subject}] = finding.time_ns / (use.steps - 1);
  }
  for (const TimeFinding& finding : shown.findings) {
    const auto usual = usual_ns.find({finding.reason, finding.subject});
    StepDifference difference{.finding = finding,
                              .usual_ns = usual == usual_ns.end() ? 0 : usual->second};
    const uint64_t least_ns = difference.usual_ns + use.longest_ns / kLeastShare;
    if (finding.time_ns > least_ns) use.differences.push_back(std::move(difference));
  }
  std::ranges::stable_sort(use.differences, std::ranges::greater(),
                           [](const StepDifference& difference) {
                             return difference.finding.time_ns - difference.usual_ns;
                           });
}

std::vector<StepUse> StepGroups::finish() {
  std::vector<StepUse> uses;
  for (Kind& kind : kinds_) {
    ProcessTimeUse shown, others;
    kind.shown.finish(shown);
    kind.others.finish(others);
    for (size_t i = 0; i < kTimeCauses; ++i) {
      kind.use.parts_ns[i] = shown.parts_ns[i] + others.parts_ns[i];
    }
    kind.use.longest_parts_ns = shown.parts_ns;
    compare(shown, others, kind.use);
    uses.push_back(std::move(kind.use));
  }
  std::ranges::stable_sort(uses, std::ranges::greater(), &StepUse::total_ns);
  return uses;
}

}  // namespace gpuperf
