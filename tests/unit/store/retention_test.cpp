#include "daemon/store/retention.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "tests/unit/matchers.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

class RetentionTest : public StoreTest {
 protected:
  RetentionTest() {
    options_.worst_per_window = 2;
    options_.history = std::chrono::hours(2);
    options_.retention = std::chrono::hours(10);
  }

  // Ends `hours_ago` hours and a minute before kNow.
  static StoredCall make_old_call(uint64_t id, uint64_t hours_ago, uint64_t duration_ns) {
    StoredCall call = make_call(id, duration_ns);
    call.start_unix_ns -= hours_ago * kHour;
    return call;
  }
};

TEST_F(RetentionTest, KeepsRecentHistoryWholeAndOfOlderHoursTheWorst) {
  const auto database = open();
  std::vector<StoredCall> calls;
  for (const uint64_t hours_ago : {0, 1, 2, 3}) {
    for (const uint64_t duration_ns : {10, 40, 20, 30}) {
      calls.push_back(make_old_call(calls.size() + 1, hours_ago, duration_ns));
    }
  }
  ASSERT_EQ(database->write(calls), absl::OkStatus());

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  EXPECT_THAT(read_ids(*database), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16));
}

TEST_F(RetentionTest, KeepsTheEarlierOfEquallyLongCalls) {
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 5; ++id) calls.push_back(make_old_call(id, 5, 10));
  ASSERT_EQ(database->write(calls), absl::OkStatus());

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  EXPECT_THAT(read_ids(*database), ElementsAre(1, 2));
}

TEST_F(RetentionTest, KeepsTheWorstOfEachFunctionAndProcessApart) {
  options_.worst_per_window = 1;
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 8; ++id) calls.push_back(make_old_call(id, 5, 10 + id));
  calls[1].function = calls[0].function = "other";
  calls[3].category = calls[2].category = "other";
  calls[5].pid = calls[4].pid = 100;
  calls[7].process_start_boot_ns = calls[6].process_start_boot_ns = 100;
  ASSERT_EQ(database->write(calls), absl::OkStatus());

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  EXPECT_THAT(read_ids(*database), ElementsAre(2, 4, 6, 8));
}

TEST_F(RetentionTest, CountsTheHourOfACallFromItsEnd) {
  options_.worst_per_window = 0;
  const auto database = open();
  // Begun before everything that is kept, and still young.
  const StoredCall returned_now = make_old_call(1, 0, 100 * kHour);
  ASSERT_EQ(database->write({{returned_now, make_old_call(2, 99, 10)}}), absl::OkStatus());

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  EXPECT_THAT(read_ids(*database), ElementsAre(1));
}

TEST_F(RetentionTest, TrimsAnHourAgainAfterALateCall) {
  const auto database = open();
  ASSERT_EQ(database->write({{make_old_call(1, 5, 10), make_old_call(2, 5, 20)}}),
            absl::OkStatus());
  ASSERT_EQ(database->prune(kNow), absl::OkStatus());
  ASSERT_THAT(read_ids(*database), ElementsAre(1, 2));

  ASSERT_EQ(database->write({{make_old_call(3, 5, 15)}}), absl::OkStatus());
  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  EXPECT_THAT(read_ids(*database), ElementsAre(2, 3));
}

TEST_F(RetentionTest, LetsEverythingGoAfterTheRetention) {
  const auto database = open();
  ASSERT_EQ(database->write(
                {{make_old_call(1, 9, 10), make_old_call(2, 10, 20), make_old_call(3, 11, 30)}}),
            absl::OkStatus());

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());
  EXPECT_THAT(read_ids(*database), ElementsAre(1));
  ASSERT_EQ(database->prune(kNow + kHour - 1), absl::OkStatus());
  EXPECT_THAT(read_ids(*database), ElementsAre(1));
  ASSERT_EQ(database->prune(kNow + kHour), absl::OkStatus());
  EXPECT_THAT(read_ids(*database), ElementsAre());
}

TEST_F(RetentionTest, KeepsTheHistoryWhereTheRetentionIsShorter) {
  options_.retention = std::chrono::hours(1);
  options_.history = std::chrono::hours(5);
  const auto database = open();
  ASSERT_EQ(database->write({{make_old_call(1, 4, 10), make_old_call(2, 5, 10)}}),
            absl::OkStatus());

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  EXPECT_THAT(read_ids(*database), ElementsAre(1));
}

TEST_F(RetentionTest, PrunesNothingWhileTheClockIsNotSet) {
  const auto database = open();
  ASSERT_EQ(database->write({{make_call(1)}}), absl::OkStatus());

  ASSERT_EQ(database->prune(0), absl::OkStatus());

  EXPECT_THAT(read_ids(*database), ElementsAre(1));
}

