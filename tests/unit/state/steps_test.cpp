#include "daemon/state/steps.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

constexpr uint64_t kOneMs = 1'000'000;

// Ids of the functions of the tests.
enum : uint32_t {
  kDecode,
  kMicroBatch,
  kWaitCall,
  kBackwardCall,
  kOptimizerCall,
  kPlain,
  kCopyCall,
  kResultsCall
};

Function make_function(uint32_t id, StepRole role, const std::vector<std::string>& fields = {}) {
  auto plan = std::make_shared<ArgumentPlan>();
  plan->step_role = role;
  for (const std::string& name : fields) {
    plan->fields.push_back(
        {.name = name, .format = ArgumentFormat::kSigned, .capture = {.size_bytes = 4}});
  }
  return {.id = id, .slow_threshold_ns = 100 * kOneMs, .arguments = std::move(plan)};
}

const FunctionList kFunctions = {
    make_function(kDecode, StepRole::kStep, {"tokens"}),
    make_function(kMicroBatch, StepRole::kPart,
                  {"tokens", "sequences", "sequence_tokens", "first_output", "sequence_0",
                   "sequence_1", "sequence_2"}),
    make_function(kWaitCall, StepRole::kWait),
    make_function(kBackwardCall, StepRole::kBackward),
    make_function(kOptimizerCall, StepRole::kOptimizer),
    {.id = kPlain},
    make_function(kCopyCall, StepRole::kResultCopy),
    make_function(kResultsCall, StepRole::kResultWait),
};

ReportedCall make_call(uint32_t function_id, uint64_t start_ms, uint64_t duration_ms,
                       const std::vector<uint64_t>& values = {}) {
  ReportedCall call{.start_mono_ns = start_ms * kOneMs,
                    .duration_ns = duration_ms * kOneMs,
                    .process = kProcess,
                    .tid = 1,
                    .function_id = function_id,
                    .outermost_id = function_id};
  CallValues& kept = call.values.emplace();
  std::ranges::copy(values, kept.values.begin());
  return call;
}

ReportedCall make_inner(uint32_t function_id, uint64_t start_ms, uint64_t duration_ms,
                        const std::vector<uint64_t>& values = {}) {
  ReportedCall call = make_call(function_id, start_ms, duration_ms, values);
  call.depth = 1;
  call.outermost_id = kDecode;
  return call;
}

class StepStateTest : public testing::Test {
 protected:
  void take(const ReportedCall& call) { steps_.apply(ReportedCalls{{call}}, kFunctions, {}); }
  // A step with one micro-batch, and a wait after it.
  void take_step(uint64_t start_ms, const std::vector<uint64_t>& batch) {
    take(make_inner(kMicroBatch, start_ms, 2, batch));
    take(make_call(kDecode, start_ms, 3, {batch[0]}));
    take(make_call(kWaitCall, start_ms + 4, 1));
  }
  // Work for the GPU from `start_ms` on, whose results are copied and waited for.
  void take_turn(uint64_t start_ms, uint64_t duration_ms) {
    ReportedCall copy = make_call(kCopyCall, start_ms + duration_ms - 2, 1);
    copy.turn.start_mono_ns = start_ms * kOneMs;
    take(copy);
    take(make_call(kResultsCall, start_ms + duration_ms - 1, 1));
  }
  std::shared_ptr<const StepProcess> find_row() const {
    Snapshot snapshot;
    steps_.fill(snapshot);
    return snapshot.steps.processes.empty() ? nullptr : snapshot.steps.processes[0];
  }
  // "decode exact 2/2 exact 5 ms" of the newest step: phase, tokens/sequences.
  std::string describe_newest() const {
    const auto row = find_row();
    if (row == nullptr || row->recent.empty()) return "none";
    const Step& step = row->recent.back();
    const auto quality = [](StepQuality q) { return std::string(get_step_quality_name(q)); };
    return std::string(get_step_phase_name(step.phase)) + " " + quality(step.phase_quality) + " " +
           std::to_string(step.tokens.value) + "/" + std::to_string(step.sequences.value) + " " +
           quality(step.sequences.quality) + " " + std::to_string(get_duration_ns(step) / kOneMs) +
           " ms " + quality(step.completed_quality);
  }

  DropCounters drops_;
  std::vector<Step> completed_;
  Steps steps_{
      {.max_processes = 2}, drops_, [this](const Step& step) { completed_.push_back(step); }};
};

TEST_F(StepStateTest, EndsAStepWhenItsThreadHasTheResults) {
  take_step(100, {2, 2, 1, 1, 0, 1});

  EXPECT_EQ(describe_newest(), "decode exact 2/2 exact 5 ms exact");
}

