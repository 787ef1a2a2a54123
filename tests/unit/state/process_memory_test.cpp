#include "daemon/state/process_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "daemon/model/snapshot.h"

namespace gpuperf {
namespace {

using Operation = MemoryCall::Operation;
using Space = MemoryCall::Space;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kOneSecondNs = 1'000'000'000;

// Calls with times in seconds.
MemoryCall make_call(Operation operation, uint64_t place, uint64_t start, uint64_t end) {
  return {.operation = operation,
          .place = place,
          .start_mono_ns = start * kOneSecondNs,
          .end_mono_ns = end * kOneSecondNs};
}

class ProcessMemoryTest : public testing::Test {
 protected:
  void allocate(uint64_t place, uint64_t bytes, uint64_t start, uint64_t end, uint64_t stack = 1,
                MemoryKind kind = MemoryKind::kDevice, Space space = Space::kAddress) {
    MemoryCall call = make_call(Operation::kAllocate, place, start, end);
    call.bytes = bytes;
    call.kind = kind;
    call.space = space;
    is_kept_ = memory_.apply(call, memory_.find_site(kind, 7, stack).site);
  }
  void release(uint64_t place, uint64_t start, uint64_t end, Space space = Space::kAddress) {
    MemoryCall call = make_call(Operation::kRelease, place, start, end);
    call.space = space;
    memory_.apply(call, 0);
  }
  void create(uint64_t handle, uint64_t bytes, uint64_t at) {
    allocate(handle, bytes, at, at, 1, MemoryKind::kVirtual, Space::kHandle);
  }
  void map(uint64_t address, uint64_t handle, uint64_t at) {
    MemoryCall call = make_call(Operation::kMap, address, at, at);
    call.handle = handle;
    is_kept_ = memory_.apply(call, 0);
  }
  void unmap(uint64_t address, uint64_t bytes, uint64_t at) {
    MemoryCall call = make_call(Operation::kUnmap, address, at, at);
    call.bytes = bytes;
    memory_.apply(call, 0);
  }
  void context(Operation operation, uint64_t device, uint64_t at, bool is_whole = false) {
    MemoryCall call = make_call(operation, device, at, at);
    call.is_primary = true;
    call.is_ended_whole = is_whole;
    memory_.apply(call, 0);
  }
  MemoryTotals totals(MemoryKind kind = MemoryKind::kDevice) const {
    return memory_.row().kinds[static_cast<size_t>(kind)];
  }
  uint64_t live() const { return get_on_gpu_bytes(memory_.row()); }
  void end_windows(size_t count) {
    for (size_t i = 0; i < count; ++i) memory_.end_window(0);
  }

