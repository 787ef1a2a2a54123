#include "client/slow_call_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

namespace gpuperf::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kStartNs = 1'777'630'245'123'456'789;  // 2026-05-01T10:10:45Z

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

TEST(SlowCallTextTest, SaysWhatIsNotKnown) {
  v1::SlowCall call;
  call.set_id(1);
  call.set_function("f");
  call.set_category("custom");

  const std::string text = explain_slow_call(call, 0, {});

  EXPECT_THAT(text, HasSubstr("Arguments  not kept (calls nested too deep)\n"));
  EXPECT_THAT(text, HasSubstr("Stack      none could be walked"));
  EXPECT_THAT(text, HasSubstr("Returned   not seen\n"));
  EXPECT_THAT(text, Not(HasSubstr("Where")));
  EXPECT_THAT(text, Not(HasSubstr("threshold")));
}

TEST(SlowCallTextTest, EscapesWhatWorkloadsChose) {
  v1::SlowCall call = make_call();
  call.set_comm("\x1b]0;owned\x07");
  call.mutable_arguments(0)->set_value("\x1b[1m");
  call.mutable_user_stack(0)->set_symbol("\x1b[2J");

  EXPECT_THAT(explain_slow_call(call, 0, {}), Not(HasSubstr("\x1b")));
}

TEST(SlowCallTextTest, DescribesFramesWithWhatIsKnown) {
  v1::StackFrame frame;
  frame.set_address(0x7f00);
  EXPECT_EQ(describe_frame(frame), "0x7f00");
  frame.set_offset_bytes(0x33);
  frame.set_module("/bin/train");
  EXPECT_EQ(describe_frame(frame), "0x7f00  /bin/train+0x33");
  frame.set_symbol("main");
  EXPECT_EQ(describe_frame(frame), "main+0x33  (/bin/train)");
  frame.set_module("");
  EXPECT_EQ(describe_frame(frame), "main+0x33");
}

}  // namespace
}  // namespace gpuperf::client
