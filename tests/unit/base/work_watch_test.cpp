#include "daemon/base/work_watch.h"

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpuperf {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// Other tests of this program may have threads at work.
std::vector<std::string> list_threads(const std::vector<WorkAtHand>& all) {
  std::vector<std::string> names;
  for (const WorkAtHand& work : all) {
    if (work.thread.starts_with("watched")) names.push_back(work.thread);
  }
  return names;
}

TEST(WorkWatchTest, ListsWhatThreadsAreAtUntilTheyAreDone) {
  std::optional<Work> first(std::in_place, "watched first");
  std::thread([] {
    const Work second("watched second");
    EXPECT_THAT(list_threads(list_work()), ElementsAre("watched first", "watched second"));
  }).join();

  EXPECT_THAT(list_threads(list_work()), ElementsAre("watched first"));
  first.reset();
  EXPECT_THAT(list_threads(list_work()), IsEmpty());
}

TEST(WorkWatchTest, CountsTheOuterOfWorkWithinWork) {
  const Work outer("watched outer");
  { const Work inner("watched inner"); }

  EXPECT_THAT(list_threads(list_work()), ElementsAre("watched outer"));
}

TEST(WorkWatchTest, AddsUpHowLongPiecesTookByThread) {
  for (int i = 0; i < 2; ++i) {
    std::thread([] {
      const Work work("timed");
      const Work inner("timed inner");
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }).join();
  }

  const auto times = list_work_times();

  ASSERT_TRUE(times.contains("timed"));
  EXPECT_FALSE(times.contains("timed inner"));
  EXPECT_EQ(times.at("timed").count(), 2u);
  EXPECT_GE(times.at("timed").total_ns, 6'000'000u);
  EXPECT_GE(times.at("timed").longest_ns, 3'000'000u);
}

TEST(WorkWatchTest, CallsLateWhatTakesLongerThanItsLimit) {
  const Work late("watched late", seconds(0));
  std::thread([] {
    const Work timely("watched timely");
    EXPECT_THAT(list_threads(list_late_work()), ElementsAre("watched late"));
  }).join();
}

}  // namespace
}  // namespace gpuperf
