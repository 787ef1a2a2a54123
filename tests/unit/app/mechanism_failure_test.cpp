#include "daemon/app/mechanism_failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gpuperf {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<MechanismFailure> kFailures = {
    {Mechanism::kSession, absl::UnimplementedError("no sessions")},
    {Mechanism::kMulti, absl::InvalidArgumentError("no multi")},
    {Mechanism::kPerf, absl::PermissionDeniedError("attach: Permission denied")}};

std::string explain(const std::string& release, const std::string& lockdown = "") {
  return std::string(
      explain_failures({.release = release, .lockdown = lockdown}, kFailures, std::nullopt)
          .message());
}

TEST(MechanismFailureTest, AKernelThatIsTooOldIsTheCause) {
  EXPECT_EQ(explain("5.10.0-32-cloud-amd64"),
            "kernel 5.10.0-32-cloud-amd64 is too old: gpuperfd needs 5.15 or later: boot a newer "
            "kernel");
}

TEST(MechanismFailureTest, TheBestThatTheKernelHasIsTheCause) {
  EXPECT_EQ(explain("6.18.1"), "no sessions");
  EXPECT_EQ(explain("6.6.0"), "no multi");
  EXPECT_THAT(explain("6.1.0-1"), StartsWith("attach: Permission denied: perf events"));
  EXPECT_THAT(explain("6.1.0-1"), HasSubstr("CAP_SYS_ADMIN"));
  EXPECT_EQ(explain("a kernel of somebody's own"), "no sessions");
}

TEST(MechanismFailureTest, LockdownIsTheCauseOnlyInTheModeThatForbidsReading) {
  EXPECT_THAT(explain("6.18.1", "none integrity [confidentiality]"),
              HasSubstr("lockdown=integrity"));
  EXPECT_EQ(explain("6.18.1", "none [integrity] confidentiality"), "no sessions");
}

TEST(MechanismFailureTest, OneThatTheKernelLacksIsNotForced) {
  EXPECT_EQ(
      explain_failures({.release = "6.1.0"}, {kFailures.data(), 1}, Mechanism::kSession).message(),
      "kernel 6.1.0 has no mechanism session: it came with kernel 6.13: start gpuperfd "
      "without --mechanism");
}

}  // namespace
}  // namespace gpuperf
