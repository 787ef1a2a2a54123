#include "daemon/store/call_query.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "daemon/base/wildcard.h"
#include "tests/unit/matchers.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {
namespace {

class CallQueryTest : public StoreTest {
 protected:
  Ids query(const StoreQuery& query) {
    const auto calls = database_->query(query);
    EXPECT_TRUE(calls.ok()) << calls.status();
    return calls.ok() ? get_ids(*calls) : Ids();
  }
  // Call 1 is as `change` makes it, call 2 as usual.
  template <typename Change>
  void write_changed(Change change) {
    StoredCall changed = make_call(1);
    change(changed);
    ASSERT_EQ(database_->write({{changed, make_call(2)}}), absl::OkStatus());
  }

  const std::unique_ptr<SlowCallDatabase> database_ = open();
};

TEST_F(CallQueryTest, OrdersByDurationOrStartAndEqualOnesByIdAllDescending) {
  StoredCall calls[] = {make_call(1, 50), make_call(2, 70), make_call(3, 50), make_call(4, 60)};
  const uint64_t starts[] = {9, 2, 7, 7};
  for (size_t i = 0; i < std::size(calls); ++i) calls[i].start_unix_ns = starts[i];
  ASSERT_EQ(database_->write(calls), absl::OkStatus());

  EXPECT_THAT(query({.order = StoreQuery::Order::kDuration}), ElementsAre(2, 4, 3, 1));
  EXPECT_THAT(query({.order = StoreQuery::Order::kStart}), ElementsAre(1, 4, 3, 2));
  EXPECT_THAT(query({.order = StoreQuery::Order::kStart, .limit = 2}), ElementsAre(1, 4));
  EXPECT_THAT(query({.limit = 0}), IsEmpty());
}

TEST_F(CallQueryTest, FiltersByProcess) {
  write_changed([](StoredCall& call) { call.pid = 8; });

  EXPECT_THAT(query({.pid = 8}), ElementsAre(1));
  EXPECT_THAT(query({.pid = 7}), ElementsAre(2));
  EXPECT_THAT(query({.pid = 9}), IsEmpty());
}

TEST_F(CallQueryTest, FiltersByTheStartOfTheProcess) {
  write_changed([](StoredCall& call) { call.process_start_boot_ns = 0; });

  EXPECT_THAT(query({.process_start_boot_ns = 0}), ElementsAre(1));
  EXPECT_THAT(query({.pid = 7, .process_start_boot_ns = 70}), ElementsAre(2));
  EXPECT_THAT(query({.process_start_boot_ns = UINT64_MAX}), IsEmpty());
}

TEST_F(CallQueryTest, FiltersByTheBeginningOfTheContainer) {
  write_changed([](StoredCall& call) { call.container = "0123aa%_*[?"; });

  EXPECT_THAT(query({.container = "0123a"}), ElementsAre(1));
  EXPECT_THAT(query({.container = "0123aa%_*[?"}), ElementsAre(1));
  EXPECT_THAT(query({.container = "0123"}), ElementsAre(2, 1));
  EXPECT_THAT(query({.container = "0123456789abc"}), IsEmpty());
  EXPECT_THAT(query({.container = "0123*"}), IsEmpty());
  EXPECT_THAT(query({.container = "0_23"}), IsEmpty());
}

TEST_F(CallQueryTest, FiltersByPodAndCategoryExactly) {
  write_changed([](StoredCall& call) {
    call.pod = "train-1";
    call.category = "launch";
  });

  EXPECT_THAT(query({.pod = "train-1"}), ElementsAre(1));
  EXPECT_THAT(query({.category = "launch"}), ElementsAre(1));
  EXPECT_THAT(query({.pod = "train-"}), IsEmpty());
  EXPECT_THAT(query({.category = "LAUNCH"}), IsEmpty());
  EXPECT_THAT(query({.pod = "train-1", .category = "memory"}), IsEmpty());
}

TEST_F(CallQueryTest, FiltersByFunctionWithWildcardsForAnyRunOfCharacters) {
  write_changed([](StoredCall& call) { call.function = "op<a[0], b?>::_%'\"\\run"; });

  EXPECT_THAT(query({.function = "cudaMalloc"}), ElementsAre(2));
  EXPECT_THAT(query({.function = "cudamalloc"}), IsEmpty());
  EXPECT_THAT(query({.function = "cuda"}), IsEmpty());
  EXPECT_THAT(query({.function = "cuda*"}), ElementsAre(2));
  EXPECT_THAT(query({.function = "*"}), ElementsAre(2, 1));
  EXPECT_THAT(query({.function = "op<a[0], b?>::_%'\"\\run"}), ElementsAre(1));
  EXPECT_THAT(query({.function = "op<a[0], b?>::_%'\"\\run*"}), ElementsAre(1));
  EXPECT_THAT(query({.function = "*[0]*?>*"}), ElementsAre(1));
  // Nothing but `*` stands for anything but itself.
  EXPECT_THAT(query({.function = "cudaMallo?*"}), IsEmpty());
  EXPECT_THAT(query({.function = "[c]udaMalloc*"}), IsEmpty());
  EXPECT_THAT(query({.function = "cuda%*"}), IsEmpty());
  EXPECT_THAT(query({.function = "cuda_alloc*"}), IsEmpty());
}

TEST_F(CallQueryTest, FiltersByStartDurationAndLargestId) {
  StoredCall calls[] = {make_call(1, 10), make_call(2, 20), make_call(3, 30)};
  for (StoredCall& call : calls) call.start_unix_ns = 100 + call.id;
  ASSERT_EQ(database_->write(calls), absl::OkStatus());

  EXPECT_THAT(query({.since_unix_ns = 102}), ElementsAre(3, 2));
  EXPECT_THAT(query({.min_duration_ns = 20}), ElementsAre(3, 2));
  EXPECT_THAT(query({.min_duration_ns = 20, .order = StoreQuery::Order::kStart}),
              ElementsAre(3, 2));
  EXPECT_THAT(query({.max_id = 2}), ElementsAre(2, 1));
  EXPECT_THAT(query({.since_unix_ns = UINT64_MAX}), IsEmpty());
  EXPECT_THAT(query({.min_duration_ns = UINT64_MAX}), IsEmpty());
}

TEST_F(CallQueryTest, PagesOverEveryCallOnceWhileOthersArrive) {
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 100; ++id) {
    calls.push_back(make_call(id, id % 7));
    calls.back().start_unix_ns = 1000 + id % 5;
  }
  ASSERT_EQ(database_->write(calls), absl::OkStatus());
  uint64_t next_id = 101;

