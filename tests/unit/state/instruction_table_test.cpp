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
};

TEST_F(InstructionTableTest, AddsUpByStateAndInstruction) {
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 5, 2));
  table_.add(make_record(0x20, GPUPERF_STALL_barrier, 30, 30));
  table_.add(make_record(0x10, GPUPERF_STALL_barrier, 7));
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 1));

  const KernelStalls stalls = table_.summarise();

  EXPECT_EQ(stalls.samples, 43u);
  EXPECT_EQ(stalls.stalls[GPUPERF_STALL_wait], (StallCount{6, 2}));
  EXPECT_EQ(stalls.stalls[GPUPERF_STALL_barrier], (StallCount{37, 30}));
  EXPECT_EQ(stalls.instructions, 2u);
  EXPECT_EQ(stalls.other_samples, 0u);
  ASSERT_EQ(stalls.hottest.size(), 2u);
  EXPECT_EQ(stalls.hottest[0], (HotInstruction{7, 0x20, 30, GPUPERF_STALL_barrier, 30}));
  EXPECT_EQ(stalls.hottest[1], (HotInstruction{7, 0x10, 13, GPUPERF_STALL_barrier, 7}));
}

TEST_F(InstructionTableTest, CountsInstructionsBeyondItsBoundTogether) {
  for (uint32_t i = 0; i < InstructionTable::kMaxInstructions + 3; ++i) {
    table_.add(make_record(16 * i, GPUPERF_STALL_wait, 2));
  }
  const KernelStalls stalls = table_.summarise();
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
  EXPECT_EQ(table.summarise().samples, 5u);
  EXPECT_EQ(table.summarise().other_samples, 5u);
  EXPECT_EQ(drops_.get(DropCause::kSessionMemoryFull), 1u);
}

TEST_F(InstructionTableTest, MergesProcesses) {
  table_.add(make_record(0x10, GPUPERF_STALL_wait, 5));
  KernelStalls sum = table_.summarise();
  InstructionTable other(account_);
  other.add(make_record(0x10, GPUPERF_STALL_barrier, 9));
  other.add(make_record(0x30, GPUPERF_STALL_wait, 1));
  merge_stalls(sum, other.summarise());
  EXPECT_EQ(sum.samples, 15u);
  ASSERT_EQ(sum.hottest.size(), 2u);
  EXPECT_EQ(sum.hottest[0], (HotInstruction{7, 0x10, 14, GPUPERF_STALL_barrier, 9}));
}

}  // namespace
}  // namespace gpuperf
