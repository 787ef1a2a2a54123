#include "injector/known_stacks.h"

#include <alloca.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <vector>

namespace gpuperf::injector {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr uint64_t kNow = 5'000'000'000;

using Stack = const gpuperf_noted_stack*;

std::span<const gpuperf_native_frame> frames_of(Stack stack) {
  return {reinterpret_cast<const gpuperf_native_frame*>(stack->frames_address), stack->frame_count};
}

// From the caller on, as a launch hook would.
__attribute__((noinline)) Stack take_here(KnownStacks& stacks, uint64_t now_mono_ns = kNow) {
  const auto* const frame = static_cast<const uint64_t*>(__builtin_frame_address(0));
  const KnownStack* const stack =
      stacks.take(frame[1], reinterpret_cast<uint64_t>(frame + 2), frame[0], now_mono_ns);
  asm volatile("" : : : "memory");  // no tail call
  return stack == nullptr ? nullptr : &stack->noted;
}

// Its frames are found by bp where `bytes` lie on the stack.
__attribute__((noinline)) void recurse(int depth, size_t bytes, const std::function<void()>& then) {
  volatile char* const place = static_cast<char*>(alloca(bytes));
  place[0] = 1;
  if (depth == 0) {
    then();
  } else {
    recurse(depth - 1, bytes, then);
  }
  place[0] = 2;
}

class KnownStacksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!set_up_known_stacks()) GTEST_SKIP() << "glibc before 2.35";
  }
  std::unique_ptr<KnownStacks> stacks_ = std::make_unique<KnownStacks>();
};

// By the compiler's unwinder; not backtrace(), in whose place sanitizers put a function of theirs.
inline __attribute__((always_inline)) std::vector<uint64_t> unwind_here() {
  std::vector<uint64_t> found;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* to) {
        if (_Unwind_GetIP(context) == 0) return _URC_END_OF_STACK;
        static_cast<std::vector<uint64_t>*>(to)->push_back(_Unwind_GetIP(context));
        return _URC_NO_REASON;
      },
      &found);
  return found;
}

TEST_F(KnownStacksTest, HasTheFramesThatTheUnwinderOfTheCompilerFinds) {
  for (const size_t bytes : {size_t{16}, size_t{100}, size_t{5000}}) {
    recurse(20, bytes, [&] {
      const std::vector<uint64_t> expected = unwind_here();
      const Stack stack = take_here(*stacks_);
      ASSERT_NE(stack, nullptr);
      EXPECT_EQ(stack->end, GPUPERF_STACK_COMPLETE);
      const auto frames = frames_of(stack);
      ASSERT_EQ(frames.size(), expected.size());
      for (size_t i = 1; i < frames.size(); ++i) {
        EXPECT_EQ(frames[i].pc, expected[i]) << i;
      }
    });
  }
}

TEST_F(KnownStacksTest, TakesAnEqualStackForTheSame) {
  std::vector<Stack> taken;
  for (int i = 0; i < 3; ++i) {
    recurse(8, 32, [&] { taken.push_back(take_here(*stacks_)); });
  }
  recurse(9, 32, [&] { taken.push_back(take_here(*stacks_)); });

  ASSERT_NE(taken[0], nullptr);
  EXPECT_EQ(taken[1], taken[0]);
  EXPECT_EQ(taken[2], taken[0]);
  ASSERT_NE(taken[3], nullptr);
  EXPECT_NE(taken[3]->stack_id, taken[0]->stack_id);
}

__attribute__((noinline)) void call_one_way(const std::function<void()>& then) {
  recurse(3, 16, then);
  asm volatile("" : : : "memory");
}
__attribute__((noinline)) void call_another_way(const std::function<void()>& then) {
  recurse(3, 16, then);
  asm volatile("nop" : : : "memory");
}

TEST_F(KnownStacksTest, TellsStacksApartThatDifferFarOut) {
  std::vector<Stack> taken;
  const std::function<void()> take = [&] { taken.push_back(take_here(*stacks_)); };
  for (int i = 0; i < 2; ++i) {
    call_one_way(take);
    call_another_way(take);
  }

  ASSERT_NE(taken[0], nullptr);
  EXPECT_EQ(frames_of(taken[0])[0].sp, frames_of(taken[1])[0].sp) << "else the test tests nothing";
  EXPECT_NE(taken[0]->stack_id, taken[1]->stack_id);
  EXPECT_EQ(taken[2], taken[0]);
  EXPECT_EQ(taken[3], taken[1]);
}