  for (const auto order : {StoreQuery::Order::kDuration, StoreQuery::Order::kStart}) {
    StoreQuery page{.max_id = 100, .order = order, .limit = 7};
    Ids seen;
    for (int pages = 0;; ++pages) {
      const auto rows = database_->query(page);
      ASSERT_TRUE(rows.ok()) << rows.status();
      if (rows->empty()) break;
      ASSERT_LT(pages, 15);
      for (const StoredCall& row : *rows) seen.push_back(row.id);
      const StoredCall& last = rows->back();
      page.after = {
          .value = order == StoreQuery::Order::kDuration ? last.duration_ns : last.start_unix_ns,
          .id = last.id};
      StoredCall arrived = make_call(next_id, next_id % 7);
      arrived.start_unix_ns = 1000 + next_id % 5;
      ++next_id;
      ASSERT_EQ(database_->write({{arrived}}), absl::OkStatus());
    }
    std::ranges::sort(seen);
    EXPECT_EQ(seen, get_ids(calls));
  }
}

// What a query means, on calls in memory.
std::vector<StoredCall> select(std::vector<StoredCall> calls, const StoreQuery& query) {
  const bool by_duration = query.order == StoreQuery::Order::kDuration;
  const auto place = [by_duration](const StoredCall& call) {
    return std::pair(by_duration ? call.duration_ns : call.start_unix_ns, call.id);
  };
  std::erase_if(calls, [&](const StoredCall& call) {
    return (query.pid != 0 && call.pid != query.pid) ||
           (query.process_start_boot_ns &&
            call.process_start_boot_ns != *query.process_start_boot_ns) ||
           !call.container.starts_with(query.container) ||
           (!query.pod.empty() && call.pod != query.pod) ||
           (!query.category.empty() && call.category != query.category) ||
           (!query.function.empty() && !matches_wildcard(query.function, call.function)) ||
           call.start_unix_ns < query.since_unix_ns || call.duration_ns < query.min_duration_ns ||
           call.id > query.max_id ||
           (query.after && place(call) >= std::pair(query.after->value, query.after->id));
  });
  std::ranges::sort(calls, std::greater{}, place);
  if (calls.size() > query.limit) calls.resize(query.limit);
  return calls;
}

// 60,000 calls: more than are looked up by a condition, so every way to the answer is taken.
TEST_F(CallQueryTest, AgreesWithLookingAtEveryCallOnRandomQueries) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto one_of = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  std::vector<StoredCall> calls;
  for (uint64_t id = 1; id <= 60'000; ++id) {
    const uint32_t pid = 1 + one_of(one_of(3) == 0 ? 2 : 50);
    calls.push_back({.id = id,
                     .start_unix_ns = 1 + one_of(100'000),
                     .duration_ns = 1 + one_of(5'000),
                     .category = one_of(2) == 0 ? "a" : "b",
                     .function = "f" + std::to_string(one_of(20)),
                     .pid = pid,
                     .process_start_boot_ns = pid % 3,
                     .container = "c" + std::to_string(pid % 11),
                     .pod = "p" + std::to_string(pid % 4)});
  }
  for (size_t i = 0; i < calls.size(); i += 10'000) {
    ASSERT_EQ(database_->write(std::span(calls).subspan(i, 10'000)), absl::OkStatus());
  }

  for (int round = 0; round < choose_rounds(40, 5000); ++round) {
    StoreQuery query{.limit = one_of(200)};
    if (one_of(2) == 0) query.order = StoreQuery::Order::kStart;
    if (one_of(4) == 0) query.pid = 1 + one_of(52);
    if (one_of(8) == 0) query.process_start_boot_ns = one_of(3);
    if (one_of(8) == 0) query.container = one_of(2) == 0 ? "c" : "c1";
    if (one_of(8) == 0) query.pod = "p" + std::to_string(one_of(5));
    if (one_of(8) == 0) query.category = "a";
    if (one_of(4) == 0) query.function = one_of(2) == 0 ? "f7" : "*1*";
    if (one_of(4) == 0) query.since_unix_ns = one_of(2) == 0 ? 99'000 : 50'000;
    if (one_of(4) == 0) query.min_duration_ns = one_of(2) == 0 ? 4'990 : 2'000;
    if (one_of(4) == 0) query.max_id = one_of(60'000);
    if (one_of(3) == 0) query.after = {.value = one_of(6'000), .id = one_of(60'000)};

    const auto found = database_->query(query);

    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(*found, select(calls, query)) << "round " << round;
  }
}

}  // namespace
}  // namespace gpuperf::testing
