#include "daemon/store/slow_call_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <semaphore>
#include <thread>

#include "tests/unit/matchers.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

namespace fs = std::filesystem;

// Stops the store thread in a `make` until it is told to go on.
class Gate {
 public:
  bool post(SlowCallStore& store, const StoredCall& call) {
    return store.post_write(
        {},
        [this, call] {
          entered_.release();
          open_.acquire();
          return call;
        },
        [](bool) {});
  }
  void wait_until_entered() { entered_.acquire(); }
  void open() { open_.release(); }

 private:
  std::binary_semaphore entered_{0};
  std::binary_semaphore open_{0};
};

using SlowCallStoreTest = StoreTest;

TEST_F(SlowCallStoreTest, FindsWhatItHasAnsweredAsStored) {
  const auto store = start();

  ASSERT_TRUE(write_and_wait(*store, make_call(3)));

  EXPECT_EQ(*store->find(3), make_call(3));
  EXPECT_EQ(*store->query({.pid = 7}), std::vector<StoredCall>{make_call(3)});
  EXPECT_EQ(*store->find(4), std::nullopt);
  EXPECT_EQ(store->problem(), "");
}

TEST_F(SlowCallStoreTest, TellsTheLastIdOfTheRunBefore) {
  {
    const auto store = start();
    EXPECT_EQ(store->last_id(), 0u);
    ASSERT_TRUE(write_and_wait(*store, make_call(12)));
    EXPECT_EQ(store->last_id(), 0u);
  }

  EXPECT_EQ(start()->last_id(), 12u);
}

