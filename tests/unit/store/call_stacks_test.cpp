#include "daemon/store/call_stacks.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "tests/unit/matchers.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

using ::testing::Lt;

class CallStacksTest : public StoreTest {
 protected:
  static std::vector<StoredStack> make_stacks(const Ids& ids) {
    std::vector<StoredStack> stacks;
    for (const uint64_t id : ids) stacks.push_back(make_stored_stack(id));
    return stacks;
  }
  static StoredCall make_stack_call(uint64_t id, const Ids& stacks, uint64_t hours_ago = 0) {
    StoredCall call = make_call(id);
    call.start_unix_ns -= hours_ago * kHour;
    call.stacks = make_stacks(stacks);
    return call;
  }
  // Ascending.
  Ids read_stack_ids() const {
    Ids ids;
    uint64_t last = 0;
    while (true) {
      const int64_t next =
          read_number("SELECT coalesce(min(id), 0) FROM stacks WHERE id > " + std::to_string(last));
      if (next == 0) return ids;
      last = static_cast<uint64_t>(next);
      ids.push_back(last);
    }
  }
  int64_t count_links() const { return read_number("SELECT count(*) FROM call_stacks"); }
};

TEST_F(CallStacksTest, KeepsEqualStacksOnce) {
  const StoredCall first = make_stack_call(1, {10, 20});
  const StoredCall second = make_stack_call(2, {10});
  const StoredCall third = make_stack_call(3, {10, 20, 30});
  auto database = open();

  ASSERT_EQ(database->write({{first, second}}), absl::OkStatus());
  ASSERT_EQ(database->write({{third, make_call(4)}}), absl::OkStatus());

  EXPECT_EQ(read_stack_ids(), (Ids{10, 20, 30}));
  EXPECT_EQ(count_links(), 6);
  EXPECT_EQ(*database->find(1), first);
  EXPECT_EQ(*database->find(4), make_call(4));
  database.reset();
  EXPECT_EQ(*open()->query({.order = StoreQuery::Order::kStart}),
            (std::vector<StoredCall>{make_call(4), third, second, first}));
}

TEST_F(CallStacksTest, KeepsAStackAsItWasFirstSeen) {
  StoredCall other = make_stack_call(2, {10});
  other.stacks[0].body = "another";
  const auto database = open();

  ASSERT_EQ(database->write({{make_stack_call(1, {10}), other}}), absl::OkStatus());

  EXPECT_EQ((*database->find(2))->stacks, make_stacks({10}));
}

TEST_F(CallStacksTest, ReplacesThoseOfACallThatReturned) {
  StoredCall begun = make_stack_call(1, {10, 20, 30});
  begun.in_flight = true;
  const StoredCall returned = make_stack_call(1, {20, 40});
  const StoredCall other = make_stack_call(2, {30});
  const auto database = open();
  ASSERT_EQ(database->write({{begun, other}}), absl::OkStatus());

  ASSERT_EQ(database->write({{returned}}), absl::OkStatus());

  EXPECT_EQ(*database->find(1), returned);
  EXPECT_EQ(*database->find(2), other);
  EXPECT_EQ(read_stack_ids(), (Ids{20, 30, 40}));
  EXPECT_EQ(count_links(), 3);
}

TEST_F(CallStacksTest, ReplacesThemWithinOneWriteToo) {
  StoredCall begun = make_stack_call(1, {10, 20});
  begun.in_flight = true;
  const StoredCall returned = make_stack_call(1, {20});
  const auto database = open();

  ASSERT_EQ(database->write({{begun, returned}}), absl::OkStatus());

  EXPECT_EQ(*database->find(1), returned);
  EXPECT_EQ(read_stack_ids(), (Ids{20}));
}