  Shares pieces_{{.total = 64}};
  Shares sites_{{.total = 8}};
  ProcessMemory memory_{{.pid = 42},
                        {.pieces = pieces_, .sites = sites_, .holder = {.uid = 0, .pid = 42}}};
  bool is_kept_ = false;
};

TEST_F(ProcessMemoryTest, AddsUpWhatIsLive) {
  allocate(0x1000, 100, 1, 2);
  allocate(0x2000, 50, 3, 4);
  release(0x1000, 5, 6);
  allocate(0x3000, 20, 7, 8);

  EXPECT_EQ(totals(), (MemoryTotals{.live_bytes = 70,
                                    .live_count = 2,
                                    .peak_bytes = 150,
                                    .allocated_bytes = 170,
                                    .allocations = 3,
                                    .released_bytes = 100,
                                    .releases = 1}));
  EXPECT_EQ(memory_.row().on_gpu_peak_bytes, 150u);
  EXPECT_EQ(memory_.row().gaps, 0u);
}

TEST_F(ProcessMemoryTest, TakesALateReleaseForThatOfTheFormerAllocation) {
  allocate(0x1000, 100, 1, 2);
  // Another thread has the address before the call that released it has ended.
  allocate(0x1000, 30, 4, 5);
  EXPECT_EQ(live(), 30u);
  release(0x1000, 3, 6);

  EXPECT_EQ(live(), 30u);
  release(0x1000, 7, 8);
  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(totals().releases, 2u);
  EXPECT_EQ(memory_.row().gaps, 0u);
}

TEST_F(ProcessMemoryTest, TakesLateReleasesInAnyOrder) {
  allocate(0x1000, 100, 1, 2);
  allocate(0x1000, 30, 4, 5);
  release(0x1000, 6, 7);  // of the second, reported before that of the first
  EXPECT_EQ(live(), 0u);
  release(0x1000, 3, 8);

  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(memory_.row().unknown_releases, 0u);
  EXPECT_EQ(memory_.row().gaps, 0u);
}

TEST_F(ProcessMemoryTest, DoesNotReleaseWhatCameAfterARelease) {
  allocate(0x1000, 100, 4, 5);
  release(0x1000, 3, 6);  // of what was allocated before anybody looked

  EXPECT_EQ(live(), 100u);
  EXPECT_EQ(memory_.row().unknown_releases, 1u);
  EXPECT_EQ(memory_.row().gaps, uint32_t{kMemoryUnknownReleases});
}

TEST_F(ProcessMemoryTest, CountsReleasesThatNeverCome) {
  allocate(0x1000, 100, 1, 2);
  allocate(0x1000, 30, 4, 5);
  memory_.end_window(64 * kOneSecondNs);
  EXPECT_EQ(memory_.row().missed_releases, 0u);
  memory_.end_window(66 * kOneSecondNs);

  EXPECT_EQ(memory_.row().missed_releases, 1u);
  EXPECT_EQ(memory_.row().gaps, uint32_t{kMemoryMissedReleases});
  EXPECT_EQ(live(), 30u);
}

TEST_F(ProcessMemoryTest, ForgetsTheOldestOfTooManyReleasesToCome) {
  for (uint64_t i = 0; i <= ProcessMemory::kMaxOwed + 1; ++i) allocate(0x1000, 1, i, i);

  EXPECT_EQ(memory_.row().missed_releases, 1u);
  EXPECT_EQ(live(), 1u);
}

TEST_F(ProcessMemoryTest, KeepsAddressesAndHandlesApart) {
  allocate(0x1000, 100, 1, 2);
  allocate(0x1000, 7, 3, 4, 1, MemoryKind::kArray, Space::kArray);
  release(0x1000, 5, 6, Space::kArray);

  EXPECT_EQ(totals().live_bytes, 100u);
  EXPECT_EQ(totals(MemoryKind::kArray).live_bytes, 0u);
}

TEST_F(ProcessMemoryTest, KeepsPhysicalMemoryUntilItsLastMappingGoes) {
  create(5, 100, 1);
  map(0x10'0000, 5, 2);
  release(5, 3, 4, Space::kHandle);
  EXPECT_EQ(live(), 100u);
  create(5, 40, 5);  // the handle's number is free again
  EXPECT_EQ(live(), 140u);
  unmap(0x10'0000, 4096, 6);
  EXPECT_EQ(live(), 40u);
  release(5, 7, 8, Space::kHandle);

  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(memory_.row().gaps, 0u);
  EXPECT_EQ(pieces_.used(), 0u);
}

TEST_F(ProcessMemoryTest, UnmapsEverythingInARange) {
  for (uint64_t i = 0; i < 3; ++i) {
    create(i + 1, 10, 1);
    map(0x10'0000 + i * 0x1000, i + 1, 2);
    release(i + 1, 3, 4, Space::kHandle);
  }
  unmap(0x10'0000, 0x2000, 5);

  EXPECT_EQ(live(), 10u);
}

TEST_F(ProcessMemoryTest, CountsHandlesRetainedFromAnAddress) {
  create(5, 100, 1);
  map(0x10'0000, 5, 2);
  MemoryCall retain = make_call(Operation::kRetain, 0x10'0800, 3, 3);
  retain.handle = 5;
  memory_.apply(retain, 0);
  release(5, 4, 4, Space::kHandle);
  unmap(0x10'0000, 4096, 5);
  EXPECT_EQ(live(), 100u);
  release(5, 6, 6, Space::kHandle);

  EXPECT_EQ(live(), 0u);
}

TEST_F(ProcessMemoryTest, ReleasesImportedMemoryWithTheLastOfItsHandles) {
  allocate(0x1000, 0, 1, 2, 1, MemoryKind::kImported);
  allocate(0x1000, 0, 3, 4, 1, MemoryKind::kImported);
  release(0x1000, 5, 6);
  EXPECT_EQ(totals(MemoryKind::kImported).live_count, 1u);
  release(0x1000, 7, 8);

  EXPECT_EQ(totals(MemoryKind::kImported).live_count, 0u);
  EXPECT_EQ(memory_.row().gaps, 0u);
}

TEST_F(ProcessMemoryTest, ReleasesWhatAContextHadWithIt) {
  context(Operation::kContextBegins, 0, 1);
  allocate(0x1000, 100, 2, 3);
  allocate(0x2000, 10, 2, 3, 1, MemoryKind::kAsync);
  allocate(0x3000, 1, 7, 8);  // ended after the reset began: of the next
  context(Operation::kContextEnds, 0, 6, /*is_whole=*/true);

  EXPECT_EQ(totals().live_bytes, 1u);
  EXPECT_EQ(totals(MemoryKind::kAsync).live_bytes, 10u);
  EXPECT_EQ(memory_.row().gaps, 0u);
}

TEST_F(ProcessMemoryTest, KeepsWhatAContextHasWhileItIsRetained) {
  context(Operation::kContextBegins, 0, 1);
  context(Operation::kContextBegins, 0, 1);
  allocate(0x1000, 100, 2, 3);
  context(Operation::kContextEnds, 0, 4);
  EXPECT_EQ(live(), 100u);
  context(Operation::kContextEnds, 0, 5);

  EXPECT_EQ(live(), 0u);
}

TEST_F(ProcessMemoryTest, SaysWhereItDoesNotKnowWhatAContextHad) {
  context(Operation::kContextBegins, 0, 1);
  context(Operation::kContextBegins, 1, 1);
  allocate(0x1000, 100, 2, 3);
  context(Operation::kContextEnds, 0, 4, /*is_whole=*/true);

  EXPECT_EQ(live(), 100u);
  EXPECT_EQ(memory_.row().gaps, uint32_t{kMemoryContextEnded});
}

TEST_F(ProcessMemoryTest, SaysWhereItHasNoPlace) {
  for (uint64_t i = 1; i <= 65; ++i) allocate(i << 12, 1, i, i);

  EXPECT_FALSE(is_kept_);
  EXPECT_EQ(live(), 64u);
  EXPECT_EQ(memory_.row().gaps, uint32_t{kMemoryTableFull});
  release(uint64_t{1} << 12, 100, 100);
  allocate(uint64_t{70} << 12, 1, 101, 101);
  EXPECT_TRUE(is_kept_);
}

TEST_F(ProcessMemoryTest, CountsStacksBeyondTheLimitTogether) {
  for (uint64_t stack = 1; stack <= 10; ++stack) allocate(stack << 12, 1, stack, stack, stack);

  const auto sites = memory_.make_row().sites;
  ASSERT_THAT(sites, SizeIs(9));
  EXPECT_EQ(sites.front().totals.live_bytes, 2u);  // of those without a place of their own
}

TEST_F(ProcessMemoryTest, MakesOneOfStacksWithTheSameNames) {
  const auto stack = std::make_shared<const Stack>(Stack{.id = 9, .frames = {}});
  allocate(0x1000, 10, 1, 1, 1);
  allocate(0x2000, 20, 2, 2, 2);
  memory_.set_stack(memory_.find_site(MemoryKind::kDevice, 7, 1).site, stack);
  memory_.set_stack(memory_.find_site(MemoryKind::kDevice, 7, 2).site,
                    std::make_shared<const Stack>(Stack{.id = 9, .frames = {}}));
  release(0x2000, 3, 3);

  const auto sites = memory_.make_row().sites;
  ASSERT_THAT(sites, SizeIs(1));
  EXPECT_EQ(sites[0].totals.live_bytes, 10u);
  EXPECT_EQ(sites[0].totals.allocations, 2u);
  EXPECT_EQ(sites[0].stack, stack);
  EXPECT_EQ(sites_.used(), 1u);
}

TEST_F(ProcessMemoryTest, TellsWhatTheDriverReportsMore) {
  allocate(0x1000, 100, 1, 1);
  memory_.set_on_gpus({{.index = 0, .used_bytes = 300}, {.index = 1, .used_bytes = 50}});
  memory_.set_on_gpus({{.index = 0, .used_bytes = 400}, {.index = 1, .used_bytes = 50}});

  EXPECT_EQ(get_used_bytes(memory_.row()), 450u);
  EXPECT_EQ(memory_.row().least_rest_bytes, 250u);
}

TEST_F(ProcessMemoryTest, NamesTheOldestOfAStack) {
  allocate(0x1000, 100, 1, 1);
  allocate(0x2000, 100, 2, 2);
  release(0x1000, 3, 3);
  end_windows(1);

  EXPECT_THAT(memory_.make_row().sites,
              ElementsAre(Field(&MemorySite::oldest_mono_ns, 2 * kOneSecondNs)));
}

// Windows in which one site grows and another comes and goes.
class GrowthTest : public ProcessMemoryTest {
 protected:
  Shares many_{{.total = 1 << 20}};
  ProcessMemory process_{{.pid = 43},
                         {.pieces = many_, .sites = many_, .holder = {.uid = 0, .pid = 43}}};
  uint64_t next_ = 1;

  uint64_t allocate(uint64_t stack, uint64_t bytes = 1 << 20) {
    MemoryCall call = make_call(Operation::kAllocate, next_++ << 12, 1, 1);
    call.bytes = bytes;
    process_.apply(call, process_.find_site(MemoryKind::kDevice, 7, stack).site);
    return call.place;
  }
  void release(uint64_t place) { process_.apply(make_call(Operation::kRelease, place, 2, 2), 0); }
  // One that comes and goes.
  void churn(uint64_t stack) { release(allocate(stack)); }
  std::optional<MemoryGrowth> growth(uint64_t bytes_live) {
    for (const MemorySite& site : process_.make_row().sites) {
      if (site.totals.live_bytes == bytes_live) return site.growth;
    }
    ADD_FAILURE() << "no site holds " << bytes_live;
    return std::nullopt;
  }
};

TEST_F(GrowthTest, FindsALeakWithinAMinute) {
  size_t windows = 0;
  while (windows < 12) {
    allocate(1);
    churn(2);
    process_.end_window(0);
    ++windows;
    const auto found = growth(windows << 20);
    if (found && found->is_leak) break;
  }

  EXPECT_EQ(windows, 9u);
  const auto found = growth(windows << 20);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (MemoryGrowth{.window_ns = 40 * kOneSecondNs,
                                  .grown_bytes = 8 << 20,
                                  .grown_count = 8,
                                  .is_leak = true}));
}

TEST_F(GrowthTest, WaitsWhileNothingElseComesAndGoes) {
  for (int i = 0; i < 20; ++i) {
    allocate(1);
    process_.end_window(0);
  }
  const auto found = growth(20 << 20);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->is_leak);

  for (int i = 20; i < 108; ++i) {  // nine minutes
    allocate(1);
    process_.end_window(0);
  }
  ASSERT_TRUE(growth(108 << 20));
  EXPECT_TRUE(growth(108 << 20)->is_leak);
}

TEST_F(GrowthTest, TakesACacheThatFillsForNone) {
  for (int i = 0; i < 60; ++i) {
    // Quickly, then less and less: 16, 8, 4, 2, 1 and so on.
    for (int pieces = 16 >> std::min(i, 10); pieces > 0; --pieces) allocate(1);
    churn(2);
    process_.end_window(0);
    ASSERT_FALSE(growth(process_.make_row().sites.front().totals.live_bytes)) << i;
  }
}

TEST_F(GrowthTest, TakesABlockThatIsReplacedByALargerOneForNone) {
  uint64_t last = allocate(1);
  for (uint64_t i = 2; i < 40; ++i) {
    const uint64_t larger = allocate(1, i << 20);
    release(last);
    last = larger;
    churn(2);
    process_.end_window(0);
    ASSERT_FALSE(growth(i << 20));
  }
}

TEST_F(GrowthTest, TakesMemoryThatComesAndGoesForNone) {
  for (int i = 0; i < 40; ++i) {
    std::vector<uint64_t> places;
    for (int piece = 0; piece <= i; ++piece) places.push_back(allocate(1));  // ever more
    for (const uint64_t place : places) release(place);
    process_.end_window(0);
    ASSERT_FALSE(growth(0));
  }
}

TEST_F(GrowthTest, TakesAWarmUpOfManyStacksForNone) {
  for (int i = 0; i < 20; ++i) {
    for (uint64_t stack = 1; stack <= 4; ++stack) allocate(stack);
    churn(5);
    process_.end_window(0);
  }
  const auto found = growth(20 << 20);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->is_leak);
}

}  // namespace
}  // namespace gpuperf
