#include "daemon/resolve/symbolizer.h"

#include <execinfo.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <numeric>
#include <thread>

#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {

// Exported, so that the names of this program's own stack can be known.
namespace stack_sample {

using Stack = std::vector<uint64_t>;

[[gnu::noinline]] int innermost(Stack& stack, int depth) {
  void* addresses[32];
  const int count = ::backtrace(addresses, 32);
  for (int i = 0; i < count; ++i) stack.push_back(reinterpret_cast<uint64_t>(addresses[i]));
  return depth + count;
}

template <typename T>
[[gnu::noinline]] int middle(Stack& stack, T depth) {
  return innermost(stack, static_cast<int>(depth) + 1) + 1;
}

}  // namespace stack_sample

extern "C" [[gnu::noinline]] int gpuperf_stack_sample_outermost(stack_sample::Stack& stack) {
  return stack_sample::middle<long>(stack, 1) + 1;
}

namespace {

using Frames = std::vector<StackFrame>;

const ProcessKey kSelf{.pid = static_cast<uint32_t>(::getpid())};

Frames resolve(Symbolizer& symbolizer, const ProcessKey& process,
               const std::vector<uint64_t>& addresses) {
  std::promise<Frames> promise;
  EXPECT_TRUE(symbolizer.post_resolve(
      {{.process = process, .addresses = addresses}},
      [&promise](Symbolizer::Stacks stacks) { promise.set_value(std::move(stacks[0])); }));
  return promise.get_future().get();
}

TEST(SymbolizerTest, NamesTheFramesOfItsOwnStack) {
  Symbolizer symbolizer({});
  stack_sample::Stack stack;
  (void)gpuperf_stack_sample_outermost(stack);

  Frames frames = resolve(symbolizer, kSelf, stack);

  ASSERT_EQ(frames.size(), stack.size());
  const std::string executable = std::filesystem::read_symlink("/proc/self/exe");
  // A sanitizer puts frames of its own below backtrace().
  frames.erase(frames.begin(), std::ranges::find(frames, executable, &StackFrame::module));
  ASSERT_GE(frames.size(), 4u);
  const std::string vector = "std::vector<unsigned long, std::allocator<unsigned long> >&";
  EXPECT_EQ(frames[0].symbol, "gpuperf::stack_sample::innermost(" + vector + ", int)");
  EXPECT_EQ(frames[1].symbol, "int gpuperf::stack_sample::middle<long>(" + vector + ", long)");
  EXPECT_EQ(frames[2].symbol, "gpuperf_stack_sample_outermost");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(frames[i].module, executable) << i;
  const auto get_start = [](const StackFrame& frame) { return frame.address - frame.offset_bytes; };
  EXPECT_EQ(get_start(frames[0]), reinterpret_cast<uint64_t>(&stack_sample::innermost));
  EXPECT_EQ(get_start(frames[1]), reinterpret_cast<uint64_t>(&stack_sample::middle<long>));
  EXPECT_EQ(get_start(frames[2]), reinterpret_cast<uint64_t>(&gpuperf_stack_sample_outermost));
}

TEST(SymbolizerTest, NamesFunctionsOfTheCLibrary) {
  Symbolizer symbolizer({});
  const auto getpid_address = reinterpret_cast<uint64_t>(&::getppid);

  const Frames frames = resolve(symbolizer, kSelf, {getpid_address + 2});

  ASSERT_EQ(frames.size(), 1u);
  // Both names stand at that address.
  EXPECT_TRUE(frames[0].symbol == "getppid" || frames[0].symbol == "__getppid") << frames[0].symbol;
  EXPECT_EQ(frames[0].offset_bytes, 2u);
}

TEST(SymbolizerTest, AnswersInTheOrderOfThePosts) {
  Symbolizer symbolizer({});
  std::promise<void> done;
  std::vector<int> order;  // resolve thread until `done`
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(symbolizer.post_resolve({{.process = kSelf, .addresses = {1}}},
                                        [&order, &done, i](const auto&) {
                                          order.push_back(i);
                                          if (i == 99) done.set_value();
                                        }));
  }

  done.get_future().wait();

  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(SymbolizerTest, RefusesWhatItsQueueCannotHoldAndNeverCallsBackForIt) {
  std::promise<void> entered, leave;
  std::atomic<int> answered = 0;
  {
    Symbolizer symbolizer({.queue_requests = 2});
    ASSERT_TRUE(symbolizer.post_resolve({{.process = kSelf}}, [&](const auto&) {
      entered.set_value();
      leave.get_future().wait();
    }));
    entered.get_future().wait();
    const auto count = [&answered](const Symbolizer::Stacks&) { ++answered; };

    EXPECT_TRUE(symbolizer.post_resolve({{.process = kSelf}}, count));
    EXPECT_TRUE(symbolizer.post_resolve({{.process = kSelf}}, count));
    EXPECT_FALSE(symbolizer.post_resolve({{.process = kSelf}}, count));
    EXPECT_FALSE(symbolizer.post_prefetch(kSelf));
    leave.set_value();
  }
  EXPECT_EQ(answered, 2);
}

TEST(SymbolizerTest, AnswersWhatStillWaitsWhenItEnds) {
  std::promise<void> entered, leave;
  std::promise<Frames> waiting;
  auto symbolizer = std::make_unique<Symbolizer>(Symbolizer::Options{});
  ASSERT_TRUE(symbolizer->post_resolve({{.process = kSelf}}, [&](const auto&) {
    entered.set_value();
    leave.get_future().wait();
  }));
  ASSERT_TRUE(symbolizer->post_resolve(
      {{.process = kSelf, .addresses = {4711}}},
      [&waiting](Symbolizer::Stacks stacks) { waiting.set_value(std::move(stacks[0])); }));
  entered.get_future().wait();

  std::thread ending([&symbolizer] { symbolizer.reset(); });
  leave.set_value();
  ending.join();

  EXPECT_EQ(waiting.get_future().get(), Frames{{.address = 4711}});
}

TEST(SymbolizerTest, NamesAShortLivedProcessAfterItHasGone) {
  FakeProc fake;
  fake.add_process(7, "/app");
  fake.write(7, "maps", "5000-7000 r-xp 00000000 00:00 0                          [vdso]\n");
  Symbolizer symbolizer({.frames = {.proc_root = fake.proc()}});
  const ProcessKey process{.pid = 7, .start_boot_ns = 10'000'000};

  ASSERT_TRUE(symbolizer.post_prefetch(process));
  (void)resolve(symbolizer, process, {});  // answered after the prefetch
  fake.remove_process(7);

  EXPECT_EQ(resolve(symbolizer, process, {0x5010}).at(0), (StackFrame{"", "[vdso]", 0x10, 0x5010}));
}

}  // namespace
}  // namespace gpuperf
