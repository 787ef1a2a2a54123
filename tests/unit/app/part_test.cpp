#include "daemon/app/part.h"

#include <gtest/gtest.h>

#include <future>

namespace gpuperf {
namespace {

// Its stop waits for a task on the loop.
class WaitingPart final : public Part {
 public:
  using Part::Part;
  Status start() override { return absl::OkStatus(); }
  void stop() override {
    stop_beside_loop([this] {
      core_.loop->post([this] { taken_.set_value(); });
      taken_.get_future().wait();
      stopped = true;
    });
  }

  bool stopped = false;

 private:
  std::promise<void> taken_;
};

TEST(PartTest, LoopRunsPostedTasksWhileAPartStops) {
  Core core{.options = {}, .settings = {}};
  core.loop = TaskLoop::make().value();
  WaitingPart part(core);

  part.stop();

  EXPECT_TRUE(part.stopped);
}

}  // namespace
}  // namespace gpuperf
