#include "daemon/capture/launch_match.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace gpuperf {
namespace {

constexpr uint32_t kLaunchKernel = 1, kLaunchKernelEx = 2;

LaunchHit hit(uint64_t mono_ns, uint32_t tid = 7, uint32_t function = kLaunchKernel) {
  return {.mono_ns = mono_ns, .tid = tid, .function = function};
}
LaunchCall runtime(uint64_t start_ns, uint64_t end_ns, uint32_t tid = 7) {
  return {.start_ns = start_ns, .end_ns = end_ns, .tid = tid};
}
LaunchCall driver(uint64_t start_ns, uint64_t end_ns, uint32_t tid = 7) {
  return {.start_ns = start_ns,
          .end_ns = end_ns,
          .tid = tid,
          .is_driver = true,
          .driver_function = kLaunchKernel};
}

std::vector<std::pair<uint32_t, LaunchMatch>> match(const std::vector<LaunchHit>& hits,
                                                    const std::vector<LaunchCall>& calls,
                                                    const MatchOptions& options = {}) {
  const LaunchMatches matches = match_launches(hits, calls, options);
  std::vector<std::pair<uint32_t, LaunchMatch>> pairs;
  for (size_t i = 0; i < calls.size(); ++i) {
    pairs.emplace_back(matches.hit_of_call[i], matches.kind[i]);
  }
  return pairs;
}

using Pairs = std::vector<std::pair<uint32_t, LaunchMatch>>;
constexpr uint32_t kNone = LaunchMatches::kNone;

TEST(LaunchMatchTest, TakesTheHitWithinARuntimeCallAndTheOneBeforeADriverCall) {
  EXPECT_EQ(match({hit(1'200), hit(3'900)}, {runtime(1'000, 2'000), driver(4'000, 5'000)}),
            (Pairs{{0, LaunchMatch::kExact}, {1, LaunchMatch::kExact}}));
}

// In a tight loop the next one begins closer to a call's end than the clocks' conversion is exact.
TEST(LaunchMatchTest, TakesTheHitThatAHookedCallStartsWith) {
  const auto hooked = [](uint64_t start_ns, uint64_t end_ns) {
    LaunchCall call = driver(start_ns, end_ns);
    call.is_hooked = true;
    return call;
  };
  EXPECT_EQ(match({hit(1'100), hit(3'010), hit(4'990)},
                  {hooked(1'000, 3'020), hooked(3'030, 5'020), hooked(5'010, 7'000)},
                  {.clock_error_ns = 200}),
            (Pairs{{0, LaunchMatch::kExact}, {1, LaunchMatch::kExact}, {2, LaunchMatch::kExact}}));
}

TEST(LaunchMatchTest, ALostHitCostsItsOwnMatchOnly) {
  EXPECT_EQ(
      match({hit(1'200), hit(5'200)},
            {runtime(1'000, 2'000), runtime(3'000, 4'000), runtime(5'000, 6'000)}),
      (Pairs{{0, LaunchMatch::kExact}, {kNone, LaunchMatch::kNoHit}, {1, LaunchMatch::kExact}}));
}

TEST(LaunchMatchTest, ALostRecordLeavesItsHitAlone) {
  const std::vector<LaunchHit> hits = {hit(1'200), hit(3'200), hit(5'200)};
  const std::vector<LaunchCall> calls = {runtime(1'000, 2'000), runtime(5'000, 6'000)};

  const LaunchMatches matches = match_launches(hits, calls, {});

  EXPECT_EQ(matches.hit_of_call, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(matches.is_hit_used, (std::vector<bool>{true, false, true}));
}

TEST(LaunchMatchTest, ThreadsDoNotMix) {
  EXPECT_EQ(
      match({hit(1'200, 7), hit(1'100, 8)}, {runtime(1'000, 2'000, 7), runtime(1'000, 2'000, 8)}),
      (Pairs{{0, LaunchMatch::kExact}, {1, LaunchMatch::kExact}}));
}

TEST(LaunchMatchTest, AThreadThatLostTheCpuBeforeItsDriverCallIsSureUnlessHitsWereLost) {
  const std::vector<LaunchHit> hits = {hit(1'000)};
  const std::vector<LaunchCall> calls = {driver(9'000'000, 9'001'000)};

  EXPECT_EQ(match(hits, calls), (Pairs{{0, LaunchMatch::kExact}}));
  EXPECT_EQ(match(hits, calls, {.has_lost_hits = true}), (Pairs{{0, LaunchMatch::kAmbiguous}}));
  EXPECT_EQ(match(hits, calls, {.has_lost_records = true}), (Pairs{{0, LaunchMatch::kExact}}));
}

TEST(LaunchMatchTest, NorIsItSureWhereHitsAreMissingBesideLostRecords) {
  EXPECT_EQ(match({hit(1'000)}, {driver(9'000'000, 9'001'000), driver(9'005'000, 9'006'000)},
                  {.has_lost_records = true}),
            (Pairs{{0, LaunchMatch::kAmbiguous}, {kNone, LaunchMatch::kNoHit}}));
}

TEST(LaunchMatchTest, AHitOfAnotherFunctionThanTheDriverCallIsAmbiguous) {
  EXPECT_EQ(match({hit(3'900, 7, kLaunchKernelEx)}, {driver(4'000, 5'000)}),
            (Pairs{{0, LaunchMatch::kAmbiguous}}));
}

TEST(LaunchMatchTest, TimesCloserThanTheClocksAreKnownAreAmbiguous) {
  EXPECT_EQ(match({hit(2'050)}, {driver(2'100, 3'000)}, {.clock_error_ns = 100}),
            (Pairs{{0, LaunchMatch::kExact}}));
  EXPECT_EQ(match({hit(1'500), hit(2'050)}, {driver(1'600, 2'000), driver(2'100, 3'000)},
                  {.clock_error_ns = 100}),
            (Pairs{{0, LaunchMatch::kExact}, {1, LaunchMatch::kAmbiguous}}));
}

TEST(LaunchMatchTest, SeveralDriverCallsOfOneRuntimeCallAreAllItsOwn) {
  const std::vector<LaunchHit> hits = {hit(1'100), hit(1'200), hit(1'300)};

  const LaunchMatches matches = match_launches(hits, std::vector{runtime(1'000, 2'000)}, {});

  EXPECT_EQ(matches.kind, std::vector{LaunchMatch::kExact});
  EXPECT_EQ(matches.is_hit_used, (std::vector<bool>{true, true, true}));
}

// Whatever is lost on either side, no launch may get the hit of another.
TEST(LaunchMatchTest, RandomLossesNeverMisplaceAHit) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<LaunchHit> hits;
    std::vector<LaunchCall> calls;
    for (uint32_t tid = 1; tid <= 3; ++tid) {
      uint64_t now_ns = 1'000 + random() % 1'000;
      for (uint64_t i = 0; i < 100; ++i) {
        now_ns += 2'000 + random() % 5'000;
        const bool is_driver = random() % 2 == 0;
        const uint64_t start_ns = now_ns, end_ns = start_ns + 500 + random() % 2'000;
        const uint64_t hit_ns = is_driver ? start_ns - 50 - random() % 100 : start_ns + 100;
        const uint64_t truth = tid * 1'000 + i;
        if (random() % 10 != 0) {
          hits.push_back(hit(hit_ns, tid));
          hits.back().site_id = truth;
        }
        if (random() % 10 != 0) {
          calls.push_back(is_driver ? driver(start_ns, end_ns, tid)
                                    : runtime(start_ns, end_ns, tid));
          calls.back().correlation_id = static_cast<uint32_t>(truth);
        }
        now_ns = end_ns;
      }
    }

    const LaunchMatches matches =
        match_launches(hits, calls, {.has_lost_hits = true, .has_lost_records = true});

    for (size_t i = 0; i < calls.size(); ++i) {
      if (matches.kind[i] != LaunchMatch::kExact) continue;
      EXPECT_EQ(hits[matches.hit_of_call[i]].site_id, calls[i].correlation_id);
    }
  }
}

}  // namespace
}  // namespace gpuperf
