// The BPF programs in the running kernel, on functions of this very program, by every mechanism.

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "daemon/model/histogram.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/in_flight.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/attach/self_test.h"
#include "daemon/probe/code/placement.h"
#include "tests/kernel/probe_fixture.h"
#include "tests/kernel/probe_targets.h"

extern "C" int gpuperf_self_test_function(int status);

namespace gpuperf {
namespace {

TEST_P(FunctionProbeTest, CountsEveryCallOfManyThreads) {
  probe(0, target_plain);
  constexpr int kThreads = 8;
  constexpr int kCalls = 50'000;

  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kCalls; ++i) (void)target_plain(i);
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(count(0), (Counted{.calls = kThreads * kCalls, .completed = kThreads * kCalls}));
  const gpuperf_cell& cell = cell_of(0);
  EXPECT_GT(cell.total_ns, 0u);
  EXPECT_EQ(cell.total_ns, cell.self_ns);
  EXPECT_LE(~cell.inverted_min_ns, cell.total_ns / cell.calls);
  EXPECT_GE(cell.max_ns, cell.total_ns / cell.calls);
}

TEST_P(FunctionProbeTest, ReportsAProcessThatReachesAFunctionsLimitWithinASecond) {
  probe(0, target_plain);
  const auto call = [this](int calls) {
    for (int i = 0; i < calls; ++i) (void)target_plain(i);
    return drain<gpuperf_record>("process_ring").size();
  };
  EXPECT_EQ(call(2000), 0u);  // there is no limit yet

  programs_->set_call_cost(0, 1000, 3);  // the last such count was 2,000
  EXPECT_EQ(call(4), 0u);                // the first that is checked
  EXPECT_EQ(call(4), 1u);
  EXPECT_EQ(call(4), 0u);  // one for all that come within a tenth of a second
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(call(4), 0u);  // not within a second
}

TEST_P(FunctionProbeTest, AddsUpWhatCallsCostTheirThread) {
  probe(0, target_plain);
  programs_->set_call_cost(0, 700, 0);
  pid_t other = 0;
  std::thread([&other] {
    other = gettid();
    (void)target_plain(0);
  }).join();
  // Joined is before gone: the kernel still has the thread for a moment.
  while (tgkill(getpid(), other, 0) == 0) std::this_thread::yield();
  for (int i = 0; i < 5; ++i) (void)target_plain(i);

  ThreadCostReader reader(*programs_, "list_thread_costs");
  const auto costs = reader.read();

  ASSERT_TRUE(costs.ok()) << costs.status();
  uint64_t mine_ns = 0, all_ns = 0;
  for (const gpuperf_thread_cost& cost : *costs) {
    if (cost.pid != static_cast<uint32_t>(getpid())) continue;
    all_ns += cost.cost_ns;
    if (cost.tid == static_cast<uint32_t>(gettid())) mine_ns = cost.cost_ns;
  }
  EXPECT_EQ(mine_ns, 5u * 700);
  EXPECT_EQ(all_ns, mine_ns);
}

TEST_P(FunctionProbeTest, PutsDurationsInTheBucketTheDaemonExpects) {
  probe(0, target_inner);

  (void)target_inner(3000);

  const gpuperf_cell& cell = cell_of(0);
  ASSERT_GE(cell.total_ns, 3'000'000u);
  EXPECT_EQ(cell.buckets[bucket_of(cell.total_ns)], 1u);
  EXPECT_EQ(cell.max_ns, cell.total_ns);
  EXPECT_EQ(~cell.inverted_min_ns, cell.total_ns);
}

TEST_P(FunctionProbeTest, TakesNestedCallsOutOfSelfTime) {
  probe(0, target_outer);
  probe(1, target_inner);

  (void)target_outer(5, 1000);

  const gpuperf_cell& outer = cell_of(0);
  const gpuperf_cell& inner = cell_of(1);
  EXPECT_EQ(count(0), (Counted{.calls = 1, .completed = 1}));
  EXPECT_EQ(count(1), (Counted{.calls = 5, .completed = 5}));
  EXPECT_EQ(outer.self_ns, outer.total_ns - inner.total_ns);
  EXPECT_GE(outer.self_ns, 1'000'000u);
}

TEST_P(FunctionProbeTest, TimesEachLevelOfARecursion) {
  probe(0, target_recursive);

  EXPECT_EQ(target_recursive(9), 9);

  EXPECT_EQ(count(0), (Counted{.calls = 10, .completed = 10}));
  EXPECT_LT(cell_of(0).self_ns, cell_of(0).total_ns);
}

TEST_P(FunctionProbeTest, CountsCallsNestedTooDeepAndSaysWhatTheyLost) {
  probe(0, target_recursive);
  constexpr uint64_t kCalls = 40;

  EXPECT_EQ(target_recursive(kCalls - 1), static_cast<int>(kCalls - 1));

  const uint64_t too_deep = kCalls - GPUPERF_CALL_DEPTH;
  const Counted expected =
      GetParam() == Mechanism::kSession
          ? Counted{.calls = kCalls, .completed = kCalls}
          : Counted{.calls = kCalls, .completed = GPUPERF_CALL_DEPTH, .untimed = too_deep};
  EXPECT_EQ(count(0), expected);
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_CALL_DEPTH], too_deep);
}

