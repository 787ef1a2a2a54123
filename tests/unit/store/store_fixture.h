#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/store/slow_call_database.h"
#include "daemon/store/slow_call_store.h"
#include "daemon/store/stored_call.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/files.h"

namespace gpuperf::testing {

inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kHour = 3600 * kSecond;
// A full hour, in 2024.
inline constexpr uint64_t kNow = 474'000 * kHour;

// A folder of its own, in memory where there is a file system for that: the tests sync a lot.
class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { options_.path = path_; }

  // Fails the test, and throws, where it cannot be opened.
  std::unique_ptr<SlowCallDatabase> open();
  std::unique_ptr<SlowCallStore> start() {
    return SlowCallStore::start({.database = options_}, clock_);
  }
  // Names of the files that were moved aside, oldest first; their logs are not among them.
  std::vector<std::string> find_set_aside() const;
  // The first number of the answer, on a connection of its own.
  int64_t read_number(const std::string& sql) const;
  // On a connection of its own, as another program would.
  void execute(const std::string& sql) const;
  // Every stack is named by a call, and every link leads from a call to a stack.
  void expect_sound_stacks() const;

  const TempFolder temp_folder_{access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"};
  const std::string folder_ = temp_folder_.path();
  std::string path_ = folder_ + "/slow_calls.db";
  SlowCallDatabase::Options options_;
  FakeClock clock_{0, static_cast<int64_t>(kNow)};
};

// Ends at kNow at the latest; its body tells the id.
StoredCall make_call(uint64_t id, uint64_t duration_ns = 1000);

// Of so many bytes, which tell the id.
StoredStack make_stored_stack(uint64_t id, size_t bytes = 20);

using Ids = std::vector<uint64_t>;
Ids get_ids(const std::vector<StoredCall>& calls);
// Of every call, ascending.
Ids read_ids(SlowCallDatabase& database);

// Those of `expected` that `ids` (ascending) lack.
Ids find_missing(const Ids& ids, const Ids& expected);

// Posts and waits for the answer; false also where the queue is full.
bool write_and_wait(SlowCallStore& store, const StoredCall& call);

// GPUPERF_LONG_TESTS: `rounds` of a random test, or `long_rounds` where that is set.
int choose_rounds(int rounds, int long_rounds);

void write_file(const std::string& path, const std::string& bytes);

}  // namespace gpuperf::testing