TEST_F(CallStacksTest, RemovesThoseThatNoCallNamesAnyMoreAndOnlyThose) {
  options_.worst_per_window = 0;
  options_.history = std::chrono::hours(2);
  const auto database = open();
  const StoredCall young = make_stack_call(3, {20, 40});
  ASSERT_EQ(
      database->write({{make_stack_call(1, {10, 20}, 5), make_stack_call(2, {10, 30}, 5), young}}),
      absl::OkStatus());

  ASSERT_EQ(database->prune(kNow), absl::OkStatus());

  EXPECT_EQ(*database->query({}), (std::vector<StoredCall>{young}));
  EXPECT_EQ(read_stack_ids(), (Ids{20, 40}));
  EXPECT_EQ(count_links(), 2);
  ASSERT_EQ(database->prune(kNow + 1000 * kHour), absl::OkStatus());
  EXPECT_EQ(read_stack_ids(), Ids());
  EXPECT_EQ(count_links(), 0);
}

TEST_F(CallStacksTest, LeavesNothingOfAWriteThatFails) {
  const auto database = open();
  ASSERT_EQ(database->write({{make_stack_call(1, {10})}}), absl::OkStatus());
  execute(
      "CREATE TRIGGER fails BEFORE INSERT ON calls WHEN NEW.id = 3 "
      "BEGIN SELECT raise(ABORT, 'no'); END");

  EXPECT_FALSE(database->write({{make_stack_call(1, {20}), make_stack_call(3, {30})}}).ok());

  EXPECT_EQ(*database->find(1), make_stack_call(1, {10}));
  EXPECT_EQ(read_stack_ids(), (Ids{10}));
}

