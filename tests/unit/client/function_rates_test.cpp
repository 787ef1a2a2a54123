#include "client/function_rates.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

v1::FunctionStats make_row(const std::string& function, uint64_t calls, uint64_t total_ns) {
  v1::FunctionStats row;
  row.set_category("cuda");
  row.set_function(function);
  row.set_calls(calls);
  row.set_total_ns(total_ns);
  row.set_coverage(1);
  return row;
}

FunctionTotalsSample make_sample(uint64_t at_ns, std::vector<v1::FunctionStats> rows) {
  return {.taken_mono_ns = at_ns, .asked_mono_ns = at_ns, .functions = std::move(rows)};
}

std::vector<std::string> list_names(const FunctionRates& rates) {
  std::vector<std::string> names;
  for (const FunctionRate& rate : rates.functions) names.push_back(rate.function);
  return names;
}

TEST(FunctionRatesTest, DividesWhatCameByTheTimeThatPassed) {
  v1::FunctionStats before = make_row("f", 100, kSecond);
  before.set_errors(1);
  before.set_bytes(1'000);
  before.set_abandoned(10);
  before.set_in_flight(2);
  v1::FunctionStats now = make_row("f", 309, 5 * kSecond);
  now.set_errors(5);
  now.set_bytes(9'000);
  now.set_abandoned(11);
  now.set_in_flight(10);
  now.set_oldest_in_flight_ns(7);
  now.set_coverage(0.5);

  const FunctionRates rates =
      compute_rates(make_sample(kSecond, {before}), make_sample(3 * kSecond, {now}));

  ASSERT_EQ(rates.functions.size(), 1u);
  const FunctionRate& rate = rates.functions[0];
  EXPECT_EQ(rates.interval_seconds, 2);
  EXPECT_EQ(rate.category + "/" + rate.function, "cuda/f");
  EXPECT_EQ(rate.time_ratio, 2);
  EXPECT_EQ(rate.calls_per_second, 104.5);
  EXPECT_EQ(rate.errors_per_second, 2);
  EXPECT_EQ(rate.bytes_per_second, 4'000);
  EXPECT_EQ(rate.avg_ns, 20'000'000u) << "200 calls completed in 4 s";
  EXPECT_EQ(rate.p99_ns, 0u) << "no buckets";
  EXPECT_EQ(rate.in_flight, 10u);
  EXPECT_EQ(rate.oldest_in_flight_ns, 7u);
  EXPECT_EQ(rate.coverage, 0.5);
}

void add_bucket(v1::FunctionStats& row, uint64_t duration_ns, uint64_t calls) {
  v1::DurationBucket& bucket = *row.add_buckets();
  bucket.set_duration_ns(duration_ns);
  bucket.set_calls(calls);
}

TEST(FunctionRatesTest, TakesThe99thPercentileOfTheIntervalAlone) {
  v1::FunctionStats before = make_row("f", 1'000'000, kSecond);
  add_bucket(before, 50, 999'000);
  add_bucket(before, 9'000, 1'000);  // longer than all that follow
  v1::FunctionStats now = make_row("f", 1'000'200, kSecond);
  add_bucket(now, 50, 999'100);
  add_bucket(now, 70, 98);
  add_bucket(now, 800, 2);
  add_bucket(now, 9'000, 1'000);
  const FunctionTotalsSample begin = make_sample(0, {before});

  EXPECT_EQ(compute_rates(begin, make_sample(kSecond, {now})).functions[0].p99_ns, 70u);
  now.mutable_buckets(2)->set_calls(3);
  EXPECT_EQ(compute_rates(begin, make_sample(kSecond, {now})).functions[0].p99_ns, 800u);
}

TEST(FunctionRatesTest, PutsMostTimeFirstAndLeavesOutIdleFunctions) {
  v1::FunctionStats hung = make_row("hung", 1, 0);
  hung.set_in_flight(1);

  const FunctionRates rates = compute_rates(
      make_sample(0, {make_row("idle", 5, 5), make_row("small", 0, 0), hung}),
      make_sample(kSecond, {make_row("idle", 5, 5), make_row("small", 10, 50),
                            make_row("large", 1, 500), make_row("often", 900, 50), hung}));

  EXPECT_THAT(list_names(rates), ElementsAre("large", "often", "small", "hung"));
}

TEST(FunctionRatesTest, CountsFromZeroAfterTheDaemonWasRestarted) {
  const FunctionRates rates = compute_rates(make_sample(0, {make_row("f", 1'000'000, kSecond)}),
                                            make_sample(kSecond, {make_row("f", 10, 1'000)}));

  ASSERT_EQ(rates.functions.size(), 1u);
  EXPECT_EQ(rates.functions[0].calls_per_second, 10);
  EXPECT_EQ(rates.functions[0].avg_ns, 100u);
}

TEST(FunctionRatesTest, ShowsNoRateWhileTheDaemonShowsTheSameMoment) {
  FunctionTotalsSample before = make_sample(kSecond, {make_row("f", 10, 10)});
  FunctionTotalsSample now = before;
  now.asked_mono_ns = 3 * kSecond;

  const FunctionRates rates = compute_rates(before, now);

  EXPECT_EQ(rates.interval_seconds, 2);
  EXPECT_TRUE(rates.functions.empty());
}

// The daemon shows an old moment while nothing happens; dividing by all that time would hide a
// burst.
TEST(FunctionRatesTest, TrustsItsOwnClockAfterALongSilence) {
  FunctionTotalsSample before = make_sample(kSecond, {});
  before.asked_mono_ns = 3'600 * kSecond;
  FunctionTotalsSample now = make_sample(3'602 * kSecond, {make_row("f", 100, 100)});

  EXPECT_EQ(compute_rates(before, now).functions[0].calls_per_second, 50);
}

TEST(FunctionRatesTest, SurvivesTwoSamplesOfOneMoment) {
  const FunctionTotalsSample before = make_sample(kSecond, {});
  const FunctionTotalsSample now = make_sample(kSecond, {make_row("f", 100, 100)});

  EXPECT_TRUE(compute_rates(before, now).functions.empty());
}

}  // namespace
}  // namespace gpuperf::client
