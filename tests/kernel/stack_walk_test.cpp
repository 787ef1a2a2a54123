// Stacks as the kernel side takes them, of functions of this very program, by every mechanism:
// against what backtrace() says at the same place.

#include <execinfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/collect/drain.h"
#include "daemon/probe/code/placement.h"
#include "daemon/probe/elf/elf_symbols.h"
#include "daemon/unwind/address_spaces.h"
#include "daemon/unwind/stack_walk.h"
#include "daemon/unwind/walk_tables.h"
#include "tests/kernel/probe_fixture.h"
#include "tests/kernel/stack_targets.h"

namespace gpuperf {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

using Callers = std::vector<uint64_t>;

Callers get_callers(const RawStack& stack) {
  Callers callers;
  for (const NativeFrame& frame : stack.frames) callers.push_back(frame.pc);
  return callers;
}

// The one place that the calls of a test come from.
[[gnu::noinline]] void run_steps(Chain chain, std::span<const WalkStep> steps) {
  for (const WalkStep& step : steps) chain(step);
  asm volatile("");
}

// What came of the calls since the last look.
struct Taken {
  std::vector<SlowCallEvent> calls;
  std::vector<RawStack> sent;    // as they came
  std::vector<RawStack> walked;  // to their ends
};

class StackWalkTest : public FunctionProbeTest {
 protected:
  void SetUp() override {
    void* memory[1];
    (void)backtrace(memory, 1);  // loads what it needs: code that is not there yet later on
    FunctionProbeTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    spaces_ = std::make_unique<AddressSpaces>(
        AddressSpaces::Options{.tables = make_walk_tables(*programs_)}, files_, clock_);
  }

  void probe_target() { probe(0, stack_target, {.slow_threshold_ns = 1}); }
  void probe_target_at_exits() {
    programs_->set_function({.id = 0, .slow_threshold_ns = 1}, true);
    const auto symbols = ElfSymbols::load(self_.get(), ElfSymbols::Tables::kBoth);
    auto code = CodeMap::open(self_.get());
    ASSERT_TRUE(symbols.ok() && code.ok());
    const auto function = symbols->find_function("stack_target");
    ASSERT_TRUE(function);
    const auto exits = find_exits(*code, *function);
    ASSERT_TRUE(exits.ok()) << exits.status();
    attach(0, {{.function_id = 0,
                .offset_bytes = function->file_offset_bytes,
                .timing = Timing::kExits,
                .exits = *exits}});
  }

  // Steps.
  static constexpr WalkStep kCall{stack_target};
  WalkStep truth() { return {record_truth, this}; }
  WalkStep take() {
    return {[](void* self) { static_cast<StackWalkTest*>(self)->take_stacks(); }, this};
  }
  static WalkStep run(const std::function<void()>& action) {
    return {[](void* known) { (*static_cast<const std::function<void()>*>(known))(); },
            const_cast<std::function<void()>*>(&action)};
  }

  // From its caller on: it stands in the place of the call watched.
  static void record_truth(void* self) {
    void* addresses[512];
    const int count = backtrace(addresses, 512);
    Callers& truth = static_cast<StackWalkTest*>(self)->truth_;
    for (int i = 1; i < count; ++i) truth.push_back(reinterpret_cast<uint64_t>(addresses[i]));
  }

  // As the daemon does: walks what the kernel side could not, and teaches it how.
  void take_stacks() {
    Taken& taken = taken_.emplace_back(drain_stacks());
    for (RawStack stack : taken.sent) {
      spaces_->note_walk(stack);
      const uint32_t space = spaces_->find_number(stack);
      if (stack.copy) {
        const auto find_rule = [&](uint64_t pc, bool is_exact) {
          return spaces_->find_rule(stack.process, space, pc, is_exact);
        };
        stack.end = walk_stack(stack.frames, stack.bp, find_rule, make_copy_reader(*stack.copy),
                               stack.copy->returns);
      }
      taken.walked.push_back(std::move(stack));
    }
  }

