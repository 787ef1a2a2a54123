#include "client/slow_call_text.h"

#include <stdlib.h>
#include <time.h>

#include "example_calls.h"
#include "tests/unit/client/example_calls.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

v1::SlowCall make_call() {
  v1::SlowCall call;
  call.set_id(17);
  call.set_category("cuda");
  call.set_function("cudaMalloc");
  call.set_pid(71);
  call.set_tid(73);
  call.set_comm("trainer");
  call.set_pod("train-0");
  call.set_container("0123456789ab");
  call.set_namespace_("ml");
  call.set_start_unix_ns(kStartNs);
  call.set_start_mono_ns(5'250'000'000);
  call.set_duration_ns(25'000'000);
  call.set_threshold_ns(10'000'000);
  call.set_reason("absolute");
  call.set_return_value("cudaErrorMemoryAllocation");
  for (const char* name : {"devPtr", "size"}) {
    auto* argument = call.add_arguments();
    argument->set_name(name);
    argument->set_value("0x10");
  }
  auto* frame = call.add_user_stack();
  frame->set_symbol("cudaMalloc");
  frame->set_module("/usr/lib/libcudart.so.12");
  frame->set_offset_bytes(0x40);
  call.add_user_stack()->set_address(0xdead);
  return call;
}

TEST(SlowCallTextTest, ReadsLikeAnExplanation) {
  setenv("TZ", "UTC", 1);
  tzset();

  EXPECT_EQ(explain_slow_call(make_call(), kStartNs + 192'000'000'000, {}),
            "Slow call 17: cudaMalloc (cuda) took 25.0 ms, 2.5 times its threshold of 10.0 ms\n"
            "\n"
            "Where the time went is not known: the call could not be kept (nested too deep), or "
            "slow.time_split is off.\n"
            "\n"
            "When       2026-05-01 10:10:45.123 +00:00, 3m12s ago; CLOCK_MONOTONIC 5.250000000 s\n"
            "Who        thread 73 (trainer) of process 71\n"
            "Where      container 0123456789ab, pod train-0, namespace ml\n"
            "Duration   25.0 ms, at least 10.0 ms: the threshold configured for this function\n"
            "Returned   cudaErrorMemoryAllocation\n"
            "Arguments  at entry\n"
            "  devPtr = 0x10\n"
            "  size   = 0x10\n"
            "Stack      of the caller, innermost frame first\n"
            "    0  cudaMalloc+0x40  (/usr/lib/libcudart.so.12)\n"
            "    1  0xdead\n");
}

TEST(SlowCallTextTest, ExplainsAWaitForAnotherThread) {
  setenv("TZ", "UTC", 1);
  tzset();

  EXPECT_EQ(
      explain_slow_call(make_futex_call(), 0, {.terminal = true, .utf8 = true, .columns = 80}),
      "Slow call 12: cudaStreamSynchronize (cuda) took 412 ms, 4.1 times its threshold of 100 "
      "ms\n"
      "\n"
      "Waited 398 ms for a lock or condition that thread 71 (loader) of process 70\n"
      "released. Look at what that thread did meanwhile.\n"
      "\n"
      "Where the time went (412 ms)\n"
      "  blocked: futex   █████████████████████████████    398 ms  96.7 %\n"
      "  on CPU: user     ▋                               9.10 ms  2.21 %\n"
      "  waiting for CPU  ▍                               4.70 ms  1.14 %\n"
      "  preemptions: 2; moves to another CPU: 1\n"
      "\n"
      "Longest waits\n"
      "  blocked 398 ms in futex, woken by thread 71 (loader) of process 70\n"
      "    kernel stack, innermost frame first\n"
      "        0  futex_wait_queue+0x60\n"
      "        1  futex_wait+0x171\n"
      "    stack of the waker, innermost frame first\n"
      "        0  pthread_cond_signal+0x17  (/usr/lib/libc.so.6)\n"
      "        1  load_batch+0x9c  (/opt/train/train)\n"
      "\n"
      "Inside: 3 x cublasGemmEx 1.20 ms (cublas)\n"
      "Called within: forward > cudnnConvolutionForward\n"
      "\n"
      "When       2026-05-01 10:10:45.123 +00:00; CLOCK_MONOTONIC 5.250000000 s\n"
      "Who        thread 73 (python3) of process 70\n"
      "Duration   412 ms, at least 100 ms: the threshold configured for this function\n"
      "Returned   cudaSuccess\n"
      "Arguments  at entry\n"
      "  stream = 0x7f10\n"
      "Stack      of the caller, innermost frame first\n"
      "    0  train_step+0x34  (/opt/train/train)\n");
}

TEST(SlowCallTextTest, ExplainsACallInFlight) {
  setenv("TZ", "UTC", 1);
  tzset();

  EXPECT_EQ(
      explain_slow_call(make_in_flight_call(), kStartNs + 33'000'000'000, {}),
      "Slow call 13: ncclAllReduce (nccl) is still in flight after 31.2 s, 312.0 times its "
      "threshold of 100 ms\n"
      "\n"
      "Has waited 31.2 s for the GPU driver and still does.\n"
      "\n"
      "Where the time went so far (31.2 s)\n"
      "  blocked: GPU  ##############################   31.2 s     100 %\n"
      "  on CPU: user  #                               1.00 ms  < 0.01 %\n"
      "\n"
      "Longest waits\n"
      "  blocked 31.2 s so far in ioctl of device nvidia0\n"
      "    kernel stack, innermost frame first\n"
      "        0  nvidia_ioctl+0x5a3  (nvidia)\n"
      "        1  __x64_sys_ioctl+0x94\n"
      "\n"
      "When       2026-05-01 10:10:45.123 +00:00, 33.0 s ago; CLOCK_MONOTONIC 5.250000000 s\n"
      "Who        thread 73 (python3) of process 70\n"
      "Duration   31.2 s so far, at least 100 ms: the threshold configured for this function\n"
      "Returned   not yet: blocked\n"
      "Arguments  at entry\n"
      "  stream = 0x7f10\n"
      "Stack      none (slow.stacks is off, or it was dropped: see Drops in gpuperfctl status)\n");
}

TEST(SlowCallTextTest, SaysWhatACallInFlightIsDoing) {
  v1::SlowCall call = make_in_flight_call();

  call.set_state("running");
  EXPECT_THAT(explain_slow_call(call, 0, {}), HasSubstr("Returned   not yet: running\n"));
  call.set_state("runnable");
  EXPECT_THAT(explain_slow_call(call, 0, {}), HasSubstr("Returned   not yet: waiting for CPU\n"));
  call.set_state("levitating\x1b");
  EXPECT_THAT(explain_slow_call(call, 0, {}), HasSubstr("Returned   not yet: levitating\\x1b\n"));
  call.clear_state();
  EXPECT_THAT(explain_slow_call(call, 0, {}), HasSubstr("Returned   not yet\n"));
}

TEST(SlowCallTextTest, SaysThatAThreadLeftTheCall) {
  v1::SlowCall call = make_call();
  call.set_state("gone");

  const std::string text = explain_slow_call(call, 0, {});

  EXPECT_THAT(text, HasSubstr("cudaMalloc (cuda) was left after 25.0 ms without returning, 2.5"));
  EXPECT_THAT(text, HasSubstr("Returned   never: its thread left it without returning (longjmp, "
                              "exception or exit)\n"));
}

TEST(SlowCallTextTest, SaysThatTheDaemonEndedFirst) {
  v1::SlowCall call = make_call();
  call.set_state("unfinished");

  const std::string text = explain_slow_call(call, 0, {});

  EXPECT_THAT(text, HasSubstr("cudaMalloc (cuda) had taken 25.0 ms when gpuperfd ended, 2.5"));
  EXPECT_THAT(text, HasSubstr("Returned   not seen: gpuperfd ended before it did\n"));
}

TEST(SlowCallTextTest, ShowsAStateItDoesNotKnow) {
  v1::SlowCall call = make_call();
  call.clear_return_value();
  call.set_state("teleported\x1b");

  EXPECT_THAT(explain_slow_call(call, 0, {}), HasSubstr("Returned   not seen: teleported\\x1b\n"));
}

TEST(SlowCallTextTest, SaysWhichThresholdACallPassed) {
  v1::SlowCall call = make_call();

  call.set_reason("adaptive");
  EXPECT_THAT(explain_slow_call(call, 0, {}),
              HasSubstr("Duration   25.0 ms, at least 10.0 ms: a multiple of this function's own "
                        "p99 over the last minute (slow.adaptive_factor)\n"));
  call.set_reason("astral\n");
  EXPECT_THAT(explain_slow_call(call, 0, {}), HasSubstr("at least 10.0 ms: astral\\n\n"));
}

TEST(SlowCallTextTest, WrapsEveryLineOfTheExplanation) {
  v1::SlowCall call = make_call();
  call.set_explanation("One two three four.\n\nFive\x1b[2J six.\n");

  EXPECT_THAT(explain_slow_call(call, 0, {.terminal = true, .columns = 12}),
              HasSubstr("\n\nOne two\nthree four.\nFive\\x1b[2J\nsix.\n\n"));
  EXPECT_THAT(explain_slow_call(call, 0, {}),
              HasSubstr("\n\nOne two three four.\nFive\\x1b[2J six.\n\n"));
}

TEST(SlowCallTextTest, ListsNestedCallsAndTheRestTogether) {
  v1::SlowCall call = make_futex_call();
  auto* rest = call.add_children();
  rest->set_function("other");
  rest->set_calls(1200);
  rest->set_total_ns(0);

  EXPECT_THAT(explain_slow_call(call, 0, {}),
              HasSubstr("\n\nInside: 3 x cublasGemmEx 1.20 ms (cublas), 1,200 x other 0 ns\n"));
}

TEST(SlowCallTextTest, SaysInAColumnWhatBecameOfIt) {
  v1::SlowCall call = make_call();
  EXPECT_EQ(describe_return_shortly(call), "cudaErrorMemoryAllocation");
  call.set_in_flight(true);
  EXPECT_EQ(describe_return_shortly(call), "in flight");
  call.set_in_flight(false);
  call.clear_return_value();
  EXPECT_EQ(describe_return_shortly(call), "");
  call.set_state("gone");
  EXPECT_EQ(describe_return_shortly(call), "gone");
}

TEST(SlowCallTextTest, SaysWhatIsNotKnown) {
  v1::SlowCall call;
  call.set_id(1);
  call.set_function("f");
  call.set_category("custom");

  const std::string text = explain_slow_call(call, 0, {});

  EXPECT_THAT(text, HasSubstr("Arguments  not kept (calls nested too deep)\n"));
  EXPECT_THAT(text, HasSubstr("Stack      none"));
  EXPECT_THAT(text, HasSubstr("Returned   not seen\n"));
  EXPECT_THAT(text, Not(HasSubstr("Where  ")));
  EXPECT_THAT(text, Not(HasSubstr("threshold")));
}

TEST(SlowCallTextTest, EscapesWhatWorkloadsChose) {
  v1::SlowCall call = make_call();
  call.set_comm("\x1b]0;owned\x07");
  call.mutable_arguments(0)->set_value("\x1b[1m");
  call.mutable_user_stack(0)->set_symbol("\x1b[2J");
  call.add_children()->set_function("\x1b[3m");
  call.mutable_children(0)->set_category("\x1b[4m");
  call.add_outer("\x1b[5m");

  EXPECT_THAT(explain_slow_call(call, 0, {}), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace gpuperf::client