TEST_F(StepStateTest, EndsAStepWithItsCallWhenNothingWaitsForIt) {
  take(make_call(kDecode, 100, 3, {1}));
  EXPECT_EQ(describe_newest(), "none");
  take(make_call(kDecode, 110, 3, {1}));
  EXPECT_EQ(describe_newest(), "decode derived 1/0 unknown 3 ms derived");

  steps_.expire(static_cast<int64_t>(113 * kOneMs + StepAssembly::kHoldNs));
  EXPECT_EQ(find_row()->recent.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(completed_, find_row()->recent)) << "each is handed on, once";
}

TEST_F(StepStateTest, TellsPhasesApartByTheTokensOfEachSequence) {
  take_step(100, {37, 1, 1, 0, 5});
  EXPECT_EQ(describe_newest(), "prefill exact 37/1 exact 5 ms exact");
  take_step(200, {18, 2, 9, 0, 3, 4});
  EXPECT_EQ(describe_newest(), "prefill exact 18/2 exact 5 ms exact");
}

TEST_F(StepStateTest, DerivesThePhaseWhereSequencesShareAMicroBatchUnevenly) {
  take_step(100, {31, 2, 1, 1, 0, 1});
  EXPECT_EQ(describe_newest(), "mixed derived 31/2 exact 5 ms exact");
  take_step(200, {31, 2, 1, 0, 0, 1});
  EXPECT_EQ(describe_newest(), "prefill derived 31/2 exact 5 ms exact");
}

TEST_F(StepStateTest, AddsUpMicroBatchesBySequence) {
  take(make_inner(kMicroBatch, 100, 1, {3, 3, 1, 1, 0, 1, 2}));
  take(make_inner(kMicroBatch, 102, 1, {29, 1, 29, 0, 2}));
  take(make_call(kDecode, 100, 5, {32}));
  take(make_call(kWaitCall, 106, 1));
  EXPECT_EQ(describe_newest(), "mixed exact 32/3 exact 7 ms exact");

  take(make_inner(kMicroBatch, 200, 1, {1, 1, 1, 1, 0}));
  take(make_inner(kMicroBatch, 202, 1, {1, 1, 1, 1, 2}));
  take(make_call(kDecode, 200, 5, {2}));
  take(make_call(kWaitCall, 206, 1));
  EXPECT_EQ(describe_newest(), "decode exact 2/2 exact 7 ms exact");
}

TEST_F(StepStateTest, SaysWhereOnlyALowerBoundOfSequencesIsKnown) {
  ReportedCall first = make_inner(kMicroBatch, 100, 1, {8, 8, 1, 1});
  take(first);
  take(make_inner(kMicroBatch, 102, 1, {4, 4, 1, 1}));
  take(make_call(kDecode, 100, 5, {12}));
  take(make_call(kWaitCall, 106, 1));

  EXPECT_EQ(describe_newest(), "decode estimated 12/8 estimated 7 ms exact");
}

TEST_F(StepStateTest, DoesNotTrustMicroBatchesThatAreNotTheWholeStep) {
  take(make_inner(kMicroBatch, 100, 1, {64, 1, 64, 0, 0}));
  take(make_call(kDecode, 100, 5, {100}));
  take(make_call(kWaitCall, 106, 1));

  EXPECT_EQ(describe_newest(), "unknown unknown 100/0 unknown 7 ms exact");
  EXPECT_EQ(find_row()->recent.back().tokens.quality, StepQuality::kEstimated);
}

TEST_F(StepStateTest, TakesAMicroBatchForAStepWhereTheStepIsNotProbed) {
  take(make_call(kMicroBatch, 100, 4, {2, 2, 1, 1, 0, 1}));
  take(make_call(kWaitCall, 105, 1));

  EXPECT_EQ(describe_newest(), "decode exact 2/2 exact 6 ms exact");
}

TEST_F(StepStateTest, IgnoresWaitsWithinAStep) {
  take(make_call(kDecode, 100, 3, {1}));
  take(make_inner(kWaitCall, 111, 1));
  take(make_call(kDecode, 110, 3, {1}));

  EXPECT_EQ(describe_newest(), "decode derived 1/0 unknown 3 ms derived");
}

TEST_F(StepStateTest, MakesOneStepOfTheOperatorsOfAnOptimizer) {
  take(make_call(kBackwardCall, 100, 20));
  take(make_call(kOptimizerCall, 130, 1));
  EXPECT_EQ(describe_newest(), "train exact 0/0 unknown 20 ms derived");
  take(make_call(kOptimizerCall, 132, 1));
  take(make_call(kOptimizerCall, 134, 2));
  take(make_call(kBackwardCall, 200, 20));

  EXPECT_EQ(describe_newest(), "optimizer exact 0/0 unknown 6 ms derived");
  EXPECT_EQ(find_row()->recent.back().calls, 3u);
}

