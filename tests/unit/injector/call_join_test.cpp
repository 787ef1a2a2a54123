#include "injector/call_join.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

namespace gpuperf::injector {
namespace {

constexpr uint64_t kNow = 1'700'000'000'000'000'000;
constexpr uint64_t kLater = 500'000'000;

class CallJoinTest : public testing::Test, private CallJoin::Sink {
 protected:
  // A call that starts so long after kNow and takes 4 us.
  void call(uint16_t entry, uint64_t start_ns, uint32_t tid, uint64_t size, uint32_t stream = 7) {
    join_.add(CallJoin::Call{.start_unix_ns = kNow + start_ns,
                             .size = size,
                             .duration_ns = 4'000,
                             .stream = stream,
                             .tid = tid,
                             .entry = entry});
  }
  void kernel_call(uint64_t start_ns, uint32_t tid, uint64_t size = 5, uint32_t stream = 7) {
    call(GPUPERF_HOOK_cuLaunchKernel, start_ns, tid, size, stream);
  }
  // Runs for 2 us.
  void work(CallKind kind, uint32_t id, uint64_t start_ns, uint64_t size, uint32_t stream = 7) {
    join_.add(CallJoin::Work{.start_unix_ns = kNow + start_ns,
                             .end_unix_ns = kNow + start_ns + 2'000,
                             .size = size,
                             .correlation_id = id,
                             .stream = stream,
                             .kind = kind});
  }
  void kernel(uint32_t id, uint64_t start_ns, uint64_t size = 5, uint32_t stream = 7) {
    work(CallKind::kLaunch, id, start_ns, size, stream);
  }
  // Thread that called by correlation id, of those that were found by now.
  std::map<uint32_t, uint32_t> join(uint64_t at_ns = kLater) {
    join_.join(kNow + at_ns, *this);
    return std::exchange(found_, {});
  }
  CallJoin join_;

