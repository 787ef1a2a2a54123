#include "daemon/rpc/nccl_list.h"

#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/matchers.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kListNowNs = 100'000'000'000;
constexpr size_t kGpu = static_cast<size_t>(NcclBasis::kGpu);

NcclRankRow make_rank(uint32_t rank) {
  NcclRankRow row{
      .process = {.pid = 100 + rank, .start_boot_ns = 1}, .tid = 100 + rank, .rank = rank};
  row.collectives = 5;
  row.last_function_id = 0;
  row.last_start_mono_ns = kListNowNs - 12'000'000'000;
  row.last_stack_id = 7 + rank;
  return row;
}

class NcclListTest : public ::testing::Test {
 protected:
  NcclListTest() {
    snapshot_.functions = std::make_shared<const FunctionList>(
        FunctionList{{.category = "nccl", .name = "ncclAllReduce"},
                     {.category = "cuda", .name = "cudaStreamSynchronize"}});
    for (const uint32_t rank : {0u, 1u}) {
      snapshot_.processes.push_back(
          {.process = make_rank(rank).process, .owner = {.comm = "train"}});
      row_.local_ranks.push_back(make_rank(rank));
    }
    row_.id = 0xabc;
    row_.is_identified = true;
    row_.ranks = 2;
  }
  v1::NcclCommunicator list(v1::Filter filter = {}) {
    snapshot_.nccl.communicators = {std::make_shared<const NcclCommunicatorRow>(row_)};
    const auto rows = list_nccl(snapshot_, RowFilter(std::move(filter)), kListNowNs);
    return rows.empty() ? v1::NcclCommunicator() : rows[0];
  }
  void set_late() {
    row_.lateness = NcclLateness{.rank_index = 1,
                                 .basis = NcclBasis::kGpu,
                                 .covered_ns = 10'000'000'000,
                                 .steps = 100,
                                 .late_steps = 90,
                                 .caused_ns = 1'800'000'000,
                                 .host_caused_ns = 1'800'000'000};
    row_.lateness->activities[static_cast<size_t>(NcclActivity::kSleep)] = 9;
  }
  Snapshot snapshot_;
  NcclCommunicatorRow row_;
};

TEST_F(NcclListTest, ComputesBandwidths) {
  row_.sizes = {{.operation = NcclOperation::kAllGather,
                 .size_bytes = 1'024,
                 .count = 3,
                 .bytes = 3'072,
                 .timed = 2,
                 .timed_bytes = 2'048,
                 .timed_ns = 2'000,
                 .min_ns = 900}};

  const v1::NcclCommunicator communicator = list();

  EXPECT_EQ(communicator.id(), "0000000000000abc");
  EXPECT_EQ(communicator.state(), v1::NCCL_STATE_OK);
  EXPECT_EQ(communicator.verdict(), "");
  EXPECT_DOUBLE_EQ(communicator.sizes(0).algorithm_bandwidth(), 1.024e9);
  EXPECT_DOUBLE_EQ(communicator.sizes(0).bus_bandwidth(), 0.512e9);
}

TEST_F(NcclListTest, NamesALateRankWithItsCauseAndEvidence) {
  set_late();
  snapshot_.in_flight = std::make_shared<const InFlightCalls>(
      InFlightCalls{.calls = {{.function_id = 1,
                               .process = make_rank(1).process,
                               .tid = 101,
                               .start_mono_ns = kListNowNs - 3'000'000}},
                    .look_mono_ns = kListNowNs});
  auto slow = std::make_shared<SlowCall>();
  slow->id = 42;
  slow->function = "cudaMemcpy";
  slow->event = {.process = make_rank(1).process,
                 .tid = 101,
                 .start_mono_ns = kListNowNs - 1'000'000'000,
                 .duration_ns = 18'000'000};
  snapshot_.slow_calls = {slow};

  const v1::NcclCommunicator communicator = list();

  EXPECT_EQ(communicator.state(), v1::NCCL_STATE_LATE);
  EXPECT_EQ(communicator.late_rank(), 1u);
  EXPECT_EQ(communicator.late_pid(), 101u);
  EXPECT_EQ(communicator.cause(), "sleep");
  EXPECT_DOUBLE_EQ(communicator.late_ratio(), 0.18);
  EXPECT_TRUE(communicator.by_kernels());
  EXPECT_EQ(communicator.verdict(),
            "Rank 1 (pid 101, train) is late: the other ranks on this host wait for it 18 % of the "
            "time, 20.000 ms in each of 90 of 100 operations. Cause: sleeping.");
  const std::string evidence = absl::StrJoin(communicator.evidence(), "\n");
  EXPECT_THAT(evidence, HasSubstr("its thread was found sleeping in 9 of 9 looks"));
  EXPECT_THAT(evidence, HasSubstr("it is in cudaStreamSynchronize since 3.000 ms"));
  EXPECT_THAT(evidence, HasSubstr("cudaMemcpy, 18.000 ms: gpuperfctl slow show 42"));
  EXPECT_THAT(evidence, HasSubstr("gpuperfctl why --pid 101"));
}

TEST_F(NcclListTest, BlamesTheGpuOfARankWhoseCallsAreInTime) {
  set_late();
  row_.lateness->host_caused_ns = 1'000'000;

  EXPECT_EQ(list().cause(), "gpu");
}

TEST_F(NcclListTest, KnowsNoCauseFromOneLook) {
  set_late();
  row_.lateness->activities = {};
  row_.lateness->activities[static_cast<size_t>(NcclActivity::kIo)] = 1;

  EXPECT_EQ(list().cause(), "unknown");
}

TEST_F(NcclListTest, MarksTheOddStackOfAStuckRank) {
  row_.stall = NcclStall{.step = 5,
                         .operation = NcclOperation::kAllReduce,
                         .since_mono_ns = kListNowNs - 12'000'000'000,
                         .missing_ranks = {1}};
  row_.local_ranks[1].activity = NcclActivity::kStopped;
  auto stack = std::make_shared<Stack>();
  stack->frames = {{.symbol = "step"}};
  snapshot_.named_stacks = {{7, stack}};

  const v1::NcclCommunicator communicator = list();

  EXPECT_EQ(communicator.state(), v1::NCCL_STATE_STUCK);
  EXPECT_EQ(communicator.cause(), "stopped");
  EXPECT_EQ(communicator.stuck_ns(), 12'000'000'000u);
  EXPECT_THAT(communicator.verdict(),
              HasSubstr("it has not begun all_reduce number 5, for which 1 "
                        "of the 2 ranks on this host have waited 12.000 s"));
  ASSERT_EQ(communicator.stacks_size(), 2);
  EXPECT_EQ(communicator.stacks(0).frames(0).symbol(), "step");
  EXPECT_FALSE(communicator.stacks(0).odd());
  EXPECT_EQ(communicator.stacks(1).ranks(0), "rank 1");
  EXPECT_TRUE(communicator.stacks(1).odd());
}

TEST_F(NcclListTest, FiltersByProcess) {
  v1::Filter filter;
  filter.set_pid(101);
  EXPECT_EQ(list(filter).local_ranks_size(), 2) << "with whom it communicates";
  filter.set_pid(7);
  EXPECT_EQ(list(filter).local_ranks_size(), 0);
}

TEST_F(NcclListTest, ShowsWaitsOfBothKinds) {
  row_.local_ranks[0].waited_ns[kGpu] = 5;
  row_.local_ranks[0].caused_ns[0] = 6;
  row_.local_ranks[0].operations[0] = {
      .calls = 1, .bytes = 2, .host_ns = 3, .timed_calls = 1, .gpu_ns = 4};

  const v1::NcclRank rank = list().local_ranks(0);

  EXPECT_EQ(rank.gpu_waited_ns(), 5u);
  EXPECT_EQ(rank.host_caused_ns(), 6u);
  EXPECT_EQ(rank.last_call(), "ncclAllReduce");
  EXPECT_EQ(rank.last_call_age_ns(), 12'000'000'000u);
  EXPECT_EQ(rank.operations(0).operation(), "all_reduce");
  EXPECT_EQ(rank.operations(0).gpu_ns(), 4u);
}

}  // namespace
}  // namespace gpuperf