  Taken drain_stacks() {
    MapSource totals(
        {.losses = programs_->losses(),
         .read_index = [] { return CellIndex(); },
         .count_users = [](const CellsByUser&) {},
         .release = [](const gpuperf_cell_key&, uint32_t) {},
         .read_shapes = [] { return ShapeTotals(); },
         .release_shape = [](const gpuperf_shape_key&) {},
         .read_process_info =
             [](const ProcessKey&) { return std::optional<gpuperf_process_info>(); },
         .forget_process = [](const ProcessKey&) {}},
        {.find_owner = [](const ProcessKey&, const gpuperf_process_info*) -> Owner { return {}; },
         .is_alive = [](const ProcessKey&) { return true; },
         .name_pod = [](Owner&) { return true; }},
        drops_);
    auto drain = Drain::make({.slow_ring_fd = programs_->map_fd("slow_ring"),
                              .process_ring_fd = programs_->map_fd("process_ring"),
                              .name_ring_fd = programs_->map_fd("name_ring"),
                              .stack_ring_fd = programs_->map_fd("stack_ring"),
                              .stack_copy_ring_fd = programs_->map_fd("stack_copy_ring"),
                              .trace_ring_fd = programs_->map_fd("trace_ring"),
                              .report_ring_fd = programs_->map_fd("report_ring"),
                              .read_in_flight = [] { return InFlightCalls(); },
                              .read_slow_in_flight = [] { return SlowInFlightCalls(); },
                              .on_batch = [] {}},
                             std::move(totals), drops_);
    EXPECT_TRUE(drain.ok()) << drain.status();
    Taken taken;
    if (!drain.ok()) return taken;
    (*drain)->start();
    (*drain)->stop();
    while (auto batch = (*drain)->try_pop()) {
      for (Event& event : *batch) {
        if (auto* call = std::get_if<SlowCallEvent>(&event)) taken.calls.push_back(*call);
        if (auto* stack = std::get_if<RawStack>(&event)) taken.sent.push_back(std::move(*stack));
      }
    }
    return taken;
  }

  // A first call's stack, walked here.
  static void expect_copied(const Taken& taken, StackEnd end, const Callers& callers) {
    ASSERT_THAT(taken.calls, SizeIs(1));
    ASSERT_THAT(taken.sent, SizeIs(1));
    EXPECT_EQ(taken.calls[0].stack_id, taken.sent[0].id);
    EXPECT_TRUE(taken.sent[0].copy);
    EXPECT_EQ(taken.walked[0].end, end);
    EXPECT_EQ(get_callers(taken.walked[0]), callers);
  }
  // One that the kernel side walked to its end.
  static void expect_walked(const Taken& taken, StackEnd end, const Callers& callers) {
    ASSERT_THAT(taken.calls, SizeIs(1));
    ASSERT_THAT(taken.sent, SizeIs(1));
    EXPECT_EQ(taken.calls[0].stack_id, taken.sent[0].id);
    EXPECT_FALSE(taken.sent[0].copy);
    EXPECT_EQ(taken.sent[0].end, end);
    EXPECT_EQ(get_callers(taken.sent[0]), callers);
  }
  // Calls three times and expects the stack to be copied first, then walked, then named only.
  void expect_learned(Chain chain, const std::function<void()>& attach_probes,
                      WalkStep call = kCall) {
    run_steps(chain, std::vector<WalkStep>{truth(), run(attach_probes), call, take(), call, take(),
                                           call, take()});

    ASSERT_THAT(taken_, SizeIs(3));
    ASSERT_GT(truth_.size(), 3u);
    expect_copied(taken_[0], StackEnd::kComplete, truth_);
    expect_walked(taken_[1], StackEnd::kComplete, truth_);
    if (HasFatalFailure()) return;
    EXPECT_THAT(taken_[2].sent, IsEmpty());
    ASSERT_THAT(taken_[2].calls, SizeIs(1));
    EXPECT_EQ(taken_[2].calls[0].stack_id, taken_[1].calls[0].stack_id);
    for (const auto loss :
         {GPUPERF_LOSS_STACK_RING_FULL, GPUPERF_LOSS_STACK_COPY, GPUPERF_LOSS_STACK_STATE}) {
      EXPECT_EQ(programs_->losses()[loss], 0u) << loss;
    }
  }

