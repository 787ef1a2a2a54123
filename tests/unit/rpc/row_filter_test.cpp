#include "daemon/rpc/row_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuperf {
namespace {

TEST(RowFilterTest, EmptyFilterMatchesEverything) {
  const RowFilter filter{v1::Filter()};

  EXPECT_TRUE(filter.matches(ProcessKey{.pid = 7}));
  EXPECT_TRUE(filter.matches(Owner{.container = "0123456789ab", .pod = "p"}));
  EXPECT_TRUE(filter.matches_function("cuda", "cudaMalloc"));
  EXPECT_TRUE(filter.matches(SlowCall()));
}

TEST(RowFilterTest, APidStandsForTheNewestProcessThatHadIt) {
  Snapshot snapshot;
  constexpr uint64_t kFirst = 1'000'000'000, kSecond = 3'000'000'000;
  for (const uint64_t start : {kFirst, kSecond})
    snapshot.processes.push_back({.process = {7, start}});
  snapshot.processes.push_back({.process = {8, 500}});
  v1::Filter wanted;
  wanted.set_pid(7);

  const RowFilter filter(wanted, snapshot);

  EXPECT_FALSE(filter.matches(ProcessKey{7, kFirst}));
  EXPECT_TRUE(filter.matches(ProcessKey{7, kSecond}));
  EXPECT_FALSE(filter.matches(ProcessKey{8, 500}));
  EXPECT_TRUE(RowFilter(v1::Filter(), snapshot).matches(ProcessKey{7, kFirst}));
}

TEST(RowFilterTest, AProbedProcessAndItsSessionAreOneThoughTheirStartsDifferWithinATick) {
  Snapshot snapshot;
  snapshot.processes.push_back({.process = {7, 1'234'567'890}});
  v1::Filter wanted;
  wanted.set_pid(7);

  EXPECT_TRUE(RowFilter(wanted, snapshot).matches(ProcessKey{7, 1'230'000'000}));
  EXPECT_FALSE(RowFilter(wanted, snapshot).matches(ProcessKey{7, 1'240'000'000}));
}

TEST(RowFilterTest, EverySetFieldMustMatch) {
  SlowCall call{.category = "cuda", .function = "cudaMalloc", .start_unix_ns = 1'000};
  call.event.process.pid = 7;
  call.event.owner = {.container = "0123456789ab", .pod = "train-0"};
  call.event.duration_ns = 50;
  v1::Filter matching;
  matching.set_pid(7);
  matching.set_container("0123");
  matching.set_pod("train-0");
  matching.set_category("cuda");
  matching.set_function("*Malloc");
  matching.set_since_unix_ns(1'000);
  matching.set_min_duration_ns(50);
  const auto matches_with = [&](auto change) {
    v1::Filter filter = matching;
    change(filter);
    return RowFilter(filter).matches(call);
  };

  EXPECT_TRUE(matches_with([](v1::Filter&) {}));
  EXPECT_FALSE(matches_with([](v1::Filter& f) { f.set_pid(8); }));
  EXPECT_FALSE(matches_with([](v1::Filter& f) { f.set_container("123"); }));
  EXPECT_FALSE(matches_with([](v1::Filter& f) { f.set_pod("train"); }));
  EXPECT_FALSE(matches_with([](v1::Filter& f) { f.set_category("cud"); }));
  EXPECT_FALSE(matches_with([](v1::Filter& f) { f.set_function("cudaFree"); }));
  EXPECT_FALSE(matches_with([](v1::Filter& f) { f.set_since_unix_ns(1'001); }));
  EXPECT_FALSE(matches_with([](v1::Filter& f) { f.set_min_duration_ns(51); }));
}

}  // namespace
}  // namespace gpuperf