TEST_F(RetentionTest, PrunesMuchInBoundedParts) {
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 10'000; ++id) calls.push_back(make_old_call(id, 5, id));
  ASSERT_EQ(database->write(calls), absl::OkStatus());

  const auto more = database->prune_some(kNow);

  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_TRUE(*more);
  EXPECT_GT(read_ids(*database).size(), 5'000u);
  ASSERT_EQ(database->prune(kNow), absl::OkStatus());
  EXPECT_THAT(read_ids(*database), ElementsAre(9'999, 10'000));
}

TEST_F(RetentionTest, KeepsItsPromisesOnRandomCalls) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto database = open();
  std::map<uint64_t, StoredCall> calls;
  for (uint64_t id = 1; id <= 5'000; ++id) {
    StoredCall call = make_call(id, 1 + random() % 1000);
    call.start_unix_ns = kNow - random() % (14 * kHour);
    call.pid = 1 + random() % 3;
    call.function = random() % 2 == 0 ? "f" : "g";
    calls.emplace(id, call);
    ASSERT_EQ(database->write({{call}}), absl::OkStatus());
    // As on a running daemon: some are pruned in between.
    if (id % 500 == 0) {
      ASSERT_EQ(database->prune(kNow - (5'000 - id) / 500 * kHour), absl::OkStatus());
    }
  }

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  const Ids ids = read_ids(*database);
  const std::set<uint64_t> kept(ids.begin(), ids.end());
  std::map<std::tuple<uint64_t, uint32_t, std::string>, std::vector<StoredCall>> groups;
  for (const auto& [id, call] : calls) {
    const uint64_t hour = (call.start_unix_ns + call.duration_ns) / kHour;
    groups[{hour, call.pid, call.function}].push_back(call);
  }
  for (auto& [key, group] : groups) {
    std::ranges::stable_sort(group, std::greater{}, &StoredCall::duration_ns);
    const uint64_t hour_end = (std::get<0>(key) + 1) * kHour;
    for (size_t rank = 0; rank < group.size(); ++rank) {
      const uint64_t end = group[rank].start_unix_ns + group[rank].duration_ns;
      const bool is_kept = kept.contains(group[rank].id);
      if (end > kNow - 2 * kHour || (rank < 2 && end > kNow - 10 * kHour)) {
        EXPECT_TRUE(is_kept);
      }
      if (hour_end <= kNow - 10 * kHour || (rank >= 2 && hour_end <= kNow - 2 * kHour)) {
        EXPECT_FALSE(is_kept);
      }
    }
  }
}

class SizeBoundTest : public RetentionTest {
 protected:
  SizeBoundTest() { options_.max_bytes = 16 << 20; }

  // Writes in batches and checks the bound after each.
  void write(SlowCallDatabase& database, std::span<const StoredCall> calls) {
    constexpr size_t kBatch = 512;
    while (!calls.empty()) {
      const auto batch = calls.first(std::min(kBatch, calls.size()));
      uint64_t batch_bytes = 1 << 20;
      for (const StoredCall& call : batch) batch_bytes += 2 * call.body.size();
      ASSERT_EQ(database.write(batch), absl::OkStatus());
      ASSERT_THAT(*database.read_used_bytes(), Le(options_.max_bytes));
      ASSERT_THAT(std::filesystem::file_size(path_), Le(options_.max_bytes + batch_bytes));
      ASSERT_THAT(std::filesystem::file_size(path_ + "-wal"), Le((8u << 20) + 2 * batch_bytes));
      calls = calls.subspan(batch.size());
    }
  }
  static StoredCall make_large_call(uint64_t id, uint64_t hours_ago, uint64_t duration_ns) {
    StoredCall call = make_old_call(id, hours_ago, duration_ns);
    call.body = std::string(2000, 'x');
    return call;
  }
};

TEST_F(SizeBoundTest, HoldsInABurstAndKeepsTheWorstAndTheMostRecent) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  options_.worst_per_window = 16;
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 50'000; ++id) {
    calls.push_back(make_large_call(id, 0, 1 + random() % 1'000'000));
    calls.back().pid = 1 + id % 20;
  }

  write(*database, calls);

  Ids expected(2'000);
  std::iota(expected.begin(), expected.end(), 48'001);
  std::ranges::stable_sort(calls, std::greater{}, &StoredCall::duration_ns);
  std::map<uint32_t, int> taken;
  for (const StoredCall& call : calls) {
    if (taken[call.pid]++ < 16) expected.push_back(call.id);
  }
  EXPECT_THAT(find_missing(read_ids(*database), expected), IsEmpty());
  EXPECT_GT(*database->read_used_bytes(), options_.max_bytes * 9 / 10);
}

TEST_F(SizeBoundTest, LetsTheOldestHourGoFirstWhenThereAreOnlyWorst) {
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 6'000; ++id) {  // 12 MB; each is the worst of its process
    calls.push_back(make_large_call(id, id <= 3'000 ? 1 : 0, 1000));
    calls.back().pid = static_cast<uint32_t>(id);
  }
  write(*database, calls);
  ASSERT_EQ(read_ids(*database).size(), 6'000u);

  calls.clear();
  for (uint64_t id = 6'001; id <= 9'000; ++id) {
    calls.push_back(make_large_call(id, 0, 1));
    calls.back().pid = static_cast<uint32_t>(id);
  }
  write(*database, calls);

  Ids expected(6'000);
  std::iota(expected.begin(), expected.end(), 3'001);
  const Ids ids = read_ids(*database);
  EXPECT_THAT(find_missing(ids, expected), IsEmpty());
  EXPECT_LT(ids.size(), 9'000u);
}

TEST_F(SizeBoundTest, TakesSurplusOfThePresentHourBeforeTheWorstOfAnOlderOne) {
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 3'000; ++id) {
    calls.push_back(make_large_call(id, 1, 1000));
    calls.back().pid = static_cast<uint32_t>(id);
  }
  for (uint64_t id = 3'001; id <= 20'000; ++id) calls.push_back(make_large_call(id, 0, id));

  write(*database, calls);

  Ids expected(3'000);
  std::iota(expected.begin(), expected.end(), 1);
  expected.insert(expected.end(), {19'999, 20'000});
  EXPECT_THAT(find_missing(read_ids(*database), expected), IsEmpty());
}

TEST_F(SizeBoundTest, TakesFromTheProcessesThatHaveMostFirst) {
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 20'000; ++id) {
    calls.push_back(make_large_call(id, 0, 1));
    calls.back().pid = id <= 500 ? 1 : 2 + id % 2;
  }

  write(*database, calls);

  Ids expected(500);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_THAT(find_missing(read_ids(*database), expected), IsEmpty());
}

TEST_F(SizeBoundTest, HoldsForBodiesOfAnySize) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  options_.max_bytes = 2 << 20;
  const auto database = open();

  for (uint64_t id = 1; id <= 600; ++id) {
    StoredCall call = make_call(id, 1 + random() % 1000);
    call.pid = 1 + random() % 500;
    call.body = std::string(random() % (uint64_t{1} << (random() % 21)), 'x');
    ASSERT_NO_FATAL_FAILURE(write(*database, {{call}}));
  }
  // One call alone fills half the store.
  EXPECT_EQ(*database->read_last_id(), 600u);
}

TEST_F(SizeBoundTest, TakesABatchThatIsLargerThanTheStore) {
  options_.max_bytes = 1 << 20;
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 1'000; ++id) calls.push_back(make_large_call(id, 0, id));

  ASSERT_EQ(database->write(calls), absl::OkStatus());

  EXPECT_THAT(*database->read_used_bytes(), Le(options_.max_bytes));
  EXPECT_THAT(find_missing(read_ids(*database), {999, 1'000}), IsEmpty());
}

TEST_F(SizeBoundTest, ShrinksTheFileWhenTheBoundWasLowered) {
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 6'000; ++id) calls.push_back(make_large_call(id, 0, id));
  auto database = open();
  write(*database, calls);
  database.reset();
  ASSERT_GT(std::filesystem::file_size(path_), 12u << 20);
  options_.max_bytes = 2 << 20;

  database = open();
  ASSERT_EQ(database->prune(kNow), absl::OkStatus());
  ASSERT_EQ(database->checkpoint(), absl::OkStatus());

  EXPECT_THAT(*database->read_used_bytes(), Le(options_.max_bytes));
  EXPECT_THAT(std::filesystem::file_size(path_), Le(options_.max_bytes));
  EXPECT_THAT(find_missing(read_ids(*database), {5'999, 6'000}), IsEmpty());
}

TEST_F(SizeBoundTest, KeepsNoNamesOfFunctionsThatHaveNoCalls) {
  options_.max_bytes = 1 << 20;
  const auto database = open();

  for (uint64_t id = 1; id <= 2'000; ++id) {  // 2.5 KB each, all in the name and its index
    StoredCall call = make_call(id);
    call.function = std::to_string(id) + std::string(1000, 'f');
    ASSERT_NO_FATAL_FAILURE(write(*database, {{call}}));
  }

  EXPECT_GT(read_ids(*database).size(), 100u);
}

}  // namespace
}  // namespace gpuperf::testing
