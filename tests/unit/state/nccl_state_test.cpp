#include "daemon/state/nccl_state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "daemon/probe/arguments/argument_decoders.h"

namespace gpuperf {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kOneSecond = 1'000 * kMs;
constexpr uint64_t kFloat = 7;  // ncclFloat32
constexpr uint32_t kKernelName = 1, kOtherKernelName = 2, kPlace = 1;

ProcessKey make_process(uint32_t rank) {
  return {.pid = 100 + rank, .start_boot_ns = (100 + rank) * 10'000'000ull};
}

// Ranks of communicators, with what they call and what their GPUs do.
class NcclStateTest : public ::testing::Test {
 protected:
  NcclStateTest() { state_.follow(sessions_); }

  ReportedCall make_call(uint32_t rank, std::vector<uint64_t> values, uint64_t start_ns,
                         uint64_t duration_ns = 10'000) {
    ReportedCall call{.start_mono_ns = start_ns,
                      .duration_ns = duration_ns,
                      .process = make_process(rank),
                      .tid = 100 + rank,
                      .return_value = 0,
                      .stack_id = 500 + rank};
    call.values.emplace();
    std::ranges::copy(values, call.values->values.begin());
    return call;
  }
  void apply(const std::string& symbol, const ReportedCall& call) {
    Function& function = functions_[symbol];
    function = {.symbol = symbol, .status = StatusKind::kNccl};
    function.arguments = find_argument_decoder(symbol);
    state_.apply(function, call);
  }
  void create(uint32_t rank, uint32_t ranks, uint64_t id = 0xabc, uint64_t comm = 0xc0) {
    ReportedCall call = make_call(rank, {rank, ranks, 0x1000, id, 1, 2}, 1);
    call.result = comm;
    apply("ncclCommInitRank", call);
  }
  void reduce(uint32_t rank, uint64_t start_ns, uint64_t count = 1'000, uint64_t comm = 0xc0) {
    apply("ncclAllReduce", make_call(rank, {count, kFloat, 0, comm}, start_ns));
  }
  void open_session(uint32_t rank) {
    const uint64_t id = 1 + rank;
    sessions_.apply(SessionOpened{.session_id = id, .process = make_process(rank)}, 0);
    sessions_.apply(SessionStatus{.session_id = id,
                                  .state = GPUPERF_SESSION_STATE_COLLECTING,
                                  .level = GPUPERF_SESSION_LEVEL_KERNELS},
                    0);
    SessionBatch batch{.session_id = id};
    batch.names = {{.id = kKernelName, .text = "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24"},
                   {.id = kOtherKernelName, .text = "_Z6squarePf"}};
    sessions_.apply(batch, 0);
    state_.advance(0);
  }
  // A kernel whose launch is within a call that began at `call_ns`.
  void run_kernel(uint32_t rank, uint64_t call_ns, uint64_t start_ns, uint64_t end_ns,
                  uint32_t name = kKernelName) {
    SessionBatch batch{.session_id = 1 + rank};
    batch.apis = {{.start_mono_ns = call_ns + 2'000,
                   .duration_ns = 3'000,
                   .correlation_id = ++correlation_,
                   .tid = 100 + rank}};
    batch.kernels = {{.start_mono_ns = start_ns,
                      .duration_ns = end_ns - start_ns,
                      .correlation_id = correlation_,
                      .name_id = name,
                      .place_id = kPlace}};
    sessions_.apply(batch, static_cast<int64_t>(end_ns));
  }
  NcclReport report() const {
    NcclReport report;
    state_.fill(report);
    return report;
  }
  const NcclCommunicatorRow& row(size_t index = 0) {
    last_ = report();
    return *last_.communicators.at(index);
  }
  void advance(uint64_t now_ns) { state_.advance(static_cast<int64_t>(now_ns)); }

