#include <fcntl.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "daemon/base/fd.h"
#include "tests/unit/matchers.h"
#include "tests/unit/store/failing_memory.h"
#include "tests/unit/store/failing_vfs.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

namespace fs = std::filesystem;

class DiskFailureTest : public StoreTest {
 protected:
  // The promise while nothing can be written, and once it can be again.
  void expect_recovers(SlowCallStore& store, uint64_t lost_id, const std::function<void()>& heal) {
    const std::string problem = store.problem();
    EXPECT_THAT(problem, StartsWith(path_ + ": "));
    heal();
    // Too soon to try again: not even made.
    bool made = false;
    std::atomic<int> answers = 0;
    ASSERT_TRUE(store.post_write(
        {},
        [&] {
          made = true;
          return make_call(lost_id);
        },
        [&](bool stored) { answers = stored ? 2 : 1; }));
    EXPECT_FALSE(write_and_wait(store, make_call(lost_id)));
    EXPECT_EQ(answers, 1);
    EXPECT_FALSE(made);
    EXPECT_EQ(store.problem(), problem);

    clock_.advance(std::chrono::seconds(5));

    EXPECT_TRUE(write_and_wait(store, make_call(lost_id + 1)));
    EXPECT_EQ(store.problem(), "");
    EXPECT_EQ(*store.find(lost_id), std::nullopt);
    EXPECT_EQ(*store.find(lost_id + 1), make_call(lost_id + 1));
  }
};