TEST_F(KnownStacksTest, HasRoomAgainOnceItIsCleared) {
  // Not one frame lies where another stack has it.
  for (int i = 0; !stacks_->must_clear() && i < 20'000; ++i) {
    recurse(i % 100, 16 * static_cast<size_t>(i + 1),
            [&] { take_here(*stacks_, kNow + static_cast<uint64_t>(i) * 1'000'000); });
  }
  ASSERT_TRUE(stacks_->must_clear());
  stacks_->clear();
  EXPECT_FALSE(stacks_->must_clear());
  recurse(3, 16, [&] { EXPECT_NE(take_here(*stacks_), nullptr); });
}

TEST_F(KnownStacksTest, ForgetsWhatItKnewOnceCodeWasUnmapped) {
  void* const library = dlopen("libanl.so.1", RTLD_NOW);
  notice_code_changes();
  stacks_->clear();
  recurse(3, 16, [&] { EXPECT_NE(take_here(*stacks_), nullptr); });
  notice_code_changes();
  EXPECT_FALSE(stacks_->must_clear());
  ASSERT_NE(library, nullptr) << dlerror();
  ASSERT_EQ(dlclose(library), 0);
  notice_code_changes();
  EXPECT_TRUE(stacks_->must_clear());
}

// Memory of which pages are missing, or cannot be read.
class Holes {
 public:
  explicit Holes(size_t pages) : bytes_(pages * kPageBytes) {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t page = 2; page < pages; page += 5) {
      mprotect(memory_ + page * kPageBytes, kPageBytes, PROT_NONE);
      if (page + 2 < pages) munmap(memory_ + (page + 2) * kPageBytes, kPageBytes);
    }
  }
  ~Holes() { munmap(memory_, bytes_); }
  Holes(const Holes&) = delete;
  Holes& operator=(const Holes&) = delete;

  // One of `own_in` words is an address of its own memory.
  template <typename Random>
  void fill(Random& random, const std::vector<uint64_t>& words, unsigned own_in) {
    for (size_t page = 0; page < bytes_ / kPageBytes; ++page) {
      if (page % 5 == 2 || page % 5 == 4) continue;
      for (size_t at = 0; at < kPageBytes; at += 8) {
        uint64_t word = words[random() % words.size()];
        if (random() % own_in == 0) word = begin() + random() % bytes_;
        std::memcpy(memory_ + page * kPageBytes + at, &word, sizeof(word));
      }
    }
  }
  uint64_t begin() const { return reinterpret_cast<uint64_t>(memory_); }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  size_t bytes_;
};

// Return addresses of this program, and words that are none.
std::vector<uint64_t> collect_words() {
  std::vector<uint64_t> words = {0, 1, ~uint64_t{0}, uint64_t{1} << 47, uint64_t{1} << 63};
  recurse(6, 64, [&words] { std::ranges::copy(unwind_here(), std::back_inserter(words)); });
  return words;
}

TEST_F(KnownStacksTest, NoStackMakesItFault) {
  std::mt19937_64 random(20);  // NOLINT(cert-msc51-cpp): the same each time
  const std::vector<uint64_t> words = collect_words();
  Holes holes(20);
  const auto walked = std::make_unique<WalkedStack>();
  size_t frames = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (i % 100 == 0) holes.fill(random, words, 5);
    const WalkStart start{.pc = words[5 + random() % (words.size() - 5)],
                          .sp = holes.begin() + random() % holes.bytes() / 8 * 8,
                          .bp = holes.begin() + random() % holes.bytes(),
                          .python_thread = 0};
    (void)walk_own_stack(start, nullptr, *walked);
    frames += walked->head.frame_count;
  }
  EXPECT_GT(frames, 20'000) << "walks that end at once test nothing";
}

TEST_F(KnownStacksTest, NoLayoutOfPythonMakesItFault) {
  std::mt19937_64 random(21);  // NOLINT(cert-msc51-cpp): the same each time
  Holes holes(20);
  const auto walked = std::make_unique<WalkedStack>();
  const std::vector<uint64_t> words = {0, holes.begin(), holes.begin() + 3 * kPageBytes, 7};
  size_t python_frames = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (i % 100 == 0) holes.fill(random, words, 2);
    OwnPython python = {};
    auto& layout = python.layout;
    std::array<uint16_t, sizeof(layout) / sizeof(uint16_t)> numbers{};
    for (uint16_t& number : numbers) number = static_cast<uint16_t>(random() % 64 * 8);
    std::memcpy(&layout, numbers.data(), sizeof(layout));
    layout.form = static_cast<uint8_t>(1 + random() % 3);
    layout.first_c_owner = static_cast<uint8_t>(random() % 4);
    layout.interpreter_next = 8;
    // One interpreter, so that the walk begins.
    alignas(8) std::array<uint64_t, 70> runtime{};
    runtime.fill(reinterpret_cast<uint64_t>(&runtime));
    runtime[1] = 0;
    layout.runtime_interpreters_head = 16;
    python.runtime = reinterpret_cast<uint64_t>(&runtime);
    const WalkStart start{.pc = 1,
                          .sp = holes.begin(),
                          .bp = 0,
                          .python_thread = holes.begin() + random() % holes.bytes()};
    (void)walk_own_stack(start, &python, *walked);
    python_frames += walked->head.python_count;
  }
  EXPECT_GT(python_frames, 1'000) << "walks that end at once test nothing";
}

