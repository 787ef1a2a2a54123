#include <execinfo.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/proc_text.h"
#include "daemon/resolve/symbolizer.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {

// Exported, so that the names of this program's own stack can be known.
namespace symbolizer_sample {

// As a call in flight is told of: where its return address stands, and its caller's bp.
struct StackPlace {
  LiveStack live;
  std::vector<uint64_t> callers;
};

using Use = std::function<void(const StackPlace&)>;

// Lives while `use` runs.
extern "C" [[gnu::noinline]] void gpuperf_symbolizer_sample_innermost(StackPlace& place,
                                                                      const Use& use) {
  const auto frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  place.live.sp = frame + 8;
  std::memcpy(&place.live.bp, reinterpret_cast<const void*>(frame), sizeof place.live.bp);
  void* addresses[64];
  const int count = backtrace(addresses, 64);
  for (int i = 1; i < count; ++i) place.callers.push_back(reinterpret_cast<uint64_t>(addresses[i]));
  use(place);
  asm volatile("");
}

template <typename T>
[[gnu::noinline]] T middle(StackPlace& place, T value, const Use& use) {
  gpuperf_symbolizer_sample_innermost(place, use);
  asm volatile("");
  return value + 1;
}

}  // namespace symbolizer_sample

namespace {

using symbolizer_sample::StackPlace;
using testing::IsEmpty;
using testing::IsNull;
using testing::NotNull;
using Stacks = Symbolizer::Stacks;

ProcessKey self() {
  const auto pid = static_cast<uint32_t>(getpid());
  return {.pid = pid, .start_boot_ns = read_start_ticks("/proc", pid).value_or(0) * 10'000'000};
}

// As the kernel side sends one that it walked to its end.
RawStack make_walked(uint64_t id, const std::vector<uint64_t>& callers) {
  RawStack stack{.id = id, .process = self()};
  for (const uint64_t caller : callers) stack.frames.push_back({.pc = caller});
  return stack;
}

// Up to the end of the stack's memory.
StackCopy copy_stack(uint64_t sp) {
  constexpr uint64_t kPageBytes = 4096;
  const ReadMemory read = make_direct_reader(self().pid);
  StackMemory memory{.address = sp};
  for (uint64_t address = sp; memory.is_present.size() < 64;) {
    std::vector<std::byte> page(kPageBytes - address % kPageBytes);
    if (!read(address, page)) break;
    memory.bytes.insert(memory.bytes.end(), page.begin(), page.end());
    memory.is_present.push_back(true);
    address += page.size();
  }
  return {.memory = {std::move(memory)}};
}

RawStack make_copied(uint64_t id, size_t copy_bytes) {
  RawStack stack{.id = id, .process = self(), .end = StackEnd::kUnknown, .frames = {{.pc = 1}}};
  stack.copy = StackCopy{.memory = {{.bytes = std::vector<std::byte>(copy_bytes)}}};
  return stack;
}

class SymbolizerStacksTest : public testing::Test {
 protected:
  // What the kernel side is told; of the walking thread.
  struct Told {
    std::mutex mutex;
    std::vector<uint32_t> spaces;
    size_t rules = 0;
    std::vector<uint64_t> forgotten;
  };

  std::unique_ptr<Symbolizer> make(Symbolizer::Options options = {}) {
    options.tables = {.set_space =
                          [this](uint32_t pid, const gpuperf_address_space&) {
                            if (pid == kGatePid) return pass_gate();
                            const std::lock_guard lock(told_.mutex);
                            told_.spaces.push_back(pid);
                            return true;
                          },
                      .erase_space = [](uint32_t) {},
                      .set_rule =
                          [this](const gpuperf_unwind_key&, const gpuperf_unwind_rule&) {
                            const std::lock_guard lock(told_.mutex);
                            ++told_.rules;
                            return true;
                          },
                      .erase_rule = [](const gpuperf_unwind_key&) {}};
    options.forget_sent = [this](uint64_t raw_id) {
      const std::lock_guard lock(told_.mutex);
      told_.forgotten.push_back(raw_id);
    };
    return std::make_unique<Symbolizer>(std::move(options), memory_, drops_);
  }

