#include "daemon/state/nccl_groups.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

constexpr ProcessKey kRankProcess{.pid = 7, .start_boot_ns = 10'000'000};
constexpr uint64_t kComm = 0xc0, kOtherComm = 0xc1;

class NcclGroupsTest : public ::testing::Test {
 protected:
  std::vector<NcclWork> call(NcclCallKind kind, uint32_t tid = 7) {
    now_ns_ += 10;
    return groups_.add({.kind = kind,
                        .process = kRankProcess,
                        .tid = tid,
                        .start_mono_ns = now_ns_,
                        .end_mono_ns = now_ns_ + 5});
  }
  std::vector<NcclWork> operate(NcclOperation operation, uint64_t bytes, uint64_t comm = kComm,
                                bool is_send = false) {
    now_ns_ += 10;
    return groups_.add({.kind = NcclCallKind::kOperation,
                        .process = kRankProcess,
                        .tid = 7,
                        .function_id = 3,
                        .start_mono_ns = now_ns_,
                        .end_mono_ns = now_ns_ + 5,
                        .comm = comm,
                        .operation = operation,
                        .bytes = bytes,
                        .is_send = is_send});
  }
  DropCounters drops_;
  NcclGroups groups_{drops_};
  uint64_t now_ns_ = 0;
};

TEST_F(NcclGroupsTest, ACallByItselfIsAWork) {
  EXPECT_EQ(operate(NcclOperation::kAllReduce, 64),
            (std::vector<NcclWork>{{.process = kRankProcess,
                                    .tid = 7,
                                    .comm = kComm,
                                    .operation = NcclOperation::kAllReduce,
                                    .calls = 1,
                                    .bytes = 64,
                                    .start_mono_ns = 10,
                                    .host_ns = 5,
                                    .launch_start_mono_ns = 10,
                                    .launch_end_mono_ns = 15,
                                    .function_id = 3}}));
}

TEST_F(NcclGroupsTest, CallsOfAGroupAreOneWorkThatItsEndLaunches) {
  EXPECT_TRUE(call(NcclCallKind::kGroupStart).empty());
  EXPECT_TRUE(operate(NcclOperation::kAllReduce, 64).empty());
  EXPECT_TRUE(call(NcclCallKind::kGroupStart).empty());
  EXPECT_TRUE(operate(NcclOperation::kAllReduce, 32).empty());
  EXPECT_TRUE(call(NcclCallKind::kGroupEnd).empty());
  const auto works = call(NcclCallKind::kGroupEnd);

  ASSERT_EQ(works.size(), 1u);
  EXPECT_EQ(works[0].calls, 2u);
  EXPECT_EQ(works[0].bytes, 96u);
  EXPECT_EQ(works[0].start_mono_ns, 20u);
  EXPECT_EQ(works[0].launch_start_mono_ns, 60u);
  EXPECT_EQ(works[0].launch_end_mono_ns, 65u);
  EXPECT_EQ(works[0].host_ns, 15u);
  EXPECT_FALSE(works[0].is_launch_shared);
  EXPECT_EQ(groups_.count(), 0u);
}

TEST_F(NcclGroupsTest, KeepsCommunicatorsApart) {
  call(NcclCallKind::kGroupStart);
  operate(NcclOperation::kAllReduce, 64);
  operate(NcclOperation::kBroadcast, 8, kOtherComm);
  operate(NcclOperation::kBroadcast, 8);
  const auto works = call(NcclCallKind::kGroupEnd);

  ASSERT_EQ(works.size(), 2u);
  EXPECT_EQ(works[0].operation, NcclOperation::kMixed);
  EXPECT_EQ(works[1].operation, NcclOperation::kBroadcast);
  EXPECT_TRUE(works[0].is_launch_shared && works[1].is_launch_shared);
}

TEST_F(NcclGroupsTest, CountsWhatIsSentOnce) {
  call(NcclCallKind::kGroupStart);
  for (int i = 0; i < 2; ++i) {
    operate(NcclOperation::kSendReceive, 8, kComm, true);
    operate(NcclOperation::kSendReceive, 8);
  }
  const auto works = call(NcclCallKind::kGroupEnd);

  ASSERT_EQ(works.size(), 1u);
  EXPECT_EQ(works[0].bytes, 16u);
  EXPECT_EQ(works[0].sends, 2u);
  EXPECT_EQ(works[0].receives, 2u);
  EXPECT_TRUE(works[0].are_sizes_equal);
  EXPECT_EQ(operate(NcclOperation::kSendReceive, 8)[0].bytes, 8u);
}

TEST_F(NcclGroupsTest, IgnoresTheEndOfAGroupItDidNotSeeBegin) {
  EXPECT_TRUE(call(NcclCallKind::kGroupEnd).empty());
  EXPECT_EQ(operate(NcclOperation::kAllReduce, 1).size(), 1u);
}

TEST_F(NcclGroupsTest, IsBounded) {
  call(NcclCallKind::kGroupStart);
  for (size_t i = 0; i < NcclGroups::kMaxCalls; ++i) {
    ASSERT_TRUE(operate(NcclOperation::kAllReduce, 1).empty());
  }
  EXPECT_EQ(operate(NcclOperation::kAllReduce, 1).size(), 1u);
  EXPECT_EQ(drops_.get(DropCause::kNcclGroupsFull), 1u);
  for (uint32_t tid = 8; tid < 8 + NcclGroups::kMaxGroups - 1; ++tid) {
    call(NcclCallKind::kGroupStart, tid);
  }
  EXPECT_EQ(groups_.count(), NcclGroups::kMaxGroups);
  call(NcclCallKind::kGroupStart, 8 + NcclGroups::kMaxGroups);

  EXPECT_EQ(drops_.get(DropCause::kNcclGroupsFull), 2u);
  groups_.forget(kRankProcess);
  EXPECT_EQ(groups_.count(), 0u);
}

}  // namespace
}  // namespace gpuperf
