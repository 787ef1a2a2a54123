#include "daemon/state/learned_steps.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

constexpr uint64_t kOneMs = 1'000'000;
constexpr uint64_t kDecodeSite = 1, kCheckSite = 2, kPrefillSite = 3, kStartSite = 4;

// Of which the second value is the size.
Function make_copy_function() {
  auto plan = std::make_shared<ArgumentPlan>();
  plan->rules.byte_factors[0] = 2;
  plan->rules.element_bytes[0] = 1;
  return {.symbol = "cudaMemcpyAsync", .arguments = std::move(plan)};
}

struct Turn {
  uint64_t start_ms = 0, length_ms = 0, site = kDecodeSite, bytes = 32, rows = 0;
  uint32_t graphs = 0;
};

// The first turn of the process, which is none, is over.
class LearnedStepsTest : public testing::Test {
 protected:
  void SetUp() override { take({.start_ms = 1, .length_ms = 90, .site = kStartSite, .bytes = 8}); }

  void copy(const Turn& turn) {
    ReportedCall call{.start_mono_ns = (turn.start_ms + turn.length_ms) * kOneMs - 2'000,
                      .duration_ns = 1'000,
                      .process = kProcess,
                      .tid = 1,
                      .stack_id = turn.site,
                      .turn = {.start_mono_ns = turn.start_ms * kOneMs,
                               .graphs = turn.graphs,
                               .product_rows = turn.rows}};
    call.values.emplace().values[1] = turn.bytes;
    learned_.take_copy(call, copies_, steps_);
  }
  // Its results are there half a millisecond after the copy.
  void wait(const Turn& turn, const Function& function) {
    learned_.take_wait({.start_mono_ns = (turn.start_ms + turn.length_ms) * kOneMs,
                        .duration_ns = kOneMs / 2,
                        .process = kProcess,
                        .tid = 1},
                       function, steps_);
  }
  void take(const Turn& turn) {
    copy(turn);
    wait(turn, stream_waits_);
  }
  // Decode steps of 10 ms, one every 20 ms.
  void learn_decode(uint64_t count, Turn like = {}) {
    for (uint64_t i = 0; i < count; ++i) {
      like.start_ms = next_ms_;
      like.length_ms = 10;
      take(like);
      next_ms_ += 20;
    }
  }
  // "decode derived 4/4 derived": phase, tokens/sequences.
  static std::string describe(const Step& step) {
    const auto quality = [](StepQuality q) { return std::string(get_step_quality_name(q)); };
    return std::string(get_step_phase_name(step.phase)) + " " + quality(step.phase_quality) + " " +
           std::to_string(step.tokens.value) + "/" + std::to_string(step.sequences.value) + " " +
           quality(step.sequences.quality);
  }

  const Function copies_ = make_copy_function();
  const Function stream_waits_ = {.symbol = "cudaStreamSynchronize"};
  const Function event_waits_ = {.symbol = "cudaEventSynchronize"};
  LearnedSteps learned_;
  std::vector<Step> steps_;
  uint64_t next_ms_ = 100;
};

TEST_F(LearnedStepsTest, ATurnIsAStepFromItsFirstWorkUntilItsResultsAreThere) {
  learn_decode(7);
  EXPECT_TRUE(steps_.empty()) << "held until more are known";

  learn_decode(13);

  ASSERT_EQ(steps_.size(), 20u);
  EXPECT_EQ(steps_[0].start_mono_ns, 100 * kOneMs);
  EXPECT_EQ(get_duration_ns(steps_[0]), 10 * kOneMs + kOneMs / 2);
  EXPECT_EQ(steps_[0].completed_quality, StepQuality::kExact);
  EXPECT_TRUE(steps_[0].is_learned);
  EXPECT_EQ(steps_[19].start_mono_ns, 480 * kOneMs);
}