TEST_P(FunctionProbeTest, CountsErrorsByCodeAndTheRestAsOther) {
  probe(0, target_plain, {.status = StatusKind::kCudaRuntime});

  for (int code = 1; code <= 8; ++code) {
    for (int i = 0; i < code; ++i) (void)target_plain(code);
  }
  (void)target_plain(0);
  (void)target_plain(600);  // cudaErrorNotReady is no error

  const gpuperf_cell& cell = cell_of(0);
  for (uint64_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    EXPECT_EQ(cell.errors[i].status_tag, (1ull << 32) | (i + 1));
    EXPECT_EQ(cell.errors[i].count, i + 1);
  }
  EXPECT_EQ(cell.other_errors, 7u + 8u);
}

TEST_P(FunctionProbeTest, CountsCallsLeftByLongjmpAsAbandoned) {
  probe(0, target_jump);
  probe(1, target_plain);
  constexpr uint64_t kJumps = 100;

  for (uint64_t i = 0; i < kJumps; ++i) {
    std::jmp_buf here;
    if (setjmp(here) == 0) (void)target_jump(&here);
  }
  std::thread([] { (void)target_plain(1); }).join();  // another thread's frames do not matter
  const uint64_t seen_at_once = count(0).abandoned;

  EXPECT_EQ(count(0).calls, kJumps);
  EXPECT_EQ(count(0).completed, 0u);
  // The last one is still on the stack until this thread makes a call from above it, or ends.
  EXPECT_EQ(seen_at_once, kJumps - 1);
}

TEST_P(FunctionProbeTest, CountsCallsAThreadEndsInAsAbandoned) {
  probe(0, target_exit_thread);

  for (int i = 0; i < 10; ++i) std::thread([] { (void)target_exit_thread(); }).join();

  // A joined thread may still be on its way out of the kernel.
  for (int i = 0; i < 1000 && count(0).abandoned < 10; ++i) usleep(1000);
  EXPECT_EQ(count(0), (Counted{.calls = 10, .abandoned = 10}));
}

TEST_P(FunctionProbeTest, CountsACallThatForksOnce) {
  probe(0, target_fork);

  const int child = target_fork();
  if (child == 0) _exit(0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);

  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(count(0), (Counted{.calls = 1, .completed = 1}));
  EXPECT_EQ(count(cell_of(0, static_cast<uint32_t>(child))), Counted{});
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_UNPAIRED_RETURN], 1u);
}

TEST_P(FunctionProbeTest, KeepsAForkedChildApart) {
  probe(0, target_plain);

  for (int i = 0; i < 3; ++i) (void)target_plain(i);
  const int child = fork();
  if (child == 0) {
    for (int i = 0; i < 5; ++i) (void)target_plain(i);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);

  EXPECT_EQ(count(0), (Counted{.calls = 3, .completed = 3}));
  EXPECT_EQ(count(cell_of(0, static_cast<uint32_t>(child))), (Counted{.calls = 5, .completed = 5}));
}

