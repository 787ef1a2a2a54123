#include "daemon/resolve/stack_table.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/resolve/print_frames.h"

namespace gpuperf {
namespace {

std::vector<StackFrame> make_frames() {
  return {{.symbol = "copy",
           .module = "/usr/lib/libcopy.so",
           .offset_bytes = 12,
           .address = 0x1000,
           .file = "copy.cpp",
           .line = 7},
          {.symbol = "main", .module = "/app", .offset_bytes = 80, .address = 0x2000}};
}

uint64_t make_id(const std::vector<StackFrame>& frames) {
  return make_stack_id(frames, StackEnd::kComplete);
}

TEST(StackIdTest, IsTheSameWhereverTheCodeIsLoaded) {
  std::vector<StackFrame> elsewhere = make_frames();
  for (StackFrame& frame : elsewhere) frame.address += 0x10'0000;

  EXPECT_EQ(make_id(elsewhere), make_id(make_frames()));
}

// It is kept in databases: a change of what it is made of makes all stacks in them others.
TEST(StackIdTest, IsTheSameInEveryRun) {
  EXPECT_EQ(make_id(make_frames()), 1'193'655'844'644'694'160u);
}

TEST(StackIdTest, DiffersByEachThingAFrameShows) {
  const std::vector<std::pair<std::string, std::function<void(StackFrame&)>>> changes = {
      {"symbol", [](StackFrame& frame) { frame.symbol = "move"; }},
      {"module", [](StackFrame& frame) { frame.module = "/usr/lib/libmove.so"; }},
      {"offset_bytes", [](StackFrame& frame) { frame.offset_bytes = 13; }},
      {"file", [](StackFrame& frame) { frame.file = "move.cpp"; }},
      {"line", [](StackFrame& frame) { frame.line = 8; }},
      {"is_inlined", [](StackFrame& frame) { frame.is_inlined = true; }},
      {"kind", [](StackFrame& frame) { frame.kind = StackFrameKind::kJit; }},
  };

  for (const auto& [name, change] : changes) {
    std::vector<StackFrame> changed = make_frames();
    change(changed[0]);
    EXPECT_NE(make_id(changed), make_id(make_frames())) << name;
  }
}

TEST(StackIdTest, DiffersByTheEnd) {
  EXPECT_NE(make_stack_id(make_frames(), StackEnd::kCut), make_id(make_frames()));
}

TEST(StackIdTest, DiffersByTheOrderOfFrames) {
  std::vector<StackFrame> frames = make_frames();
  std::swap(frames[0], frames[1]);

  EXPECT_NE(make_id(frames), make_id(make_frames()));
}

TEST(StackIdTest, TellsTextsApartThatAreTheSameBehindEachOther) {
  EXPECT_NE(make_id({{.symbol = "ab", .module = "c"}}), make_id({{.symbol = "a", .module = "bc"}}));
}

TEST(StackIdTest, GoesByTheAddressWhereNothingElseIsKnown) {
  EXPECT_NE(make_id({{.address = 1}}), make_id({{.address = 2}}));
}

TEST(StackIdTest, FitsADatabaseAndIsNeverNone) {
  for (uint64_t address = 0; address < 1000; ++address) {
    const uint64_t id = make_id({{.address = address}});
    EXPECT_NE(id, 0u);
    EXPECT_LE(id, static_cast<uint64_t>(INT64_MAX));
  }
}

constexpr ProcessKey kProcess{.pid = 7, .start_boot_ns = 1};
constexpr ProcessKey kOther{.pid = 8, .start_boot_ns = 1};
constexpr std::chrono::seconds kKeepGone{10};
constexpr int64_t kKeepGoneNs = std::chrono::nanoseconds(kKeepGone).count();

// Each stack of make_frames has some 400 bytes.
class StackTableTest : public testing::Test {
 protected:
  StackPtr intern(std::vector<StackFrame> frames) {
    return table_.intern(std::move(frames), StackEnd::kComplete);
  }

