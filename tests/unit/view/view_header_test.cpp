#include "daemon/view/view_header.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

TEST(ViewHeaderTest, SaysWhatIsShownAndWhatIsMissing) {
  Capture capture;
  capture.id = 7;
  capture.name = "night";
  capture.host = "trainer-1";
  capture.start_unix_ns = 1'795'334'400'000'000'000;
  capture.duration_ns = 10'000'000'000;
  capture.matches = {.launches = {900, 12, 3, 4},
                     .work = 10'000,
                     .work_matched = 9'999,
                     .work_no_call = 5,
                     .launches_no_stack = 30};
  capture.gaps = {{.duration_ns = 1'500'000, .cause = "other_client"},
                  {.duration_ns = 500'000, .cause = "other_client"},
                  {.cause = "records_lost", .count = 1'234}};

  const ViewHeader header = make_view_header(capture, {}, 1'234'567'000);

  EXPECT_EQ(header.title, "GPU time by host stack, trainer-1");
  EXPECT_EQ(
      header.lines,
      (std::vector<std::string>{
          "GPU time 1.234 s; 2026-11-22 08:00:00 UTC, 10.000 s on trainer-1, capture 7 “night”",
          "99.9 % of 10,000 pieces of GPU work matched to their launch; missing: 12 launches "
          "ambiguous, 3 seen by CUPTI alone, 4 seen by the probe alone, 30 without a stack, 5 "
          "pieces of work without a launch",
          "Not recorded throughout: other_client 2×, 2.000 ms; records_lost 1×, 0.000 µs, 1,234 "
          "records"}));
}

TEST(ViewHeaderTest, SaysThatNothingIsMissing) {
  EXPECT_EQ(make_view_header({}, {.weight = ViewWeight::kOffCpuTime}, 1'500).title,
            "Off-CPU time in probed calls by host stack");
  EXPECT_EQ(describe_matches({}),
            "none of 0 pieces of GPU work matched to their launch; missing: nothing");
  EXPECT_EQ(describe_gaps({}), "");
  EXPECT_EQ(format_duration(1'500), "1.500 µs");
  EXPECT_EQ(format_duration(2'500'000), "2.500 ms");
}

}  // namespace
}  // namespace gpuperf
