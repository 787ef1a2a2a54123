#include "injector/launch_hooks.h"

#include <cuda.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "injector/graph_hooks.h"
#include "tests/fakes/cupti/fake_cuda.h"
#include "tests/fakes/cupti/fake_entries.h"

namespace gpuperf::injector {
namespace {

using Launch = decltype(&::cuLaunchKernel);
const auto kFunction = reinterpret_cast<CUfunction>(0x1000);
extern "C" CUresult fake_runtime_launch(bool by_table, CUfunction function, unsigned duration_us);

uint64_t g_calls = 0;
uint64_t g_errors = 0;
struct Noted {
  uint64_t calls = 0, ended = 0, abandoned = 0;
  std::map<uint64_t, uint64_t> errors;
};
std::map<uint32_t, Noted>& g_noted = *new std::map<uint32_t, Noted>;  // by entry
void add_note(const gpuperf_noted_calls& noted) {
  const auto& process = *reinterpret_cast<const gpuperf_hooked_process*>(noted.process_address);
  const auto& all = *reinterpret_cast<const gpuperf_noted_counts*>(process.counts[noted.entry]);
  const size_t newer = all.sequence[0] == noted.sequence ? 0 : 1;
  const gpuperf_entry_counts& now = all.counts[newer];
  const gpuperf_entry_counts& before = all.counts[1 - newer];
  Noted& sum = g_noted[noted.entry];
  sum.calls += now.calls - before.calls;
  sum.abandoned += now.abandoned - before.abandoned;
  for (size_t i = 0; i < GPUPERF_BUCKETS; ++i) sum.ended += now.buckets[i] - before.buckets[i];
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    const uint64_t count = now.errors[i].count - before.errors[i].count;
    if (count > 0) sum.errors[static_cast<uint32_t>(now.errors[i].status_tag)] += count;
  }
  if (noted.entry != GPUPERF_HOOK_cuLaunchKernel) return;
  g_calls = sum.calls;
  g_errors = 0;
  for (const auto& [status, count] : sum.errors) g_errors += count;
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

// The entry that begins otherwise in this process's driver: mov %rsp, %rbp in its other form.
constexpr gpuperf_hook_entry kOdd = GPUPERF_HOOK_cuMemcpy3DPeer_ptds;
bool make_odd() {
  const auto begin = reinterpret_cast<uintptr_t>(kFakeEntries[kOdd].function);
  constexpr uint8_t kOne[] = {0x48, 0x89, 0xe5}, kOther[] = {0x48, 0x8b, 0xec};
  const uintptr_t at = begin + (*reinterpret_cast<const uint8_t*>(begin) == 0x55 ? 1 : 5);
  if (std::memcmp(reinterpret_cast<const void*>(at), kOne, sizeof(kOne)) != 0) return false;
  FILE* memory = std::fopen("/proc/self/mem", "r+b");  // code can be written there
  const bool is_written = memory != nullptr &&
                          fseek(memory, static_cast<long>(at), SEEK_SET) == 0 &&
                          std::fwrite(kOther, sizeof(kOther), 1, memory) == 1;
  return memory != nullptr && std::fclose(memory) == 0 && is_written;
}

uint32_t call_with(FakeEntry function, const uint64_t (&a)[kFakeArguments]) {
  return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}

// Both ways by which an entry's address is found once the driver is up.
std::vector<FakeEntry> find_by_all_ways(const char* name) {
  void* by_driver = nullptr;
  EXPECT_EQ(cuGetProcAddress(name, &by_driver, 13000, 0, nullptr), CUDA_SUCCESS) << name;
  return {reinterpret_cast<FakeEntry>(dlsym(RTLD_DEFAULT, name)),
          reinterpret_cast<FakeEntry>(by_driver)};
}

class LaunchHooksTest : public testing::Test {
 protected:
  LaunchHooksTest() {
    static const bool is_odd = make_odd();
    EXPECT_TRUE(is_odd);
    set_graph_watcher([](bool begins) { g_graph_steps.push_back(begins); });
    static const bool is_installed = install_launch_hooks([] { ++g_woken; });
    EXPECT_TRUE(is_installed);
    send_launch_counts([](const gpuperf_noted_calls&) {});
    g_calls = g_errors = 0;
    g_noted.clear();
    fake_entry_prepare(0, nullptr);
    g_attended = 0;
    g_graph_steps.clear();
  }
  ~LaunchHooksTest() override { set(Mode::kIdle); }

