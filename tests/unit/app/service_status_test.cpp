#include "daemon/app/service_status.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

Snapshot make_snapshot(std::vector<ProbeState> states, std::vector<Problem> problems = {}) {
  auto report = std::make_shared<ProbeReport>();
  report->mechanism = "session";
  report->files = 2;
  for (const ProbeState state : states) report->probes.push_back({.state = state});
  report->problems = std::move(problems);
  Snapshot snapshot;
  snapshot.probes = std::move(report);
  return snapshot;
}

TEST(DescribeService, CountsWhatIsProbed) {
  EXPECT_EQ(describe_service(make_snapshot({ProbeState::kAttached, ProbeState::kWaiting,
                                            ProbeState::kEntryOnly, ProbeState::kDisabled})),
            "2 probes in 2 files");
}

TEST(DescribeService, SaysThatNoProcessHasALibraryYet) {
  EXPECT_EQ(describe_service(make_snapshot({ProbeState::kWaiting})),
            "nothing is probed yet: no process has loaded one of the libraries");
}

TEST(DescribeService, NamesTheFirstProblemAndCountsTheOthers) {
  Snapshot snapshot = make_snapshot({ProbeState::kAttached}, {{"discovery", "no events", "hint"}});
  snapshot.problems = {{"storage", "no space", ""}, {"sessions", "no socket", ""}};

  EXPECT_EQ(describe_service(snapshot),
            "degraded: discovery: no events (and 2 more); 1 probe in 2 files; see gpuperfctl "
            "status");
}

TEST(DescribeService, SaysThatNothingCanBeProbed) {
  auto report = std::make_shared<ProbeReport>();
  report->problems = {{"probes", "not permitted", ""}};
  Snapshot snapshot;
  snapshot.probes = report;

  EXPECT_EQ(describe_service(snapshot),
            "degraded: probes: not permitted; nothing is probed; see gpuperfctl status");
}

}  // namespace
}  // namespace gpuperf
