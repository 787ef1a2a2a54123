#include "daemon/slow/explain.h"

#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/slow/explain_rules.h"
#include "tests/unit/matchers.h"
#include "tests/unit/model/make_stack.h"
#include "tests/unit/slow/examples.h"

namespace gpuperf {
namespace {

constexpr uint32_t kPid = 41;
constexpr uint32_t kTid = 42;

// 100 ms of thread 42 of process 41, all of them in user space without a split of another kind.
SlowCall make_call(std::string category, std::string function, const TimeSplit& split = {}) {
  SlowCall call{.category = std::move(category), .function = std::move(function)};
  call.event.process = {.pid = kPid, .start_boot_ns = 1};
  call.event.tid = kTid;
  call.event.duration_ns = 100 * kMs;
  call.event.split = split;
  return call;
}

SlowCall make_custom_call(const TimeSplit& split = {}) { return make_call("custom", "f", split); }

TimeSplit make_blocked(WaitKind kind, uint64_t duration_ns) {
  TimeSplit split;
  split.waits_ns[static_cast<size_t>(kind)] = duration_ns;
  return split;
}

TimeSplit make_on_cpu(int tick) {
  TimeSplit split;
  split.ticks[tick] = 1;
  return split;
}

void add_wait(SlowCall& call, Wait wait, WaitStacks stacks = {}) {
  call.event.waits.push_back(std::move(wait));
  call.wait_stacks.push_back(std::move(stacks));
}

// Blocked for 90 ms of its 100, in one wait.
SlowCall make_blocked_call(std::string category, std::string function, Wait wait,
                           std::vector<StackFrame> waker_stack = {}) {
  SlowCall call =
      make_call(std::move(category), std::move(function), make_blocked(wait.kind, 90 * kMs));
  wait.duration_ns = 90 * kMs;
  add_wait(call, std::move(wait), {.waker = testing::make_stack(std::move(waker_stack))});
  return call;
}

SlowCall make_futex_call(Waker waker = {}, std::vector<StackFrame> waker_stack = {}) {
  return make_blocked_call("custom", "f",
                           {.kind = WaitKind::kFutex, .syscall = 202, .waker = std::move(waker)},
                           std::move(waker_stack));
}

Waker make_own_thread() { return {.tid = 77, .pid = kPid, .comm = "worker"}; }

SlowCall make_copy(std::string function, const std::string& bytes = "") {
  SlowCall call = make_call("cuda", std::move(function));
  if (!bytes.empty()) call.arguments = {{"bytes", bytes}};
  return call;
}

SlowCall make_parent(NamedCalls most) {
  SlowCall call = make_custom_call();
  call.children = {std::move(most), {"cuda", "cudaFree", 1, kMs}};
  return call;
}

// The GPU was busy for so long of the call's 100 ms.
SlowCall make_gpu_call(std::string function, uint64_t busy_ms, GpuDuringCall gpu = {}) {
  SlowCall call = make_call("cuda", std::move(function));
  gpu.busy_ns = busy_ms * kMs;
  gpu.idle_ns = 100 * kMs - gpu.busy_ns;
  call.gpu = std::make_shared<const GpuDuringCall>(std::move(gpu));
  return call;
}

GpuKernelTime make_kernel_time(uint64_t total_ms) {
  return {.kernel = "flash(float*)",
          .short_name = "flash",
          .total_ns = total_ms * kMs,
          .count = 3,
          .launcher = {.function = "cudaLaunchKernel",
                       .operation = "linear",
                       .frame = "forward (model.py:88)",
                       .tid = 71,
                       .comm = "python"}};
}

struct Example {
  std::string_view rule;
  SlowCall call;
  std::vector<std::string> words;
};

// At least one for every rule, in their order.
std::vector<Example> make_examples() {
  SlowCall no_split = make_custom_call();
  no_split.event.split.reset();
  TimeSplit no_cpu{.runnable_ns = 70 * kMs, .preemptions = 9};
  SlowCall page_wait = make_blocked_call("custom", "f", {.kind = WaitKind::kFault});
  page_wait.event.split->major_faults = 3;
  SlowCall page_faults = make_custom_call(make_on_cpu(GPUPERF_TICK_FAULT));
  page_faults.event.split->minor_faults = 25'000;
  SlowCall out_of_memory = make_call("cuda", "cudaMalloc");
  out_of_memory.status = StatusKind::kCudaRuntime;
  out_of_memory.event.return_value = 2;
  return {
      {"unknown", no_split, {}},
      {"nested",
       make_parent({"cuda", "cuLaunchKernel", 12, 80 * kMs}),
       {"80 ms went into 12 nested calls of cuLaunchKernel", "Look at those",
        "gpuperfctl slow list --function 'cuLaunchKernel' --pid 41"}},
      {"nested",
       make_parent({"cuda", "cudaMalloc", 1, 60 * kMs}),
       {"60 ms went into 1 nested call of cudaMalloc.", "Look at that one"}},
      {"throttled",
       make_custom_call({.throttled_ns = 60 * kMs}),
       {"ready to run for 60 ms", "its cgroup had used up its CPU quota", "Raise the CPU limit",
        "cpu.max"}},
      {"no_cpu",
       make_custom_call(no_cpu),
       {"ready to run for 70 ms but had no CPU (preempted 9 times)", "taskset -p 42", "cpuset"}},
      {"gil",
       make_futex_call(make_own_thread(), {{.symbol = "drop_gil"}}),
       {"Blocked 90 ms on Python's interpreter lock (GIL)", "woken by thread 77 (worker)",
        "look at the waker's stack"}},
      {"futex",
       make_futex_call(make_own_thread(), {{.symbol = "release(Lock&)"}}),
       {"Blocked 90 ms on a futex, woken by thread 77 (worker) in release(Lock&).", "held the lock",
        "look at the waker's stack"}},
      {"futex",
       make_futex_call(),
       {"Blocked 90 ms on a futex. It waits for", "look at the stacks"}},
      {"gpu_queue",
       make_gpu_call("cudaMemcpy", 80,
                     {.kernel_ns = 80 * kMs,
                      .kernels = {make_kernel_time(80)},
                      .own = {.launches = 1, .run_ns = 2 * kMs, .stream_wait_ns = 70 * kMs}}),
       {"its work was queued 70 ms behind earlier work on its stream, and ran 2.0 ms",
        "busy for 80 ms: 80 ms of the call in kernel flash (3 times), launched by thread 71 "
        "(python) at "
        "forward (model.py:88) in linear.",
        "a separate stream"}},
      {"gpu_others",
       make_gpu_call("cudaStreamSynchronize", 10,
                     {.others = {{90, "train", 60 * kMs}}, .others_ns = 70 * kMs}),
       {"Waited 100 ms for the GPU, which ran other processes' work for 70 ms: 60 ms of it for "
        "process 90 (train), and this one's for 10 ms.",
        "gpuperfctl gpus"}},
      {"gpu_work",
       make_gpu_call("cudaStreamSynchronize", 70, {.kernels = {make_kernel_time(64)}}),
       {"Waited 100 ms for the GPU: 64 ms of the call in kernel flash (3 times), launched by "
        "thread 71 "
        "(python) at forward (model.py:88) in linear. It was idle for 30 % of the call.",
        "Make that work shorter"}},
      {"gpu_work",
       make_gpu_call("cudaFree", 99,
                     {.copies = {{"host_to_device", 99 * kMs, 1, 4'096}}, .missing = {"some"}}),
       {"Waited 100 ms for the GPU: 99 ms of the call in copies host_to_device (1 time). Make"}},
      {"gpu_idle",
       make_gpu_call("cudaEventSynchronize", 20, {.kernels = {make_kernel_time(20)}}),
       {"Waited 100 ms, but the GPU had no work of this process for 80 ms of the call, and was "
        "busy for 20 ms: 20 ms of the call in kernel flash",
        "gpuperfctl trace"}},
      {"gpu_sync",
       make_blocked_call("cuda", "cudaStreamSynchronize",
                         {.kind = WaitKind::kPoll, .syscall = 7, .file_mode = S_IFCHR}),
       {"Waited 90 ms for the GPU to finish", "before, blocked.",
        "look at the kernels launched before this call"}},
      {"gpu_sync",
       make_call("cuda", "cuCtxSynchronize"),
       {"Waited 100 ms for the GPU", "spinning on the CPU"}},
      {"gpu_sync",
       make_call("cuda", "cudaEventQuery", make_on_cpu(GPUPERF_TICK_SYSCALL)),
       {"Waited 100 ms for the GPU", "spinning on the CPU"}},
      {"allocation",
       make_call("cuda", "cudaMallocAsync"),
       {"100 ms went into the driver's memory management (on the CPU in user space)",
        "Memory must be allocated", "Allocate once and reuse", "how full the GPU's memory is"}},
      {"allocation", out_of_memory, {"The GPU was out of memory. Allocate once and reuse"}},
      {"allocation",
       make_call("cuda", "cuMemFree_v2", make_on_cpu(GPUPERF_TICK_SYSCALL)),
       {"(on the CPU in system calls)", "Freeing waits for the GPU to be idle"}},
      {"gpu_driver",
       make_blocked_call("cuda", "cudaStreamCreate",
                         {.kind = WaitKind::kGpu,
                          .syscall = 16,
                          .file_mode = S_IFCHR | 0666,
                          .file_name = "nvidia-uvm"}),
       {"Blocked 90 ms in the GPU driver in ioctl of a device nvidia-uvm.",
        "look at the kernel stack", "gpuperfctl top"}},
      {"io",
       make_blocked_call("custom", "f",
                         {.kind = WaitKind::kIo,
                          .syscall = 45,
                          .file_mode = S_IFSOCK,
                          .waker = {.tid = 9, .pid = 8, .comm = "server"}}),
       {"Blocked 90 ms in recvfrom of a socket, woken by thread 9 (server) of process 8.",
        "The other end or the disk"}},
      {"poll",
       make_blocked_call("custom", "f",
                         {.kind = WaitKind::kPoll, .syscall = 232, .waker = make_own_thread()}),
       {"Blocked 90 ms in epoll_wait, waiting for an event, woken by thread 77 (worker).",
        "Find out what should have sent it"}},
      {"sleep",
       make_blocked_call("custom", "f", {.kind = WaitKind::kSleep, .syscall = 230}),
       {"Slept 90 ms in clock_nanosleep", "the code requested the delay",
        "Look at the caller's stack"}},
      {"page_wait",
       page_wait,
       {"Blocked 90 ms in page faults (3 of them needed the disk)", "look at the kernel stack"}},
      {"blocked",
       make_blocked_call("custom", "f",
                         {.kind = WaitKind::kOther,
                          .syscall = 61,
                          .waker = {.tid = 5, .pid = 5, .is_kernel = true, .comm = "kworker/1:2"}}),
       {"Blocked 90 ms in wait4, woken by kernel thread 5 (kworker/1:2).",
        "Look at the kernel stack of the longest wait"}},
      {"page_faults",
       page_faults,
       {"100 ms went into 25000 page faults", "Reuse buffers", "MAP_POPULATE"}},
      {"pageable_copy",
       make_copy("cudaMemcpy", "400000000"),
       {"kept the CPU busy for 100 ms (4.0 GB/s)", "pageable", "Use pinned memory",
        "pin_memory=True"}},
      {"pageable_copy",
       make_copy("cudaMemcpyAsync"),
       {"kept the CPU busy for 100 ms:", "asynchronous copy"}},
      {"copy",
       make_copy("cudaMemcpy", "2000000000"),
       {"The copy waited 100 ms on the CPU in user space", "all work queued before it",
        "copy asynchronously"}},
      {"first_use",
       make_call("cuda", "cuModuleLoadData"),
       {"It spent 100 ms on the CPU in user space", "A first use loads code",
        "If it happens again, look at the stack"}},
      {"first_use", make_call("cuda", "cudaLaunchKernel"), {"a launch also waits when its queue"}},
      {"collective",
       make_call("nccl", "ncclAllReduce"),
       {"It spent 100 ms on the CPU in user space", "waits for other ranks",
        "find the rank that has not reached it"}},
      {"system_calls",
       make_custom_call(make_on_cpu(GPUPERF_TICK_SYSCALL)),
       {"100 ms went into system calls on the CPU", "strace -c -p 42"}},
      {"computing",
       make_custom_call(),
       {"100 ms went into computation in user space", "Look at the caller's stack",
        "perf record -t 42"}},
  };
}

std::string find_rule(const SlowCall& call) { return std::string(find_explanation_rule(call)); }

TEST(ExplainTest, HasAnExampleHereForEveryRule) {
  std::vector<std::string_view> rules;
  for (const Example& example : make_examples()) {
    if (rules.empty() || rules.back() != example.rule) rules.push_back(example.rule);
  }

  EXPECT_EQ(rules, list_explanation_rules());
}

TEST(ExplainTest, ExplainsEveryExampleByItsRule) {
  for (const Example& example : make_examples()) {
    EXPECT_EQ(find_explanation_rule(example.call), example.rule) << explain(example.call);
  }
}

TEST(ExplainTest, GivesTheNumbersTheNamesAndTheNextStep) {
  for (const Example& example : make_examples()) {
    const std::string text = explain(example.call);

    for (const std::string& words : example.words) {
      EXPECT_THAT(text, HasSubstr(words)) << example.rule;
    }
  }
}

TEST(ExplainTest, SaysNothingWhereTheSplitIsNotKnown) {
  SlowCall call = make_custom_call();
  call.event.split.reset();

  EXPECT_EQ(explain(call), "");
}

TEST(ExplainTest, SaysNothingOfACallWithoutDuration) {
  SlowCall call = make_custom_call(make_blocked(WaitKind::kFutex, kMs));
  call.event.duration_ns = 0;

  EXPECT_EQ(explain(call), "");
  EXPECT_EQ(find_rule(call), "unknown");
}

TEST(ExplainTest, IsTheWholeTextOfOneCall) {
  SlowCall call = make_futex_call(make_own_thread(), {{.symbol = "release(Lock&)"}});
  call.event.split->runnable_ns = 0;

  EXPECT_EQ(explain(call),
            "Blocked 90 ms on a futex, woken by thread 77 (worker) in release(Lock&). That thread "
            "held the lock or did the work that this one waited for: look at the waker's stack.");
}

TEST(ExplainTest, PutsNestedCallsBeforeEverythingElse) {
  SlowCall call = make_futex_call(make_own_thread(), {{.symbol = "drop_gil"}});
  call.children = {{"cuda", "cudaMalloc", 1, 50 * kMs}};

  EXPECT_EQ(find_rule(call), "nested");
}

TEST(ExplainTest, NeedsHalfOfTheTimeInNestedCallsTogether) {
  SlowCall call = make_custom_call();
  call.children = {{"cuda", "cudaMalloc", 1, 30 * kMs}, {"cuda", "cudaFree", 1, 20 * kMs - 1}};
  EXPECT_EQ(find_rule(call), "computing");

  call.children[1].total_ns += 1;
  EXPECT_EQ(find_rule(call), "nested");
}

TEST(ExplainTest, AdvisesToLookForTheProcessWhereNestedCallsHaveNoOneName) {
  const SlowCall call = make_parent({"", "other", 9, 80 * kMs});

  EXPECT_THAT(explain(call),
              AllOf(HasSubstr("80 ms went into 9 nested calls of other functions"),
                    HasSubstr("gpuperfctl slow list --pid 41"), Not(HasSubstr("'other'"))));
}

TEST(ExplainTest, PutsWhatKeptTheThreadOffTheCpuBeforeWhatTheFunctionIsFor) {
  EXPECT_EQ(find_rule(make_call("cuda", "cudaStreamSynchronize", {.throttled_ns = 60 * kMs})),
            "throttled");
  EXPECT_EQ(find_rule(make_call("cuda", "cudaMalloc", {.runnable_ns = 60 * kMs})), "no_cpu");
  EXPECT_EQ(find_rule(make_blocked_call("nccl", "ncclAllReduce", {.kind = WaitKind::kIo})), "io");
  EXPECT_EQ(find_rule(make_blocked_call("cuda", "cudaMemcpyAsync", {.kind = WaitKind::kSleep})),
            "sleep");
}

TEST(ExplainTest, KnowsTheInterpreterLockByItsWakerOnly) {
  for (const char* symbol : {"drop_gil", "PyEval_SaveThread", "PyEval_ReleaseThread+0"}) {
    EXPECT_EQ(find_rule(make_futex_call(make_own_thread(), {{.symbol = ""}, {.symbol = symbol}})),
              "gil");
  }
  EXPECT_EQ(find_rule(make_futex_call(make_own_thread(), {{.symbol = "PyEval_Other"}})), "futex");
}

TEST(ExplainTest, PutsAWaitForTheGpuBeforeADriverThatBlocks) {
  const Wait wait{.kind = WaitKind::kGpu, .syscall = 16, .file_name = "nvidia0"};

  EXPECT_EQ(find_rule(make_blocked_call("cuda", "cudaDeviceSynchronize", wait)), "gpu_sync");
  EXPECT_EQ(find_rule(make_blocked_call("cuda", "cudaStreamCreate", wait)), "gpu_driver");
}

TEST(ExplainTest, BlamesTheGpuOnlyWhereTheThreadWaitedForIt) {
  SlowCall call = make_gpu_call("cudaStreamSynchronize", 90, {.kernels = {make_kernel_time(90)}});
  call.event.split = TimeSplit{.throttled_ns = 60 * kMs};

  EXPECT_EQ(find_rule(call), "throttled");
}

TEST(ExplainTest, AddsUpAllWaysToWaitForTheGpu) {
  SlowCall call = make_gpu_call("cudaStreamSynchronize", 90, {.kernels = {make_kernel_time(90)}});
  call.event.split = make_blocked(WaitKind::kPoll, 30 * kMs);
  call.event.split->ticks[GPUPERF_TICK_USER] = 1;
  call.event.split->ticks[GPUPERF_TICK_SYSCALL] = 1;

  EXPECT_THAT(explain(call), StartsWith("Waited 100 ms for the GPU: 90 ms of the call in kernel"));
}

TEST(ExplainTest, SaysNothingOfAnIdleGpuByRecordsThatAreIncomplete) {
  EXPECT_EQ(find_rule(make_gpu_call("cudaStreamSynchronize", 20, {.missing = {"some"}})),
            "gpu_sync");
  SlowCall unknown = make_call("cuda", "cudaStreamSynchronize");
  unknown.gpu = std::make_shared<const GpuDuringCall>(GpuDuringCall{.missing = {"all"}});
  EXPECT_EQ(find_rule(unknown), "gpu_sync");
}

TEST(ExplainTest, TakesACopysOwnTimeForNoWait) {
  EXPECT_EQ(find_rule(make_gpu_call("cudaMemcpyAsync", 90, {.copy_ns = 90 * kMs})),
            "pageable_copy");
  EXPECT_EQ(find_rule(make_gpu_call("cudaMemcpy", 90, {.kernel_ns = 90 * kMs})), "gpu_work");
}

TEST(ExplainTest, ExplainsAnAllocationThatBlocksInTheDriverByWhatItIsFor) {
  const SlowCall call = make_blocked_call(
      "cuda", "cudaMalloc", {.kind = WaitKind::kGpu, .syscall = 16, .file_name = "nvidiactl"});

  EXPECT_EQ(find_rule(call), "allocation");
  EXPECT_THAT(explain(call), HasSubstr("memory management (blocked in ioctl nvidiactl)"));
}

TEST(ExplainTest, LooksThroughTheRuntimeAtTheDriversFunctionOfTheSameKind) {
  SlowCall call = make_call("cuda", "cudaMallocAsync");
  call.children = {{"cuda", "cuMemAllocAsync", 1, 99 * kMs}};
  EXPECT_EQ(find_rule(call), "allocation");

  call.children[0].function = "cuCtxSynchronize";
  EXPECT_EQ(find_rule(call), "nested");
}

TEST(ExplainTest, BlamesALockAlsoWhereTheCallSynchronizes) {
  EXPECT_EQ(
      find_rule(make_blocked_call("cuda", "cudaEventSynchronize", {.kind = WaitKind::kFutex})),
      "futex");
}

TEST(ExplainTest, PutsPageFaultsBeforeWhatTheFunctionIsFor) {
  EXPECT_EQ(find_rule(make_call("cuda", "cudaMallocHost", make_on_cpu(GPUPERF_TICK_FAULT))),
            "page_faults");
}

TEST(ExplainTest, TakesNamesForCudaOfItsCategoryOnly) {
  EXPECT_EQ(find_rule(make_call("custom", "cudaMalloc")), "computing");
}

TEST(ExplainTest, TellsFunctionsApartByWhatTheyDo) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"cudaHostRegister", "allocation"},
      {"cudaHostUnregister", "allocation"},
      {"cudaFreeHost", "allocation"},
      {"cuMemRelease", "allocation"},
      {"cudaMemsetAsync", "copy"},
      {"cuStreamWaitEvent", "gpu_sync"},
      {"cudaEventQuery", "gpu_sync"},
      {"cudaGraphLaunch", "first_use"},
      {"cuInit", "first_use"},
      {"cudaSetDevice", "first_use"},
      {"cuLibraryLoadData", "first_use"},
      {"cudaGetDeviceCount", "computing"},
      {"cudaStreamSynchronize", "gpu_sync"}};

  for (const auto& [function, rule] : rows) {
    EXPECT_EQ(find_rule(make_call("cuda", function)), rule) << function;
  }
}

TEST(ExplainTest, BlamesPageableMemoryForHostCopiesOnly) {
  SlowCall within_device = make_copy("cudaMemcpyAsync", "1000");
  within_device.arguments.push_back({"kind", "device_to_device"});

  EXPECT_EQ(find_rule(within_device), "copy");
  EXPECT_EQ(find_rule(make_copy("cuMemcpyDtoDAsync_v2")), "copy");
  EXPECT_EQ(find_rule(make_copy("cudaMemcpyPeer", "1000")), "copy");
  EXPECT_EQ(find_rule(make_copy("cudaMemset", "1000")), "copy");
}

TEST(ExplainTest, TakesACopyAtTheSpeedOfTheBusForPinned) {
  EXPECT_EQ(find_rule(make_copy("cudaMemcpy", "1499999999")), "pageable_copy");
  EXPECT_EQ(find_rule(make_copy("cudaMemcpy", "1500000000")), "copy");
}

TEST(ExplainTest, TakesACopyOfUnknownSizeForNoSlowOne) {
  EXPECT_EQ(find_rule(make_copy("cudaMemcpy", "unreadable")), "copy");
  EXPECT_EQ(find_rule(make_copy("cudaMemcpy")), "copy");
}

TEST(ExplainTest, MentionsOtherPartsFromAFifthOfTheTimeOn) {
  TimeSplit split{.runnable_ns = 20 * kMs, .throttled_ns = 20 * kMs - 1};
  split.waits_ns[static_cast<size_t>(WaitKind::kSleep)] = 60 * kMs;

  const std::string text = explain(make_custom_call(split));

  EXPECT_THAT(text, AllOf(StartsWith("Slept 60 ms"), HasSubstr(" Also 20 ms waiting for a CPU."),
                          Not(HasSubstr("throttled"))));
}

TEST(ExplainTest, MentionsEveryOtherLargePart) {
  TimeSplit split{.throttled_ns = 25 * kMs, .ticks = {1, 1, 0}};
  split.waits_ns[static_cast<size_t>(WaitKind::kIo)] = 30 * kMs;

  const std::string text = explain(make_custom_call(split));

  EXPECT_THAT(text,
              AllOf(StartsWith("Blocked 30 ms"), HasSubstr(" Also 22 ms on the CPU in user space."),
                    HasSubstr(" Also 22 ms on the CPU in system calls."),
                    HasSubstr(" Also 25 ms throttled by its cgroup.")));
}

TEST(ExplainTest, SaysFirstThatTheCallIsStillInFlight) {
  SlowCall call = make_blocked_call("custom", "f", {.kind = WaitKind::kSleep, .syscall = 35});
  call.event.in_flight = ThreadState::kBlocked;

  EXPECT_THAT(explain(call), StartsWith("Still in flight. Slept 90 ms in nanosleep"));
}

TEST(ExplainTest, WritesDurationsWithTheirUnit) {
  const std::vector<std::pair<uint64_t, std::string>> rows = {{50'000, "50 us"},
                                                              {1'500'000, "1.5 ms"},
                                                              {412'000'000, "412 ms"},
                                                              {2'340'000'000, "2.34 s"},
                                                              {31'200'000'000, "31.2 s"}};
  for (const auto& [duration_ns, text] : rows) {
    SlowCall call = make_custom_call();
    call.event.duration_ns = duration_ns;

    EXPECT_THAT(explain(call), StartsWith(text + " went into computation"));
  }
}

TEST(ExplainTest, DescribesTheLongestWaitOfTheKindThatDominates) {
  SlowCall call = make_custom_call(make_blocked(WaitKind::kIo, 60 * kMs));
  call.event.split->waits_ns[static_cast<size_t>(WaitKind::kSleep)] = 40 * kMs;
  add_wait(call, {.duration_ns = 40 * kMs, .kind = WaitKind::kSleep, .syscall = 35});
  add_wait(call, {.duration_ns = 30 * kMs, .kind = WaitKind::kIo, .syscall = 17});
  add_wait(call, {.duration_ns = 20 * kMs, .kind = WaitKind::kIo, .syscall = 18});

  EXPECT_THAT(explain(call), StartsWith("Blocked 60 ms in pread64."));
}

TEST(ExplainTest, GivesOtherKindsOfWaitsApart) {
  TimeSplit split = make_blocked(WaitKind::kSleep, 45 * kMs);
  split.waits_ns[static_cast<size_t>(WaitKind::kIo)] = 15 * kMs;
  split.waits_ns[static_cast<size_t>(WaitKind::kFutex)] = 5 * kMs;

  EXPECT_THAT(explain(make_custom_call(split)),
              AllOf(StartsWith("Slept 45 ms:"), HasSubstr(" Also 35 ms on the CPU"),
                    HasSubstr(" Also 20 ms blocked on other things.")));
}

TEST(ExplainTest, ManagesWithoutADescribedWait) {
  EXPECT_EQ(explain(make_custom_call(make_blocked(WaitKind::kFutex, 90 * kMs))),
            "Blocked 90 ms on a futex. It waits for a lock, a condition or a thread: look at the "
            "stacks.");
}

TEST(ExplainTest, ManagesWithWaitsWhoseStacksAreMissing) {
  SlowCall call = make_futex_call(make_own_thread());
  call.wait_stacks.clear();

  EXPECT_THAT(explain(call), StartsWith("Blocked 90 ms on a futex, woken by thread 77 (worker). "));
}

TEST(ExplainTest, NamesTheWakersInnermostFunctionThatIsNoneOfTheStandardLibrary) {
  const SlowCall call = make_futex_call(
      make_own_thread(), {{.symbol = ""},
                          {.symbol = "void std::__invoke_impl<void, Pool::run()::lambda>(int)"},
                          {.symbol = "_ZSt6removeI"},
                          {.symbol = "Pool::push(std::function<void ()>)"},
                          {.symbol = "main"}});

  EXPECT_THAT(explain(call), HasSubstr(" in Pool::push(std::function<void ()>). "));
}

TEST(ExplainTest, CutsHugeNamesBetweenTwoCharacters) {
  // Character 34 begins at byte 99, and has two.
  const std::string symbol = std::string(99, 'a') + "ö" + std::string(1'000'000, 'b');

  const std::string text = explain(make_futex_call(make_own_thread(), {{.symbol = symbol}}));

  EXPECT_THAT(text, HasSubstr(" in " + std::string(99, 'a') + "…. "));
  EXPECT_LT(text.size(), 500u);
}

TEST(ExplainTest, IsValidTextWhateverTheNamesAre) {
  const std::string bad = "\xff\xc3";
  SlowCall call =
      make_blocked_call("custom", "f",
                        {.kind = WaitKind::kIo,
                         .file_name = bad,
                         .waker = {.tid = 1, .pid = kPid, .comm = std::string("a\0b", 3) + bad}},
                        {{.symbol = bad}});
  call.event.waits[0].syscall = 0;
  const std::string blocked = explain(call);
  const std::string nested = explain(make_parent({"cuda", bad, 1, 80 * kMs}));

  EXPECT_EQ(to_valid_utf8(blocked), blocked);
  EXPECT_THAT(blocked,
              HasSubstr("in read \uFFFD\uFFFD, woken by thread 1 (a\uFFFDb\uFFFD\uFFFD) in "
                        "\uFFFD\uFFFD."));
  EXPECT_EQ(to_valid_utf8(nested), nested);
  EXPECT_THAT(nested, HasSubstr("nested call of \uFFFD\uFFFD"));
}

// First column of the table's rows, in order.
std::vector<std::string> read_documented_rules() {
  std::vector<std::string> names;
  std::ifstream page(GPUPERF_SOURCE_DIR "/docs/explanations.md");
  EXPECT_TRUE(page.is_open());
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    names.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  return names;
}

TEST(ExplanationPageTest, HasARowForEveryRuleInTheirOrder) {
  const auto rules = list_explanation_rules();

  EXPECT_EQ(read_documented_rules(), std::vector<std::string>(rules.begin(), rules.end()));
}

}  // namespace
}  // namespace gpuperf