 private:
  void take(const CallJoin::Call& call, uint32_t correlation_id) override {
    EXPECT_TRUE(found_.emplace(correlation_id, call.tid).second) << correlation_id;
  }
  std::map<uint32_t, uint32_t> found_;
};

using Found = std::map<uint32_t, uint32_t>;

TEST_F(CallJoinTest, TakesTheCallsOfAStreamInOrder) {
  kernel_call(10'000, 1);
  call(GPUPERF_HOOK_cuMemcpyAsync, 20'000, 2, 100);
  kernel_call(30'000, 3);
  call(GPUPERF_HOOK_cuMemsetD8Async, 40'000, 4, 50);
  call(GPUPERF_HOOK_cuGraphLaunch, 50'000, 5, 0);
  kernel_call(10'500, 6, 5, 13);
  kernel(90, 100'000);
  work(CallKind::kCopy, 91, 110'000, 100);
  kernel(92, 120'000);
  work(CallKind::kSet, 93, 130'000, 50);
  work(CallKind::kGraph, 94, 140'000, 0);
  kernel(95, 15'000, 5, 13);

  EXPECT_EQ(join(), (Found{{90, 1}, {91, 2}, {92, 3}, {93, 4}, {94, 5}, {95, 6}}));
}

TEST_F(CallJoinTest, PassesOverCallsThatLeftNoWork) {
  kernel_call(10'000, 1, 5);
  kernel_call(20'000, 2, 6);
  kernel_call(30'000, 3, 7);
  kernel(90, 100'000, 5);
  kernel(92, 120'000, 7);

  EXPECT_EQ(join(), (Found{{90, 1}, {92, 3}}));
  EXPECT_FALSE(join_.is_broken());
}

TEST_F(CallJoinTest, IsBrokenByWorkThatNoHookSaw) {
  kernel_call(10'000, 1, 5);
  kernel_call(30'000, 3, 5);
  kernel(90, 100'000, 5);
  kernel(91, 110'000, 6);
  kernel(92, 120'000, 5);

  EXPECT_EQ(join(), (Found{{90, 1}}));
  EXPECT_TRUE(join_.is_broken());
  kernel_call(200'000, 1, 5);
  kernel(93, 210'000, 5);
  EXPECT_EQ(join(), Found{}) << "for good";
}

TEST_F(CallJoinTest, NoCallBeginsAfterItsWork) {
  kernel_call(10'000, 1);
  kernel_call(200'000, 1);
  kernel(90, 13'000);
  kernel(91, 100'000);

  EXPECT_EQ(join(), (Found{{90, 1}}));
  EXPECT_TRUE(join_.is_broken());
}

TEST_F(CallJoinTest, PassesOverWorkFromBeforeTheFirstCall) {
  kernel(88, 50'000);
  kernel(89, 60'000, 5, 13);
  kernel_call(100'000, 1);
  kernel(90, 103'000);
  kernel_call(300'000, 2, 5, 13);
  kernel(91, 303'000, 5, 13);

  EXPECT_EQ(join(), (Found{{90, 1}, {91, 2}}));
}

// It may still be of a launch from before, which the next one is queued behind.
TEST_F(CallJoinTest, IsBrokenWhereWorkFromBeforeMayStandBetween) {
  kernel(89, 50'000);
  kernel_call(100'000, 1);
  kernel(90, 400'000);

  EXPECT_EQ(join(), Found{});
  EXPECT_TRUE(join_.is_broken());
}

TEST_F(CallJoinTest, AfterARestartEachPieceOfWorkHasACallThatWasLogged) {
  kernel(88, 50'000);
  kernel_call(60'000, 1);
  join_.restart(kNow + 90'000);
  kernel_call(100'000, 2);
  kernel(90, 900'000);

  EXPECT_EQ(join(), (Found{{90, 2}})) << "however late, for there is none from before";
  kernel(91, 901'000, 5, 13);
  EXPECT_EQ(join(), Found{});
  EXPECT_TRUE(join_.is_broken()) << "nor on a stream without a call";
  join_.restart(kNow + 950'000);
  EXPECT_FALSE(join_.is_broken());
}

TEST_F(CallJoinTest, AfterARestartWorkFromBeforeIsPassedOver) {
  join_.restart(kNow + 90'000);
  kernel(88, 50'000);
  kernel_call(100'000, 2);
  kernel(90, 110'000);

  EXPECT_EQ(join(), (Found{{90, 2}}));
  EXPECT_FALSE(join_.is_broken());
}

TEST_F(CallJoinTest, AtItsEndTakesWhatHasJustEndedAndTellsHowManyAreMissing) {
  kernel_call(10'000, 1);
  kernel_call(20'000, 2);
  kernel(90, 30'000);
  EXPECT_EQ(join(33'000), Found{}) << "its call may not have been logged yet";
  Found found;
  struct Taking final : CallJoin::Sink {
    explicit Taking(Found& all) : found(all) {}
    void take(const CallJoin::Call& call, uint32_t id) override { found.emplace(id, call.tid); }
    Found& found;
  } taking(found);
  join_.finish(taking);
  EXPECT_EQ(found, (Found{{90, 1}}));
  EXPECT_EQ(join_.take_lost(), 1u);
  EXPECT_EQ(join_.take_lost(), 0u);
}

TEST_F(CallJoinTest, CountsTheCallsThatItForgets) {
  kernel_call(10'000, 1);
  kernel_call(20'000, 2);
  kernel(90, 12'000);
  EXPECT_EQ(join(), (Found{{90, 1}}));
  EXPECT_EQ(join_.take_lost(), 0u);

  join_.break_off("a test");
  kernel_call(30'000, 3);
  EXPECT_EQ(join_.take_lost(), 2u) << "one that waited, one that came later";
}

TEST_F(CallJoinTest, CountsTheCallsWhoseWorkNeverComes) {
  kernel_call(10'000, 1);
  kernel(90, CallJoin::kCallPatienceNs, 5, 13);
  (void)join(CallJoin::kCallPatienceNs + 20'000);
  EXPECT_EQ(join_.take_lost(), 1u);
}

TEST_F(CallJoinTest, LeavesWorkAloneUntilItsCallMustHaveBeenLogged) {
  kernel(90, 12'500);
  EXPECT_EQ(join(20'000), Found{});
  kernel_call(10'000, 1);

  EXPECT_EQ(join(), (Found{{90, 1}}));
}

TEST_F(CallJoinTest, IsBrokenByTwoThreadsCallsOfOneSizeAtOnce) {
  kernel_call(10'000, 1);
  kernel_call(12'000, 2);
  kernel(90, 50'000);
  kernel(91, 60'000);

  EXPECT_EQ(join(), Found{});
  EXPECT_TRUE(join_.is_broken());
}

TEST_F(CallJoinTest, TellsTwoThreadsCallsAtOnceApartByTheirSizes) {
  kernel_call(10'000, 1, 5);
  kernel_call(12'000, 2, 6);
  kernel(90, 50'000, 6);  // whichever came first
  kernel(91, 60'000, 5);

  EXPECT_EQ(join(), (Found{{90, 2}, {91, 1}}));
}

TEST_F(CallJoinTest, IsBrokenByWhatHasNoRoom) {
  for (uint32_t i = 0; i < CallJoin::kCallsMax; ++i) kernel_call(5'000 * i, 1);
  EXPECT_FALSE(join_.is_broken());
  kernel_call(10, 1);
  EXPECT_TRUE(join_.is_broken());
}

// Threads that launch, copy and replay on streams of their own, records in pieces.
TEST_F(CallJoinTest, FindsEveryCallOfThreadsWithStreamsOfTheirOwn) {
  std::mt19937 random(1);
  struct Event {
    CallJoin::Work work;
    uint64_t end_ns;
  };
  std::vector<Event> events;
  std::vector<std::pair<uint64_t, CallJoin::Call>> calls;  // by when they are logged
  Found expected;
  uint32_t id = 0;
  const uint16_t entries[] = {GPUPERF_HOOK_cuLaunchKernel, GPUPERF_HOOK_cuLaunchKernel,
                              GPUPERF_HOOK_cuMemcpyHtoDAsync_v2, GPUPERF_HOOK_cuMemsetD32Async};
  std::vector<std::pair<uint64_t, uint32_t>> begun;  // start, thread
  for (uint32_t thread = 1; thread <= 8; ++thread) {
    uint64_t at_ns = random() % 5'000;
    for (int i = 0; i < 2'000; ++i) {
      begun.emplace_back(at_ns, thread);
      at_ns += 4'000 + random() % 3'000;
    }
  }
  std::sort(begun.begin(), begun.end());
  std::vector<uint64_t> device_ns(9);
  for (const auto& [start_ns, thread] : begun) {
    const uint16_t entry = entries[random() % 4];
    const uint64_t size = 64 << (random() % 3);
    const uint64_t from_ns = std::max(device_ns[thread], start_ns + 3'500);
    device_ns[thread] = from_ns + 500 + random() % 6'000;
    expected[++id] = thread;
    calls.push_back({start_ns + 4'000,
                     {.start_unix_ns = kNow + start_ns,
                      .size = size,
                      .duration_ns = 3'900,
                      .stream = 20 + thread,
                      .tid = thread,
                      .entry = entry}});
    events.push_back({{.start_unix_ns = kNow + from_ns,
                       .end_unix_ns = kNow + device_ns[thread],
                       .size = size,
                       .correlation_id = id,
                       .stream = 20 + thread,
                       .kind = get_call_kind(entry)},
                      device_ns[thread]});
  }
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.end_ns < b.end_ns; });
  std::sort(calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Found found;
  size_t next_call = 0, next_event = 0;
  for (uint64_t now_ns = 0; now_ns < 100'000'000; now_ns += 700'000) {
    for (; next_event < events.size() && events[next_event].end_ns < now_ns; ++next_event) {
      join_.add(events[next_event].work);
    }
    for (; next_call < calls.size() && calls[next_call].first < now_ns; ++next_call) {
      join_.add(calls[next_call].second);
    }
    found.merge(join(now_ns));
  }

  EXPECT_EQ(found, expected);
}

// ---- What is logged of a call

TEST(CallTargetTest, KnowsWhatEachEntryDoes) {
  EXPECT_EQ(get_call_kind(GPUPERF_HOOK_cuLaunchKernelEx_ptsz), CallKind::kLaunch);
  EXPECT_EQ(get_call_kind(GPUPERF_HOOK_cuGraphLaunch), CallKind::kGraph);
  EXPECT_EQ(get_call_kind(GPUPERF_HOOK_cuMemcpy3DPeerAsync), CallKind::kCopy);
  EXPECT_EQ(get_call_kind(GPUPERF_HOOK_cuMemsetD2D16_v2), CallKind::kSet);
  EXPECT_STREQ(get_entry_name(GPUPERF_HOOK_cuMemcpyHtoD_v2), "cuMemcpyHtoD_v2");
}

TEST(CallTargetTest, FindsBytes) {
  const uint64_t arguments[6] = {1, 2, 300, 4, 5, 6};
  const auto bytes = [&](uint32_t entry) {
    return find_call_target(entry, arguments, nullptr).size;
  };
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemcpyHtoDAsync_v2), 300u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemcpy_ptds), 300u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemsetD8_v2), 300u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemsetD16Async), 600u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemsetD32Async), 1'200u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemsetD2D32Async), 0u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemcpy2DAsync_v2), 0u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemcpyDtoA_v2), 0u);
  EXPECT_EQ(bytes(GPUPERF_HOOK_cuMemcpyPeer), 0u);
}

TEST(CallTargetTest, ACopyOfNothingHasNoWork) {
  const uint64_t arguments[6] = {1, 2, 0, 4, 5, 6};
  const auto has_work = [&](uint32_t entry) {
    return find_call_target(entry, arguments, nullptr).has_work;
  };
  EXPECT_FALSE(has_work(GPUPERF_HOOK_cuMemcpyHtoDAsync_v2));
  EXPECT_TRUE(has_work(GPUPERF_HOOK_cuMemcpy2DAsync_v2));
}

TEST(CallTargetTest, FindsGridAndBlockInBothForms) {
  const uint64_t arguments[6] = {0x1234, 10, 20, 30, 40, 50};  // function, grid, block
  const uint64_t stack[5] = {60, 1'024, 0, 0, 0};              // block, shared memory, stream
  struct {
    uint32_t grid[3] = {10, 20, 30};
    uint32_t block[3] = {40, 50, 60};
    uint32_t shared_bytes = 1'024;
    uint64_t stream = 0;
  } config;
  const uint64_t by_config[6] = {reinterpret_cast<uint64_t>(&config), 0x1234};
  const uint64_t size = make_size({10, 20, 30}, {40, 50, 60});

  EXPECT_EQ(find_call_target(GPUPERF_HOOK_cuLaunchKernel, arguments, stack).size, size);
  EXPECT_EQ(find_call_target(GPUPERF_HOOK_cuLaunchCooperativeKernel, arguments, stack).size, size);
  EXPECT_EQ(find_call_target(GPUPERF_HOOK_cuLaunchKernelEx, by_config, stack).size, size);
  EXPECT_NE(make_size({20, 10, 30}, {40, 50, 60}), size);
}

TEST(CallRingTest, GivesEachCallOnceAndCountsWhatHasNoRoom) {
  const auto ring = std::make_unique<CallRing>();
  std::vector<uint64_t> taken;
  const auto take_all = [&] {
    taken.clear();
    ring->take([&](const LoggedCall& call) { taken.push_back(call.start_mono_ns); });
  };
  take_all();
  EXPECT_TRUE(taken.empty());
  int half_full = 0;
  for (uint64_t i = 0; i < CallRing::kCalls + 10; ++i) half_full += ring->add({.start_mono_ns = i});

  take_all();
  EXPECT_EQ(half_full, 2) << "after each half";
  ASSERT_EQ(taken.size(), CallRing::kCalls);
  EXPECT_EQ(taken.back(), CallRing::kCalls - 1);
  EXPECT_EQ(ring->lost_count(), 10u);
  (void)ring->add({.start_mono_ns = 77});
  take_all();
  EXPECT_EQ(taken, std::vector<uint64_t>{77});
}

}  // namespace
}  // namespace gpuperf::injector
