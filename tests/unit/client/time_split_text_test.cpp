#include "client/time_split_text.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "example_calls.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

constexpr TextStyle kUtf8 = {.terminal = true, .utf8 = true};

v1::TimeSplit make_blocked(const std::string& kind, uint64_t total_ns) {
  v1::TimeSplit split;
  split.set_blocked_ns(total_ns);
  auto* row = split.add_blocked();
  row->set_kind(kind);
  row->set_total_ns(total_ns);
  return split;
}

std::string render(const v1::TimeSplit& split, const TextStyle& style) {
  v1::SlowCall call;
  call.set_duration_ns(100'000'000);
  *call.mutable_time_split() = split;
  return render_time_split(call, style);
}

int measure_widest_line(const std::string& text) {
  int widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, measure_width(line));
  return widest;
}

TEST(TimeSplitTextTest, ShowsThePartsLargestFirst) {
  EXPECT_EQ(render_time_split(make_futex_call(), {}),
            "Where the time went (412 ms)\n"
            "  blocked: futex   #############################    398 ms  96.7 %\n"
            "  on CPU: user     #                               9.10 ms  2.21 %\n"
            "  waiting for CPU  #                               4.70 ms  1.14 %\n"
            "  preemptions: 2; moves to another CPU: 1\n");
}

TEST(TimeSplitTextTest, DrawsBlocksOnAUtf8Terminal) {
  EXPECT_EQ(render_time_split(make_futex_call(), kUtf8),
            "Where the time went (412 ms)\n"
            "  blocked: futex   █████████████████████████████    398 ms  96.7 %\n"
            "  on CPU: user     ▋                               9.10 ms  2.21 %\n"
            "  waiting for CPU  ▍                               4.70 ms  1.14 %\n"
            "  preemptions: 2; moves to another CPU: 1\n");
}

TEST(TimeSplitTextTest, NamesEveryPart) {
  v1::TimeSplit split;
  split.set_on_cpu_user_ns(12);
  split.set_on_cpu_kernel_ns(11);
  split.set_on_cpu_fault_ns(10);
  split.set_runnable_ns(9);
  split.set_throttled_ns(8);
  split.set_blocked_ns(28);
  split.set_cpu_samples(20);
  uint64_t ns = 7;
  for (const char* kind : {"futex", "io", "poll", "gpu", "sleep", "page_fault", "other"}) {
    auto* row = split.add_blocked();
    row->set_kind(kind);
    row->set_total_ns(ns--);
  }

  EXPECT_EQ(render(split, {}),
            "Where the time went (100 ms)\n"
            "  on CPU: user         #####                           12 ns  15.4 %\n"
            "  on CPU: kernel       ####                            11 ns  14.1 %\n"
            "  on CPU: page faults  ####                            10 ns  12.8 %\n"
            "  waiting for CPU      ###                              9 ns  11.5 %\n"
            "  throttled by cgroup  ###                              8 ns  10.3 %\n"
            "  blocked: futex       ###                              7 ns  8.97 %\n"
            "  blocked: I/O         ##                               6 ns  7.69 %\n"
            "  blocked: poll        ##                               5 ns  6.41 %\n"
            "  blocked: GPU         ##                               4 ns  5.13 %\n"
            "  blocked: sleep       #                                3 ns  3.85 %\n"
            "  blocked: page fault  #                                2 ns  2.56 %\n"
            "  blocked: other       #                                1 ns  1.28 %\n");
}

TEST(TimeSplitTextTest, ShortensBarsOnANarrowTerminal) {
  TextStyle style = kUtf8;
  style.columns = 50;

  const std::string text = render_time_split(make_futex_call(), style);

  EXPECT_EQ(text,
            "Where the time went (412 ms)\n"
            "  blocked: futex   █████████████▌   398 ms  96.7 %\n"
            "  on CPU: user     ▎               9.10 ms  2.21 %\n"
            "  waiting for CPU  ▏               4.70 ms  1.14 %\n"
            "  preemptions: 2; moves to another CPU: 1\n");
}

TEST(TimeSplitTextTest, LeavesOutBarsWithoutRoom) {
  TextStyle style = kUtf8;
  style.columns = 40;

  EXPECT_EQ(render_time_split(make_futex_call(), style),
            "Where the time went (412 ms)\n"
            "  blocked: futex    398 ms  96.7 %\n"
            "  on CPU: user     9.10 ms  2.21 %\n"
            "  waiting for CPU  4.70 ms  1.14 %\n"
            "  preemptions: 2; moves to another CPU:\n"
            "  1\n");
}

TEST(TimeSplitTextTest, FitsTerminalsOfAnyWidth) {
  for (int columns = 34; columns < 200; ++columns) {
    TextStyle style = kUtf8;
    style.columns = columns;
    EXPECT_LE(measure_widest_line(render_time_split(make_futex_call(), style)),
              std::min(columns, 66));
  }
}

TEST(TimeSplitTextTest, ColoursTheLargestBarOnly) {
  const std::string text =
      render(make_blocked("gpu", 5), {.terminal = true, .colour = true, .columns = 60});

  EXPECT_THAT(text, HasSubstr("blocked: GPU  \x1b[33m######"));
  EXPECT_THAT(render_time_split(make_futex_call(), {.terminal = true, .colour = true}),
              HasSubstr("on CPU: user     #  "));
}

