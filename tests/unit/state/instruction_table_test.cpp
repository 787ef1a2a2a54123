#include "daemon/state/instruction_table.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

class InstructionTableTest : public ::testing::Test {
 protected:
  static StallRecord make_record(uint32_t offset, uint32_t stall, uint32_t samples,
                                 uint32_t idle = 0) {
    return {.name_id = 1,
            .pc_offset_bytes = offset,
            .cubin_crc = 7,
            .counts = {{.stall = stall, .samples = samples, .idle_samples = idle}}};
  }

  DropCounters drops_;
  SessionMemory memory_{drops_};
  SessionMemory::Account account_{memory_, {.uid = 1'000, .pid = 1}};
  InstructionTable table_{account_};
  CubinLinesByCrc cubins_;
};

TEST_F(InstructionTableTest, AddsUpByStateAndInstruction) {
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 5, 2));
  table_.add(make_record(0x20, GPUPERF_STALL_barrier, 30, 30));
  table_.add(make_record(0x10, GPUPERF_STALL_barrier, 7));
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 1));

  const KernelStalls stalls = table_.summarise("_Z3addPfi", cubins_);

  EXPECT_EQ(stalls.samples, 43u);
  EXPECT_EQ(stalls.stalls[GPUPERF_STALL_wait], (StallCount{6, 2}));
  EXPECT_EQ(stalls.stalls[GPUPERF_STALL_barrier], (StallCount{37, 30}));
  EXPECT_EQ(stalls.instructions, 2u);
  EXPECT_EQ(stalls.other_samples, 0u);
  ASSERT_EQ(stalls.hottest.size(), 2u);
  EXPECT_EQ(stalls.hottest[0], (HotInstruction{7, 0x20, 30, GPUPERF_STALL_barrier, 30, {}}));
  EXPECT_EQ(stalls.hottest[1], (HotInstruction{7, 0x10, 13, GPUPERF_STALL_barrier, 7, {}}));
}

TEST_F(InstructionTableTest, CountsInstructionsBeyondItsBoundTogether) {
  for (uint32_t i = 0; i < InstructionTable::kMaxInstructions + 3; ++i) {
    table_.add(make_record(16 * i, GPUPERF_STALL_wait, 2));
  }
  const KernelStalls stalls = table_.summarise("_Z3addPfi", cubins_);
  EXPECT_EQ(stalls.samples, 2 * (InstructionTable::kMaxInstructions + 3));
  EXPECT_EQ(stalls.instructions, InstructionTable::kMaxInstructions);
  EXPECT_EQ(stalls.other_samples, 6u);
  EXPECT_EQ(stalls.hottest.size(), KernelStalls::kHottest);
}

TEST_F(InstructionTableTest, KeepsNothingThatItsProcessHasNoRoomFor) {
  SessionMemory none(drops_, 100);
  SessionMemory::Account account(none, {.uid = 1'000, .pid = 1});
  InstructionTable table(account);
  table.add(make_record(0x10, GPUPERF_STALL_wait, 5));
  EXPECT_EQ(table.summarise("_Z3addPfi", cubins_).samples, 5u);
  EXPECT_EQ(table.summarise("_Z3addPfi", cubins_).other_samples, 5u);
  EXPECT_EQ(drops_.get(DropCause::kSessionMemoryFull), 1u);
}

TEST_F(InstructionTableTest, MergesProcesses) {
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 5));
  KernelStalls sum = table_.summarise("_Z3addPfi", cubins_);
  InstructionTable other(account_);
  other.add(make_record(0x10, GPUPERF_STALL_barrier, 9));
  other.add(make_record(0x30, GPUPERF_STALL_wait, 1));
  merge_stalls(sum, other.summarise("_Z3addPfi", cubins_));
  EXPECT_EQ(sum.samples, 15u);
  ASSERT_EQ(sum.hottest.size(), 2u);
  EXPECT_EQ(sum.hottest[0], (HotInstruction{7, 0x10, 14, GPUPERF_STALL_barrier, 9, {}}));
}

// Two lines of one file, the second inlined into the first.
CubinLines make_lines() {
  return {.cubin_crc = 7,
          .texts = {"a.cu", "twice(float)"},
          .places = {{.file = 0, .line = 3, .outer_file = 0, .outer_line = 3},
                     {.file = 0, .line = 9, .function = 1, .outer_file = 0, .outer_line = 3}},
          .rows = {{0x10, 0}, {0x20, 1}, {0x30, 0}, {0x40, CubinLines::kNone}},
          .functions = {{.name = "_Z3addPfi", .first_row = 0, .row_count = 4}}};
}
const SourceLine kOwn{.file = "a.cu", .line = 3, .outer_file = "a.cu", .outer_line = 3};
const SourceLine kInlined{
    .file = "a.cu", .line = 9, .function = "twice(float)", .outer_file = "a.cu", .outer_line = 3};

TEST_F(InstructionTableTest, AddsUpByLine) {
  cubins_[7] = make_lines();
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 5));
  table_.add(make_record(0x30, GPUPERF_STALL_barrier, 3));
  table_.add(make_record(0x28, GPUPERF_STALL_barrier, 20));
  table_.add(make_record(0x40, GPUPERF_STALL_wait, 2));

  const KernelStalls stalls = table_.summarise("_Z3addPfi", cubins_);

  EXPECT_EQ(stalls.lines, (std::vector<HotLine>{{kInlined, 20, GPUPERF_STALL_barrier, 20},
                                                {kOwn, 8, GPUPERF_STALL_wait, 5}}));
  EXPECT_EQ(stalls.unlined_samples[static_cast<size_t>(LineFate::kNoLineThere)], 2u);
  EXPECT_EQ(stalls.hottest[0].source, kInlined);
  EXPECT_EQ(stalls.hottest[3].source, SourceLine());
}

TEST_F(InstructionTableTest, SaysWhyALineIsNotKnown) {
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 5));
  const auto find = [&](std::string_view function, LineFate fate) {
    return table_.summarise(function, cubins_).unlined_samples[static_cast<size_t>(fate)];
  };
  EXPECT_EQ(find("_Z3addPfi", LineFate::kWaiting), 5u);
  cubins_[7] = {.cubin_crc = 7, .fate = LineFate::kUnseen};
  EXPECT_EQ(find("_Z3addPfi", LineFate::kUnseen), 5u);
  cubins_[7] = make_lines();
  EXPECT_EQ(find("_Z3addPfi", LineFate::kUnseen), 0u);
  EXPECT_EQ(find("another", LineFate::kNoLineThere), 5u);
}

TEST_F(InstructionTableTest, MergesLinesOfProcesses) {
  cubins_[7] = make_lines();
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 5));
  KernelStalls sum = table_.summarise("_Z3addPfi", cubins_);
  InstructionTable other(account_);
  other.add(make_record(0x10, GPUPERF_STALL_barrier, 9));
  other.add(make_record(0x20, GPUPERF_STALL_wait, 1));

  merge_stalls(sum, other.summarise("_Z3addPfi", cubins_));

  EXPECT_EQ(sum.lines, (std::vector<HotLine>{{kOwn, 14, GPUPERF_STALL_barrier, 9},
                                             {kInlined, 1, GPUPERF_STALL_wait, 1}}));
}

}  // namespace
}  // namespace gpuperf
