#include "injector/launch_hooks.h"

#include <cuda.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "injector/graph_hooks.h"
#include "tests/fakes/cupti/fake_cuda.h"

namespace gpuperf::injector {
namespace {

using Launch = decltype(&::cuLaunchKernel);
const auto kFunction = reinterpret_cast<CUfunction>(0x1000);
extern "C" CUresult fake_runtime_launch(bool by_table, CUfunction function, unsigned duration_us);

uint64_t g_calls = 0;
uint64_t g_errors = 0;
void add_note(const gpuperf_noted_calls& noted) {
  if (noted.entry != GPUPERF_HOOK_cuLaunchKernel) return;
  const auto& process = *reinterpret_cast<const gpuperf_hooked_process*>(noted.process_address);
  const auto& all = *reinterpret_cast<const gpuperf_noted_counts*>(process.counts[noted.entry]);
  const size_t now = all.sequence[0] == noted.sequence ? 0 : 1;
  g_calls += all.counts[now].calls - all.counts[1 - now].calls;
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    g_errors += all.counts[now].errors[i].count - all.counts[1 - now].errors[i].count;
  }
}

CUresult launch_by(Launch function, CUfunction kernel = kFunction) {
  return function(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

// As the kernel does when a daemon comes or goes.
void set_listening(bool listens) { gpuperf_hook_flags.count_semaphore = listens ? 1 : 0; }

std::atomic<int> g_woken = 0;
std::atomic<int> g_attended = 0;
void attend(bool) { ++g_attended; }
std::vector<bool>& g_graph_steps = *new std::vector<bool>;

class LaunchHooksTest : public testing::Test {
 protected:
  LaunchHooksTest() {
    set_graph_watcher([](bool begins) { g_graph_steps.push_back(begins); });
    static const bool is_installed = install_launch_hooks([] { ++g_woken; });
    EXPECT_TRUE(is_installed);
    send_launch_counts([](const gpuperf_noted_calls&) {});
    g_calls = g_errors = 0;
    g_attended = 0;
    g_graph_steps.clear();
  }
  ~LaunchHooksTest() override { set_listening(false); }
};

TEST_F(LaunchHooksTest, SeesLaunchesHoweverTheirAddressWasFound) {
  set_listening(true);
  const auto by_symbol = reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
  void* by_driver = nullptr;
  ASSERT_EQ(cuGetProcAddress("cuLaunchKernel", &by_driver, 13000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(launch_by(by_symbol), CUDA_SUCCESS);
  EXPECT_EQ(launch_by(reinterpret_cast<Launch>(by_driver)), CUDA_SUCCESS);
  EXPECT_EQ(fake_runtime_launch(false, kFunction, 0), CUDA_SUCCESS) << "by an import slot";
  EXPECT_EQ(fake_runtime_launch(true, kFunction, 0), CUDA_SUCCESS) << "by a table";
  EXPECT_EQ(launch_by(by_symbol, nullptr), CUDA_ERROR_INVALID_VALUE);
  send_launch_counts(add_note);

  EXPECT_EQ(g_calls, 5u);
  EXPECT_EQ(g_errors, 1u);
}

TEST_F(LaunchHooksTest, CountsNothingWhileNobodyListens) {
  EXPECT_EQ(fake_runtime_launch(true, kFunction, 0), CUDA_SUCCESS);
  EXPECT_FALSE(are_launches_counted());
  send_launch_counts(add_note);

  EXPECT_EQ(g_calls, 0u);
}

TEST_F(LaunchHooksTest, IsSwitchedOnAndOffWhileThreadsLaunch) {
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!is_over) EXPECT_EQ(fake_runtime_launch(true, kFunction, 0), CUDA_SUCCESS);
    });
  }
  for (int i = 0; i < 200; ++i) {
    set_listening(i % 2 == 0);
    std::this_thread::yield();
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LaunchHooksTest, AsksForAttentionBeforeTheLaunchWhetherADaemonListensOrNot) {
  set_attention(attend);
  EXPECT_EQ(fake_runtime_launch(true, kFunction, 0), CUDA_SUCCESS);
  send_launch_counts(add_note);
  EXPECT_EQ(g_calls, 0u);
  set_listening(true);
  EXPECT_EQ(fake_runtime_launch(true, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  send_launch_counts(add_note);
  EXPECT_EQ(g_calls, 1u);
  EXPECT_EQ(g_attended, 2);
  set_attention(nullptr);

  EXPECT_EQ(fake_runtime_launch(true, kFunction, 0), CUDA_SUCCESS);
  EXPECT_EQ(g_attended, 2);
}

TEST_F(LaunchHooksTest, TellsOfGraphsBeforeTheyAreMade) {
  FakeGraph* graph = fake_graph_make(3, "kernel");
  EXPECT_EQ(g_graph_steps, (std::vector{true, false}));
  g_graph_steps.clear();
  (void)fake_graph_launch(graph);
  EXPECT_TRUE(g_graph_steps.empty());
  (void)fake_graph_capture([](void*) { (void)fake_launch({.name = "kernel"}, 0, false); }, nullptr);
  EXPECT_EQ(g_graph_steps, (std::vector{true, false}));
}

TEST_F(LaunchHooksTest, CountsNothingInAForkedChild) {
  set_listening(true);
  const pid_t child = fork();
  if (child == 0) {
    stop_counting_launches();  // as the library does at fork
    const CUresult result = fake_runtime_launch(true, kFunction, 0);
    send_launch_counts(add_note);
    _exit(result == CUDA_SUCCESS && g_calls == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(LaunchHooksTest, LeavesReadOnlyPagesReadOnly) {
  // Of an import table that is protected after relocation, and of code.
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    EXPECT_EQ(line.find(" rwx"), std::string::npos) << line;
    if (line.find("libcuda.so") != std::string::npos && line.find(" r-xp ") == std::string::npos) {
      // The dynamic symbols lie in the first, read-only part of the file.
      if (line.find(" 00000000 ") != std::string::npos) {
        EXPECT_NE(line.find(" r--p "), std::string::npos) << line;
      }
    }
  }
}

}  // namespace
}  // namespace gpuperf::injector