  enum class Mode { kIdle, kWatched, kCounted };
  static void set(Mode mode) {
    set_listening(mode == Mode::kCounted);
    watch_launches(mode == Mode::kWatched);
  }
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

TEST_F(LaunchHooksTest, TimesAHookAfterEachNoteAndCountsItsCallLikeTheOthers) {
  constexpr int kPassed = 50;  // before one is timed
  const auto launch = reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
  set_listening(true);
  send_launch_counts(add_note);
  const HookTimes before = get_hook_times();
  for (int i = 0; i < kPassed; ++i) launch_by(launch);
  EXPECT_EQ(get_hook_times().calls, before.calls);
  for (int i = 0; i < kPassed; ++i) launch_by(launch);
  EXPECT_EQ(get_hook_times().calls, before.calls + 1) << "one, until counts are noted again";
  for (int i = 0; i < 20; ++i) {
    send_launch_counts(add_note);
    for (int k = 0; k < kPassed; ++k) launch_by(launch);
    EXPECT_EQ(launch_by(launch, nullptr), CUDA_ERROR_INVALID_VALUE) << "timed";
  }
  const HookTimes after = get_hook_times();
  EXPECT_EQ(after.calls, before.calls + 21);
  EXPECT_GT(after.ns, before.ns + 21 * 10) << "a reading of the clock takes longer than 10 ns";
  EXPECT_LE(after.ns, before.ns + 21 * 20'000);
  send_launch_counts(add_note);
  EXPECT_EQ(g_calls, 2u * kPassed + 20 * (kPassed + 1));
  EXPECT_EQ(g_errors, 20u);

  set_listening(false);
  for (int i = 0; i <= kPassed; ++i) launch_by(launch);
  EXPECT_EQ(get_hook_times().calls, after.calls) << "nothing is counted, nothing is timed";
}

TEST_F(LaunchHooksTest, HandsEveryEntryOnAsItCameAndCountsIt) {
  for (const Mode mode : {Mode::kIdle, Mode::kWatched, Mode::kCounted}) {
    set(mode);
    for (uint32_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
      const FakeEntryRow& row = kFakeEntries[entry];
      const uint32_t result = 700 + entry;
      fake_entry_prepare(result, nullptr);
      for (const FakeEntry function : find_by_all_ways(row.name)) {
        EXPECT_EQ(function == row.function, entry == kOdd) << row.name;
        uint64_t given[kFakeArguments];
        for (uint64_t i = 0; i < kFakeArguments; ++i)
          given[i] = (uint64_t{entry} + 1) << 40 | (i + 1);
        EXPECT_EQ(call_with(function, given), result) << row.name;
        const FakeEntryCall seen = fake_entry_last();
        EXPECT_EQ(seen.entry, entry) << row.name;
        EXPECT_TRUE(seen.is_stack_aligned) << row.name;
        EXPECT_TRUE(std::equal(given, given + row.argument_count, seen.arguments)) << row.name;
      }
    }
    send_launch_counts(add_note);
    EXPECT_EQ(g_noted.size(), mode == Mode::kCounted ? GPUPERF_HOOK_COUNT - 1 : 0);
  }
  for (const auto& [entry, noted] : g_noted) {
    EXPECT_EQ(noted.calls, 2u) << kFakeEntries[entry].name;
    EXPECT_EQ(noted.ended, 2u) << kFakeEntries[entry].name;
    EXPECT_EQ(noted.errors, (std::map<uint64_t, uint64_t>{{700 + entry, 2}}));
  }
  EXPECT_FALSE(g_noted.contains(kOdd));
}

void* g_caller = nullptr;
bool g_was_caller_seen = false;
__attribute__((noinline)) uint32_t call_and_look_back(FakeEntry function) {
  g_caller = __builtin_return_address(0);
  g_was_caller_seen = false;
  fake_entry_prepare(7, [] {
    std::vector<void*> frames(64);
    frames.resize(static_cast<size_t>(backtrace(frames.data(), 64)));
    g_was_caller_seen = std::ranges::find(frames, g_caller) != frames.end();
  });
  return call_with(function, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

TEST_F(LaunchHooksTest, HasUnwindInformation) {
  for (const Mode mode : {Mode::kWatched, Mode::kCounted}) {
    set(mode);
    for (const FakeEntryRow& row : kFakeEntries) {
      EXPECT_EQ(call_and_look_back(find_by_all_ways(row.name)[0]), 7u) << row.name;
      EXPECT_TRUE(g_was_caller_seen) << row.name;
    }
  }
}

jmp_buf g_place;
TEST_F(LaunchHooksTest, SeesThatACallWasLeft) {
  set_listening(true);
  const FakeEntry function = find_by_all_ways("cuMemcpyDtoH_v2")[0];
  if (setjmp(g_place) == 0) {
    fake_entry_prepare(0, [] { longjmp(g_place, 1); });
    (void)call_with(function, {});
  }
  fake_entry_prepare(0, nullptr);
  EXPECT_EQ(call_with(function, {}), 0u);
  send_launch_counts(add_note);
  const Noted& noted = g_noted[GPUPERF_HOOK_cuMemcpyDtoH_v2];
  EXPECT_EQ(noted.calls, 2u);
  EXPECT_EQ(noted.ended, 1u);
  EXPECT_EQ(noted.abandoned, 1u);
}

TEST_F(LaunchHooksTest, CountsAMixOfManyThreadsExactly) {
  constexpr uint64_t kThreads = 8, kRounds = 2'000;
  set_listening(true);
  std::vector<FakeEntry> functions;
  for (const FakeEntryRow& row : kFakeEntries) functions.push_back(find_by_all_ways(row.name)[0]);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&functions, thread] {
      for (uint64_t i = 0; i < kRounds * GPUPERF_HOOK_COUNT; ++i) {
        const uint64_t entry = (i * 37 + thread) % GPUPERF_HOOK_COUNT;
        const uint64_t given[kFakeArguments] = {i + 1, thread, 3, 4, 5, 6, 7, 0, i, 10, entry};
        (void)call_with(functions[entry], given);
        const FakeEntryCall seen = fake_entry_last();
        if (seen.entry != entry || seen.arguments[0] != i + 1) return;
      }
    });
  }
  for (std::thread& thread : threads) {
    send_launch_counts(add_note);
    thread.join();
  }
  send_launch_counts(add_note);
  EXPECT_EQ(g_noted.size(), size_t{GPUPERF_HOOK_COUNT - 1});
  for (const auto& [entry, noted] : g_noted) {
    EXPECT_EQ(noted.calls, kThreads * kRounds) << kFakeEntries[entry].name;
    EXPECT_EQ(noted.ended, kThreads * kRounds) << kFakeEntries[entry].name;
  }
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

TEST_F(LaunchHooksTest, TellsProgressWhetherADaemonListensOrNot) {
  const auto launch = [](int count) {
    for (int i = 0; i < count; ++i) (void)fake_runtime_launch(true, kFunction, 0);
  };
  const uint64_t before = get_progress();
  launch(3);  // neither is on
  EXPECT_EQ(get_progress(), before);
  set_progress(true);
  launch(5);
  EXPECT_EQ(get_progress(), before + 5);
  send_launch_counts(add_note);
  EXPECT_EQ(g_calls, 0u) << "they are counted as progress alone";
  set_listening(true);
  launch(7);
  std::thread([&] { launch(11); }).join();
  EXPECT_EQ(get_progress(), before + 23);
  send_launch_counts(add_note);
  EXPECT_EQ(g_calls, 18u);
  set_listening(false);
  watch_launches(true);
  launch(2);
  EXPECT_EQ(get_progress(), before + 25) << "also of calls that are followed";
  watch_launches(false);
  set_progress(false);
  launch(1);
  EXPECT_EQ(get_progress(), before + 25);
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
  set_listening(false);
  EXPECT_EQ(call_with(find_by_all_ways("cuMemcpyAsync")[0], {}), 0u);
  send_launch_counts(add_note);
  EXPECT_EQ(g_attended, 2) << "copies are not asked";
  EXPECT_FALSE(g_noted.contains(GPUPERF_HOOK_cuMemcpyAsync)) << "nor counted, for nobody listens";
  set_attention(nullptr);

  EXPECT_EQ(fake_runtime_launch(true, kFunction, 0), CUDA_SUCCESS);
  EXPECT_EQ(g_attended, 2);
}

std::atomic<int> g_inside = 0;
std::atomic<uint64_t> g_entered = 0;
std::atomic<bool> g_may_leave = true;
void stay_inside() {
  ++g_inside;
  ++g_entered;
  while (!g_may_leave) std::this_thread::yield();
  --g_inside;
}

void hold_again_and_again() {
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      fake_entry_prepare(0, stay_inside);
      const FakeEntry function = find_by_all_ways("cuMemcpyAsync")[0];
      while (!is_over) EXPECT_EQ(call_with(function, {}), 0u);
    });
  }
  int held = 0;
  for (int i = 0; i < 50; ++i) {
    if (!hold_launches(100, 10'000)) continue;  // a busy machine runs this thread late
    ++held;
    EXPECT_EQ(g_inside, 0);
    const uint64_t entered = g_entered;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(g_entered, entered);
    EXPECT_TRUE(release_launches());
    while (g_entered == entered) std::this_thread::yield();
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(held, 0);
}

TEST_F(LaunchHooksTest, ACallThatWasLeftOnAnotherStackEndsWithoutHarm) {
  const FakeEntry function = find_by_all_ways("cuMemcpyDtoH_v2")[0];
  // Within a counted call a watched one begins on another stack, and ends after it.
  set(Mode::kCounted);
  static ucontext_t outer, inner;
  static FakeEntry called;
  static std::vector<std::byte> stack(256 << 10);
  called = function;
  ASSERT_EQ(getcontext(&inner), 0);
  inner.uc_stack.ss_sp = stack.data();
  inner.uc_stack.ss_size = stack.size();
  inner.uc_link = &outer;
  makecontext(
      &inner,
      [] {
        fake_entry_prepare(0, [] { (void)swapcontext(&inner, &outer); });
        (void)call_with(called, {});
      },
      0);
  fake_entry_prepare(0, [] {
    set(Mode::kWatched);
    (void)swapcontext(&outer, &inner);
  });
  EXPECT_EQ(call_with(function, {}), 0u);
  (void)swapcontext(&outer, &inner);
  set(Mode::kCounted);
  fake_entry_prepare(0, nullptr);
  EXPECT_EQ(call_with(function, {}), 0u);
  EXPECT_TRUE(hold_launches()) << "none is in the driver";
  EXPECT_TRUE(release_launches());
}

TEST_F(LaunchHooksTest, HoldsEveryLaunchBackForAMoment) {
  for (const Mode mode : {Mode::kWatched, Mode::kCounted}) {
    SCOPED_TRACE(static_cast<int>(mode));
    set(mode);
    hold_again_and_again();
  }
}
TEST_F(LaunchHooksTest, HoldsNoLaunchBackForLong) {
  set_listening(true);
  const FakeEntry function = find_by_all_ways("cuMemcpyAsync")[0];
  const auto start = [&] {
    return std::thread([&] {
      fake_entry_prepare(0, stay_inside);
      EXPECT_EQ(call_with(function, {}), 0u);
    });
  };
  g_may_leave = false;
  std::thread inside = start();
  while (g_inside == 0) std::this_thread::yield();
  EXPECT_FALSE(hold_launches()) << "one is in the driver";
  g_may_leave = true;
  inside.join();

  ASSERT_TRUE(hold_launches());
  const uint64_t entered = g_entered;
  std::thread held = start();
  held.join();
  EXPECT_EQ(g_entered, entered + 1) << "it goes on by itself";
  EXPECT_FALSE(release_launches()) << "and that is known";
  ASSERT_TRUE(hold_launches());
  fake_entry_prepare(0, nullptr);
  EXPECT_EQ(call_with(function, {}), 0u) << "who holds them does not wait";
  EXPECT_TRUE(release_launches());
  set_listening(false);
  EXPECT_FALSE(hold_launches()) << "hooks that do not count see nothing";
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
