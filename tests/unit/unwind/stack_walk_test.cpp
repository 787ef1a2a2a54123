#include "daemon/unwind/stack_walk.h"

#include <array>
#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/unwind/fake_memory.h"

// Steps up stacks that the test writes itself, one step of every kind (bpf/unwind.h).

namespace gpuperf {

// For GoogleTest.
void PrintTo(const NativeFrame& frame, std::ostream* out) {
  *out << std::hex << frame.pc << " sp " << frame.sp << (frame.is_exact ? " exact" : "")
       << std::dec;
}

namespace {

constexpr uint64_t kFunctionPc = 0x401000;
constexpr uint64_t kCallerPc = 0x402000;
constexpr uint64_t kNextPc = 0x403000;
constexpr uint64_t kReturnProbe = 0x7fffffffe000;  // no rule is known there
constexpr uint64_t kStackSp = 0x7000;
constexpr uint64_t kFrameBp = 0x7800;

class StackWalkTest : public testing::Test {
 protected:
  // Where no rule was set for it, a place's is UNKNOWN.
  void set_rule(uint64_t pc, const gpuperf_unwind_rule& rule, bool is_exact = false) {
    rules_[{pc, is_exact}] = rule;
  }
  FindRule rules() {
    return [this](uint64_t pc, bool is_exact) { return rules_[{pc, is_exact}]; };
  }
  StackEnd walk(const std::vector<ReplacedReturn>& returns = {}) {
    return walk_stack(frames_, kFrameBp, rules(), memory_.reader(), returns);
  }
  // The caller's bp, as a rule that goes by it sees it.
  void expect_callers_bp(uint64_t bp) {
    set_rule(kCallerPc, {.kind = GPUPERF_UNWIND_BP, .cfa_offset_bytes = 0x10000});
    memory_.put(bp + 0x10000 - 8, kNextPc);
    set_rule(kNextPc, {.kind = GPUPERF_UNWIND_END});

    EXPECT_EQ(walk(), StackEnd::kComplete);
    ASSERT_THAT(frames_, SizeIs(3));
    EXPECT_EQ(frames_[2], (NativeFrame{.pc = kNextPc, .sp = bp + 0x10000}));
  }

  FakeMemory memory_;
  std::map<std::pair<uint64_t, bool>, gpuperf_unwind_rule> rules_{
      {{kCallerPc, false}, {.kind = GPUPERF_UNWIND_END}}};
  std::vector<NativeFrame> frames_{{.pc = kFunctionPc, .sp = kStackSp}};
};

TEST_F(StackWalkTest, FindsTheCallerByTheStackPointer) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 0x28});
  memory_.put(kStackSp + 0x20, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kFunctionPc, .sp = kStackSp},
                                   NativeFrame{.pc = kCallerPc, .sp = kStackSp + 0x28}));
}

TEST_F(StackWalkTest, FindsTheCallerByTheFramePointer) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_BP, .cfa_offset_bytes = 0x10});
  memory_.put(kFrameBp + 8, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kFunctionPc, .sp = kStackSp},
                                   NativeFrame{.pc = kCallerPc, .sp = kFrameBp + 0x10}));
}

TEST_F(StackWalkTest, FindsTheCallerByMemoryAtTheFramePointer) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_BP_MEMORY, .cfa_offset_bytes = -0x18});
  memory_.put(kFrameBp - 0x18, uint64_t{0x7900});
  memory_.put(0x78f8, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kFunctionPc, .sp = kStackSp},
                                   NativeFrame{.pc = kCallerPc, .sp = 0x7900}));
}

TEST_F(StackWalkTest, KnowsThatAnEntryOfTheProcedureLinkageTableHasPushedNothingAtItsBeginning) {
  frames_ = {{.pc = 0x40100a, .sp = kStackSp}};
  set_rule(0x40100a, {.kind = GPUPERF_UNWIND_PLT, .cfa_offset_bytes = 11});
  memory_.put(kStackSp, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_EQ(frames_.back(), (NativeFrame{.pc = kCallerPc, .sp = kStackSp + 8}));
}

TEST_F(StackWalkTest, KnowsWhatAnEntryOfTheProcedureLinkageTableHasPushedAtItsEnd) {
  frames_ = {{.pc = 0x40100b, .sp = kStackSp}};
  set_rule(0x40100b, {.kind = GPUPERF_UNWIND_PLT, .cfa_offset_bytes = 11});
  memory_.put(kStackSp + 8, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_EQ(frames_.back(), (NativeFrame{.pc = kCallerPc, .sp = kStackSp + 16}));
}

TEST_F(StackWalkTest, LeavesTheFramePointerThatIsStillInItsRegister) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 0x28});
  memory_.put(kStackSp + 0x20, kCallerPc);

  expect_callers_bp(kFrameBp);
}