  static Stacks resolve(Symbolizer& symbolizer, std::vector<StackRequest> requests) {
    std::promise<Stacks> answer;
    EXPECT_TRUE(symbolizer.post_resolve({}, std::move(requests), [&answer](Stacks stacks) {
      answer.set_value(std::move(stacks));
    }));
    return answer.get_future().get();
  }
  // Everything posted before has been handled when this returns.
  static void settle(Symbolizer& symbolizer) {
    std::promise<void> settled;
    while (!symbolizer.post_resolve({}, {}, [&settled](const Stacks&) { settled.set_value(); })) {
      std::this_thread::yield();  // its queue is full
    }
    settled.get_future().wait();
  }

  // Keeps the walking thread busy until it is destroyed: with a process that is at the gate.
  class Busy {
   public:
    Busy(SymbolizerStacksTest& test, Symbolizer& symbolizer) : test_(test) {
      std::promise<void> entered;
      test_.gate_ = {.entered = &entered, .leave = leave_.get_future().share()};
      symbolizer.post_prepare({.pid = test_.kGatePid});
      entered.get_future().wait();
    }
    ~Busy() { leave_.set_value(); }

   private:
    SymbolizerStacksTest& test_;
    std::promise<void> leave_;
  };
  struct Gate {
    std::promise<void>* entered = nullptr;
    std::shared_future<void> leave;
  };

  bool pass_gate() {
    gate_.entered->set_value();
    gate_.leave.wait();
    return true;
  }