TEST(TimeSplitTextTest, ShowsEvenTheSmallestPart) {
  v1::TimeSplit split = make_blocked("io", 1'000'000'000'000);
  split.set_runnable_ns(1);

  EXPECT_THAT(render(split, kUtf8), HasSubstr("  waiting for CPU  ▏ "));
  EXPECT_THAT(render(split, kUtf8), EndsWith("    1 ns  < 0.01 %\n"));
}

TEST(TimeSplitTextTest, SaysHowFewSamplesDivideTheTimeOnTheCpu) {
  v1::TimeSplit split = make_blocked("io", 90'000'000);
  split.set_on_cpu_user_ns(6'000'000);
  split.set_on_cpu_kernel_ns(4'000'000);
  split.set_cpu_samples(3);

  EXPECT_THAT(render(split, {}), EndsWith("\n  user and kernel split by 3 samples\n"));
  split.set_cpu_samples(1);
  EXPECT_THAT(render(split, {}), EndsWith("\n  user and kernel split by 1 sample\n"));
  split.set_cpu_samples(0);
  EXPECT_THAT(render(split, {}),
              EndsWith("\n  no CPU sample: all CPU time counts as user space\n"));
}

TEST(TimeSplitTextTest, SaysNothingOfSamplesThatAreEnoughOrDivideLittle) {
  v1::TimeSplit split = make_blocked("io", 95'000'000);
  split.set_on_cpu_user_ns(5'000'000);
  split.set_cpu_samples(3);
  EXPECT_THAT(render(split, {}), Not(HasSubstr("sample")));

  split.set_on_cpu_user_ns(50'000'000);
  split.set_cpu_samples(20);
  EXPECT_THAT(render(split, {}), Not(HasSubstr("sample")));
}

TEST(TimeSplitTextTest, NotesFaultsOfBothKinds) {
  v1::TimeSplit split = make_blocked("page_fault", 1);
  split.set_minor_faults(1234);
  split.set_major_faults(7);

  EXPECT_THAT(render(split, {}),
              EndsWith("\n  page faults without the disk: 1,234; page faults with the disk: 7\n"));
}

TEST(TimeSplitTextTest, SaysWhyTheSplitIsNotKnown) {
  EXPECT_EQ(render_time_split(v1::SlowCall(), {}),
            "Where the time went is not known: the call could not be kept (nested too deep), or "
            "slow.time_split is off.\n");
}

TEST(TimeSplitTextTest, SaysWhenEveryPartIsZero) {
  v1::SlowCall call;
  call.mutable_time_split();

  EXPECT_EQ(render_time_split(call, {}), "Where the time went (0 ns)\n  every part is zero\n");
}

TEST(TimeSplitTextTest, SaysSoFarOfACallInFlight) {
  EXPECT_EQ(render_time_split(make_in_flight_call(), {}),
            "Where the time went so far (31.2 s)\n"
            "  blocked: GPU  ##############################   31.2 s     100 %\n"
            "  on CPU: user  #                               1.00 ms  < 0.01 %\n");
}

TEST(TimeSplitTextTest, ShowsKindsItDoesNotKnowByTheirName) {
  EXPECT_THAT(render(make_blocked("dma\x1b[2J", 5), {}), HasSubstr("  blocked: dma\\x1b[2J  ##"));
  EXPECT_EQ(describe_main_part(make_blocked("dma", 5)), "dma 100 %");
}

TEST(TimeSplitTextTest, CountsBlockedTimeOfNoKindAsOther) {
  v1::TimeSplit split = make_blocked("futex", 60);
  split.set_blocked_ns(100);
  EXPECT_THAT(render(split, {}), HasSubstr("  blocked: other  ############ "));

  split.mutable_blocked(0)->set_kind("other");
  EXPECT_THAT(render(split, {}),
              EndsWith("  blocked: other  " + std::string(30, '#') + "  100 ns  100 %\n"));
}

TEST(TimeSplitTextTest, TakesFiguresThatCannotBe) {
  v1::TimeSplit split = make_blocked("futex", UINT64_MAX);
  split.set_on_cpu_user_ns(UINT64_MAX);
  split.set_throttled_ns(UINT64_MAX);

  EXPECT_LE(measure_widest_line(render(split, {})), 80);
  EXPECT_THAT(describe_main_part(split), EndsWith(" 33 %"));
}

TEST(TimeSplitTextTest, NamesWhatTookMost) {
  v1::TimeSplit split;
  EXPECT_EQ(describe_main_part(split), "");
  split.set_on_cpu_user_ns(1);
  split.set_runnable_ns(1);
  split.set_on_cpu_kernel_ns(1);
  EXPECT_EQ(describe_main_part(split), "on CPU 67 %");
  split.set_runnable_ns(4);
  EXPECT_EQ(describe_main_part(split), "CPU wait 67 %");
  split.set_throttled_ns(9);
  EXPECT_EQ(describe_main_part(split), "throttled 60 %");
  EXPECT_EQ(describe_main_part(make_futex_call().time_split()), "futex 97 %");
  EXPECT_EQ(describe_main_part(make_blocked("gpu", 7)), "GPU wait 100 %");
  EXPECT_EQ(describe_main_part(make_blocked("io", 7)), "I/O wait 100 %");
  EXPECT_EQ(describe_main_part(make_blocked("page_fault", 7)), "page fault 100 %");
  EXPECT_EQ(describe_main_part(make_blocked("other", 7)), "blocked 100 %");
}

}  // namespace
}  // namespace gpuperf::client