TEST_F(LearnedStepsTest, AShortTurnIsPartOfTheStepAfterIt) {
  for (int i = 0; i < 20; ++i) {
    take({.start_ms = next_ms_, .length_ms = 1, .site = kCheckSite, .bytes = 1});
    take({.start_ms = next_ms_ + 2, .length_ms = 40});
    next_ms_ += 50;
  }

  ASSERT_GE(steps_.size(), 19u);
  for (const Step& step : steps_) EXPECT_EQ(get_duration_ns(step), 42 * kOneMs + kOneMs / 2);
}

TEST_F(LearnedStepsTest, EvenIfItTakesATenthOfTheTime) {
  for (int i = 0; i < 20; ++i) {
    take({.start_ms = next_ms_, .length_ms = 4, .site = kCheckSite, .bytes = 1});
    take({.start_ms = next_ms_ + 5, .length_ms = 35});
    next_ms_ += 50;
  }

  ASSERT_GE(steps_.size(), 19u);
  ASSERT_LE(steps_.size(), 20u);
  for (const Step& step : steps_) EXPECT_EQ(get_duration_ns(step), 40 * kOneMs + kOneMs / 2);
}

TEST_F(LearnedStepsTest, ShortStepsBetweenLongOnesAreStepsIfTheyFollowEachOther) {
  for (int i = 0; i < 20; ++i) {
    take({.start_ms = next_ms_, .length_ms = 300, .site = kPrefillSite});
    next_ms_ += 310;
    learn_decode(4);
  }

  EXPECT_EQ(steps_.size(), 100u);
}

TEST_F(LearnedStepsTest, APartLongBeforeAStepIsNotOfIt) {
  for (int i = 0; i < 20; ++i) {
    take({.start_ms = next_ms_, .length_ms = 40});
    take({.start_ms = next_ms_ + 41, .length_ms = 1, .site = kCheckSite, .bytes = 1});
    next_ms_ += 1'000;
  }

  ASSERT_GE(steps_.size(), 19u);
  for (const Step& step : steps_) EXPECT_EQ(get_duration_ns(step), 40 * kOneMs + kOneMs / 2);
}

TEST_F(LearnedStepsTest, ARareSiteWithLongTurnsEndsStepsToo) {
  learn_decode(100);
  steps_.clear();

  take({.start_ms = next_ms_, .length_ms = 300, .site = kPrefillSite});

  ASSERT_EQ(steps_.size(), 1u);
  EXPECT_EQ(get_duration_ns(steps_[0]), 300 * kOneMs + kOneMs / 2);
}