TEST_F(StackWalkTest, ReadsTheFramePointerBesideTheReturnAddress) {
  set_rule(kFunctionPc,
           {.kind = GPUPERF_UNWIND_SP, .bp_offset_bytes = -16, .cfa_offset_bytes = 0x28});
  memory_.put(kStackSp + 0x20, kCallerPc);
  memory_.put(kStackSp + 0x18, uint64_t{0x9000});

  expect_callers_bp(0x9000);
}

TEST_F(StackWalkTest, ReadsTheFramePointerFurtherFromTheReturnAddress) {
  set_rule(kFunctionPc,
           {.kind = GPUPERF_UNWIND_SP, .bp_offset_bytes = -40, .cfa_offset_bytes = 0x48});
  memory_.put(kStackSp + 0x40, kCallerPc);
  memory_.put(kStackSp + 0x20, uint64_t{0x9000});

  expect_callers_bp(0x9000);
}

TEST_F(StackWalkTest, ReadsTheFramePointerWhereTheFramesOwnPoints) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_BP_MEMORY,
                         .bp_at = GPUPERF_UNWIND_BP_AT_BP,
                         .bp_offset_bytes = 0,
                         .cfa_offset_bytes = -8});
  memory_.put(kFrameBp - 8, uint64_t{0x7900});
  memory_.put(0x78f8, kCallerPc);
  memory_.put(kFrameBp, uint64_t{0x9000});

  expect_callers_bp(0x9000);
}

TEST_F(StackWalkTest, GoesOnExactlyWhereASignalStoppedTheThread) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SIGNAL});
  memory_.put(kStackSp + 120, uint64_t{0x8800});  // struct ucontext: rbp, rsp, rip
  memory_.put(kStackSp + 160, uint64_t{0x8000});
  memory_.put(kStackSp + 168, kCallerPc);
  set_rule(kCallerPc, {.kind = GPUPERF_UNWIND_UNKNOWN});  // of a return address: not asked for
  set_rule(kCallerPc, {.kind = GPUPERF_UNWIND_BP, .cfa_offset_bytes = 0x10}, true);
  memory_.put(0x8808, kNextPc);
  set_rule(kNextPc, {.kind = GPUPERF_UNWIND_END});

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kFunctionPc, .sp = kStackSp},
                                   NativeFrame{.pc = kCallerPc, .sp = 0x8000, .is_exact = true},
                                   NativeFrame{.pc = kNextPc, .sp = 0x8810}));
}

TEST_F(StackWalkTest, BeginsAtAnExactFrame) {
  frames_ = {{.pc = kFunctionPc, .sp = kStackSp, .is_exact = true}};
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_END}, true);

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, SizeIs(1));
}

TEST_F(StackWalkTest, GuessesAFramePointerThatPointsAboveTheStackPointer) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_GUESS, .bp_offset_bytes = -16});
  memory_.put(kFrameBp, uint64_t{0x9000});
  memory_.put(kFrameBp + 8, kCallerPc);

  expect_callers_bp(0x9000);
}

TEST_F(StackWalkTest, GuessesNoFramePointerBelowTheStackPointer) {
  frames_ = {{.pc = kFunctionPc, .sp = kFrameBp + 8}};
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_GUESS, .bp_offset_bytes = -16});
  memory_.put(kFrameBp, std::array<uint64_t, 2>{0x9000, kCallerPc});

  EXPECT_EQ(walk(), StackEnd::kBroken);
}

TEST_F(StackWalkTest, GuessesNoFramePointerFarAboveTheStackPointer) {
  constexpr uint64_t kFar = kStackSp + (1 << 20) + 8;
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_GUESS, .bp_offset_bytes = -16});
  memory_.put(kFar, std::array<uint64_t, 2>{0x9000, kCallerPc});

  EXPECT_EQ(walk_stack(frames_, kFar, rules(), memory_.reader(), {}), StackEnd::kBroken);
}

TEST_F(StackWalkTest, GuessesNoFramePointerBetweenWords) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_GUESS, .bp_offset_bytes = -16});
  memory_.put(kFrameBp + 4, std::array<uint64_t, 2>{0x9000, kCallerPc});

  EXPECT_EQ(walk_stack(frames_, kFrameBp + 4, rules(), memory_.reader(), {}), StackEnd::kBroken);
}

