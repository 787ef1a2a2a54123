// The truth of launches, on the fake driver and the fake CUPTI: what is written is what was called.

#include "tests/gpu/launch_truth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cupti/fake_cuda.h"

namespace {

using ::testing::HasSubstr;

std::vector<LaunchTruth> read_calls(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  uint64_t count = 0;
  std::memcpy(&count, content.data() + 8, sizeof(count));
  std::vector<LaunchTruth> calls(count);
  std::memcpy(calls.data(), content.data() + 32, count * sizeof(LaunchTruth));
  return calls;
}

// One process has one subscription: all tests share it.
class LaunchTruthTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    const char* error = truth_start(FAKE_CUPTI);
    ASSERT_EQ(error, nullptr) << error;
  }

  std::vector<LaunchTruth> dump(uint64_t start_mono_ns = 0) const {
    EXPECT_GE(truth_dump(path_.c_str(), start_mono_ns), 0);
    return read_calls(path_);
  }

  const std::string path_ = testing::TempDir() + "launch_truth";
};

TEST_F(LaunchTruthTest, WritesEachLaunchOfEachThreadWithItsMarker) {
  const size_t before = dump().size();
  std::vector<uint32_t> ids(2 * 1000);

  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&ids, number] {
      for (int i = 0; i < 1000; ++i) {
        truth_mark(10 * number + i % 3);
        ids[number * 1000 + i] = fake_launch({.name = "kernel"}, 100, i % 2 == 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<LaunchTruth> calls = dump();
  calls.erase(calls.begin(), calls.begin() + static_cast<long>(before));
  ASSERT_EQ(calls.size(), ids.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool is_second = calls[i].marker >= 10;
    const size_t place = (is_second ? 1000 : 0) + i % 1000;
    EXPECT_EQ(calls[i].correlation_id, ids[place]);
    EXPECT_EQ(calls[i].marker, static_cast<int>(place % 1000 % 3 + (is_second ? 10 : 0)));
    EXPECT_EQ(calls[i].domain, place % 2 == 1 ? 1 : 2);
    EXPECT_EQ(calls[i].result, 0);
    EXPECT_EQ(calls[i].outer_correlation_id, 0);
    EXPECT_EQ(calls[i].tid, calls[i / 1000 * 1000].tid);
  }
  EXPECT_NE(calls.front().tid, calls.back().tid);
}

TEST_F(LaunchTruthTest, TellsGraphsFromKernelsAndLeavesOtherCallsOut) {
  truth_mark(0);
  const size_t before = dump().size();
  FakeGraph* graph = fake_graph_make(3, "node");

  (void)fake_memset({}, 100);
  (void)fake_get_device();
  const uint32_t id = fake_graph_launch(graph);
  (void)fake_launch({.name = "kernel"}, 100, false);

  const std::vector<LaunchTruth> calls = dump();
  ASSERT_EQ(calls.size(), before + 2);
  EXPECT_EQ(calls[before].correlation_id, id);
  EXPECT_EQ(calls[before].is_graph, 1);
  EXPECT_EQ(calls[before + 1].is_graph, 0);
}

TEST_F(LaunchTruthTest, WritesCallsFromATimeOnOnly) {
  (void)fake_launch({.name = "kernel"}, 100, false);
  const uint64_t last_ns = dump().back().start_mono_ns;

  (void)fake_launch({.name = "kernel"}, 100, false);

  EXPECT_EQ(dump(last_ns + 1).size(), 1);
}

TEST_F(LaunchTruthTest, SaysThatAnotherSubscriberIsThere) {
  EXPECT_THAT(truth_start(FAKE_CUPTI), HasSubstr("another subscriber"));
}

}  // namespace