TEST_P(FunctionProbeTest, RecordsASlowCallWithArgumentsResultAndStack) {
  probe(0, target_arguments, {.slow_threshold_ns = 1'000'000});

  EXPECT_EQ(target_arguments(1, 2, 3, 4, 5, 6), 21);

  const auto records = drain_slow_calls();
  ASSERT_EQ(records.size(), 1u);
  const gpuperf_slow_call& record = records[0];
  EXPECT_EQ(record.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(record.tid, static_cast<uint32_t>(gettid()));
  EXPECT_GE(record.duration_ns, 2'000'000u);
  EXPECT_EQ(record.threshold_ns, 1'000'000u);
  EXPECT_THAT(std::span(record.values).first(6), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(record.has_values, 1u);
  EXPECT_EQ(record.return_value, 21u);
  EXPECT_STREQ(record.comm, "function_probe_");
  EXPECT_NE(record.stack_id, 0u);
  EXPECT_EQ(count(0).slow_calls, 1u);
}

TEST_P(FunctionProbeTest, ReportsEveryCallWithWhatItMade) {
  auto plan = std::make_shared<ArgumentPlan>();
  plan->fields.push_back({.name = "bytes", .capture = {.source = 1, .size_bytes = 8}});
  plan->fields.push_back({.capture = {.source = 0, .size_bytes = 8}});
  plan->rules.result_at = 2;
  plan->report = CallReport::kMemory;
  probe(0, target_allocate, {.arguments = plan});
  probe(1, target_plain);
  void* made = nullptr;

  EXPECT_EQ(target_allocate(&made, 4096, 0), 0);
  EXPECT_EQ(target_allocate(&made, 8192, 2), 2);
  (void)target_plain(1);  // of which nobody wants to know

  const auto records = drain<gpuperf_reported_call>("report_ring");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(records[0].tid, static_cast<uint32_t>(gettid()));
  EXPECT_EQ(records[0].values[0], 4096u);
  EXPECT_EQ(records[0].result, reinterpret_cast<uint64_t>(&made));
  EXPECT_EQ(records[0].return_value, 0u);
  EXPECT_NE(records[0].stack_id, 0u);
  EXPECT_GE(records[1].start_mono_ns, records[0].start_mono_ns + records[0].duration_ns);
  EXPECT_EQ(records[1].values[0], 8192u);
  EXPECT_EQ(static_cast<int>(records[1].return_value), 2);
  EXPECT_EQ(records[1].result, 0u);  // it failed
}

TEST_P(FunctionProbeTest, CountsReportsThatFindNoRoom) {
  auto plan = std::make_shared<ArgumentPlan>();
  plan->report = CallReport::kMemory;
  probe(0, target_plain, {.arguments = plan});
  constexpr uint64_t kCalls = 20'000;

  for (uint64_t i = 0; i < kCalls; ++i) (void)target_plain(0);

  const uint64_t lost = programs_->losses()[GPUPERF_LOSS_REPORT_RING_FULL];
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(drain<gpuperf_reported_call>("report_ring").size() + lost, kCalls);
  EXPECT_EQ(count(0).calls, kCalls);
}

TEST_P(FunctionProbeTest, TakesTheStackFromTheCaller) {
  probe(0, target_sleep, {.slow_threshold_ns = 1'000'000});

  (void)target_sleep_caller(2);

  const auto records = drain_slow_calls();
  ASSERT_EQ(records.size(), 1u);
  const auto stacks = drain<gpuperf_stack_copy>("stack_copy_ring");
  ASSERT_EQ(stacks.size(), 1u);
  EXPECT_EQ(stacks[0].stack.stack_id, records[0].stack_id);
  const auto caller = reinterpret_cast<uint64_t>(&target_sleep_caller);
  EXPECT_GT(stacks[0].stack.frames[0].pc, caller);
  EXPECT_LT(stacks[0].stack.frames[0].pc, caller + 64);
}

TEST_P(FunctionProbeTest, SaysNothingOfFastCalls) {
  probe(0, target_plain, {.slow_threshold_ns = 1'000'000'000});

  for (int i = 0; i < 1000; ++i) (void)target_plain(i);

  EXPECT_TRUE(drain_slow_calls().empty());
  EXPECT_EQ(count(0).slow_calls, 0u);
}

TEST_P(FunctionProbeTest, ThinsOutABurstOfSlowCallsButNotItsWorst) {
  probe(0, target_plain, {.slow_threshold_ns = 1});
  constexpr uint64_t kCalls = 5000;

  for (uint64_t i = 0; i < kCalls; ++i) (void)target_plain(0);

  const uint64_t thinned = programs_->losses()[GPUPERF_LOSS_SLOW_THINNED];
  const auto calls = drain_slow_calls();
  EXPECT_EQ(count(0).slow_calls, kCalls);
  EXPECT_GT(thinned, 0u);
  EXPECT_EQ(calls.size() + thinned, kCalls);
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_SLOW_RING_FULL], 0u);
  EXPECT_EQ(std::ranges::max(calls, {}, &gpuperf_slow_call::duration_ns).duration_ns,
            cell_of(0).max_ns);
}

TEST_P(FunctionProbeTest, CountsTheCallsThatATraceHasNoRoomFor) {
  probe(0, target_plain);
  programs_->set_trace({.flags = GPUPERF_TRACE_CALLS});
  constexpr uint64_t kCalls = 150'000;

  for (uint64_t i = 0; i < kCalls; ++i) (void)target_plain(0);

  const uint64_t lost = programs_->losses()[GPUPERF_LOSS_TRACE_RING_FULL];
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(drain<gpuperf_traced_call>("trace_ring").size() + lost, kCalls);
  EXPECT_EQ(count(0).calls, kCalls);
}

TEST_P(FunctionProbeTest, CountsTheExitsThatFindNoRoom) {
  constexpr uint64_t kProcesses = 2'200;
  load({.functions = 1, .cells = kProcesses + 1});
  probe(0, target_plain);

  for (uint64_t i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      (void)target_plain(1);
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  }

  const uint64_t lost = programs_->losses()[GPUPERF_LOSS_PROCESS_RING_FULL];
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(drain<gpuperf_process_exit>("process_ring").size() + lost, kProcesses);
}

TEST_P(FunctionProbeTest, LosesNoCallWhenTheCellsAreFull) {
  load({.functions = 4, .cells = 1});
  probe(0, target_plain);
  probe(1, target_inner);

  for (int i = 0; i < 10; ++i) (void)target_plain(i);
  for (int i = 0; i < 20; ++i) (void)target_inner(0);

  EXPECT_EQ(count(0), (Counted{.calls = 10, .completed = 10}));
  EXPECT_EQ(count(programs_->cells()[1]), (Counted{.calls = 20, .completed = 20}));
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_CELLS_FULL], 20u);
}

