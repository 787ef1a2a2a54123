#include "daemon/base/log.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

TEST(FormatLogLine, WritesKeysAndValues) {
  EXPECT_EQ(format_log_line("started", {{"pid", "71"}, {"path", "/run/x"}}),
            "started pid=71 path=/run/x");
}

TEST(FormatLogLine, QuotesWhatCouldForgeAField) {
  EXPECT_EQ(format_log_line("seen", {{"comm", "a b=c"},
                                     {"empty", ""},
                                     {"quote", "say \"hi\" \\"},
                                     {"control", "x\ny\x1b[2J\x7f"}}),
            "seen comm=\"a b=c\" empty=\"\" quote=\"say \\\"hi\\\" \\\\\" "
            "control=\"x\\x0ay\\x1b[2J\\x7f\"");
}

TEST(LogLimiterTest, LetsABurstThroughEachSecondAndCountsTheRest) {
  LogLimiter limiter(2);
  constexpr int64_t kSecond = 1'000'000'000;

  EXPECT_TRUE(limiter.admit(kSecond).allowed);
  EXPECT_TRUE(limiter.admit(kSecond + 1).allowed);
  EXPECT_FALSE(limiter.admit(kSecond + 2).allowed);
  EXPECT_FALSE(limiter.admit(2 * kSecond - 1).allowed);
  const auto next = limiter.admit(2 * kSecond);

  EXPECT_TRUE(next.allowed);
  EXPECT_EQ(next.suppressed_count, 2u);
  EXPECT_EQ(limiter.admit(2 * kSecond + 1).suppressed_count, 0u);
}

}  // namespace
}  // namespace gpuperf
