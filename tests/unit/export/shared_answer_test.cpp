#include "daemon/export/shared_answer.h"

#include <atomic>
#include <future>
#include <new>
#include <string>
#include <vector>

#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

// The first answer is begun, and made when the test says so.
class SharedAnswerTest : public ::testing::Test {
 protected:
  HttpResponse make() {
    if (++made_ == 1) {
      began_.set_value();
      gate_.get_future().wait();
    }
    return make_text_response(200, "answer " + std::to_string(made_));
  }
  std::future<HttpResponse> ask() {
    const auto answered = std::make_shared<std::promise<HttpResponse>>();
    shared_.post([answered](HttpResponse response) { answered->set_value(std::move(response)); });
    return answered->get_future();
  }
  std::future<HttpResponse> ask_and_hold() {
    std::future<HttpResponse> first = ask();
    began_.get_future().wait();
    return first;
  }

  std::atomic<int> made_ = 0;
  std::promise<void> began_;
  std::promise<void> gate_;
  DropCounters drops_;
  SharedAnswer shared_{[this] { return make(); }, drops_};
};

TEST_F(SharedAnswerTest, IsMadeOnceForAllWhoWait) {
  std::vector<std::future<HttpResponse>> asked;
  asked.push_back(ask_and_hold());
  for (int i = 0; i < 9; ++i) asked.push_back(ask());

  gate_.set_value();

  for (auto& answer : asked) EXPECT_EQ(answer.get().body.bytes, "answer 1");
}

TEST_F(SharedAnswerTest, RefusesBeyondItsBoundAndCounts) {
  std::vector<std::future<HttpResponse>> asked;
  asked.push_back(ask_and_hold());
  for (size_t i = 1; i < SharedAnswer::kMaxWaiting; ++i) asked.push_back(ask());

  EXPECT_EQ(ask().get().status, 503);
  EXPECT_EQ(drops_.get(DropCause::kHttpBusy), 1u);

  gate_.set_value();
  for (auto& answer : asked) EXPECT_EQ(answer.get().status, 200);
}

TEST(SharedAnswerFailureTest, IsAnErrorWhereItCannotBeMade) {
  DropCounters drops;
  SharedAnswer shared([]() -> HttpResponse { throw std::bad_alloc(); }, drops);
  std::promise<int> status;

  shared.post([&](HttpResponse response) { status.set_value(response.status); });

  EXPECT_EQ(status.get_future().get(), 500);
}

}  // namespace
}  // namespace gpuperf
