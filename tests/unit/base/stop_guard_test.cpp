#include "daemon/base/stop_guard.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StopGuardTest : public testing::Test {
 protected:
  StopGuard::Options make_options() {
    return {.patience = milliseconds(20), .last = seconds(60), .end_process = [this](auto& why) {
              ended_.set_value(why);
            }};
  }
  std::promise<std::string> ended_;
};

TEST_F(StopGuardTest, EndsTheProcessWhereAThreadDoesNotComeBack) {
  const Work stuck("stuck");
  const StopGuard guard(make_options());

  EXPECT_NE(ended_.get_future().get().find("stuck"), std::string::npos);
}

TEST_F(StopGuardTest, WaitsForWorkThatBeganSince) {
  auto ended = ended_.get_future();
  const StopGuard guard(make_options());
  const Work fresh("fresh");

  EXPECT_EQ(ended.wait_for(milliseconds(200)), std::future_status::timeout);
}

TEST_F(StopGuardTest, WaitsForWorkThatMayTakeLong) {
  const Work capture("capture", seconds(300));
  auto ended = ended_.get_future();
  const StopGuard guard(make_options());

  EXPECT_EQ(ended.wait_for(milliseconds(200)), std::future_status::timeout);
}

TEST_F(StopGuardTest, WaitsForNothingForEver) {
  auto options = make_options();
  options.last = milliseconds(50);
  const StopGuard guard(options);

  EXPECT_EQ(ended_.get_future().get(), "parts that do not stop");
}

}  // namespace
}  // namespace gpuperf
