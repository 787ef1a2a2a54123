#include "daemon/state/session_memory.h"

#include <gtest/gtest.h>

#include <deque>

#include "daemon/state/device_memory.h"
#include "daemon/state/launch_join.h"

namespace gpuperf {
namespace {

constexpr uint64_t kBytes = 640'000;

class SessionMemoryTest : public testing::Test {
 protected:
  SessionMemory::Account& open(uint32_t uid, uint32_t pid) {
    return accounts_.emplace_back(memory_, Shares::Holder{.uid = uid, .pid = pid});
  }
  // In pieces of 1,000 bytes.
  static uint64_t take_all(SessionMemory::Account& account) {
    uint64_t bytes = 0;
    while (account.take(1'000)) bytes += 1'000;
    return bytes;
  }

  DropCounters drops_;
  SessionMemory memory_{drops_, kBytes};
  std::deque<SessionMemory::Account> accounts_;
};

TEST_F(SessionMemoryTest, LeavesRoomToOtherProcessesUsersAndRoot) {
  uint64_t of_user = 0;
  for (uint32_t pid = 1; pid < 30; ++pid) of_user += take_all(open(1'000, pid));
  EXPECT_EQ(accounts_.front().bytes(), kBytes / 8);
  EXPECT_LE(of_user, kBytes * 3 / 4);
  EXPECT_FALSE(accounts_.back().take(1'000));

  EXPECT_GT(take_all(open(1'001, 50)), 0u);
  EXPECT_EQ(take_all(open(0, 51)), kBytes / 8);
  EXPECT_GT(drops_.get(DropCause::kSessionMemoryFull), 30u);
}

TEST_F(SessionMemoryTest, TakesBackWhatAnEndedSessionHad) {
  EXPECT_EQ(take_all(open(1'000, 1)), kBytes / 8);
  accounts_.back().add(5'000);  // grown while it was used

  accounts_.clear();

  EXPECT_EQ(memory_.used(), 0u);
  EXPECT_EQ(take_all(open(1'000, 1)), kBytes / 8);
}

TEST_F(SessionMemoryTest, TakesNothingWhileTheDaemonIsAtItsCeiling) {
  SessionMemory::Account& account = open(0, 1);
  memory_.set_pressed(true);
  EXPECT_FALSE(account.take(1));
  EXPECT_FALSE(account.has_room());

  memory_.set_pressed(false);

  EXPECT_TRUE(account.take(1));
}

TEST_F(SessionMemoryTest, LaunchesWaitAsFarAsThereIsRoom) {
  LaunchJoin join(drops_, LaunchJoin::kMaxEntries, &open(1'000, 1));

  for (uint32_t id = 0; id < 10'000; ++id) {
    (void)join.add(LaunchJoin::Api{.correlation_id = id, .start_ns = 1, .end_ns = 2},
                   int64_t{1'000'000} * id);
  }

  EXPECT_GT(join.size(), 10u);
  EXPECT_LE(accounts_.back().bytes(), kBytes / 8);
  EXPECT_GT(drops_.get(DropCause::kJoinLaunchesFull), 9'000u);
}

TEST_F(SessionMemoryTest, AllocationsAreKeptAsFarAsThereIsRoom) {
  std::vector<GpuMemoryRow> rows;
  DeviceMemory device(drops_, DeviceMemory::kMaxAddresses, &open(1'000, 1));

  for (uint64_t address = 0; address < 10'000; ++address) {
    (void)device.apply({.address = address, .bytes = 1}, {}, 0, rows);
  }
  EXPECT_LE(accounts_.back().bytes(), kBytes / 8);
  EXPECT_GT(drops_.get(DropCause::kGpuAddressesFull), 8'500u);

  device.release_all(rows);

  EXPECT_EQ(accounts_.back().bytes(), 0u);
}

}  // namespace
}  // namespace gpuperf
