#include "daemon/web/page_threads.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <vector>

namespace gpuperf {
namespace {

TEST(PageThreadsTest, RefusesWhatFindsNoPlaceAndCounts) {
  DropCounters drops;
  std::latch began(PageThreads::kThreads);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::vector<std::future<int>> statuses;
  PageThreads threads(drops);
  const auto post = [&](auto make) {
    const auto status = std::make_shared<std::promise<int>>();
    statuses.push_back(status->get_future());
    threads.post([status](const HttpResponse& response) { status->set_value(response.status); },
                 make);
  };
  const auto answer = [] { return make_text_response(200, "answer"); };

  for (size_t i = 0; i < PageThreads::kThreads; ++i) {
    post([&began, opened, answer] {
      began.count_down();
      opened.wait();
      return answer();
    });
  }
  began.wait();
  for (size_t i = 0; i < PageThreads::kWaiting; ++i) post(answer);
  post(answer);

  EXPECT_EQ(statuses.back().get(), 503);
  statuses.pop_back();
  EXPECT_EQ(drops.get(DropCause::kHttpBusy), 1u);
  gate.set_value();
  for (auto& status : statuses) EXPECT_EQ(status.get(), 200);
}

}  // namespace
}  // namespace gpuperf