TEST_F(StepStateTest, IgnoresCallsWithoutARole) {
  take(make_call(kPlain, 100, 3));

  EXPECT_EQ(find_row(), nullptr);
}

TEST_F(StepStateTest, KeepsThreadsApart) {
  ReportedCall other = make_call(kDecode, 101, 3, {1});
  other.tid = 2;
  take(make_call(kDecode, 100, 3, {1}));
  take(other);
  take(make_call(kWaitCall, 105, 5));

  EXPECT_EQ(find_row()->recent.size(), 1u);
  EXPECT_EQ(describe_newest(), "decode derived 1/0 unknown 10 ms exact");
}

TEST_F(StepStateTest, AddsUpByFunctionAndPhase) {
  take_step(100, {2, 2, 1, 1, 0, 1});
  take_step(200, {2, 2, 1, 1, 0, 1});
  take_step(300, {40, 1, 40, 0, 0});

  Snapshot snapshot;
  steps_.fill(snapshot);
  ASSERT_EQ(snapshot.steps.series.size(), 2u);
  const StepSeries& prefill = snapshot.steps.series[0];
  const StepSeries& decode = snapshot.steps.series[1];
  EXPECT_EQ(prefill.phase, StepPhase::kPrefill);
  EXPECT_EQ(get_token_count(prefill.totals), 40u);
  EXPECT_EQ(decode.phase, StepPhase::kDecode);
  EXPECT_EQ(decode.totals.durations.count(), 2u);
  EXPECT_EQ(decode.totals.total_ns, 10 * kOneMs);
  EXPECT_EQ(decode.totals.tokens[static_cast<size_t>(StepQuality::kExact)], 4u);
}

TEST_F(StepStateTest, KeepsSlowStepsLonger) {
  take(make_call(kDecode, 100, 150, {1}));
  for (uint64_t i = 0; i < Steps::kRecent + 10; ++i)
    take(make_call(kDecode, 1000 + 10 * i, 1, {1}));

  const auto row = find_row();
  EXPECT_EQ(row->recent.size(), Steps::kRecent);
  ASSERT_EQ(row->slow.size(), 1u);
  EXPECT_EQ(row->slow[0].id, 1u);
  EXPECT_EQ(row->phases[static_cast<size_t>(StepPhase::kDecode)].slow, 1u);
}

TEST_F(StepStateTest, IsSlowByTheLowerOfBothThresholds) {
  const std::vector<uint64_t> adaptive_ns = {10 * kOneMs};
  steps_.apply(ReportedCalls{{make_call(kDecode, 100, 20, {1}), make_call(kDecode, 200, 1, {1})}},
               kFunctions, adaptive_ns);

  EXPECT_EQ(find_row()->slow.size(), 1u);
}

TEST_F(StepStateTest, NeverChangesARowHandedOut) {
  take_step(100, {2, 2, 1, 1, 0, 1});
  const auto before = find_row();

  take_step(200, {2, 2, 1, 1, 0, 1});

  EXPECT_EQ(before->recent.size(), 1u);
  EXPECT_EQ(find_row()->recent.size(), 2u);
}

TEST_F(StepStateTest, FindsAStepThatHangs) {
  for (uint64_t i = 0; i < Steps::kStallMinSteps; ++i) take_step(10 * i, {2, 2, 1, 1, 0, 1});
  InFlightCalls look{.calls = {{.function_id = kDecode,
                                .process = kProcess,
                                .tid = 1,
                                .start_mono_ns = 1000 * kOneMs}},
                     .look_mono_ns = 1900 * kOneMs};
  steps_.apply(look, kFunctions);
  EXPECT_EQ(find_row()->stall, StepStall::kNone);

  look.look_mono_ns = 2100 * kOneMs;
  steps_.apply(look, kFunctions);
  steps_.apply(look, kFunctions);
  EXPECT_EQ(find_row()->stall, StepStall::kInStep);
  EXPECT_EQ(find_row()->stalled_mono_ns, 1000 * kOneMs);
  Snapshot snapshot;
  steps_.fill(snapshot);
  EXPECT_EQ(snapshot.steps.stalls[static_cast<size_t>(StepStall::kInStep)], 1u);
  EXPECT_EQ(snapshot.steps.stalled[static_cast<size_t>(StepStall::kInStep)], 1u);

  steps_.apply(InFlightCalls{.look_mono_ns = 9000 * kOneMs}, kFunctions);
  EXPECT_EQ(find_row()->stall, StepStall::kNone);  // it has no requests, for all that is known
}

