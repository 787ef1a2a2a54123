#include "daemon/state/nccl_steps.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

constexpr auto kReduce = NcclOperation::kAllReduce;

class NcclStepsTest : public ::testing::Test {
 protected:
  DropCounters drops_;
  NcclSteps steps_{drops_};
  std::vector<NcclSteps::Slot> slots_ = {{}, {}};
};

TEST_F(NcclStepsTest, PutsTheNthOperationsSideBySide) {
  steps_.add(0, kReduce, 8, 100);
  steps_.add(0, kReduce, 16, 200);
  EXPECT_EQ(steps_.take(slots_, 1'000), std::nullopt);
  const auto place = steps_.add(1, kReduce, 8, 150);

  EXPECT_EQ(place.number, 0u);
  EXPECT_TRUE(place.is_same);
  EXPECT_EQ(steps_.take(slots_, 1'000),
            (NcclSteps::Step{.operation = kReduce,
                             .bytes = 8,
                             .newest_mono_ns = 150,
                             .arrivals = {{.start_mono_ns = 100}, {.start_mono_ns = 150}}}));
  EXPECT_EQ(steps_.take(slots_, 1'000), std::nullopt);
}

TEST_F(NcclStepsTest, TellsOperationsThatDiffer) {
  steps_.add(0, kReduce, 8, 100);
  steps_.add(0, kReduce, 8, 100);

  EXPECT_FALSE(steps_.add(1, NcclOperation::kBroadcast, 8, 150).is_same);
  EXPECT_FALSE(steps_.add(1, kReduce, 9, 150).is_same);
}

TEST_F(NcclStepsTest, WaitsForKernelsWhereTheyAreExpected) {
  slots_[1].expects_kernels = true;
  steps_.add(0, kReduce, 8, 100);
  steps_.add(1, kReduce, 8, 150);
  EXPECT_EQ(steps_.take(slots_, 149 + NcclSteps::kKernelWaitNs), std::nullopt);
  steps_.set_gpu(1, 0, 300, 400);
  steps_.set_gpu(1, 0, 250, 350);

  const auto step = steps_.take(slots_, 500);

  ASSERT_TRUE(step);
  EXPECT_EQ(step->arrivals[1], (NcclSteps::Arrival{150, 250, 400}));
}

TEST_F(NcclStepsTest, GoesOnWithoutKernelsInTheEnd) {
  slots_[0].expects_kernels = true;
  steps_.add(0, kReduce, 8, 100);
  steps_.add(1, kReduce, 8, 150);

  EXPECT_TRUE(steps_.take(slots_, 150 + NcclSteps::kKernelWaitNs));
}

TEST_F(NcclStepsTest, DoesNotWaitForARankThatHasLeft) {
  steps_.add(0, kReduce, 8, 100);
  slots_[1].is_active = false;

  EXPECT_TRUE(steps_.take(slots_, 200));
}

TEST_F(NcclStepsTest, FindsWhoIsMissing) {
  EXPECT_FALSE(steps_.find_missing(slots_));
  steps_.add(0, kReduce, 8, 100);
  steps_.add(1, kReduce, 8, 150);
  EXPECT_FALSE(steps_.find_missing(slots_));
  steps_.add(0, kReduce, 8, 200);
  steps_.add(0, kReduce, 8, 300);

  const auto missing = steps_.find_missing(slots_);

  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->number, 1u);
  EXPECT_EQ(missing->slots, std::vector<size_t>{1});
  EXPECT_EQ(steps_.get(1).newest_mono_ns, 200u);
}

TEST_F(NcclStepsTest, LetsTheOldestStepsGoWhereOneRankIsFarAhead) {
  for (size_t i = 0; i < NcclSteps::kMaxSteps + 2; ++i) steps_.add(0, kReduce, 8, 100 + i);

  EXPECT_EQ(drops_.get(DropCause::kNcclStepsFull), 2u);
  EXPECT_EQ(steps_.size(), NcclSteps::kMaxSteps);
  EXPECT_EQ(steps_.find_missing(slots_)->number, 2u);
  // What has left is past; the next one meets its own step again.
  EXPECT_EQ(steps_.add(1, kReduce, 8, 5'000).number, 0u);
  EXPECT_EQ(steps_.take(slots_, 9'000), std::nullopt);
  steps_.add(1, kReduce, 8, 5'001);
  steps_.add(1, kReduce, 8, 5'002);
  EXPECT_EQ(steps_.take(slots_, 9'000)->arrivals[0].start_mono_ns, 102u);
}

}  // namespace
}  // namespace gpuperf