TEST_F(CallStacksTest, CountTowardsTheBound) {
  options_.max_bytes = 1 << 20;
  const auto database = open();

  for (uint64_t id = 1; id <= 300; ++id) {  // 20 KB each, nearly all in a stack
    StoredCall call = make_call(id);
    call.stacks = {make_stored_stack(7, 3'000), make_stored_stack(1'000 + id, 20'000)};
    ASSERT_EQ(database->write({{call}}), absl::OkStatus());
    ASSERT_THAT(*database->read_used_bytes(), Le(options_.max_bytes));
  }

  expect_sound_stacks();
  EXPECT_GT(read_ids(*database).size(), 20u);
  EXPECT_EQ((*database->find(300))->stacks.size(), 2u);
}

TEST_F(CallStacksTest, AreThoseOfTheCallsAfterRandomWrites) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  options_.max_bytes = 1 << 20;
  options_.worst_per_window = 3;
  options_.history = std::chrono::hours(2);
  auto database = open();
  std::map<uint64_t, StoredCall> newest;

  for (int round = 0; round < choose_rounds(300, 5'000); ++round) {
    std::vector<StoredCall> calls;
    for (int i = 0; i < 20; ++i) {
      std::set<uint64_t> stacks;
      for (uint64_t count = random() % 5; count > 0; --count) stacks.insert(1 + random() % 100);
      StoredCall call = make_call(1 + random() % 2'000, 1 + random() % 1'000);
      call.start_unix_ns -= random() % (5 * kHour);
      call.body = std::string(random() % 2'000, 'x');
      for (const uint64_t id : stacks) call.stacks.push_back(make_stored_stack(id, 500 + 5 * id));
      newest[call.id] = call;
      calls.push_back(std::move(call));
    }
    ASSERT_EQ(database->write(calls), absl::OkStatus());
    if (round % 20 == 19) {
      ASSERT_EQ(database->prune(kNow), absl::OkStatus());
    }
  }

  const auto kept = database->query({.limit = UINT32_MAX});
  ASSERT_TRUE(kept.ok()) << kept.status();
  std::set<uint64_t> named;
  for (const StoredCall& call : *kept) {
    ASSERT_EQ(call, newest[call.id]);
    for (const StoredStack& stack : call.stacks) named.insert(stack.id);
  }
  EXPECT_GT(kept->size(), 100u);
  EXPECT_EQ(read_stack_ids(), Ids(named.begin(), named.end()));
  expect_sound_stacks();
}

TEST_F(CallStacksTest, OfManyCallsTakeLittleRoom) {
  constexpr uint64_t kStacks = 50;
  const auto database = open();
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 10'000; ++id) {
    StoredCall call = make_call(id);
    call.body = std::string(300, 'x');
    call.stacks = {make_stored_stack(1'000'000'000 * (1 + id % kStacks), 4'500)};
    calls.push_back(std::move(call));
  }

  ASSERT_EQ(database->write(calls), absl::OkStatus());

  EXPECT_THAT(*database->read_used_bytes(), Lt(10'000u * 700));  // 45 MB of stacks
}

class DamagedStacksTest : public CallStacksTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(open()->write({{make_stack_call(1, {10, 20}), make_stack_call(2, {10})}}),
              absl::OkStatus());
  }
};

TEST_F(DamagedStacksTest, AreLeftOutWhereTheyAreMissing) {
  execute("DELETE FROM stacks WHERE id = 10");

  const auto database = open();

  EXPECT_EQ(*database->query({.order = StoreQuery::Order::kStart}),
            (std::vector<StoredCall>{make_stack_call(2, {}), make_stack_call(1, {20})}));
  EXPECT_EQ(*database->find(2), make_stack_call(2, {}));
  // The next call that has it brings it back.
  ASSERT_EQ(database->write({{make_stack_call(3, {10})}}), absl::OkStatus());
  EXPECT_EQ(*database->find(2), make_stack_call(2, {10}));
}

TEST_F(DamagedStacksTest, AreLeftOutWhereTheirLinkIsMissing) {
  execute("DELETE FROM call_stacks WHERE call_id = 1");

  const auto database = open();

  EXPECT_EQ(*database->find(1), make_stack_call(1, {}));
  EXPECT_EQ(*database->find(2), make_stack_call(2, {10}));
  ASSERT_EQ(database->prune(kNow + 1000 * kHour), absl::OkStatus());
  EXPECT_EQ(read_ids(*database), Ids());
}

TEST_F(DamagedStacksTest, OfCallsThatDoNotExistAreInNobodysWay) {
  execute("INSERT INTO call_stacks VALUES(3, 20), (4, 99)");
  const StoredCall third = make_stack_call(3, {20, 30});

  const auto database = open();

  EXPECT_EQ(*database->find(4), std::nullopt);
  ASSERT_EQ(database->write({{third}}), absl::OkStatus());
  EXPECT_EQ(*database->find(3), third);
  ASSERT_EQ(database->prune(kNow + 1000 * kHour), absl::OkStatus());
  EXPECT_EQ(read_ids(*database), Ids());
  EXPECT_EQ(read_stack_ids(), Ids());
}

TEST_F(DamagedStacksTest, CostTheFileWhereTheyFillItWithoutACall) {
  options_.max_bytes = 1 << 20;
  execute("INSERT INTO stacks VALUES(99, zeroblob(2000000))");
  const auto store = start();

  EXPECT_TRUE(write_and_wait(*store, make_stack_call(5, {10})));

  EXPECT_EQ(find_set_aside().size(), 1u);
  EXPECT_EQ(*store->find(5), make_stack_call(5, {10}));
  EXPECT_EQ(*store->find(1), std::nullopt);
  EXPECT_EQ(store->problem(), "");
}

// As if the file were too large to be checked when it is opened.
TEST_F(DamagedStacksTest, CostTheFileWhereTheIndexLacksALink) {
  options_.check_max_bytes = 0;
  const auto page = static_cast<size_t>(
      read_number("SELECT rootpage FROM sqlite_schema WHERE name = 'call_stacks_by_stack'"));
  std::string damaged = read_file(path_);
  // The number of the page's cells: as if the index were empty.
  damaged.replace((page - 1) * 8192 + 3, 2, std::string(2, '\0'));
  write_file(path_, damaged);
  const auto store = start();

  EXPECT_TRUE(write_and_wait(*store, make_stack_call(1, {10})));

  EXPECT_EQ(find_set_aside().size(), 1u);
  EXPECT_EQ(*store->find(1), make_stack_call(1, {10}));
}

}  // namespace
}  // namespace gpuperf::testing
