#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <random>

#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

class KillTest : public StoreTest {
 protected:
  static StoredCall make_numbered_call(uint64_t id) {
    StoredCall call = make_call(id, 1 + id % 100);
    call.function = "f" + std::to_string(id % 10);
    call.in_flight = id % 50 == 0;
    call.body = std::to_string(id) + std::string(id % 3000, 'x');
    // Some that many calls share, and one that few do.
    call.stacks = {make_stored_stack(1 + id % 3, 500), make_stored_stack(10 + id / 4, 1'000)};
    return call;
  }

  // In a child: writes calls from `first_id` on until it is killed, and reports each that is
  // stored.
  [[noreturn]] void write_for_ever(uint64_t first_id, int report_fd) {
    const auto store = start();
    for (uint64_t id = first_id;; ++id) {
      const auto report = [id, report_fd](bool stored) {
        if (stored && write(report_fd, &id, sizeof id) != sizeof id) _exit(1);
      };
      while (!store->post_write(
          {}, [id] { return make_numbered_call(id); }, report)) {
        std::this_thread::yield();
      }
    }
  }

  // Kills the child once it has reported so many; everything it reported.
  Ids write_and_kill(uint64_t first_id, size_t kill_after) {
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0) return {};
    const pid_t child = fork();
    if (child == 0) {
      close(pipe_fds[0]);
      write_for_ever(first_id, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    Ids reported;
    uint64_t id = 0;
    while (read(pipe_fds[0], &id, sizeof id) == sizeof id) {
      reported.push_back(id);
      if (reported.size() == kill_after) (void)kill(child, SIGKILL);  // seen by its status
    }
    close(pipe_fds[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return reported;
  }
};

TEST_F(KillTest, LosesNothingThatItAcknowledged) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Ids acknowledged;

  for (int round = 0; round < choose_rounds(30, 200); ++round) {
    const uint64_t first_id = acknowledged.empty() ? 1 : *open()->read_last_id() + 1;
    // Some at once, some within a batch, some while the log is emptied.
    const size_t kill_after = 1 + random() % (round % 3 == 0 ? 10 : 3'000);
    const Ids reported = write_and_kill(first_id, kill_after);
    acknowledged.insert(acknowledged.end(), reported.begin(), reported.end());

    const auto database = open();

    ASSERT_TRUE(find_set_aside().empty());
    ASSERT_GE(*database->read_last_id(), acknowledged.back());
    for (const uint64_t id : reported) {
      StoredCall expected = make_numbered_call(id);
      expected.unfinished = std::exchange(expected.in_flight, false);
      ASSERT_EQ(*database->find(id), expected);
    }
    ASSERT_NO_FATAL_FAILURE(expect_sound_stacks());
  }
  const auto database = open();
  EXPECT_TRUE(find_missing(read_ids(*database), acknowledged).empty());
}

// With a bound that makes every write evict, so that it is killed while removing too.
TEST_F(KillTest, OpensAndHoldsItsBoundWhenKilledWhileFull) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  options_.max_bytes = 2 << 20;

  for (int round = 0; round < choose_rounds(10, 100); ++round) {
    const uint64_t first_id = *open()->read_last_id() + 1;
    const Ids reported = write_and_kill(first_id, 1'000 + random() % 2'000);

    const auto database = open();

    ASSERT_TRUE(find_set_aside().empty());
    ASSERT_LE(*database->read_used_bytes(), options_.max_bytes);
    ASSERT_GE(*database->read_last_id(), reported.back());
    // The calls in the table and in its indices are the same.
    ASSERT_EQ(database->query({.limit = UINT32_MAX})->size(),
              database->query({.order = StoreQuery::Order::kStart, .limit = UINT32_MAX})->size());
    ASSERT_NO_FATAL_FAILURE(expect_sound_stacks());
  }
}

}  // namespace
}  // namespace gpuperf::testing