TEST_P(FunctionProbeTest, LeavesCellsToOtherUsersAndToRoot) {
  load({.functions = 1, .cells = 8});
  probe(0, target_plain);
  const auto call_as = [](uid_t uid) {
    const pid_t child = fork();
    if (child == 0) {
      if (setresuid(uid, uid, uid) != 0) _exit(1);
      (void)target_plain(1);
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  };

  for (int i = 0; i < 9; ++i) call_as(65'534);
  call_as(65'533);
  (void)target_plain(1);

  EXPECT_EQ(count(programs_->cells()[0]), (Counted{.calls = 3, .completed = 3}));
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_CELLS_USER_FULL], 3u);
  EXPECT_EQ(programs_->losses()[GPUPERF_LOSS_CELLS_FULL], 0u);
  EXPECT_NE(&cell_of(0), &programs_->cells()[0]);
}

TEST_P(FunctionProbeTest, CountsAFunctionThatThrowsWithoutHarm) {
  probe(0, target_throws, {}, Timing::kNone);
  int caught = 0;

  for (int i = 0; i < 100; ++i) {
    try {
      (void)target_throws(i);
    } catch (int) {
      ++caught;
    }
  }

  EXPECT_EQ(caught, 100);
  EXPECT_EQ(count(0), (Counted{.calls = 100, .untimed = 100}));
}

TEST_P(FunctionProbeTest, KeepsOtherProbesWhenTheKernelRefusesOne) {
  programs_->set_function({.id = 0}, false);
  programs_->set_function({.id = 1}, false);
  const Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto good = find_own_offset(reinterpret_cast<const void*>(&target_plain));
  ASSERT_TRUE(good.ok());
  const std::vector<ProbePoint> points = {{.function_id = 0, .offset_bytes = *good},
                                          {.function_id = 1, .offset_bytes = 1ull << 40}};

  const auto outcomes = attacher_->attach({.fd = self.get(), .name = "self"}, points);
  (void)target_plain(1);

  EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  EXPECT_FALSE(outcomes[1].status.ok());
  EXPECT_THAT(std::string(outcomes[1].status.message()), testing::HasSubstr("self: attach"));
  EXPECT_EQ(count(0), (Counted{.calls = 1, .completed = 1}));
}

TEST_P(FunctionProbeTest, StopsCountingWhenDetached) {
  probe(0, target_plain);
  (void)target_plain(1);

  attacher_->detach_all();
  (void)target_plain(1);

  EXPECT_EQ(count(0), (Counted{.calls = 1, .completed = 1}));
}

TEST_P(FunctionProbeTest, DetachesOneFileAndKeepsTheOthers) {
  probe(0, target_plain);
  probe(1, target_inner);

  attacher_->detach_files({0});
  (void)target_plain(1);
  (void)target_inner(0);

  EXPECT_EQ(count(0), Counted{});
  EXPECT_EQ(count(1), (Counted{.calls = 1, .completed = 1}));
}

TEST_P(FunctionProbeTest, CountsTheSameBehindAnEndbr64) {
  const Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto start = find_own_offset(reinterpret_cast<const void*>(&target_landing_pad));
  ASSERT_TRUE(start.ok());
  Result<CodeMap> code = CodeMap::open(self.get());
  ASSERT_TRUE(code.ok());
  const auto placed = place_entry(*code, {.file_offset_bytes = *start});
  ASSERT_TRUE(placed.ok());
  const uint64_t offset = placed->offset_bytes;
  ASSERT_EQ(offset, *start + 4);
  programs_->set_function({.id = 0, .status = StatusKind::kCudaRuntime, .slow_threshold_ns = 1},
                          true);
  const ProbePoint point{.function_id = 0, .offset_bytes = offset};
  ASSERT_TRUE(attacher_->attach({.fd = self.get(), .name = "self"}, {&point, 1})[0].status.ok());

  EXPECT_EQ(target_landing_pad(2, 7), 2);

  EXPECT_EQ(count(0), (Counted{.calls = 1, .completed = 1, .slow_calls = 1}));
  EXPECT_EQ(cell_of(0).errors[0].status_tag, (1ull << 32) | 2);
  const auto records = drain_slow_calls();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].values[0], 2u);
  EXPECT_EQ(records[0].values[1], 7u);
}

// Two daemons that start at once try the same function of the same file.
TEST_P(FunctionProbeTest, TrialCountsOwnCallsOnly) {
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    while (true) (void)gpuperf_self_test_function(1);
  }
  const Status tried = try_mechanism(GetParam());
  (void)kill(other, SIGKILL);
  ASSERT_EQ(waitpid(other, nullptr, 0), other);
  EXPECT_TRUE(tried.ok()) << tried;
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, FunctionProbeTest, testing::ValuesIn(kMechanisms),
                         [](const auto& info) {
                           return std::string(get_mechanism_name(info.param));
                         });

}  // namespace
}  // namespace gpuperf