TEST_F(SlowCallStoreTest, TellsWhatItUses) {
  const auto store = start();
  ASSERT_TRUE(write_and_wait(*store, make_call(1)));
  const uint64_t before = store->used_bytes();
  StoredCall large = make_call(2);
  large.body = std::string(1'000'000, 'x');

  ASSERT_TRUE(write_and_wait(*store, large));

  EXPECT_GT(before, 0u);
  EXPECT_GT(store->used_bytes(), before + 900'000);
}

TEST_F(SlowCallStoreTest, AnswersInTheOrderOfThePosts) {
  Gate gate;
  Ids made;
  Ids answered;
  {
    const auto store = start();
    ASSERT_TRUE(gate.post(*store, make_call(1)));
    gate.wait_until_entered();
    for (uint64_t id = 2; id <= 2'000; ++id) {
      ASSERT_TRUE(store->post_write(
          {},
          [&made, id] {
            made.push_back(id);
            return make_call(id);
          },
          [&answered, id](bool stored) {
            if (stored) answered.push_back(id);
          }));
    }
    gate.open();
  }

  ASSERT_EQ(answered.size(), 1'999u);
  EXPECT_TRUE(std::ranges::is_sorted(answered));
  EXPECT_EQ(made, answered);
}

TEST_F(SlowCallStoreTest, WritesWhatWaitsWhenItIsDestroyed) {
  Gate gate;
  {
    const auto store = start();
    ASSERT_TRUE(gate.post(*store, make_call(1)));
    gate.wait_until_entered();
    for (uint64_t id = 2; id <= 1'500; ++id) {
      ASSERT_TRUE(store->post_write(
          {}, [id] { return make_call(id); }, [](bool) {}));
    }
    gate.open();
  }

  EXPECT_EQ(read_ids(*open()).size(), 1'500u);
}

TEST_F(SlowCallStoreTest, LeavesNoLogBehindWhenItIsDestroyed) {
  { ASSERT_TRUE(write_and_wait(*start(), make_call(1))); }

  EXPECT_FALSE(fs::exists(path_ + "-wal"));
  EXPECT_FALSE(fs::exists(path_ + "-shm"));
}

TEST_F(SlowCallStoreTest, RefusesWhatItsQueueCannotHold) {
  const auto store = SlowCallStore::start({.database = options_, .queue_calls = 2}, clock_);
  Gate gate;
  ASSERT_TRUE(gate.post(*store, make_call(1)));
  gate.wait_until_entered();
  const auto post = [&store](uint64_t id) {
    return store->post_write(
        {}, [id] { return make_call(id); }, [](bool) {});
  };

  EXPECT_TRUE(post(2));
  EXPECT_TRUE(post(3));
  EXPECT_FALSE(post(4));

  gate.open();
}

TEST_F(SlowCallStoreTest, HasAPlaceForAProcessOfWhichFewCallsWaitWhenItsQueueIsFull) {
  const auto store = SlowCallStore::start({.database = options_, .queue_calls = 32}, clock_);
  Gate gate;
  ASSERT_TRUE(gate.post(*store, make_call(1)));
  gate.wait_until_entered();
  const auto fill = [&store](const ProcessKey& process) {
    size_t count = 0;
    while (store->post_write(
        process, [] { return make_call(2); }, [](bool) {})) {
      ++count;
    }
    return count;
  };

  EXPECT_EQ(fill({.pid = 7}), 32u);
  EXPECT_EQ(fill({.pid = 8}), 2u);

  gate.open();
}

TEST_F(SlowCallStoreTest, RefusesOneCallAndStoresTheOthersOfItsBatch) {
  const auto store = start();
  Gate gate;
  ASSERT_TRUE(gate.post(*store, make_call(1)));
  gate.wait_until_entered();
  std::promise<bool> bad;
  std::promise<bool> good;
  ASSERT_TRUE(store->post_write(
      {}, [] { return make_call(0); }, [&](bool stored) { bad.set_value(stored); }));
  ASSERT_TRUE(store->post_write(
      {}, [] { return make_call(2); }, [&](bool stored) { good.set_value(stored); }));
  gate.open();

  EXPECT_FALSE(bad.get_future().get());
  EXPECT_TRUE(good.get_future().get());
  EXPECT_EQ(store->problem(), "");
}

TEST_F(SlowCallStoreTest, StoresTheLargestBodiesInParts) {
  StoredCall large = make_call(1);
  large.body = std::string(SlowCallDatabase::kMaxBodyBytes, 'x');
  const auto store = start();
  Gate gate;
  ASSERT_TRUE(gate.post(*store, large));
  gate.wait_until_entered();
  std::promise<uint64_t> log_bytes;  // right after the last part
  for (uint64_t id = 2; id <= 40; ++id) {
    large.id = id;
    ASSERT_TRUE(store->post_write(
        {}, [large] { return large; },
        [&log_bytes, id, this](bool) {
          if (id == 40) log_bytes.set_value(fs::file_size(path_ + "-wal"));
        }));
  }
  gate.open();

  EXPECT_LT(log_bytes.get_future().get(), 16u << 20);
  EXPECT_EQ(store->query({})->size(), 40u);
}

TEST_F(SlowCallStoreTest, PrunesAtTheStartAndEveryMinute) {
  options_.worst_per_window = 0;
  options_.history = std::chrono::hours(1);
  StoredCall old = make_call(1);
  old.start_unix_ns -= 5 * kHour;
  ASSERT_EQ(open()->write({{old}}), absl::OkStatus());
  const auto store = start();
  // Each pass of the store thread writes what waits and then prunes if that is due: once the second
  // of two writes is answered, the pass of the first is over.
  const auto run_pass = [&] {
    EXPECT_TRUE(write_and_wait(*store, make_call(2)));
    EXPECT_TRUE(write_and_wait(*store, make_call(3)));
  };

  run_pass();
  EXPECT_EQ(*store->find(1), std::nullopt);
  ASSERT_TRUE(write_and_wait(*store, old));
  run_pass();
  EXPECT_EQ(*store->find(1), old);
  clock_.advance(SlowCallStore::kPruneInterval);
  run_pass();
  EXPECT_EQ(*store->find(1), std::nullopt);
  EXPECT_EQ(*store->find(2), make_call(2));
}

TEST_F(SlowCallStoreTest, BeginsANewFileWhenItsOwnWasRemoved) {
  const auto store = start();
  ASSERT_TRUE(write_and_wait(*store, make_call(1)));
  for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry.path());

  ASSERT_TRUE(write_and_wait(*store, make_call(2)));

  EXPECT_EQ(*store->find(1), std::nullopt);
  EXPECT_EQ(*store->find(2), make_call(2));
  EXPECT_TRUE(fs::exists(path_));
  EXPECT_EQ(store->problem(), "");
}

TEST_F(SlowCallStoreTest, AnswersQueriesWhileItWrites) {
  const auto store = start();
  ASSERT_TRUE(write_and_wait(*store, make_call(1)));
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  readers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto calls = store->query({.function = "cuda*", .max_id = 1});
        EXPECT_TRUE(calls.ok() && calls->size() == 1) << calls.status();
        EXPECT_EQ(store->problem(), "");
      }
    });
  }

  for (uint64_t id = 2; id <= 300; ++id) ASSERT_TRUE(write_and_wait(*store, make_call(id)));

  stop = true;
  for (std::thread& reader : readers) reader.join();
}