  DropCounters drops_;
  NcclState state_{drops_};
  SessionMemory memory_{drops_};
  SessionRegistry sessions_{
      {.keep_closed = std::chrono::seconds(1), .max_closed = 10}, drops_, memory_};
  std::map<std::string, Function> functions_;
  NcclReport last_;
  uint32_t correlation_ = 0;
};

TEST_F(NcclStateTest, RanksWithOneUniqueIdAreOneCommunicator) {
  create(0, 2);
  create(1, 2);
  create(2, 2, 0xdef);

  ASSERT_EQ(report().communicators.size(), 2u);
  EXPECT_EQ(row().ranks, 2u);
  EXPECT_TRUE(row().is_identified);
  ASSERT_EQ(row().local_ranks.size(), 2u);
  EXPECT_EQ(row().local_ranks[1].rank, 1u);
  EXPECT_EQ(row().local_ranks[1].process, make_process(1));
  EXPECT_NE(row(0).id, row(1).id);
}

TEST_F(NcclStateTest, CountsCallsBytesAndSizes) {
  create(0, 2);
  create(1, 2);
  for (const uint32_t rank : {0, 1}) {
    reduce(rank, kMs);
    reduce(rank, 2 * kMs, 2'000);
    apply("ncclAllGather", make_call(rank, {256, kFloat, 0xc0}, 3 * kMs));
  }
  advance(4 * kMs);

  const NcclRankTotals& totals = row().local_ranks[0].operations[0];
  EXPECT_EQ(totals, (NcclRankTotals{.calls = 2, .bytes = 12'000, .host_ns = 20'000}));
  EXPECT_EQ(row().local_ranks[0].collectives, 3u);
  const std::vector<NcclSizeRow> sizes = {
      {.operation = NcclOperation::kAllReduce, .size_bytes = 2'048, .count = 1, .bytes = 4'000},
      {.operation = NcclOperation::kAllReduce, .size_bytes = 4'096, .count = 1, .bytes = 8'000},
      {.operation = NcclOperation::kAllGather, .size_bytes = 2'048, .count = 1, .bytes = 2'048}};
  EXPECT_EQ(row().sizes, sizes) << "an all-gather's message is what all ranks give";
  EXPECT_EQ(report().calls, 8u);
}

TEST_F(NcclStateTest, LeavesOutCallsThatFailed) {
  create(0, 2);
  ReportedCall call = make_call(0, {1'000, kFloat, 0, 0xc0}, kMs);
  call.return_value = 5;
  apply("ncclAllReduce", call);
  call.return_value = 7;  // in progress: of a communicator that does not block
  apply("ncclAllReduce", call);

  EXPECT_EQ(row().local_ranks[0].collectives, 1u);
}

TEST_F(NcclStateTest, TakesTheTimeOfTheKernelThatWaitedLeast) {
  create(0, 2);
  create(1, 2);
  open_session(0);
  open_session(1);
  reduce(0, 10 * kMs);
  reduce(1, 30 * kMs);
  run_kernel(0, 10 * kMs, 11 * kMs, 33 * kMs);
  run_kernel(1, 30 * kMs, 31 * kMs, 33 * kMs);
  run_kernel(1, 30 * kMs, 31 * kMs, 40 * kMs, kOtherKernelName);
  advance(41 * kMs);

  ASSERT_EQ(row().sizes.size(), 1u);
  EXPECT_EQ(row().sizes[0].timed, 1u);
  EXPECT_EQ(row().sizes[0].timed_ns, 2 * kMs);
  EXPECT_EQ(row().sizes[0].min_ns, 2 * kMs);
  EXPECT_EQ(row().local_ranks[0].operations[0].gpu_ns, 22 * kMs) << "its wait is within";
  EXPECT_EQ(row().local_ranks[0].operations[0].timed_calls, 1u);
  const auto gpu = static_cast<size_t>(NcclBasis::kGpu);
  EXPECT_EQ(row().local_ranks[0].waited_ns[gpu], 20 * kMs);
  EXPECT_EQ(row().local_ranks[1].caused_ns[gpu], 20 * kMs);
}

TEST_F(NcclStateTest, FindsKernelsThatComeBeforeTheirCall) {
  create(0, 1);
  reduce(0, kMs);
  open_session(0);
  run_kernel(0, 10 * kMs, 11 * kMs, 12 * kMs);
  EXPECT_EQ(row().local_ranks[0].operations[0].timed_calls, 0u);
  reduce(0, 10 * kMs);
  sessions_.expire(static_cast<int64_t>(13 * kMs));

  EXPECT_EQ(row().local_ranks[0].operations[0].timed_calls, 1u);
  EXPECT_EQ(drops_.get(DropCause::kNcclKernelsExpired), 0u);
}

TEST_F(NcclStateTest, CountsKernelsWithoutACall) {
  create(0, 1);
  reduce(0, kMs);
  open_session(0);
  run_kernel(0, 10 * kMs, 11 * kMs, 12 * kMs);
  reduce(0, 20 * kMs);
  sessions_.expire(static_cast<int64_t>(13 * kMs));
  EXPECT_EQ(drops_.get(DropCause::kNcclKernelsExpired), 0u);
  sessions_.expire(static_cast<int64_t>(12 * kMs + NcclKernelJoin::kKernelWaitNs));

  EXPECT_EQ(drops_.get(DropCause::kNcclKernelsExpired), 1u);
  EXPECT_EQ(row().local_ranks[0].operations[0].timed_calls, 0u);
}

TEST_F(NcclStateTest, GivesAGroupsKernelToItsEnd) {
  create(0, 2);
  open_session(0);
  apply("ncclGroupStart", make_call(0, {}, 10 * kMs, 100));
  for (int i = 0; i < 2; ++i) {
    apply("ncclSend", make_call(0, {64, kFloat, static_cast<uint64_t>(i), 0xc0}, 11 * kMs, 100));
    apply("ncclRecv", make_call(0, {64, kFloat, static_cast<uint64_t>(i), 0xc0}, 12 * kMs, 100));
  }
  apply("ncclGroupEnd", make_call(0, {}, 20 * kMs));
  run_kernel(0, 20 * kMs, 21 * kMs, 22 * kMs);
  advance(23 * kMs);

  ASSERT_EQ(row().sizes.size(), 1u);
  EXPECT_EQ(row().sizes[0].operation, NcclOperation::kAllToAll) << "to and from each rank";
  EXPECT_EQ(row().sizes[0].bytes, 512u);
  EXPECT_EQ(row().sizes[0].timed_ns, kMs);
}

TEST_F(NcclStateTest, NamesTheRankThatIsLate) {
  create(0, 2);
  create(1, 2);
  for (uint64_t step = 0; step < 100; ++step) {
    const uint64_t begin_ns = kOneSecond + step * 100 * kMs;
    state_.add_look({make_process(1), 101},
                    {.mono_ns = begin_ns + 10 * kMs, .activity = NcclActivity::kSleep});
    state_.add_look({make_process(1), 101},
                    {.mono_ns = begin_ns + 50 * kMs, .activity = NcclActivity::kRunning});
    reduce(0, begin_ns);
    reduce(1, begin_ns + 20 * kMs);
    advance(begin_ns + 30 * kMs);
  }
  advance(kOneSecond + 11 * kOneSecond);

  ASSERT_TRUE(row().lateness);
  const NcclLateness& lateness = *row().lateness;
  EXPECT_EQ(row().local_ranks[lateness.rank_index].rank, 1u);
  EXPECT_EQ(lateness.basis, NcclBasis::kHost);
  EXPECT_NEAR(lateness.get_share(), 0.2, 0.03);
  EXPECT_EQ(lateness.late_steps, lateness.steps);
  EXPECT_EQ(lateness.activities[static_cast<size_t>(NcclActivity::kRunning)], 0u);
  EXPECT_GT(lateness.activities[static_cast<size_t>(NcclActivity::kSleep)], 90u);
  advance(kOneSecond + 22 * kOneSecond);
  EXPECT_FALSE(row().lateness) << "nothing happened since";
}

TEST_F(NcclStateTest, NamesNobodyWhereRanksTakeTurns) {
  create(0, 2);
  create(1, 2);
  for (uint64_t step = 0; step < 100; ++step) {
    const uint64_t begin_ns = kOneSecond + step * 100 * kMs;
    reduce(static_cast<uint32_t>(step % 2), begin_ns);
    reduce(static_cast<uint32_t>(1 - step % 2), begin_ns + kMs);
    advance(begin_ns + 30 * kMs);
  }
  advance(12 * kOneSecond);

  EXPECT_FALSE(row().lateness) << "1 % of the time";
}

TEST_F(NcclStateTest, KernelsSayMoreThanCalls) {
  create(0, 2);
  create(1, 2);
  open_session(0);
  open_session(1);
  for (uint64_t step = 0; step < 100; ++step) {
    const uint64_t begin_ns = kOneSecond + step * 100 * kMs;
    reduce(0, begin_ns);
    reduce(1, begin_ns + 5'000);
    run_kernel(0, begin_ns, begin_ns + kMs, begin_ns + 40 * kMs);
    run_kernel(1, begin_ns + 5'000, begin_ns + 31 * kMs, begin_ns + 40 * kMs);
    advance(begin_ns + 50 * kMs);
  }
  advance(12 * kOneSecond);

  ASSERT_TRUE(row().lateness);
  EXPECT_EQ(row().lateness->basis, NcclBasis::kGpu);
  EXPECT_EQ(row().local_ranks[row().lateness->rank_index].rank, 1u);
  EXPECT_NEAR(row().lateness->get_share(), 0.3, 0.05);
  EXPECT_LT(row().lateness->host_caused_ns, row().lateness->caused_ns / 100);
}

TEST_F(NcclStateTest, NamesTheRankThatIsStuck) {
  create(0, 3);
  create(1, 3);
  create(2, 3);
  for (const uint32_t rank : {0, 1, 2}) reduce(rank, kOneSecond);
  reduce(0, 2 * kOneSecond);
  reduce(2, 3 * kOneSecond);
  advance(3 * kOneSecond + NcclCommunicator::kStallNs - 1);
  EXPECT_FALSE(row().stall);
  advance(3 * kOneSecond + NcclCommunicator::kStallNs);

  EXPECT_EQ(row().stall, (NcclStall{.step = 1,
                                    .operation = NcclOperation::kAllReduce,
                                    .since_mono_ns = 3'000'000'000,
                                    .missing_ranks = {1}}));
  reduce(1, 20 * kOneSecond);
  advance(20 * kOneSecond);
  EXPECT_FALSE(row().stall);
}

TEST_F(NcclStateTest, SaysThatCallsDoNotAgree) {
  create(0, 2);
  create(1, 2);
  reduce(0, kOneSecond);
  apply("ncclBroadcast", make_call(1, {8, kFloat, 0, 0xc0}, kOneSecond));
  reduce(0, 2 * kOneSecond);
  advance(30 * kOneSecond);

  EXPECT_FALSE(row().is_in_step);
  EXPECT_FALSE(row().stall);
}

TEST_F(NcclStateTest, SplitsAreOneCommunicatorByColor) {
  create(0, 2);
  create(1, 2);
  for (const uint32_t rank : {0, 1}) {
    ReportedCall call = make_call(rank, {0xc0, 3, rank, 0x1000}, kMs);
    call.result = 0xd0;
    apply("ncclCommSplit", call);
    call = make_call(rank, {0xc0, rank, rank, 0x1000}, kMs);
    call.result = 0xe0;
    apply("ncclCommSplit", call);
  }

  ASSERT_EQ(report().communicators.size(), 4u);
  EXPECT_EQ(row(1).local_ranks.size(), 2u);
  EXPECT_TRUE(row(1).is_identified);
  EXPECT_EQ(row(1).ranks, 2u) << "all ranks of the parent are here";
  EXPECT_EQ(row(1).local_ranks[1].rank, 1u);
  EXPECT_EQ(row(2).local_ranks.size(), 1u);
  EXPECT_EQ(row(2).ranks, 1u);
}

TEST_F(NcclStateTest, InfersTheRankOfAProcessThatBeganBefore) {
  state_.learn_world(make_process(3), 3, 8);
  reduce(3, kMs);

  EXPECT_FALSE(row().is_identified);
  EXPECT_EQ(row().ranks, 8u);
  EXPECT_TRUE(row().is_size_inferred);
  EXPECT_EQ(row().local_ranks[0].rank, 3u);
  EXPECT_TRUE(row().local_ranks[0].is_rank_inferred);
  reduce(3, 2 * kMs, 1'000, 0xc1);
  EXPECT_EQ(row(0).ranks, 0u) << "of two communicators none can be told to be the world";
  EXPECT_EQ(row(1).local_ranks[0].rank, 3u);
}

TEST_F(NcclStateTest, ForgetsADestroyedCommunicatorAndAProcess) {
  create(0, 2);
  create(1, 2);
  apply("ncclCommDestroy", make_call(0, {0xc0}, kMs));
  ASSERT_EQ(report().communicators.size(), 1u);
  EXPECT_EQ(row().local_ranks.size(), 1u);
  EXPECT_TRUE(state_.list_watched().empty()) << "one rank waits for nobody here";
  state_.forget(make_process(1));

  EXPECT_TRUE(report().communicators.empty());
  create(1, 2);
  EXPECT_EQ(row().local_ranks.size(), 1u);
}

TEST_F(NcclStateTest, WatchesThreadsThatOthersMayWaitFor) {
  create(0, 2);
  create(1, 2);
  EXPECT_TRUE(state_.list_watched().empty()) << "none has communicated yet";
  reduce(0, kMs);
  reduce(1, kMs);

  EXPECT_EQ(state_.list_watched(),
            (std::vector<NcclState::Watched>{{make_process(0), 100}, {make_process(1), 101}}));
}

TEST_F(NcclStateTest, IsBoundedPerProcessAndInTotal) {
  for (uint32_t rank = 0; rank < 9; ++rank) {
    for (uint64_t comm = 1; comm <= NcclState::kMaxRanksOfProcess; ++comm) {
      create(rank, 1, comm << 32 | rank, comm);
    }
  }
  EXPECT_EQ(report().communicators.size(), NcclState::kMaxRanks);
  EXPECT_EQ(drops_.get(DropCause::kNcclRanksFull), NcclState::kMaxRanksOfProcess);
  state_.forget(make_process(1));
  create(0, 1, 1, 0xffff);
  EXPECT_EQ(drops_.get(DropCause::kNcclRanksFull), NcclState::kMaxRanksOfProcess + 1);
  create(20, 1, 1, 0xffff);

  EXPECT_EQ(drops_.get(DropCause::kNcclRanksFull), NcclState::kMaxRanksOfProcess + 1);
  for (uint32_t rank = 0; rank <= NcclState::kMaxWorlds; ++rank)
    state_.learn_world(make_process(rank), 0, 1);
  EXPECT_EQ(drops_.get(DropCause::kNcclRanksFull), NcclState::kMaxRanksOfProcess + 2);
}

TEST_F(NcclStateTest, BoundsWhatWaitsForItsOtherHalf) {
  create(0, 1);
  reduce(0, kMs);
  open_session(0);
  SessionBatch batch{.session_id = 1};
  for (uint32_t i = 0; i <= NcclKernelJoin::kMaxKernels; ++i) {
    batch.kernels.push_back(
        {.start_mono_ns = 2 * kMs, .correlation_id = 1'000'000 + i, .name_id = kKernelName});
  }
  for (uint32_t i = 0; i <= NcclKernelJoin::kMaxApis; ++i) {
    batch.apis.push_back({.start_mono_ns = kOneSecond, .correlation_id = i, .tid = 100});
  }
  sessions_.apply(batch, static_cast<int64_t>(kOneSecond));

  EXPECT_EQ(drops_.get(DropCause::kNcclJoinFull), 2u);
  SelfReport self;
  state_.fill(self);
  EXPECT_TRUE(std::ranges::any_of(self.bounds, [](const BoundLevel& level) {
    return level.bound == Bound::kNcclKernels && level.used == level.limit;
  }));
}

}  // namespace
}  // namespace gpuperf
