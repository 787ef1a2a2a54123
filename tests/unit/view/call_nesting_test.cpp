#include "daemon/view/call_nesting.h"

#include "tests/unit/matchers.h"
#include "tests/unit/view/capture_builder.h"

namespace gpuperf {
namespace {

using Builder = testing::CaptureBuilder;

// Depth, own time, own off-CPU time.
struct Times {
  uint32_t depth;
  uint64_t self_ns;
  uint64_t off_ns;
  bool operator==(const Times&) const = default;
};

class CallNestingTest : public ::testing::Test {
 protected:
  std::vector<Times> nest() {
    PathTable table(builder_.made, {});
    std::vector<Times> times;
    for (const NestedCall& call : nest_calls(builder_.made, table)) {
      times.push_back({call.depth, call.self_ns, call.self_off_cpu_ns});
    }
    return times;
  }

  Builder builder_;
  const uint32_t outer_ = builder_.add_function("linear", "libtorch");
  const uint32_t inner_ = builder_.add_function("cublasGemmEx", "cublas");
  const uint32_t launch_ = builder_.add_function("cudaLaunchKernel");
};

TEST_F(CallNestingTest, TakesInnerCallsOutOfOuterOnes) {
  builder_.made.calls = {
      {.start_mono_ns = 100,
       .duration_ns = 1000,
       .off_cpu_ns = 400,
       .thread = 0,
       .function = outer_},
      {.start_mono_ns = 200,
       .duration_ns = 300,
       .off_cpu_ns = 150,
       .thread = 0,
       .function = inner_,
       .depth = 1},
      {.start_mono_ns = 600, .duration_ns = 100, .thread = 0, .function = inner_, .depth = 1},
      {.start_mono_ns = 1100, .duration_ns = 50, .thread = 0, .function = inner_}};

  EXPECT_THAT(nest(), ElementsAre(Times{0, 600, 250}, Times{1, 300, 150}, Times{1, 100, 0},
                                  Times{0, 50, 0}));
}

TEST_F(CallNestingTest, KeepsThreadsApart) {
  builder_.made.threads.push_back({.process = 0, .tid = 44});
  builder_.made.calls = {
      {.start_mono_ns = 100, .duration_ns = 1000, .thread = 1, .function = outer_},
      {.start_mono_ns = 200, .duration_ns = 300, .thread = 0, .function = inner_}};

  EXPECT_THAT(nest(), ElementsAre(Times{0, 300, 0}, Times{0, 1000, 0}));
}

TEST_F(CallNestingTest, CutsWhatReachesOut) {
  builder_.made.calls = {
      {.start_mono_ns = 100, .duration_ns = 100, .thread = 0, .function = outer_}};
  builder_.add_launch({.start_mono_ns = 190, .duration_ns = 50, .thread = 0, .function = launch_});

  EXPECT_THAT(nest(), ElementsAre(Times{0, 90, 0}, Times{1, 10, 0}));
}

TEST_F(CallNestingTest, GivesLaunchesTheOffCpuTimeThatTheCallAroundCannotHave) {
  builder_.made.calls = {{.start_mono_ns = 100,
                          .duration_ns = 100,
                          .off_cpu_ns = 80,
                          .thread = 0,
                          .function = inner_}};
  builder_.add_launch({.start_mono_ns = 110, .duration_ns = 70, .thread = 0, .function = launch_});

  EXPECT_THAT(nest(), ElementsAre(Times{0, 30, 30}, Times{1, 70, 50}));
}

TEST_F(CallNestingTest, SeesALaunchThatIsProbedToo) {
  builder_.made.calls = {
      {.start_mono_ns = 100, .duration_ns = 100, .thread = 0, .function = launch_}};
  builder_.add_launch({.start_mono_ns = 105, .duration_ns = 90, .thread = 0, .function = launch_});
  PathTable table(builder_.made, {});

  const std::vector<NestedCall> calls = nest_calls(builder_.made, table);

  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].call, 0u);
  EXPECT_EQ(calls[0].launch, 0u);
  EXPECT_EQ(calls[0].self_ns, 100u);
}

}  // namespace
}  // namespace gpuperf
