// The captures' folder, on a disk that fails or loses power.

#include <cerrno>
#include <random>
#include <set>

#include "tests/unit/store/capture_folder.h"
#include "tests/unit/store/watched_disk.h"

namespace gpuperf {
namespace {

using testing::WatchedDisk;

class CaptureDiskTest : public testing::CaptureFolderTest {
 protected:
  bool write(CaptureStore& store, uint64_t id) {
    if (!store.write(make(id), CaptureTarget()).ok()) return false;
    acknowledged_.insert(id);
    return true;
  }
  // What was acknowledged and not removed is there, all that is there is whole, and no id is given
  // again.
  void expect_sound(const CaptureStore& store) {
    std::set<uint64_t> found;
    for (const CaptureRow& row : store.list()) {
      found.insert(row.id);
      EXPECT_EQ(row.state, CaptureState::kStored) << row.problem;
      const auto capture = store.read(row.id);
      EXPECT_TRUE(capture.ok()) << capture.status();
    }
    for (const uint64_t id : acknowledged_) {
      EXPECT_TRUE(found.contains(id)) << "capture " << id << " is lost";
      EXPECT_GE(store.last_id(), id);
    }
  }

  std::set<uint64_t> acknowledged_;
};

TEST_F(CaptureDiskTest, LosesNothingThatWasAcknowledgedWhenThePowerGoes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string after = folder_ / "after";
  const auto store = open();
  WatchedDisk disk(options_.folder);
  int losses = 0;
  size_t most_files = 0;
  disk.after_each_step([&] {
    for (int round = 0; round < testing::choose_rounds(3, 50); ++round, ++losses) {
      disk.lose_power(after, random);
      const auto later = open(after);
      expect_sound(*later);
      most_files = std::max(most_files, later->list().size());
    }
  });

  for (uint64_t id = 1; id <= 20 && !HasFailure(); ++id) {
    EXPECT_TRUE(write(*store, id));
    if (id % 4 != 0) continue;
    acknowledged_.erase(id - 1);  // it may be there again after a loss of power
    EXPECT_TRUE(store->remove(id - 1).ok());
  }
  EXPECT_GT(losses, 400);
  EXPECT_GE(most_files, 15);
}

class FailingDiskTest : public CaptureDiskTest,
                        public ::testing::WithParamInterface<std::pair<int, bool>> {};

TEST_P(FailingDiskTest, LosesNothingThatWasAcknowledgedAndWritesAgain) {
  const auto [error, for_ever] = GetParam();
  const auto store = open();
  uint64_t id = 1, nth = 0;
  int failed = 0;
  {
    WatchedDisk disk(options_.folder);
    do {
      SCOPED_TRACE("step " + std::to_string(++nth));
      disk.fail(nth, error, for_ever);
      for (const uint64_t end = id + 3; id < end; ++id) failed += write(*store, id) ? 0 : 1;
      const bool was_hit = disk.has_failed();
      disk.heal();
      EXPECT_TRUE(write(*store, id++));
      expect_sound(*store);
      EXPECT_EQ(store->list().size(), acknowledged_.size());
      expect_sound(*open());
      if (!was_hit) break;
    } while (!HasFailure());
  }
  EXPECT_GT(nth, 20);
  EXPECT_GT(failed, 10);
  // What a failed write left is gone, so it takes no room that nobody counts.
  const auto reopened = open();
  EXPECT_EQ(reopened->list().size(), acknowledged_.size());
  EXPECT_EQ(reopened->used_bytes(), store->used_bytes());
}

INSTANTIATE_TEST_SUITE_P(Errors, FailingDiskTest,
                         ::testing::Values(std::pair(EIO, false), std::pair(EIO, true),
                                           std::pair(ENOSPC, false), std::pair(ENOSPC, true)));

}  // namespace
}  // namespace gpuperf