  const uint32_t kGatePid = static_cast<uint32_t>(getppid());
  Gate gate_;
  Told told_;
  DropCounters drops_;
  ProcessReader memory_{
      {.on_late = [this](ProcessReader::Kind) { drops_.add(DropCause::kNamesMemoryLate); }}};
};

std::vector<std::string> get_symbols(const StackPtr& stack) {
  std::vector<std::string> symbols;
  for (const StackFrame& frame : get_frames(stack)) {
    if (!frame.is_inlined) symbols.push_back(frame.symbol);
  }
  return symbols;
}

std::vector<uint64_t> get_addresses(const StackPtr& stack) {
  std::vector<uint64_t> addresses;
  for (const StackFrame& frame : get_frames(stack)) {
    if (!frame.is_inlined) addresses.push_back(frame.address);
  }
  return addresses;
}

TEST_F(SymbolizerStacksTest, NamesAStackThatWasTaken) {
  const auto symbolizer = make();
  StackPlace place;
  (void)symbolizer_sample::middle(place, 1L, [](const StackPlace&) {});

  ASSERT_THAT(symbolizer->post_stacks({make_walked(71, place.callers)}), IsEmpty());
  const Stacks stacks = resolve(*symbolizer, {TakenStack{71}});

  ASSERT_THAT(stacks, SizeIs(1));
  ASSERT_THAT(stacks[0], NotNull());
  EXPECT_EQ(stacks[0]->end, StackEnd::kComplete);
  EXPECT_EQ(get_addresses(stacks[0]), place.callers);
  EXPECT_THAT(get_symbols(stacks[0])[0], testing::HasSubstr("symbolizer_sample::middle<long"));
  EXPECT_EQ(get_frames(stacks[0])[0].module, std::filesystem::read_symlink("/proc/self/exe"));
}

// With where it was taken.
RawStack copy_own_stack(uint64_t id, StackPlace& place) {
  RawStack copied;
  (void)symbolizer_sample::middle(place, 1L, [id, &copied](const StackPlace& known) {
    const uint64_t sp = known.live.sp + 8;
    copied = {.id = id,
              .process = self(),
              .end = StackEnd::kUnknown,
              .frames = {{.pc = known.callers[0], .sp = sp}},
              .bp = known.live.bp};
    copied.copy = copy_stack(sp);
  });
  return copied;
}

TEST_F(SymbolizerStacksTest, LearnsWalksWhileNamesAreBeingRead) {
  auto symbolizer = make();
  std::promise<void> entered, leave;
  ASSERT_TRUE(symbolizer->post_resolve({}, {}, [&](const Stacks&) {
    entered.set_value();
    leave.get_future().wait();
  }));
  entered.get_future().wait();
  StackPlace place;

  ASSERT_THAT(symbolizer->post_stacks({copy_own_stack(72, place)}), IsEmpty());

  const auto count_rules = [this] {
    const std::lock_guard lock(told_.mutex);
    return told_.rules;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (count_rules() == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_GT(count_rules(), 0);
  leave.set_value();
}

TEST_F(SymbolizerStacksTest, WalksACopyToItsEnd) {
  const auto symbolizer = make();
  StackPlace place;
  const RawStack copied = copy_own_stack(72, place);

  ASSERT_THAT(symbolizer->post_stacks({copied}), IsEmpty());
  const Stacks stacks = resolve(*symbolizer, {TakenStack{72}});

  ASSERT_THAT(stacks[0], NotNull());
  EXPECT_EQ(stacks[0]->end, StackEnd::kComplete);
  EXPECT_EQ(get_addresses(stacks[0]), place.callers);
  EXPECT_EQ(told_.spaces, std::vector<uint32_t>{self().pid});
  EXPECT_EQ(told_.rules, place.callers.size());
}

TEST_F(SymbolizerStacksTest, WalksTheStackOfACallInFlight) {
  const auto symbolizer = make();
  StackPlace place;
  Stacks stacks;

  (void)symbolizer_sample::middle(place, 1L, [&](const StackPlace& known) {
    stacks = resolve(*symbolizer, {StackInFlight{self(), known.live}});
  });

  ASSERT_THAT(stacks, SizeIs(1));
  ASSERT_THAT(stacks[0], NotNull());
  EXPECT_EQ(stacks[0]->end, StackEnd::kComplete);
  EXPECT_EQ(get_addresses(stacks[0]), place.callers);
}

TEST_F(SymbolizerStacksTest, NamesStacksOfTheKernel) {
  const auto symbolizer = make();

  const Stacks stacks = resolve(*symbolizer, {KernelStack{{0xffff'ffff'0000'0001, 16}}});

  ASSERT_THAT(stacks[0], NotNull());
  ASSERT_THAT(stacks[0]->frames, SizeIs(2));
  EXPECT_EQ(stacks[0]->frames[0].kind, StackFrameKind::kKernel);
  EXPECT_EQ(stacks[0]->frames[0].address, 0xffff'ffff'0000'0001);
  EXPECT_EQ(stacks[0]->frames[1].address, 16u);
}

TEST_F(SymbolizerStacksTest, NamesAPlaceExactly) {
  const auto symbolizer = make();
  const auto address =
      reinterpret_cast<uint64_t>(&symbolizer_sample::gpuperf_symbolizer_sample_innermost);

  const Stacks stacks = resolve(*symbolizer, {SingleFrame{self(), address}});

  ASSERT_THAT(stacks[0], NotNull());
  ASSERT_THAT(stacks[0]->frames, SizeIs(testing::Ge(1)));
  EXPECT_EQ(stacks[0]->frames.back().symbol, "gpuperf_symbolizer_sample_innermost");
  EXPECT_EQ(stacks[0]->frames.back().offset_bytes, 0u);
}

TEST_F(SymbolizerStacksTest, AnswersEachRequestInItsPlace) {
  const auto symbolizer = make();
  ASSERT_THAT(symbolizer->post_stacks({make_walked(71, {0x1000})}), IsEmpty());

  const Stacks stacks =
      resolve(*symbolizer, {std::monostate(), TakenStack{71}, TakenStack{4711}, KernelStack{{16}}});

  EXPECT_THAT(stacks, testing::ElementsAre(IsNull(), NotNull(), IsNull(), NotNull()));
}

TEST_F(SymbolizerStacksTest, GivesEqualStacksOneObject) {
  const auto symbolizer = make();
  ASSERT_THAT(symbolizer->post_stacks({make_walked(71, {0x1000}), make_walked(73, {0x1000})}),
              IsEmpty());

  const Stacks stacks = resolve(*symbolizer, {TakenStack{71}, TakenStack{73}});

  EXPECT_THAT(stacks[0], NotNull());
  EXPECT_EQ(stacks[0], stacks[1]);
}

TEST_F(SymbolizerStacksTest, SaysOfAStackThatWasNotSentWhole) {
  const auto symbolizer = make();
  RawStack unknown = make_walked(71, {0x1000});
  unknown.end = StackEnd::kUnknown;
  ASSERT_THAT(symbolizer->post_stacks({unknown}), IsEmpty());

  const Stacks stacks = resolve(*symbolizer, {TakenStack{71}});

  EXPECT_EQ(stacks[0]->end, StackEnd::kUnknown);
}

TEST_F(SymbolizerStacksTest, AnswersInTheOrderOfThePosts) {
  const auto symbolizer = make();
  std::promise<void> done;
  std::vector<int> order;  // resolve thread until `done`
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(
        symbolizer->post_resolve({}, {KernelStack{{16}}}, [&order, &done, i](const Stacks&) {
          order.push_back(i);
          if (i == 99) done.set_value();
        }));
  }

  done.get_future().wait();

  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_F(SymbolizerStacksTest, RefusesWhatItsQueueCannotHoldAndNeverCallsBackForIt) {
  std::atomic<int> answered = 0;
  auto symbolizer = make({.queue_requests = 2});
  {
    const Busy busy(*this, *symbolizer);
    const auto count = [&answered](const Stacks&) { ++answered; };

    EXPECT_TRUE(symbolizer->post_resolve({}, {}, count));
    EXPECT_THAT(symbolizer->post_stacks({make_walked(71, {0x1000})}), IsEmpty());
    EXPECT_FALSE(symbolizer->post_resolve({}, {}, count));
    EXPECT_THAT(symbolizer->post_stacks({make_walked(72, {0x1000})}), SizeIs(1));
  }
  symbolizer.reset();

  EXPECT_EQ(answered, 1);
}

TEST_F(SymbolizerStacksTest, LeavesOutCopiesBeyondTheirBound) {
  const auto symbolizer = make();
  const size_t half = Symbolizer::kMaxCopyBytes / 2;
  Stacks stacks;
  {
    const Busy busy(*this, *symbolizer);
    ASSERT_THAT(symbolizer->post_stacks({make_copied(1, half), make_copied(2, half)}), IsEmpty());

    EXPECT_THAT(symbolizer->post_stacks({make_copied(3, 1), make_walked(4, {0x1000})}), IsEmpty());

    EXPECT_EQ(drops_.get(DropCause::kBpfStackCopy), 1u);
  }
  stacks = resolve(*symbolizer, {TakenStack{3}, TakenStack{4}});
  ASSERT_THAT(stacks[0], NotNull());
  EXPECT_EQ(stacks[0]->end, StackEnd::kUnknown);  // as far as it was walked
  EXPECT_THAT(stacks[1], NotNull());
}

TEST_F(SymbolizerStacksTest, TakesCopiesAgainOnceOthersWereWalked) {
  const auto symbolizer = make();
  ASSERT_THAT(symbolizer->post_stacks({make_copied(1, Symbolizer::kMaxCopyBytes)}), IsEmpty());
  settle(*symbolizer);

  ASSERT_THAT(symbolizer->post_stacks({make_copied(2, Symbolizer::kMaxCopyBytes)}), IsEmpty());

  EXPECT_EQ(drops_.get(DropCause::kBpfStackCopy), 0u);
}

TEST_F(SymbolizerStacksTest, TakesCopiesAgainAfterAPostThatItsQueueCouldNotHold) {
  const auto symbolizer = make({.queue_requests = 1});
  {
    const Busy busy(*this, *symbolizer);
    ASSERT_TRUE(symbolizer->post_resolve({}, {}, [](const Stacks&) {}));
    ASSERT_THAT(symbolizer->post_stacks({make_copied(1, Symbolizer::kMaxCopyBytes)}), SizeIs(1));
  }
  settle(*symbolizer);

  ASSERT_THAT(symbolizer->post_stacks({make_copied(2, Symbolizer::kMaxCopyBytes)}), IsEmpty());

  EXPECT_EQ(drops_.get(DropCause::kBpfStackCopy), 0u);
}

// What was named before can be had at once; the rest would take time.
TEST_F(SymbolizerStacksTest, AnswersWhatStillWaitsWithWhatIsNamedAlreadyWhenItEnds) {
  std::promise<Stacks> waiting;
  auto symbolizer = make();
  ASSERT_THAT(symbolizer->post_stacks({make_walked(71, {0x1000})}), IsEmpty());
  settle(*symbolizer);
  std::promise<void> entered, leave;
  ASSERT_TRUE(symbolizer->post_resolve({}, {}, [&](const Stacks&) {
    entered.set_value();
    leave.get_future().wait();
  }));
  ASSERT_TRUE(symbolizer->post_resolve(
      {}, {TakenStack{71}, KernelStack{{16}}},
      [&waiting](Stacks stacks) { waiting.set_value(std::move(stacks)); }));
  entered.get_future().wait();

  auto ending = std::async(std::launch::async, [&symbolizer] { symbolizer.reset(); });
  leave.set_value();
  ending.wait();

  EXPECT_THAT(waiting.get_future().get()[0], NotNull());
}

TEST_F(SymbolizerStacksTest, ReadsAProcessEarly) {
  const auto symbolizer = make();

  symbolizer->post_prepare({.pid = self().pid});
  settle(*symbolizer);

  EXPECT_EQ(told_.spaces, std::vector<uint32_t>{self().pid});
}

TEST_F(SymbolizerStacksTest, LeavesAProcessAloneThatItReadAlready) {
  const auto symbolizer = make();
  symbolizer->post_prepare({.pid = self().pid});
  settle(*symbolizer);

  symbolizer->post_prepare({.pid = self().pid});
  settle(*symbolizer);

  EXPECT_THAT(told_.spaces, SizeIs(1));
}

TEST_F(SymbolizerStacksTest, QueuesAProcessOnceHoweverMuchItMaps) {
  const auto symbolizer = make({.queue_requests = 2});
  {
    const Busy busy(*this, *symbolizer);
    symbolizer->post_prepare({.pid = self().pid});
    for (int i = 0; i < 10; ++i) symbolizer->note_mapping(self().pid, "/usr/lib/libm.so.6");

    EXPECT_TRUE(symbolizer->post_resolve({}, {}, [](const Stacks&) {}));  // there is still room
    EXPECT_FALSE(symbolizer->post_resolve({}, {}, [](const Stacks&) {}));
  }
  settle(*symbolizer);

  EXPECT_THAT(told_.spaces, SizeIs(1));
}

TEST_F(SymbolizerStacksTest, ReadsAKnownProcessAnewWhenItHasMappedCode) {
  const auto symbolizer = make();
  symbolizer->post_prepare({.pid = self().pid});
  settle(*symbolizer);

  symbolizer->note_mapping(self().pid, "/usr/lib/libm.so.6");
  settle(*symbolizer);

  EXPECT_THAT(told_.spaces, SizeIs(2));
}

TEST_F(SymbolizerStacksTest, ReadsAProcessThatMapsAPython) {
  const auto symbolizer = make();

  symbolizer->note_mapping(self().pid, "/usr/lib/libm.so.6");
  symbolizer->note_mapping(self().pid, "/usr/lib/libpython3.11.so.1.0");
  settle(*symbolizer);

  EXPECT_THAT(told_.spaces, SizeIs(1));
}

TEST_F(SymbolizerStacksTest, PreparesLaterWhatItsQueueHadNoRoomFor) {
  const auto symbolizer = make({.queue_requests = 1});
  {
    const Busy busy(*this, *symbolizer);
    ASSERT_TRUE(symbolizer->post_resolve({}, {}, [](const Stacks&) {}));
    symbolizer->post_prepare({.pid = self().pid});
  }
  settle(*symbolizer);
  ASSERT_THAT(told_.spaces, SizeIs(0));

  symbolizer->post_prepare({.pid = self().pid});
  settle(*symbolizer);

  EXPECT_THAT(told_.spaces, SizeIs(1));
}

TEST_F(SymbolizerStacksTest, NamesAShortLivedProcessAfterItHasGone) {
  FakeProc fake;
  fake.add_process(7, "/app");
  fake.write(7, "maps", "5000-6000 r-xp 00000000 00:00 0                          [vdso]\n");
  fake.write(7, "status", "Name:\tapp\nVmExe:\t       4 kB\nVmLib:\t       0 kB\n");
  std::string stat = "7 (app) S";
  for (int field = 4; field <= 52; ++field) stat += " 1";
  fake.write(7, "stat", stat + "\n");
  const auto symbolizer = make({.frames = {.proc = fake.proc()}});
  const ProcessKey process{.pid = 7, .start_boot_ns = 10'000'000};

  symbolizer->post_prepare(process);
  settle(*symbolizer);
  fake.remove_process(7);
  const Stacks stacks = resolve(*symbolizer, {SingleFrame{process, 0x5010}});

  ASSERT_THAT(stacks[0], NotNull());
  ASSERT_THAT(stacks[0]->frames, SizeIs(1));
  EXPECT_EQ(stacks[0]->frames[0].module, "[vdso]");
  EXPECT_EQ(stacks[0]->frames[0].offset_bytes, 0x10u);
}

}  // namespace
}  // namespace gpuperf