TEST_F(StackWalkTest, EndsAtTheOutermostFrame) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_END});

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, SizeIs(1));
}

TEST_F(StackWalkTest, EndsWhereNoCallerIs) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 8});
  memory_.put(kStackSp, uint64_t{0});

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, SizeIs(1));
}

TEST_F(StackWalkTest, SaysThatAFrameWithoutARuleBreaksIt) {
  EXPECT_EQ(walk(), StackEnd::kBroken);

  EXPECT_THAT(frames_, SizeIs(1));
}

TEST_F(StackWalkTest, TakesARuleOfAKindThatIsNotKnownForNone) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_KINDS, .cfa_offset_bytes = 8});
  memory_.put(kStackSp, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kBroken);
}

TEST_F(StackWalkTest, NeverGoesDownTheStack) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_BP, .cfa_offset_bytes = 0});
  frames_ = {{.pc = kFunctionPc, .sp = kFrameBp}};
  memory_.put(kFrameBp - 8, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kBroken);

  EXPECT_THAT(frames_, SizeIs(1));
}

TEST_F(StackWalkTest, SaysThatAReturnAddressCannotBeRead) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 0x28});

  EXPECT_EQ(walk(), StackEnd::kUnreadable);

  EXPECT_THAT(frames_, SizeIs(1));
}

TEST_F(StackWalkTest, SaysThatASavedFramePointerCannotBeRead) {
  set_rule(kFunctionPc,
           {.kind = GPUPERF_UNWIND_SP, .bp_offset_bytes = -24, .cfa_offset_bytes = 0x28});
  memory_.put(kStackSp + 0x20, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kUnreadable);
}

TEST_F(StackWalkTest, SaysThatTheMemoryAtAFramePointerCannotBeRead) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_BP_MEMORY, .cfa_offset_bytes = -8});

  EXPECT_EQ(walk(), StackEnd::kUnreadable);
}

TEST_F(StackWalkTest, SaysThatWhatASignalSavedCannotBeRead) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SIGNAL});
  memory_.put(kStackSp + 168, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kUnreadable);
}

TEST_F(StackWalkTest, GoesOnWhereAReplacedReturnAddressLed) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 0x28});
  memory_.put(kStackSp + 0x20, kReturnProbe);

  const StackEnd end =
      walk({{.sp = kStackSp, .address = kNextPc}, {.sp = kStackSp + 0x20, .address = kCallerPc}});

  EXPECT_EQ(end, StackEnd::kComplete);
  EXPECT_EQ(frames_.back(), (NativeFrame{.pc = kCallerPc, .sp = kStackSp + 0x28}));
}

// A function that a return probe is on may leave by a jump to one that is timed at its own exits:
// that one's caller, as it stands on the stack, is the return probe.
TEST_F(StackWalkTest, BeginsWhereAReplacedReturnAddressLed) {
  frames_ = {{.pc = kReturnProbe, .sp = kStackSp + 8}};

  const StackEnd end = walk({{.sp = kStackSp, .address = kCallerPc}});

  EXPECT_EQ(end, StackEnd::kComplete);
  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kCallerPc, .sp = kStackSp + 8}));
}

// What a call left by longjmp had stays listed for a while, and its place is used anew.
TEST_F(StackWalkTest, GoesOnWhereAReturnAddressLeadsThatIsNotReplacedAnyMore) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 0x28});
  memory_.put(kStackSp + 0x20, kCallerPc);

  EXPECT_EQ(walk({{.sp = kStackSp + 0x20, .address = kNextPc}}), StackEnd::kComplete);

  EXPECT_EQ(frames_.back(), (NativeFrame{.pc = kCallerPc, .sp = kStackSp + 0x28}));
}

TEST_F(StackWalkTest, TakesNoPlaceThatASignalStoppedForAReturn) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SIGNAL});
  memory_.put(kStackSp + 120, uint64_t{0x8800});
  memory_.put(kStackSp + 160, uint64_t{0x8000});
  memory_.put(kStackSp + 168, kCallerPc);
  set_rule(kCallerPc, {.kind = GPUPERF_UNWIND_END}, true);

  EXPECT_EQ(walk({{.sp = 0x7ff8, .address = kNextPc}}), StackEnd::kComplete);

  EXPECT_EQ(frames_.back(), (NativeFrame{.pc = kCallerPc, .sp = 0x8000, .is_exact = true}));
}

