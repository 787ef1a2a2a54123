#include "daemon/state/device_memory.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

const GpuUuid kDevice{1, 2, 3};

MemoryRecord allocate(uint64_t address, uint64_t bytes, uint8_t memory = GPUPERF_MEMORY_DEVICE) {
  return {.address = address, .bytes = bytes, .place_id = 1, .memory = memory};
}

MemoryRecord release(uint64_t address) {
  return {.address = address, .place_id = 1, .memory = GPUPERF_MEMORY_DEVICE, .is_release = true};
}

class DeviceMemoryTest : public ::testing::Test {
 protected:
  bool apply(const MemoryRecord& record) { return memory_.apply(record, kDevice, 0, rows_); }

  DropCounters drops_;
  DeviceMemory memory_{drops_, 3};
  std::vector<GpuMemoryRow> rows_;
};

TEST_F(DeviceMemoryTest, AddsUpWhatIsHeldAndTheMostThatWas) {
  EXPECT_TRUE(apply(allocate(0x10, 100)));
  EXPECT_TRUE(apply(allocate(0x20, 50)));
  EXPECT_TRUE(apply(release(0x10)));
  EXPECT_TRUE(apply(allocate(0x10, 20)));

  EXPECT_EQ(rows_, (std::vector<GpuMemoryRow>{{.uuid = kDevice,
                                               .memory = GPUPERF_MEMORY_DEVICE,
                                               .used_bytes = 70,
                                               .peak_bytes = 150,
                                               .allocations = 3,
                                               .releases = 1,
                                               .allocated_bytes = 170}}));
}

TEST_F(DeviceMemoryTest, TellsKindsApart) {
  (void)apply(allocate(0x10, 100));
  (void)apply(allocate(0x20, 7, GPUPERF_MEMORY_PINNED));

  ASSERT_EQ(rows_.size(), 2u);
  EXPECT_EQ(rows_[1].memory, GPUPERF_MEMORY_PINNED);
  EXPECT_EQ(rows_[1].used_bytes, 7u);
}

TEST_F(DeviceMemoryTest, SaysThatAReleaseHasNoAllocation) {
  EXPECT_FALSE(apply(release(0x10)));

  EXPECT_EQ(rows_[0].releases, 1u);
  EXPECT_EQ(rows_[0].used_bytes, 0u);
}

TEST_F(DeviceMemoryTest, SaysThatAReleaseWasMissed) {
  (void)apply(allocate(0x10, 100));

  EXPECT_FALSE(apply(allocate(0x10, 30)));

  EXPECT_EQ(rows_[0].used_bytes, 30u);
}

TEST_F(DeviceMemoryTest, CountsAllocationsBeyondItsBound) {
  for (uint64_t address = 1; address <= 3; ++address) (void)apply(allocate(address, 1));

  EXPECT_FALSE(apply(allocate(4, 1)));

  EXPECT_EQ(drops_.get(DropCause::kGpuAddressesFull), 1u);
  EXPECT_EQ(rows_[0].used_bytes, 3u);
  EXPECT_EQ(rows_[0].allocations, 4u);
}

TEST_F(DeviceMemoryTest, HoldsNothingOnceItsProcessHasEnded) {
  (void)apply(allocate(0x10, 100));

  memory_.release_all(rows_);

  EXPECT_EQ(rows_[0].used_bytes, 0u);
  EXPECT_EQ(rows_[0].peak_bytes, 100u);
}

TEST_F(DeviceMemoryTest, KeepsABoundedNumberOfRows) {
  for (uint32_t ordinal = 0; ordinal < 2 * DeviceMemory::kMaxRows; ++ordinal) {
    (void)memory_.apply(release(1), {}, ordinal, rows_);
  }

  EXPECT_EQ(rows_.size(), DeviceMemory::kMaxRows);
}

}  // namespace
}  // namespace gpuperf