class NoStoreTest : public StoreTest {
 protected:
  // What holds without a store, whatever the reason.
  static void expect_runs_without(SlowCallStore& store) {
    bool made = false;
    std::promise<bool> answer;
    EXPECT_TRUE(store.post_write(
        {},
        [&] {
          made = true;
          return make_call(1);
        },
        [&](bool stored) { answer.set_value(stored); }));
    EXPECT_FALSE(answer.get_future().get());
    EXPECT_FALSE(made);
    EXPECT_EQ(store.last_id(), 0u);
    EXPECT_EQ(store.used_bytes(), 0u);
    EXPECT_TRUE(absl::IsFailedPrecondition(store.query({}).status()));
    EXPECT_THAT(std::string(store.find(1).status().message()), HasSubstr(store.problem()));
  }
};

TEST_F(NoStoreTest, SaysWhatIsInTheWayOfItsFolder) {
  write_file(folder_ + "/file", "");
  options_.path = folder_ + "/file/store/slow_calls.db";

  const auto store = start();

  EXPECT_EQ(store->problem(),
            folder_ +
                "/file: make folder: Not a directory; let gpuperfd write "
                "there, or give the store another path, and start gpuperfd again");
  expect_runs_without(*store);
}

// Root may write everywhere, so this is tried as nobody.
TEST_F(NoStoreTest, SaysThatItsFolderMayNotBeWritten) {
  fs::permissions(folder_, fs::perms(0555));
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) _exit(1);
    const auto store = start();
    expect_runs_without(*store);
    const std::string problem = store->problem();
    const bool sent = write(pipe_fds[1], problem.data(), problem.size()) == ssize(problem);
    _exit(sent && !HasFailure() ? 0 : 1);
  }
  close(pipe_fds[1]);
  char text[1000];
  const ssize_t size = read(pipe_fds[0], text, sizeof text);
  close(pipe_fds[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  fs::permissions(folder_, fs::perms(0755));

  EXPECT_EQ(status, 0);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(text, static_cast<size_t>(size)),
            path_ +
                ": make file: Permission denied; let gpuperfd write there, or give the store "
                "another path, and start gpuperfd again");
}

TEST_F(NoStoreTest, LeavesAStoreAloneThatItMayNotOpen) {
  write_file(path_, "");
  fs::remove(path_);
  fs::create_symlink(folder_ + "/elsewhere", path_);

  const auto store = start();

  EXPECT_THAT(store->problem(), AllOf(HasSubstr(path_ + ": open: "), HasSubstr("; let gpuperfd")));
  expect_runs_without(*store);
  EXPECT_FALSE(fs::exists(folder_ + "/elsewhere"));
}

}  // namespace
}  // namespace gpuperf::testing
