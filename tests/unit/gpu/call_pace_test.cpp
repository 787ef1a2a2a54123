#include "daemon/gpu/call_pace.h"

#include <gtest/gtest.h>

#include "tests/unit/gpu/fake_gpus.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Rounds in which `call` is due, of so many rounds a second apart.
int count_due(CallPace& pace, GpuCall call, int rounds) {
  int due = 0;
  for (int round = 0; round < rounds; ++round) {
    const int64_t now_mono_ns = (1000 + round) * kSecondNs;
    due += pace.is_due(call, now_mono_ns);
    pace.finish(now_mono_ns);
  }
  return due;
}

void add_calls(CallPace& pace, size_t count, milliseconds duration) {
  for (size_t i = 0; i < count; ++i) pace.add(GpuCall::kEcc, duration);
}

TEST(CallPaceTest, ReadsEachKindAtItsOwnPace) {
  CallPace pace(seconds(1));

  EXPECT_EQ(count_due(pace, GpuCall::kFields, 60), 60);
  pace.reset();
  EXPECT_EQ(count_due(pace, GpuCall::kEcc, 60), 6);
  pace.reset();
  EXPECT_EQ(count_due(pace, GpuCall::kInventory, 120), 2);
}

TEST(CallPaceTest, MissesNoRoundThatComesABitEarly) {
  CallPace pace(seconds(1));

  pace.finish(1000 * kSecondNs);

  EXPECT_TRUE(pace.is_due(GpuCall::kFields, 1001 * kSecondNs - 3'000'000));
}

TEST(CallPaceTest, SlowsAKindDownWhoseP99IsTooLong) {
  CallPace pace(seconds(1));

  add_calls(pace, CallPace::kWindow, milliseconds(6));

  EXPECT_EQ(count_due(pace, GpuCall::kEcc, 60), 3);
  EXPECT_EQ(pace.costs().at(0).slow_down, 2u);
}

TEST(CallPaceTest, ForgivesOneOddCallInAWindow) {
  CallPace pace(seconds(1));

  pace.add(GpuCall::kEcc, milliseconds(60));
  add_calls(pace, CallPace::kWindow - 1, milliseconds(1));

  EXPECT_EQ(pace.costs().at(0).slow_down, 1u);
}

TEST(CallPaceTest, SlowsAtOnceForACallThatIsFarTooSlow) {
  CallPace pace(seconds(1));

  pace.add(GpuCall::kEcc, milliseconds(101));

  EXPECT_EQ(pace.costs().at(0).slow_down, 2u);
}

TEST(CallPaceTest, StopsSlowingDownAtItsBoundAndComesBack) {
  CallPace pace(seconds(1));

  add_calls(pace, 10, milliseconds(200));
  EXPECT_EQ(pace.costs().at(0).slow_down, CallPace::kMaxSlowDown);
  add_calls(pace, 8 * CallPace::kWindow, milliseconds(1));

  EXPECT_EQ(pace.costs().at(0).slow_down, 1u);
}

TEST(CallPaceTest, TellsWhatCallsCost) {
  CallPace pace(seconds(1));

  for (int i = 1; i <= 100; ++i) pace.add(GpuCall::kClocks, std::chrono::microseconds(i));

  EXPECT_EQ(pace.costs(),
            (std::vector<GpuCallCost>{
                {.call = "clocks", .calls = 100, .p99_ns = 99'000, .max_ns = 100'000}}));
}

}  // namespace
}  // namespace gpuperf