// A thread of two Python functions, the inner one first.
struct FakePython {
  struct Code {
    uint64_t first_line;
  };
  struct Frame {
    uint64_t previous, code, index;
  };
  struct Interpreter {
    uint64_t next;
  };

  explicit FakePython(Code* codes) {
    for (size_t i = 0; i < frames.size(); ++i) {
      codes[i].first_line = 10 * (i + 1);
      frames[i] = {.previous = i + 1 < frames.size() ? address(frames[i + 1]) : 0,
                   .code = address(codes[i]),
                   .index = i};
    }
    auto& layout = python.layout;
    layout.form = GPUPERF_PYTHON_FRAME_OBJECTS;
    layout.instruction_unit_bytes = 1;
    layout.frame_code = offsetof(Frame, code);
    layout.frame_instruction = offsetof(Frame, index);
    python.runtime = address(interpreter);
  }
  template <typename T>
  static uint64_t address(const T& what) {
    return reinterpret_cast<uint64_t>(&what);
  }

  std::array<Frame, 2> frames;
  uint64_t thread = address(frames[0]);
  std::array<Interpreter, 2> interpreters = {};
  uint64_t interpreter = address(interpreters[0]);
  OwnPython python = {};
};

// First lines of the Python functions; none if the stack is not whole.
__attribute__((noinline)) std::vector<uint32_t> walk_here(const FakePython& fake) {
  const auto* const frame = static_cast<const uint64_t*>(__builtin_frame_address(0));
  static WalkedStack walked;
  std::vector<uint32_t> lines;
  if (walk_own_stack({.pc = frame[1],
                      .sp = reinterpret_cast<uint64_t>(frame + 2),
                      .bp = frame[0],
                      .python_thread = FakePython::address(fake.thread)},
                     &fake.python, walked)) {
    for (size_t i = 0; i < walked.head.python_count; ++i) {
      lines.push_back(walked.python[i].first_line);
    }
  }
  return lines;
}

using Lines = std::vector<uint32_t>;

TEST_F(KnownStacksTest, SeesAnotherCodeObjectAtTheSameAddress) {
  std::array<FakePython::Code, 2> codes{};
  const FakePython fake(codes.data());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(walk_here(fake), (Lines{10, 20}));
  for (const uint32_t line : {30u, 40u, 10u}) {
    codes[1].first_line = line;
    EXPECT_EQ(walk_here(fake), (Lines{10, line}));
    EXPECT_EQ(walk_here(fake), (Lines{10, line}));
  }
}

TEST_F(KnownStacksTest, SeesThatAnInterpreterCameAndWent) {
  std::array<FakePython::Code, 2> codes{};
  FakePython fake(codes.data());
  for (FakePython::Interpreter& only : fake.interpreters) {
    fake.interpreter = FakePython::address(only);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(walk_here(fake), (Lines{10, 20}));
    only.next = FakePython::address(fake.interpreters[0]);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(walk_here(fake), Lines{});
    only.next = 0;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(walk_here(fake), (Lines{10, 20}));
  }
}