TEST_F(LearnedStepsTest, OneLongWaitIsNoMeasureForTheOthers) {
  take({.start_ms = next_ms_, .length_ms = 10'000, .site = kPrefillSite});
  next_ms_ += 10'100;
  learn_decode(20);

  EXPECT_EQ(steps_.size(), 21u);
}

TEST_F(LearnedStepsTest, SequencesAreKnownByTheSizesOfTheCopies) {
  learn_decode(8, {.bytes = 64});
  EXPECT_EQ(describe(steps_.back()), "unknown unknown 0/8 estimated") << "or 16 of 4 bytes";

  take({.start_ms = next_ms_, .length_ms = 10, .bytes = 24});

  EXPECT_EQ(describe(steps_.back()), "unknown unknown 0/3 derived");
}

TEST_F(LearnedStepsTest, MatrixProductsSayHowManyTokens) {
  learn_decode(8, {.bytes = 24, .rows = 3});
  take({.start_ms = next_ms_, .length_ms = 10, .bytes = 8, .rows = 1});
  EXPECT_EQ(describe(steps_.back()), "decode derived 1/1 derived");

  take({.start_ms = next_ms_ + 20, .length_ms = 10, .bytes = 16, .rows = 700});
  EXPECT_EQ(describe(steps_.back()), "prefill estimated 700/2 derived");

  // More bytes than tokens have ids.
  take({.start_ms = next_ms_ + 40, .length_ms = 10, .bytes = 4'096, .rows = 3});
  EXPECT_EQ(describe(steps_.back()), "unknown unknown 3/0 unknown");
}

TEST_F(LearnedStepsTest, AGraphIsForAtLeastAsManyTokens) {
  learn_decode(8, {.bytes = 24, .rows = 4, .graphs = 1});
  take({.start_ms = next_ms_, .length_ms = 10, .bytes = 40, .rows = 8, .graphs = 1});
  EXPECT_EQ(describe(steps_.back()), "decode derived 5/5 derived");

  // A prefill whose parts are graphs.
  take({.start_ms = next_ms_ + 20, .length_ms = 10, .bytes = 8, .rows = 512, .graphs = 30});
  EXPECT_EQ(describe(steps_.back()), "prefill estimated 512/1 derived");

  // Captured before the daemon came.
  take({.start_ms = next_ms_ + 40, .length_ms = 10, .bytes = 40, .graphs = 1});
  EXPECT_EQ(describe(steps_.back()), "decode estimated 5/5 derived");
}

TEST_F(LearnedStepsTest, AStepWithoutTheGraphsOfTheOthersIsAPrefill) {
  learn_decode(40, {.bytes = 24, .graphs = 1});
  take({.start_ms = next_ms_, .length_ms = 10, .bytes = 8});
  EXPECT_EQ(describe(steps_.back()), "prefill estimated 0/1 derived");
}

TEST_F(LearnedStepsTest, AnEventIsWaitedForBehindTheNextCopy) {
  for (int i = 0; i < 20; ++i) {
    const Turn turn{.start_ms = next_ms_, .length_ms = 10};
    copy(turn);
    if (i > 0) {
      learned_.take_wait({.start_mono_ns = (turn.start_ms + 11) * kOneMs,
                          .duration_ns = 1'000,
                          .process = kProcess,
                          .tid = 2},
                         event_waits_, steps_);
    }
    next_ms_ += 12;
  }

  ASSERT_EQ(steps_.size(), 19u);
  for (const Step& step : steps_) {
    EXPECT_EQ(get_duration_ns(step), 23 * kOneMs + 1'000) << "until the next step's copy was made";
    EXPECT_EQ(step.tid, 1u);
  }
}

TEST_F(LearnedStepsTest, WhatNobodyWaitsForEndsWithItsCopy) {
  learn_decode(8);
  steps_.clear();

  copy({.start_ms = next_ms_, .length_ms = 10});
  learned_.expire((next_ms_ + 4'000) * kOneMs, steps_);
  EXPECT_TRUE(steps_.empty());
  learned_.expire((next_ms_ + 5'020) * kOneMs, steps_);

  ASSERT_EQ(steps_.size(), 1u);
  EXPECT_EQ(steps_[0].completed_quality, StepQuality::kDerived);
  EXPECT_EQ(get_duration_ns(steps_[0]), 10 * kOneMs - 1'000);
}

TEST_F(LearnedStepsTest, WhereHooksAloneSeeTheWorkAStepBeginsWithTheResultsBefore) {
  for (uint64_t i = 0; i < 20; ++i) {
    ReportedCall call{.start_mono_ns = (100 + i * 20) * kOneMs,
                      .duration_ns = kOneMs,
                      .process = kProcess,
                      .tid = 1,
                      .stack_id = kDecodeSite};
    learned_.take_copy(call, copies_, steps_);
    learned_.take_wait({.start_mono_ns = (102 + i * 20) * kOneMs, .process = kProcess, .tid = 1},
                       stream_waits_, steps_);
  }

  ASSERT_EQ(steps_.size(), 20u);
  steps_.erase(steps_.begin());  // after the first turn of the process
  for (const Step& step : steps_) EXPECT_EQ(get_duration_ns(step), 20 * kOneMs);
}

TEST_F(LearnedStepsTest, ManySitesAndThreadsStayWithinTheirBounds) {
  for (uint32_t i = 0; i < 10'000; ++i) {
    ReportedCall call{.start_mono_ns = (100 + i) * kOneMs,
                      .duration_ns = kOneMs / 2,
                      .process = kProcess,
                      .tid = i,
                      .stack_id = i,
                      .turn = {.start_mono_ns = (100 + i) * kOneMs - i}};
    learned_.take_copy(call, copies_, steps_);
  }
  learned_.end(steps_);

  EXPECT_EQ(steps_.size(), 10'000u);
}

}  // namespace
}  // namespace gpuperf