// A file system of its own that can be filled.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& folder) : folder_(folder) {
    fs::create_directory(folder);
    mounted_ = mount("gpuperf-test", folder.c_str(), "tmpfs", 0, "size=4m") == 0;
    error_number_ = errno;
  }
  ~SmallDisk() {
    if (mounted_) (void)umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  std::string error() const { return std::strerror(error_number_); }
  void fill() {
    const Fd file(::open(ballast().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string zeros(4096, '\0');
    while (write(file.get(), zeros.data(), zeros.size()) > 0) continue;
  }
  void free() { fs::remove(ballast()); }

 private:
  std::string ballast() const { return folder_ + "/ballast"; }

  const std::string folder_;
  bool mounted_ = false;
  int error_number_ = 0;
};

TEST_F(DiskFailureTest, StoresAgainOnceAFullDiskHasRoom) {
  SmallDisk disk(folder_ + "/disk");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs: " << disk.error();
  path_ = options_.path = folder_ + "/disk/slow_calls.db";
  uint64_t id = 0;
  {
    const auto store = start();
    ASSERT_TRUE(write_and_wait(*store, make_call(++id)));
    disk.fill();
    while (write_and_wait(*store, make_call(++id))) ASSERT_LT(id, 10'000u);

    EXPECT_EQ(store->problem(),
              path_ + ": write: database or disk is full; free space on its file system");
    EXPECT_EQ(*store->find(1), make_call(1));  // what is there can be read
    expect_recovers(*store, id, [&] { disk.free(); });
  }

  Ids expected(id - 1);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_TRUE(find_missing(read_ids(*open()), expected).empty());
}

TEST_F(DiskFailureTest, RunsWithoutAStoreWhereThereIsNoRoomToBeginOne) {
  SmallDisk disk(folder_ + "/disk");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs: " << disk.error();
  path_ = options_.path = folder_ + "/disk/slow_calls.db";
  write_file(path_, "");
  disk.fill();

  const auto store = start();

  EXPECT_THAT(store->problem(), AllOf(StartsWith(path_ + ": open: "), HasSubstr("full; free space"),
                                      HasSubstr("start gpuperfd again")));
  EXPECT_FALSE(write_and_wait(*store, make_call(1)));
}

TEST_F(DiskFailureTest, StoresAgainOnceTheDiskWorksAgain) {
  FailingVfs vfs;
  const auto store = start();
  ASSERT_TRUE(write_and_wait(*store, make_call(1)));
  vfs.fail(1, SQLITE_IOERR_WRITE, true);
  ASSERT_FALSE(write_and_wait(*store, make_call(2)));

  EXPECT_THAT(store->problem(), AllOf(HasSubstr(": write: disk I/O error"),
                                      HasSubstr("; look for errors of its disk")));
  expect_recovers(*store, 2, [&] { vfs.heal(); });
}

TEST_F(DiskFailureTest, BeginsANewFileOnceTheDiskWorksAgain) {
  FailingVfs vfs;
  const auto store = start();
  ASSERT_TRUE(write_and_wait(*store, make_call(1)));
  for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry.path());
  vfs.fail(1, SQLITE_IOERR_WRITE, true);

  ASSERT_FALSE(write_and_wait(*store, make_call(2)));

  EXPECT_TRUE(absl::IsFailedPrecondition(store->query({}).status()));
  vfs.heal();
  clock_.advance(std::chrono::seconds(5));
  EXPECT_TRUE(write_and_wait(*store, make_call(3)));
  EXPECT_EQ(*store->find(3), make_call(3));
  EXPECT_EQ(store->problem(), "");
}

TEST_F(DiskFailureTest, TriesAgainAtMostOncePerInterval) {
  FailingVfs vfs;
  const auto store = start();
  ASSERT_TRUE(write_and_wait(*store, make_call(1)));
  vfs.fail(1, SQLITE_FULL, true);
  int tries = 0;
  const auto post = [&] {
    std::binary_semaphore answered{0};
    EXPECT_TRUE(store->post_write(
        {},
        [&] {
          ++tries;
          return make_call(2);
        },
        [&](bool) { answered.release(); }));
    answered.acquire();
  };

  for (int i = 0; i < 10; ++i) {
    post();
    clock_.advance(std::chrono::milliseconds(1'000));
  }

  EXPECT_EQ(tries, 2);
}

TEST_F(DiskFailureTest, SyncsWithinASecondOfAWrite) {
  FailingVfs vfs;
  const auto store = start();
  ASSERT_TRUE(write_and_wait(*store, make_call(1)));
  ASSERT_TRUE(write_and_wait(*store, make_call(2)));
  const uint64_t before = vfs.log_syncs();

  clock_.advance(SlowCallStore::kSyncInterval);
  ASSERT_TRUE(write_and_wait(*store, make_call(3)));
  ASSERT_TRUE(write_and_wait(*store, make_call(4)));  // the pass of the one before is over

  EXPECT_EQ(vfs.log_syncs(), before + 1);
}

// What one daemon does with a store, again and again.
class DaemonRunTest : public DiskFailureTest {
 protected:
  struct Run {
    Ids acknowledged;
    Ids synced;  // those of them that are on the disk for sure
  };

  // The folder as it was before the first run; without a store where there is to be none.
  void set_back(bool with_store) {
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry.path());
    if (with_store) write_file(path_, file_);
  }

  // A store that is nearly full and has hours to trim.
  void make_store() {
    options_.max_bytes = 1 << 20;
    options_.worst_per_window = 16;
    options_.history = std::chrono::hours(2);
    std::vector<StoredCall> calls;
    for (uint64_t id = 1; id <= 250; ++id) {
      calls.push_back(make_call(id, id));
      calls.back().start_unix_ns -= (id % 5) * kHour;
      calls.back().body = std::string(3000, 'x');
      calls.back().in_flight = id == 250;
      calls.back().stacks = {make_stored_stack(1 + id % 20, 2'000)};
    }
    ASSERT_EQ(open()->write(calls), absl::OkStatus());
    file_ = read_file(path_);
  }

  // The calls are their hour's worst, which nothing here removes.
  Run run_daemon() {
    Run run;
    auto database = SlowCallDatabase::open(options_);
    if (!database.ok()) return run;
    for (uint64_t id = 1'000; id < 1'012; id += 4) {
      std::vector<StoredCall> calls;
      for (uint64_t i = id; i < id + 4; ++i) {
        calls.push_back(make_call(i, 1'000'000 + i));
        calls.back().function = "the worst";
        calls.back().body = std::string(20'000, 'x');
        calls.back().stacks = {make_stored_stack(1 + i % 20, 2'000), make_stored_stack(i, 500)};
      }
      if (!(*database)->write(calls).ok()) continue;
      for (const StoredCall& call : calls) run.acknowledged.push_back(call.id);
      if (id == 1'004 && (*database)->sync().ok()) run.synced = run.acknowledged;
    }
    (void)(*database)->prune(kNow);
    if ((*database)->sync().ok()) run.synced = run.acknowledged;
    (void)(*database)->checkpoint();
    (void)(*database)->query({});
    return run;
  }

  // What holds after any of them, with these calls.
  void expect_sound_store(const Ids& ids) {
    const auto database = open();
    ASSERT_TRUE(find_set_aside().empty());
    ASSERT_TRUE(find_missing(read_ids(*database), ids).empty());
    ASSERT_EQ(database->write({{make_call(5'000, 5'000'000)}}), absl::OkStatus());
    ASSERT_EQ(database->prune(kNow), absl::OkStatus());
    ASSERT_LE(*database->read_used_bytes(), options_.max_bytes);
    ASSERT_NO_FATAL_FAILURE(expect_sound_stacks());
  }

  std::string file_;
};

// One operation on the files after the other fails, alone and with all after it.
class NthFailureTest : public DaemonRunTest,
                       public ::testing::WithParamInterface<std::pair<int, bool>> {};

TEST_P(NthFailureTest, LosesNothingThatWasAcknowledged) {
  make_store();
  const auto [write_code, for_ever] = GetParam();
  FailingVfs vfs;

  const auto step = static_cast<uint64_t>(choose_rounds(4, 1));
  for (const bool is_there : {true, false}) {
    uint64_t nth = static_cast<uint64_t>(write_code) % step;
    do {
      nth += step;
      SCOPED_TRACE("operation " + std::to_string(nth));
      set_back(is_there);
      vfs.fail(nth, write_code, for_ever);
      const Run run = run_daemon();
      vfs.heal();
      ASSERT_NO_FATAL_FAILURE(expect_sound_store(run.acknowledged));
    } while (vfs.has_failed());
    EXPECT_GT(nth, 50u);
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, NthFailureTest,
                         ::testing::Values(std::pair(SQLITE_IOERR_WRITE, false),
                                           std::pair(SQLITE_IOERR_WRITE, true),
                                           std::pair(SQLITE_FULL, false),
                                           std::pair(SQLITE_FULL, true)));

// SQLite's memory is at its end for a moment, or for good.
TEST_F(DaemonRunTest, LosesNothingThatWasAcknowledgedWhenMemoryIsMissing) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  make_store();
  FailingMemory memory;
  uint64_t failed = 0;

  for (int round = 0; round < choose_rounds(200, 20'000); ++round) {
    set_back(true);
    const bool for_ever = random() % 2 == 0;
    const uint64_t nth =
        1 + random() % (round % 2 == 0 ? 500 : 20'000);  // half of them while it opens
    SCOPED_TRACE("allocation " + std::to_string(nth) + (for_ever ? " and all after it" : ""));
    memory.fail(nth, for_ever);
    const Run run = run_daemon();
    failed += memory.has_failed() ? 1 : 0;
    memory.heal();
    ASSERT_NO_FATAL_FAILURE(expect_sound_store(run.acknowledged));
  }
  EXPECT_GT(failed, 50u);
}

// At some operation the power goes.
TEST_F(DaemonRunTest, LosesNothingThatWasSyncedWhenThePowerGoes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  make_store();
  FailingVfs vfs;
  size_t unsynced = 0;

  for (int round = 0; round < choose_rounds(100, 10'000); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    set_back(round % 2 == 0);
    vfs.watch_syncs();
    vfs.fail(1 + random() % 400, SQLITE_IOERR_WRITE, true);
    const Run run = run_daemon();
    vfs.lose_power(random);
    vfs.heal();
    if (run.acknowledged.size() > run.synced.size()) ++unsynced;
    ASSERT_NO_FATAL_FAILURE(expect_sound_store(run.synced));
  }
  EXPECT_GT(unsynced, 0u);
}

}  // namespace
}  // namespace gpuperf::testing