TEST_F(KnownStacksTest, SeesThatACodeObjectsMemoryIsGone) {
  auto* const codes = static_cast<FakePython::Code*>(
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const FakePython fake(codes);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(walk_here(fake), (Lines{10, 20}));
  ASSERT_EQ(mprotect(codes, kPageBytes, PROT_NONE), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(walk_here(fake), Lines{});
  ASSERT_EQ(mprotect(codes, kPageBytes, PROT_READ), 0);
  EXPECT_EQ(walk_here(fake), (Lines{10, 20}));
  munmap(codes, kPageBytes);
}

// Stacks of coroutines go and come at the same addresses, smaller than before.
ucontext_t g_caller;
ucontext_t g_fiber;
std::function<void()>* g_fiber_work = nullptr;
void run_fiber() { (*g_fiber_work)(); }

void run_on(std::byte* stack, size_t bytes, std::function<void()> work) {
  g_fiber_work = &work;
  ASSERT_EQ(getcontext(&g_fiber), 0);
  g_fiber.uc_stack.ss_sp = stack;
  g_fiber.uc_stack.ss_size = bytes;
  g_fiber.uc_link = &g_caller;
  makecontext(&g_fiber, run_fiber, 0);
  ASSERT_EQ(swapcontext(&g_caller, &g_fiber), 0);
}

TEST_F(KnownStacksTest, AStackThatIsGoneIsNotLookedAt) {
  constexpr size_t kBytes = 64 * kPageBytes;
  auto* const area =
      static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(area, MAP_FAILED);
  const auto open = [area](size_t bytes) { mprotect(area, bytes, PROT_READ | PROT_WRITE); };
  const auto close = [area] {
    mmap(area, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  };
  size_t taken = 0;
  // From deep in a large stack; then at the same places near the top of small ones.
  for (const size_t pages : {64, 40, 16, 15, 14, 64, 13, 12}) {
    open(pages * kPageBytes);
    for (int depth = 0; depth < 40; ++depth) {
      run_on(area, pages * kPageBytes, [&] {
        recurse(depth % static_cast<int>(pages / 6 + 1), 3000,
                [&] { taken += take_here(*stacks_) != nullptr; });
      });
    }
    close();
  }
  munmap(area, kBytes);
  EXPECT_GT(taken, 200);
}

KnownStacks* g_handler_stacks = nullptr;
std::atomic<int> g_handled = 0;
void launch_in_handler(int) {
  (void)take_here(*g_handler_stacks);
  g_handled.fetch_add(1);
}

TEST_F(KnownStacksTest, SignalHandlersMayLaunchInTheMiddleOfIt) {
  g_handler_stacks = stacks_.get();
  std::vector<std::byte> alternate(64 << 10);
  stack_t signal_stack = {};
  signal_stack.ss_sp = alternate.data();
  signal_stack.ss_size = alternate.size();
  ASSERT_EQ(sigaltstack(&signal_stack, nullptr), 0);
  struct sigaction action = {};
  action.sa_handler = launch_in_handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);
  const itimerval often = {{0, 100}, {0, 100}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  Stack first = nullptr;
  while (g_handled.load() < 2000) {
    if (stacks_->must_clear()) {
      stacks_->clear();
      first = nullptr;
    }
    recurse(5, 64, [&] {
      const Stack stack = take_here(*stacks_);
      if (first == nullptr) first = stack;
      if (stack != nullptr) {
        EXPECT_EQ(stack->stack_id, first->stack_id);
      }
    });
  }
  const itimerval never = {};
  ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
  signal(SIGALRM, SIG_DFL);
  signal_stack.ss_flags = SS_DISABLE;
  ASSERT_EQ(sigaltstack(&signal_stack, nullptr), 0);
}

// Turns by the bits of `path`, the lowest first.
void call_along(uint32_t path, int turns, const std::function<void()>& then);
__attribute__((noinline)) void turn_left(uint32_t path, int turns,
                                         const std::function<void()>& then) {
  call_along(path, turns, then);
  asm volatile("" : : : "memory");
}
__attribute__((noinline)) void turn_right(uint32_t path, int turns,
                                          const std::function<void()>& then) {
  call_along(path, turns, then);
  asm volatile("nop" : : : "memory");
}
void call_along(uint32_t path, int turns, const std::function<void()>& then) {
  if (turns == 0) return then();
  (path & 1) != 0 ? turn_right(path >> 1, turns - 1, then) : turn_left(path >> 1, turns - 1, then);
}

TEST_F(KnownStacksTest, KeepsEachOfManyFromTheSamePlaceOnce) {
  constexpr int kTurns = 4, kRounds = 3;  // more than a search compares
  std::vector<uint32_t> paths(1u << kTurns);
  std::iota(paths.begin(), paths.end(), 0u);
  std::vector<Stack> first(paths.size());
  std::set<uint64_t> ids, places;
  std::mt19937 random(1);
  for (int round = 0; round < kRounds; ++round) {
    std::shuffle(paths.begin(), paths.end(), random);
    for (const uint32_t path : paths) {
      call_along(path, kTurns, [&] {
        const Stack stack = take_here(*stacks_);
        ASSERT_NE(stack, nullptr);
        if (round == 0) first[path] = stack;
        EXPECT_EQ(stack, first[path]);
        ids.insert(stack->stack_id);
        places.insert(frames_of(stack)[0].sp);
      });
    }
  }
  EXPECT_EQ(ids.size(), paths.size());
  EXPECT_EQ(places.size(), 1u) << "else the test tests nothing";
}

}  // namespace
}  // namespace gpuperf::injector
