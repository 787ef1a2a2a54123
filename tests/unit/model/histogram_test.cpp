#include "daemon/model/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using Bucket = Histogram::Bucket;

constexpr uint64_t kEndNs = uint64_t{1} << 42;
constexpr double kAccuracy = 0.032;  // what the contract promises from 256 ns on

std::vector<Bucket> get_buckets(const Histogram& histogram) {
  const auto buckets = histogram.buckets();
  return {buckets.begin(), buckets.end()};
}

double relative_error(uint64_t measured, uint64_t actual) {
  return std::abs(static_cast<double>(measured) - static_cast<double>(actual)) /
         static_cast<double>(actual);
}

TEST(HistogramTest, CutsTheDurationsIntoBucketsWithoutGapOrOverlap) {
  EXPECT_EQ(bucket_lower_ns(0), 0u);
  for (size_t bucket = 0; bucket < kBucketCount; ++bucket) {
    const uint64_t lower = bucket_lower_ns(bucket);
    const uint64_t end = bucket_lower_ns(bucket + 1);
    ASSERT_LT(lower, end) << bucket;
    EXPECT_EQ(bucket_of(lower), bucket);
    EXPECT_EQ(bucket_of(lower + (end - lower) / 2), bucket);
    EXPECT_EQ(bucket_of(end - 1), bucket);
  }
  EXPECT_EQ(bucket_lower_ns(kBucketCount), kEndNs);
}

TEST(HistogramTest, PutsWhateverIsLongerIntoTheLastBucket) {
  EXPECT_EQ(bucket_of(kEndNs), kBucketCount - 1);
  EXPECT_EQ(bucket_of(std::numeric_limits<uint64_t>::max()), kBucketCount - 1);
}

TEST(HistogramTest, GivesEveryValueBackWithinTheAccuracy) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::vector<uint64_t> values;
  for (uint64_t octave = 256; octave < kEndNs; octave *= 2) {
    values.insert(values.end(), {octave, octave + octave / 16 - 1, 2 * octave - 1});
    for (int i = 0; i < 200; ++i) values.push_back(octave + random() % octave);
  }

  for (const uint64_t value : values) {
    Histogram histogram;
    histogram.add(bucket_of(value), 1);
    ASSERT_LE(relative_error(histogram.quantile_ns(0.5), value), kAccuracy) << value;
    ASSERT_EQ(histogram.quantile_ns(0), histogram.quantile_ns(1));
  }
}

TEST(HistogramTest, GivesQuantilesOfManyValuesWithinTheAccuracy) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> durations(std::log(20'000), 2);
  std::vector<uint64_t> values;
  Histogram histogram;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(std::clamp<uint64_t>(static_cast<uint64_t>(durations(random)), 256, kEndNs));
    histogram.add(bucket_of(values.back()), 1);
  }
  std::ranges::sort(values);

  for (const double quantile : {0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<size_t>(std::ceil(quantile * 20'000));
    EXPECT_LE(relative_error(histogram.quantile_ns(quantile), values[rank - 1]), kAccuracy)
        << quantile;
  }
}

TEST(HistogramTest, IsWithinEightNanosecondsBelow256) {
  for (uint64_t value = 0; value < 256; ++value) {
    Histogram histogram;
    histogram.add(bucket_of(value), 1);
    EXPECT_LE(
        std::abs(static_cast<int64_t>(histogram.quantile_ns(1)) - static_cast<int64_t>(value)), 8);
  }
}

TEST(HistogramTest, HasNoQuantileWhenEmpty) { EXPECT_EQ(Histogram().quantile_ns(0.99), 0u); }

TEST(HistogramTest, GivesItsBucketsInOrderWhateverTheOrderTheyCameIn) {
  Histogram histogram;
  histogram.add(400, 1);
  histogram.add(3, 10);
  histogram.add(17, 0);  // nothing: no bucket
  histogram.add(70, 2);
  histogram.add(3, 5);
  histogram.add(kBucketCount + 9, 2);  // beyond the end: the last bucket

  EXPECT_THAT(get_buckets(histogram), ElementsAre(Bucket{3, 15}, Bucket{70, 2}, Bucket{400, 1},
                                                  Bucket{kBucketCount - 1, 2}));
  EXPECT_EQ(histogram.count(), 20u);
}

TEST(HistogramTest, StopsABucketAtItsBoundInsteadOfSpillingIntoTheNext) {
  constexpr uint64_t kMost = (uint64_t{1} << 54) - 1;
  Histogram histogram;
  histogram.add(5, kMost - 1);
  histogram.add(5, 7);
  Histogram merged = histogram;
  merged.merge(histogram);

  EXPECT_THAT(get_buckets(histogram), ElementsAre(Bucket{5, kMost}));
  EXPECT_THAT(get_buckets(merged), ElementsAre(Bucket{5, kMost}));
}

TEST(HistogramTest, MergesToTheSumOfBoth) {
  Histogram left, right, both;
  left.add(3, 10);
  left.add(400, 1);
  right.add(1, 4);
  right.add(3, 5);
  right.add(500, 2);
  both.add(1, 4);
  both.add(3, 15);
  both.add(400, 1);
  both.add(500, 2);

  left.merge(right);

  EXPECT_EQ(left, both);
  EXPECT_EQ(left.count(), 22u);
}

TEST(HistogramTest, GivesWhatWasAddedSince) {
  Histogram earlier, added;
  earlier.add(3, 10);
  earlier.add(400, 1);
  added.add(1, 4);
  added.add(3, 5);
  added.add(500, 2);
  Histogram now = earlier;
  now.merge(added);

  EXPECT_EQ(now.without(earlier), added);
  EXPECT_EQ(now.without(now), Histogram());
  EXPECT_EQ(now.without({}), now);
}

TEST(HistogramTest, MergesLikeAddingEveryValueToOne) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Histogram merged, expected;
  for (int round = 0; round < 200; ++round) {
    Histogram part;
    for (uint64_t i = random() % 40; i > 0; --i) {
      const size_t bucket = random() % kBucketCount;
      const uint64_t count = random() % 1000;
      part.add(bucket, count);
      expected.add(bucket, count);
    }
    merged.merge(part);
    ASSERT_EQ(merged, expected) << round;
  }
}

}  // namespace
}  // namespace gpuperf