  const SystemClock clock_;
  CodeFiles files_;
  DropCounters drops_;
  std::unique_ptr<AddressSpaces> spaces_;
  Callers truth_;
  std::vector<Taken> taken_;
};

TEST_P(StackWalkTest, IsCopiedOnceThenWalkedInTheKernelThenOnlyNamed) {
  expect_learned(stack_outer, [this] { probe_target(); });
}

TEST_P(StackWalkTest, IsWalkedFromTheExitsOfAFunctionTimedThere) {
  expect_learned(stack_outer, [this] { probe_target_at_exits(); });
}

TEST_P(StackWalkTest, LeadsThroughCallersWhoseReturnsAreProbed) {
  expect_learned(stack_outer, [this] {
    probe_target();
    probe(1, stack_outer);
    probe(2, stack_inner);
  });
}

TEST_P(StackWalkTest, LeadsFromExitsThroughCallersWhoseReturnsAreProbed) {
  expect_learned(stack_outer, [this] {
    probe_target_at_exits();
    probe(1, stack_outer);
    probe(2, stack_inner);
  });
}

// The exit then finds the return probe in the place of its caller.
TEST_P(StackWalkTest, LeadsFromExitsOfAFunctionThatAProbedOneLeftTo) {
  expect_learned(stack_outer,
                 [this] {
                   probe_target_at_exits();
                   probe(1, stack_jump);
                 },
                 {stack_jump});
}

TEST_P(StackWalkTest, LeadsThroughASignalToWhereItStoppedTheThread) {
  expect_learned(stack_signal_handler, [this] { probe_target(); });

  ASSERT_THAT(taken_[1].sent, SizeIs(1));
  size_t exact = 0;
  for (const NativeFrame& frame : taken_[1].sent[0].frames) exact += frame.is_exact ? 1 : 0;
  EXPECT_EQ(exact, 1u);
}

TEST_P(StackWalkTest, LeadsFromASignalStackToTheOneThatWasInterrupted) {
  expect_learned(stack_signal_stack, [this] { probe_target(); });
}

TEST_P(StackWalkTest, IsCutWhereItIsTooDeep) {
  probe_target();

  run_steps(stack_recursive, std::vector<WalkStep>{truth(), kCall, take(), kCall, take()});

  ASSERT_GT(truth_.size(), 300u);
  const Callers kept(truth_.begin(), truth_.begin() + GPUPERF_STACK_FRAMES);
  expect_copied(taken_[0], StackEnd::kCut, kept);
  expect_walked(taken_[1], StackEnd::kCut, kept);
}

TEST_P(StackWalkTest, IsSentAgainOnceItWasForgotten) {
  probe_target();
  const std::function<void()> forget = [this] {
    ASSERT_THAT(taken_.back().sent, SizeIs(1));
    forget_sent_stack(*programs_, taken_.back().sent[0].id);
  };

  run_steps(stack_outer, std::vector<WalkStep>{truth(), kCall, take(), kCall, take(), run(forget),
                                               kCall, take()});

  expect_walked(taken_[2], StackEnd::kComplete, truth_);
  EXPECT_EQ(taken_[2].calls[0].stack_id, taken_[1].calls[0].stack_id);
}

TEST_P(StackWalkTest, ComesInPartsWhereItIsLarge) {
  expect_learned(stack_large, [this] { probe_target(); });

  ASSERT_THAT(taken_[0].sent, SizeIs(1));
  size_t bytes = 0;
  for (const StackMemory& memory : taken_[0].sent[0].copy->memory) bytes += memory.bytes.size();
  EXPECT_EQ(taken_[0].sent[0].copy->part, 0u);
  EXPECT_GT(taken_[0].sent[0].copy->memory.size(), 2u);
  EXPECT_GT(bytes, 150u * 1024);
}

TEST_P(StackWalkTest, LeadsAcrossMemoryThatWasNeverTouched) {
  std::thread([this] { expect_learned(stack_never_touched, [this] { probe_target(); }); }).join();
}

TEST_P(StackWalkTest, IsWalkedInAForkedProcessByTheRulesOfItsParent) {
  probe_target();
  bool forks = false;
  const auto call = [](void* fork_first) {
    const pid_t child = *static_cast<bool*>(fork_first) ? fork() : 0;
    if (child != 0) {
      (void)waitpid(child, nullptr, 0);
      return;
    }
    stack_target(nullptr);
    if (*static_cast<bool*>(fork_first)) _exit(0);
  };
  const std::function<void()> let_fork = [&forks] { forks = true; };

  run_steps(stack_outer,
            std::vector<WalkStep>{{call, &forks}, take(), run(let_fork), {call, &forks}, take()});

  ASSERT_THAT(taken_[1].sent, SizeIs(1));
  const RawStack& sent = taken_[1].sent[0];
  EXPECT_NE(sent.process.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(sent.space, spaces_->find_mapped(taken_[0].sent.at(0).process, 0).space);
  EXPECT_EQ(sent.end, StackEnd::kComplete);
  EXPECT_EQ(get_callers(sent), get_callers(taken_[0].walked.at(0)));
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, StackWalkTest, testing::ValuesIn(kMechanisms),
                         [](const auto& info) {
                           return std::string(get_mechanism_name(info.param));
                         });

}  // namespace
}  // namespace gpuperf