TEST_F(StackWalkTest, KeepsAsManyFramesAsTheKernelSide) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 8});
  for (uint64_t i = 0; i < 2 * GPUPERF_STACK_FRAMES; ++i)
    memory_.put(kStackSp + 8 * i, kFunctionPc);

  EXPECT_EQ(walk(), StackEnd::kCut);

  EXPECT_THAT(frames_, SizeIs(GPUPERF_STACK_FRAMES));
  EXPECT_EQ(frames_.back().sp, kStackSp + 8 * (GPUPERF_STACK_FRAMES - 1));
}

TEST_F(StackWalkTest, CompletesAStackOfExactlyAsManyFramesAsAreKept) {
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 8});
  for (uint64_t i = 0; i + 1 < GPUPERF_STACK_FRAMES; ++i)
    memory_.put(kStackSp + 8 * i, kFunctionPc);
  memory_.put(kStackSp + 8 * (GPUPERF_STACK_FRAMES - 1), uint64_t{0});

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, SizeIs(GPUPERF_STACK_FRAMES));
}

TEST_F(StackWalkTest, GoesOnBehindWhatTheKernelSideWalked) {
  frames_ = {{.pc = kNextPc, .sp = 0x6000}, {.pc = kFunctionPc, .sp = kStackSp}};
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_BP, .cfa_offset_bytes = 0x10});
  memory_.put(kFrameBp + 8, kCallerPc);

  EXPECT_EQ(walk(), StackEnd::kComplete);

  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kNextPc, .sp = 0x6000},
                                   NativeFrame{.pc = kFunctionPc, .sp = kStackSp},
                                   NativeFrame{.pc = kCallerPc, .sp = kFrameBp + 0x10}));
}

TEST_F(StackWalkTest, HasNowhereToBeginWithoutAFrame) {
  frames_.clear();

  EXPECT_EQ(walk(), StackEnd::kUnreadable);

  EXPECT_THAT(frames_, SizeIs(0));
}

class LiveStackWalkTest : public StackWalkTest {
 protected:
  LiveStackWalkTest() { frames_.clear(); }
  StackEnd walk_live(const std::vector<ReplacedReturn>& returns = {}) {
    return walk_live_stack(frames_, {.sp = kStackSp, .bp = kFrameBp, .returns = returns}, rules(),
                           memory_.reader());
  }
};

TEST_F(LiveStackWalkTest, BeginsWithTheCallerOfTheCallInFlight) {
  memory_.put(kStackSp, kFunctionPc);
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_BP, .cfa_offset_bytes = 0x10});
  memory_.put(kFrameBp + 8, kCallerPc);

  EXPECT_EQ(walk_live(), StackEnd::kComplete);

  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kFunctionPc, .sp = kStackSp + 8},
                                   NativeFrame{.pc = kCallerPc, .sp = kFrameBp + 0x10}));
}

TEST_F(LiveStackWalkTest, KnowsItsCallerWhereAReturnProbeHasReplacedIt) {
  memory_.put(kStackSp, kReturnProbe);
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_END});

  EXPECT_EQ(walk_live({{.sp = kStackSp, .address = kFunctionPc}}), StackEnd::kComplete);

  EXPECT_THAT(frames_, ElementsAre(NativeFrame{.pc = kFunctionPc, .sp = kStackSp + 8}));
}

TEST_F(LiveStackWalkTest, KnowsFurtherCallersThatReturnProbesHaveReplaced) {
  memory_.put(kStackSp, kReturnProbe);
  memory_.put(kStackSp + 0x20, kReturnProbe);
  set_rule(kFunctionPc, {.kind = GPUPERF_UNWIND_SP, .cfa_offset_bytes = 0x20});

  const StackEnd end = walk_live(
      {{.sp = kStackSp, .address = kFunctionPc}, {.sp = kStackSp + 0x20, .address = kCallerPc}});

  EXPECT_EQ(end, StackEnd::kComplete);
  EXPECT_EQ(frames_.back(), (NativeFrame{.pc = kCallerPc, .sp = kStackSp + 0x28}));
}

TEST_F(LiveStackWalkTest, HasNoFramesWhenItsCallerCannotBeRead) {
  EXPECT_EQ(walk_live(), StackEnd::kUnreadable);

  EXPECT_THAT(frames_, SizeIs(0));
}

}  // namespace
}  // namespace gpuperf