  std::vector<uint64_t> forgotten_;
  StackTable table_{4096, kKeepGone, [this](uint64_t raw_id) { forgotten_.push_back(raw_id); }};
};

TEST_F(StackTableTest, KeepsEqualStacksOnce) {
  const StackPtr first = intern(make_frames());

  const StackPtr second = intern(make_frames());

  EXPECT_EQ(first, second);
  EXPECT_EQ(first->id, make_id(make_frames()));
  EXPECT_EQ(first->frames, make_frames());
}

TEST_F(StackTableTest, KeepsStacksOfOtherAddressesApartUnderTheSameId) {
  std::vector<StackFrame> elsewhere = make_frames();
  elsewhere[0].address += 0x10'0000;

  const StackPtr first = intern(make_frames());
  const StackPtr second = intern(elsewhere);

  EXPECT_NE(first, second);
  EXPECT_EQ(first->id, second->id);
  EXPECT_EQ(second->frames, elsewhere);
}

TEST_F(StackTableTest, KeepsStacksOfOtherEndsApart) {
  const StackPtr complete = intern(make_frames());
  const StackPtr cut = table_.intern(make_frames(), StackEnd::kCut);

  EXPECT_NE(complete->id, cut->id);
  EXPECT_EQ(cut->end, StackEnd::kCut);
}

TEST_F(StackTableTest, KeepsAStackOnlyAsLongAsSomebodyHoldsIt) {
  StackPtr first = intern(make_frames());
  const std::weak_ptr<const Stack> held = first;

  first.reset();

  EXPECT_TRUE(held.expired());
  EXPECT_EQ(intern(make_frames())->frames, make_frames());
}

TEST_F(StackTableTest, FindsAHeldStackAfterManyThatNobodyHolds) {
  const StackPtr held = intern(make_frames());

  for (uint64_t address = 1; address <= 10'000; ++address) (void)intern({{.address = address}});

  EXPECT_EQ(intern(make_frames()), held);
}

TEST_F(StackTableTest, FindsWhatTheKernelSideCalledAStack) {
  const StackPtr stack = intern(make_frames());

  table_.set(71, kProcess, stack);

  EXPECT_EQ(table_.find(71), stack);
  EXPECT_EQ(table_.find(72), nullptr);
}

TEST_F(StackTableTest, TellsOfTheOneItForgets) {
  for (uint64_t raw_id = 1; forgotten_.empty() && raw_id < 100; ++raw_id) {
    table_.set(raw_id, kProcess, intern(make_frames()));
  }

  EXPECT_THAT(forgotten_, ElementsAre(1));
  EXPECT_EQ(table_.find(1), nullptr);
  EXPECT_NE(table_.find(2), nullptr);
}

TEST_F(StackTableTest, ForgetsTheOneUsedLeastRecently) {
  for (uint64_t raw_id = 1; forgotten_.empty() && raw_id < 100; ++raw_id) {
    table_.set(raw_id, kProcess, intern(make_frames()));
    (void)table_.find(1);
  }

  EXPECT_THAT(forgotten_, ElementsAre(2));
}

TEST_F(StackTableTest, TellsOfOneThatIsLargerThanAllRoom) {
  table_.set(5, kProcess, intern({{.symbol = std::string(5000, 'x')}}));

  EXPECT_THAT(forgotten_, ElementsAre(5));
  EXPECT_EQ(table_.find(5), nullptr);
}

TEST_F(StackTableTest, ForgetsNothingWhenAStackIsToldAnew) {
  const StackPtr other = intern({{.symbol = "other"}});
  table_.set(1, kProcess, intern(make_frames()));

  table_.set(1, kProcess, other);

  EXPECT_THAT(forgotten_, IsEmpty());
  EXPECT_EQ(table_.find(1), other);
}

TEST_F(StackTableTest, ForgetsThoseOfAProcessThatHasBeenGoneForAWhile) {
  const auto only_other_runs = [](const ProcessKey& process) { return process == kOther; };
  table_.set(1, kProcess, intern(make_frames()));
  table_.set(2, kOther, intern(make_frames()));
  table_.forget_gone([](const ProcessKey&) { return true; }, 0);
  table_.forget_gone(only_other_runs, 100);

  table_.forget_gone(only_other_runs, 99 + kKeepGoneNs);
  EXPECT_NE(table_.find(1), nullptr);
  table_.forget_gone(only_other_runs, 100 + kKeepGoneNs);

  EXPECT_EQ(table_.find(1), nullptr);
  EXPECT_NE(table_.find(2), nullptr);
  EXPECT_THAT(forgotten_, ElementsAre(1));
}

}  // namespace
}  // namespace gpuperf
