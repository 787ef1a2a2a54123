#include "daemon/export/slow_call_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/base/fake_clock.h"
#include "tests/unit/model/make_stack.h"

namespace gpuperf {
namespace {

std::shared_ptr<const SlowCall> make_call() {
  SlowCall call{
      .id = 7, .category = "cuda", .function = "cudaMalloc", .status = StatusKind::kCudaRuntime};
  call.event = {.function_id = 1,
                .process = {.pid = 42, .start_boot_ns = 5},
                .owner = {.comm = "python",
                          .container = "0123456789ab",
                          .pod = "train-0",
                          .pod_namespace = "ml"},
                .tid = 43,
                .comm = "worker \"1\"",
                .start_mono_ns = 9,
                .duration_ns = 250'000'000,
                .threshold_ns = 100'000'000,
                .return_value = 2};
  call.explanation = "Slept 250 ms.";
  std::vector<StackFrame> frames;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    frames.push_back({.symbol = name, .offset_bytes = 16});
  }
  call.user_stack = testing::make_stack(std::move(frames));
  return std::make_shared<const SlowCall>(std::move(call));
}

class SlowCallLogTest : public ::testing::Test {
 protected:
  SlowCallLog make_log(uint32_t lines_per_second) {
    return SlowCallLog(lines_per_second, clock_, drops_,
                       [this](LogEvent event, std::initializer_list<LogField> fields) {
                         lines_.push_back(format_log_line(event.text, fields));
                         ids_.emplace_back(event.id);
                       });
  }

  FakeClock clock_;
  DropCounters drops_;
  std::vector<std::string> lines_;
  std::vector<std::string> ids_;
};

TEST_F(SlowCallLogTest, WritesOneLinePerCall) {
  SlowCallLog log = make_log(5);

  log.on_slow_call(make_call());

  const std::vector<std::string> expected = {
      "slow_call id=7 category=cuda function=cudaMalloc duration_ns=250000000 "
      "threshold_ns=100000000 pid=42 tid=43 comm=\"worker \\\"1\\\"\" container=0123456789ab "
      "pod=train-0 namespace=ml return_value=cudaErrorMemoryAllocation in_flight=false "
      "explanation=\"Slept 250 ms.\" "
      "stack=\"a+0x10 <- b+0x10 <- c+0x10 <- d+0x10 <- e+0x10\" suppressed_count=0"};
  EXPECT_EQ(lines_, expected);
}

TEST_F(SlowCallLogTest, TellsCallsInFlightFromThoseThatReturnedByTheIdOfTheirEvent) {
  SlowCallLog log = make_log(5);
  auto in_flight = std::make_shared<SlowCall>(*make_call());
  in_flight->event.in_flight.emplace();
  auto gone = std::make_shared<SlowCall>(*in_flight);
  gone->is_gone = true;

  log.on_slow_call(make_call());
  log.on_slow_call(in_flight);
  log.on_slow_call(gone);

  // As documented: scripts know them.
  const std::vector<std::string> expected = {"eda5299cbeca4ecbb2eaf6bd3b827770",
                                             "f652278d2251493c876662c8e13a8892",
                                             "eda5299cbeca4ecbb2eaf6bd3b827770"};
  EXPECT_EQ(ids_, expected);
}

TEST_F(SlowCallLogTest, CountsWhatItDoesNotWriteAndSaysSoInTheNextLine) {
  SlowCallLog log = make_log(2);

  for (int i = 0; i < 5; ++i) log.on_slow_call(make_call());
  clock_.advance(std::chrono::seconds(1));
  log.on_slow_call(make_call());

  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_TRUE(lines_[1].ends_with("suppressed_count=0")) << lines_[1];
  EXPECT_TRUE(lines_[2].ends_with("suppressed_count=3")) << lines_[2];
  EXPECT_EQ(drops_.get(DropCause::kLogRateLimited), 3u);
}

TEST_F(SlowCallLogTest, WritesAndCountsNothingWhenSwitchedOff) {
  SlowCallLog log = make_log(0);

  log.on_slow_call(make_call());

  EXPECT_TRUE(lines_.empty());
  EXPECT_EQ(drops_.get(DropCause::kLogRateLimited), 0u);
}

}  // namespace
}  // namespace gpuperf