TEST_F(StepStateTest, FindsTrainingThatHangsBetweenSteps) {
  for (uint64_t i = 0; i < 2 * Steps::kStallMinSteps; ++i)
    take(make_call(kBackwardCall, 10 * i, 5));

  steps_.apply(InFlightCalls{.look_mono_ns = 1300 * kOneMs}, kFunctions);
  EXPECT_EQ(find_row()->stall, StepStall::kNone);
  steps_.apply(InFlightCalls{.look_mono_ns = 1500 * kOneMs}, kFunctions);
  EXPECT_EQ(find_row()->stall, StepStall::kBetweenSteps);

  steps_.apply(ProcessExited{kProcess}, kNowNs);
  EXPECT_EQ(find_row()->stall, StepStall::kNone);
}

TEST_F(StepStateTest, CountsCallsOfProcessesBeyondTheLimit) {
  for (uint32_t pid = 1; pid <= 3; ++pid) {
    ReportedCall call = make_call(kDecode, 100, 1, {1});
    call.process = make_process(pid);
    take(call);
  }
  EXPECT_EQ(drops_.get(DropCause::kStepsProcessesFull), 1u);
  Snapshot snapshot;
  steps_.fill(snapshot);
  EXPECT_THAT(
      snapshot.self.bounds,
      Contains(BoundLevel{.bound = Bound::kStepProcesses, .used = 2, .limit = 2, .highest = 2}));

  steps_.apply(ProcessExited{make_process(1)}, kNowNs);
  ReportedCall call = make_call(kDecode, 200, 1, {1});
  call.process = make_process(3);
  take(call);
  EXPECT_EQ(drops_.get(DropCause::kStepsProcessesFull), 1u);  // the one that exited made room
}

TEST_F(StepStateTest, EndsTheIdlestThreadBeyondTheLimit) {
  for (uint32_t tid = 1; tid <= Steps::kMaxThreads + 1; ++tid) {
    ReportedCall call = make_call(kDecode, 100 + tid, 1, {1});
    call.tid = tid;
    take(call);
  }

  const auto row = find_row();
  ASSERT_EQ(row->recent.size(), 1u);
  EXPECT_EQ(row->recent[0].tid, 1u);
}

TEST_F(StepStateTest, EndsTheStepsOfAProcessThatExitsAndForgetsItLater) {
  take(make_call(kDecode, 100, 3, {1}));
  steps_.apply(ProcessExited{kProcess}, kNowNs);
  EXPECT_EQ(describe_newest(), "decode derived 1/0 unknown 3 ms derived");
  EXPECT_TRUE(find_row()->exited);

  steps_.expire(kNowNs + 599 * kSecondNs);
  EXPECT_NE(find_row(), nullptr);
  steps_.expire(kNowNs + 600 * kSecondNs);
  EXPECT_EQ(find_row(), nullptr);
  Snapshot snapshot;
  steps_.fill(snapshot);
  EXPECT_EQ(snapshot.steps.series.size(), 1u);  // totals stay
}

TEST_F(StepStateTest, ALearnedStepIsSlowFromFourTimesTheMedianOn) {
  for (uint64_t i = 0; i < 30; ++i) take_turn(100 + i * 20, 10);
  EXPECT_EQ(find_row()->recent.size(), 29u) << "all but the first turn of the process";
  take_turn(1'000, 39);
  EXPECT_TRUE(find_row()->slow.empty());
  take_turn(2'000, 42);
  EXPECT_EQ(find_row()->slow.size(), 1u);
}

TEST_F(StepStateTest, NoStepIsLearnedWhereFunctionsMarkThem) {
  take(make_call(kBackwardCall, 1, 10));
  for (uint64_t i = 0; i < 30; ++i) take_turn(100 + i * 20, 10);
  take(make_call(kBackwardCall, 2'000, 10));

  EXPECT_EQ(find_row()->recent.size(), 1u);
  EXPECT_FALSE(find_row()->recent.front().is_learned);
}

TEST_F(StepStateTest, AWaitForResultsThatLastsIsAHangWhereStepsAreLearned) {
  const auto look = [this](uint64_t now_ms) {
    const InFlightCall wait{.function_id = kResultsCall,
                            .process = kProcess,
                            .tid = 1,
                            .start_mono_ns = 1'000 * kOneMs};
    steps_.apply(InFlightCalls{.calls = {wait}, .look_mono_ns = now_ms * kOneMs}, kFunctions);
    const auto row = find_row();
    return row == nullptr ? StepStall::kNone : row->stall;
  };
  EXPECT_EQ(look(9'000), StepStall::kNone) << "there are no steps";
  for (uint64_t i = 0; i < 30; ++i) take_turn(100 + i * 20, 10);
  EXPECT_EQ(look(1'900), StepStall::kNone);
  EXPECT_EQ(look(2'100), StepStall::kInStep);
}

}  // namespace
}  // namespace gpuperf
