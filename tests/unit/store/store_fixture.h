#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/store/slow_call_database.h"
#include "daemon/store/slow_call_store.h"
#include "daemon/store/stored_call.h"

namespace gpuperf::testing {

inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kHour = 3600 * kSecond;
// A full hour, in 2024.
inline constexpr uint64_t kNow = 474'000 * kHour;

// Any thread.
class FakeClock final : public Clock {
 public:
  int64_t mono_ns() const override { return mono_ns_; }
  int64_t unix_ns() const override { return static_cast<int64_t>(kNow) + mono_ns_; }
  void advance(std::chrono::nanoseconds by) { mono_ns_ += by.count(); }

 private:
  std::atomic<int64_t> mono_ns_ = 0;
};

// A folder of its own, in memory where there is a file system for that: the tests sync a lot.
class StoreTest : public ::testing::Test {
 protected:
  StoreTest();
  ~StoreTest() override;

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

  std::string folder_;
  std::string path_;
  SlowCallDatabase::Options options_;
  FakeClock clock_;
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

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);

}  // namespace gpuperf::testing
