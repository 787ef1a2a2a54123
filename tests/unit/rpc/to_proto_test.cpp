#include "daemon/rpc/to_proto.h"

#include <gtest/gtest.h>

#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

using testing::make_totals;
using testing::parse_text;

// Whole messages as text, so that a field too many or too few is seen.
template <typename Message>
void expect_message(const Message& actual, const std::string& expected) {
  EXPECT_EQ(actual.DebugString(), parse_text<Message>(expected).DebugString());
}

constexpr char kBadText[] = "bad\xFF";

TEST(ToProtoTest, ConvertsARowOfStatistics) {
  const Function function{
      .id = 3, .category = "cuda", .name = "cudaMalloc", .status = StatusKind::kCudaRuntime};
  FunctionRow row{.function_id = 3,
                  .process = {.pid = 42, .start_boot_ns = 9},
                  .owner = {kBadText, "0123456789ab", "train-0", "ml"},
                  .exited = true,
                  .totals = make_totals({1'000, 3'000})};
  row.totals.calls = 10;
  row.totals.abandoned = 3;
  row.totals.untimed = 4;
  row.totals.slow_calls = 1;
  row.totals.errors = {{2, 1}, {999'999, 5}, {1, 1}};
  row.totals.other_errors = 2;

  // The middle of 1000's bucket is below it, that of 3000's is within: quantiles stay in [min,
  // max].
  expect_message(to_proto(function, row), R"(
      category: "cuda" function: "cudaMalloc" pid: 42 comm: "bad\357\277\275" calls: 10 errors: 9
      total_ns: 4000 self_ns: 4000 min_ns: 1000 avg_ns: 2000 p50_ns: 1008 p90_ns: 3000
      p99_ns: 3000 p999_ns: 3000 max_ns: 3000 slow_calls: 1 in_flight: 1 abandoned: 3 untimed: 4
      coverage: 1
      error_counts { error: "999999" code: 999999 count: 5 }
      error_counts { error: "other" count: 2 }
      error_counts { error: "cudaErrorInvalidValue" code: 1 count: 1 }
      error_counts { error: "cudaErrorMemoryAllocation" code: 2 count: 1 }
      container: "0123456789ab" pod: "train-0" namespace: "ml" exited: true)");
}

TEST(ToProtoTest, LeavesDurationsZeroWhereNoCallCompleted) {
  const Function function{.category = "libtorch", .name = "linear", .entry_only = true};

  expect_message(to_proto(function, FunctionTotals{.calls = 4, .untimed = 4}), R"(
      category: "libtorch" function: "linear" calls: 4 untimed: 4 coverage: 1)");
}

TEST(ToProtoTest, KeepsQuantilesBetweenShortestAndLongest) {
  for (const uint64_t duration_ns :
       {uint64_t{1}, uint64_t{255}, uint64_t{1'000}, uint64_t{1} << 43}) {
    const v1::FunctionStats stats = to_proto(Function(), make_totals({duration_ns}));
    EXPECT_EQ(stats.p50_ns(), duration_ns);
    EXPECT_EQ(stats.p999_ns(), duration_ns);
  }
}

TEST(ToProtoTest, ConvertsASlowCall) {
  SlowCall call{.id = 7,
                .category = "cuda",
                .function = "cudaMemcpy",
                .status = StatusKind::kCudaRuntime,
                .start_unix_ns = 1'700'000'000'000'000'000};
  call.event = {.process = {.pid = 42, .start_boot_ns = 9},
                .owner = {"python", "0123456789ab", "train-0", "ml"},
                .tid = 43,
                .comm = kBadText,
                .start_mono_ns = 5,
                .duration_ns = 200,
                .threshold_ns = 100,
                .has_arguments = true,
                .arguments = {0x7f0000001000, 0, 255, 1, 2, UINT64_MAX},
                .return_value = 2};
  call.user_stack = {{.symbol = "f(int)", .module = "/l.so", .offset_bytes = 28, .address = 4096},
                     {.module = kBadText, .address = 8192}};

  expect_message(to_proto(call), R"text(
      id: 7 category: "cuda" function: "cudaMemcpy" pid: 42 tid: 43 comm: "bad\357\277\275"
      container: "0123456789ab" pod: "train-0" start_unix_ns: 1700000000000000000 start_mono_ns: 5
      duration_ns: 200 threshold_ns: 100 reason: "absolute"
      arguments { name: "arg0" value: "0x7f0000001000" }
      arguments { name: "arg1" value: "0x0" }
      arguments { name: "arg2" value: "0xff" }
      arguments { name: "arg3" value: "0x1" }
      arguments { name: "arg4" value: "0x2" }
      arguments { name: "arg5" value: "0xffffffffffffffff" }
      return_value: "cudaErrorMemoryAllocation"
      user_stack { symbol: "f(int)" module: "/l.so" offset_bytes: 28 address: 4096 }
      user_stack { module: "bad\357\277\275" address: 8192 }
      namespace: "ml")text");
}

TEST(ToProtoTest, LeavesArgumentsOutThatWereNotKept) {
  SlowCall call{.id = 1};
  call.event.has_arguments = false;
  call.event.return_value = 0x10;

  expect_message(to_proto(call), R"(id: 1 reason: "absolute" return_value: "0x10")");
}

TEST(ToProtoTest, ConvertsAProcess) {
  const ProcessRow row{.process = {.pid = 42, .start_boot_ns = 9},
                       .owner = {"python", "0123456789ab", "train-0", "ml"},
                       .exited = true,
                       .functions = 2,
                       .calls = 30,
                       .slow_calls = 1};

  expect_message(to_proto(row), R"(
      pid: 42 start_boot_ns: 9 comm: "python" container: "0123456789ab" pod: "train-0"
      namespace: "ml" functions: 2 calls: 30 slow_calls: 1 exited: true)");
}

TEST(ToProtoTest, ConvertsAProbeInEveryState) {
  const struct {
    ProbeState state;
    v1::ProbeState expected;
  } cases[] = {
      {ProbeState::kAttached, v1::PROBE_STATE_ATTACHED},
      {ProbeState::kEntryOnly, v1::PROBE_STATE_ENTRY_ONLY},
      {ProbeState::kWaiting, v1::PROBE_STATE_WAITING},
      {ProbeState::kSymbolMissing, v1::PROBE_STATE_SYMBOL_MISSING},
      {ProbeState::kFailed, v1::PROBE_STATE_FAILED},
      {ProbeState::kDisabled, v1::PROBE_STATE_DISABLED},
  };
  for (const auto& [state, expected] : cases) {
    const ProbeRow row{"cuda", "cudaMalloc", "cudaMalloc", state, "why", "/l.so", 16, "multi", 5};
    expect_message(to_proto(row),
                   "category: \"cuda\" function: \"cudaMalloc\" symbol: \"cudaMalloc\" state: " +
                       v1::ProbeState_Name(expected) +
                       " reason: \"why\" library: \"/l.so\" offset_bytes: 16 mechanism: \"multi\" "
                       "slow_threshold_ns: 5");
  }
}

TEST(ToProtoTest, ConvertsAConfigError) {
  expect_message(to_proto(ConfigError{"$.slow", kBadText, "hint"}),
                 R"(path: "$.slow" message: "bad\357\277\275" hint: "hint")");
}

}  // namespace
}  // namespace gpuperf
