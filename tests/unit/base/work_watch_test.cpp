#include "daemon/base/work_watch.h"

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

namespace gpuperf {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

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
  const Work second("watched second");

  EXPECT_THAT(list_threads(list_work()), ElementsAre("watched first", "watched second"));
  first.reset();
  EXPECT_THAT(list_threads(list_work()), ElementsAre("watched second"));
}

TEST(WorkWatchTest, CallsLateWhatTakesLongerThanItsLimit) {
  const Work late("watched late", seconds(0));
  const Work timely("watched timely");

  EXPECT_THAT(list_threads(list_late_work()), ElementsAre("watched late"));
}

}  // namespace
}  // namespace gpuperf
