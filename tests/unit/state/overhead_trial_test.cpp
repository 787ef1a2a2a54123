#include "daemon/state/overhead_trial.h"

#include <cstdint>
#include <vector>

#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using ::testing::DoubleNear;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const ProcessKey kTrainer{.pid = 71, .start_boot_ns = 5'000'000'000};
// The same, as a session knows it: to a clock tick.
const ProcessKey kTrainerOfProbes{.pid = 71, .start_boot_ns = 5'000'000'001};

class OverheadTrialTest : public testing::Test {
 protected:
  void tell(uint64_t calls, uint64_t mono_ns) {
    trial_.apply(kTrainer, {.comm = "train"}, {.calls = calls, .mono_ns = mono_ns});
  }
  // Of a second.
  void run_slice(bool is_observed, uint64_t calls) {
    trial_.begin_slice(is_observed);
    tell(calls_, now_ns_);
    calls_ += calls;
    now_ns_ += 1'000'000'000;
    tell(calls_, now_ns_);
    trial_.end_slice();
    calls_ += 12'345;  // between slices
    now_ns_ += 500'000'000;
  }

  OverheadTrial trial_;
  uint64_t calls_ = 1'000;
  uint64_t now_ns_ = 7'000'000'000;
};

TEST_F(OverheadTrialTest, TakesTheMedianOfPairsWithItsInterval) {
  trial_.add_estimate(kTrainerOfProbes, 0.01);
  trial_.add_estimate(kTrainerOfProbes, 0.03);
  const std::vector<uint64_t> observed = {900, 950, 960, 970, 980, 990, 1'000, 1'100, 940, 930};
  for (size_t i = 0; i < observed.size(); ++i) {
    const bool is_first = i % 2 == 0;  // in the pair
    if (is_first) run_slice(true, observed[i]);
    run_slice(false, 1'000);
    if (!is_first) run_slice(true, observed[i]);
  }

  ASSERT_THAT(trial_.measure(), SizeIs(1));
  const OverheadMeasurement measured = trial_.measure()[0];
  EXPECT_EQ(measured.process, kTrainer);
  EXPECT_EQ(measured.owner.comm, "train");
  EXPECT_EQ(measured.pairs, 10u);
  EXPECT_THAT(measured.ratio, DoubleNear(0.035, 1e-9));
  // Of ten, the second and the ninth.
  EXPECT_THAT(measured.low_ratio, DoubleNear(0, 1e-9));
  EXPECT_THAT(measured.high_ratio, DoubleNear(0.07, 1e-9));
  EXPECT_THAT(measured.estimated_ratio, DoubleNear(0.02, 1e-9));
  EXPECT_THAT(measured.calls_per_second, DoubleNear(1'000, 1e-6));
}

TEST_F(OverheadTrialTest, SaysNothingBySixPairsButOne) {
  for (int i = 0; i < 5; ++i) {
    run_slice(false, 1'000);
    run_slice(true, 900);
  }
  EXPECT_THAT(trial_.measure(), IsEmpty());
  run_slice(false, 1'000);
  run_slice(true, 900);
  ASSERT_THAT(trial_.measure(), SizeIs(1));
  EXPECT_EQ(trial_.measure()[0].pairs, 6u);
}

TEST_F(OverheadTrialTest, TakesNoRateFromClocksThatLie) {
  for (const uint64_t end_ns : {UINT64_MAX, UINT64_MAX - 1, uint64_t{0}, uint64_t{199'999'999}}) {
    for (int slice = 0; slice < 12; ++slice) {
      trial_.begin_slice(slice % 2 == 0);
      tell(calls_, UINT64_MAX - 1);
      tell(calls_ += 1'000, end_ns);
      trial_.end_slice();
    }
  }

  EXPECT_THAT(trial_.measure(), IsEmpty());
}

TEST_F(OverheadTrialTest, LeavesOutPairsOfWhichHalfIsMissing) {
  for (int i = 0; i < 6; ++i) {
    run_slice(false, 1'000);
    run_slice(true, 900);
  }
  run_slice(false, 1'000);
  trial_.begin_slice(true);
  tell(calls_, now_ns_);
  tell(calls_ + 5, now_ns_ + OverheadTrial::kSliceNsMin - 1);  // too short to say anything
  trial_.end_slice();
  run_slice(false, 1'000);
  run_slice(true, 0);  // no call: it did something else
  trial_.begin_slice(false);
  trial_.end_slice();
  run_slice(true, 5);

  EXPECT_EQ(trial_.measure()[0].pairs, 6u);
  EXPECT_THAT(trial_.measure()[0].high_ratio, DoubleNear(0.1, 1e-9));
}

TEST_F(OverheadTrialTest, IgnoresWhatIsToldBetweenSlicesAndWhatMakesNoSense) {
  tell(99, 1);
  EXPECT_FALSE(trial_.has_progress());
  for (int i = 0; i < 6; ++i) {
    run_slice(i % 2 == 0, 1'000);
    run_slice(i % 2 != 0, 1'000);
    tell(uint64_t{1} << 60, 1);
  }
  trial_.begin_slice(true);
  tell(0, now_ns_);  // it tells nothing
  tell(1'000, now_ns_);
  tell(10, now_ns_ + 1'000'000'000);  // backwards
  trial_.end_slice();
  run_slice(false, 1'000);

  EXPECT_TRUE(trial_.has_progress());
  EXPECT_EQ(trial_.measure()[0].pairs, 6u);
  EXPECT_THAT(trial_.measure()[0].ratio, DoubleNear(0, 1e-9));
}

}  // namespace
}  // namespace gpuperf
