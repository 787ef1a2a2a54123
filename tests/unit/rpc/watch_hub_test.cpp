#include "daemon/rpc/watch_hub.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpuperf {
namespace {

bool wants_all(const SlowCall&) { return true; }
void ignore() {}

std::shared_ptr<const SlowCall> make_numbered_call(uint64_t id) {
  return std::make_shared<const SlowCall>(SlowCall{.id = id});
}

class WatchHubTest : public ::testing::Test {
 protected:
  void publish(uint64_t first_id, uint64_t last_id) {
    for (uint64_t id = first_id; id <= last_id; ++id) hub_.on_slow_call(make_numbered_call(id));
  }

  DropCounters drops_;
  WatchHub hub_{drops_};
};

TEST_F(WatchHubTest, HandsCallsOutInOrderToEveryReader) {
  const auto first = hub_.add_reader(wants_all, ignore);
  const auto second = hub_.add_reader(wants_all, ignore);

  publish(1, 2);

  for (const auto reader : {*first, *second}) {
    EXPECT_EQ(hub_.take(reader)->call->id, 1u);
    EXPECT_EQ(hub_.take(reader)->call->id, 2u);
    EXPECT_FALSE(hub_.take(reader).has_value());
  }
}

TEST_F(WatchHubTest, GivesAReaderOnlyWhatItWants) {
  const auto reader =
      hub_.add_reader([](const SlowCall& call) { return call.id % 2 == 0; }, ignore);

  publish(1, 3);

  EXPECT_EQ(hub_.take(*reader)->call->id, 2u);
  EXPECT_FALSE(hub_.take(*reader).has_value());
}

TEST_F(WatchHubTest, WakesAReaderOnlyWhenItHadNothing) {
  int wakes = 0;
  const auto reader = hub_.add_reader(wants_all, [&wakes] { ++wakes; });

  publish(1, 3);
  EXPECT_EQ(wakes, 1);
  while (hub_.take(*reader).has_value()) {
  }
  publish(4, 4);

  EXPECT_EQ(wakes, 2);
}

TEST_F(WatchHubTest, DropsTheOldestWhenFullAndSaysHowMany) {
  const auto slow = hub_.add_reader(wants_all, ignore);
  const uint64_t published = WatchHub::kQueue + 5;

  publish(1, published);

  const auto first = hub_.take(*slow);
  EXPECT_EQ(first->call->id, 6u);
  EXPECT_EQ(first->missed_count, 5u);
  const auto second = hub_.take(*slow);
  EXPECT_EQ(second->call->id, 7u);
  EXPECT_EQ(second->missed_count, 0u);
  EXPECT_EQ(drops_.get(DropCause::kWatchReaderSlow), 5u);
}

TEST_F(WatchHubTest, ASlowReaderTakesNothingFromOthers) {
  (void)hub_.add_reader(wants_all, ignore);
  const auto quick = hub_.add_reader(wants_all, ignore);

  for (uint64_t id = 1; id <= 2 * WatchHub::kQueue; ++id) {
    publish(id, id);
    const auto message = hub_.take(*quick);
    ASSERT_EQ(message->call->id, id);
    ASSERT_EQ(message->missed_count, 0u);
  }
}

TEST_F(WatchHubTest, RefusesReadersBeyondTheBound) {
  const auto first = hub_.add_reader(wants_all, ignore);
  for (size_t i = 1; i < WatchHub::kMaxReaders; ++i) {
    ASSERT_TRUE(hub_.add_reader(wants_all, ignore).ok());
  }

  EXPECT_EQ(hub_.add_reader(wants_all, ignore).status().code(),
            absl::StatusCode::kResourceExhausted);
  hub_.remove_reader(*first);
  EXPECT_TRUE(hub_.add_reader(wants_all, ignore).ok());
}

TEST_F(WatchHubTest, ClosingWakesReadersAndLetsThemTakeWhatWaits) {
  int wakes = 0;
  const auto reader = hub_.add_reader(wants_all, [&wakes] { ++wakes; });
  publish(1, 1);

  hub_.close();
  publish(2, 2);

  EXPECT_EQ(wakes, 2);
  EXPECT_TRUE(hub_.is_closed());
  EXPECT_EQ(hub_.take(*reader)->call->id, 1u);
  EXPECT_FALSE(hub_.take(*reader).has_value());
  EXPECT_EQ(hub_.add_reader(wants_all, ignore).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(WatchHubTest, ARemovedReaderGetsNothing) {
  const auto reader = hub_.add_reader(wants_all, ignore);
  hub_.remove_reader(*reader);
  hub_.remove_reader(*reader);

  publish(1, 1);

  EXPECT_FALSE(hub_.take(*reader).has_value());
}

TEST_F(WatchHubTest, CountsEveryCallOnceWhileReadersComeAndGo) {
  constexpr uint64_t kCalls = 20'000;
  const auto reader = hub_.add_reader(wants_all, ignore);
  std::thread visitors([this] {
    for (int i = 0; i < 2'000; ++i) {
      const auto visitor = hub_.add_reader(wants_all, ignore);
      (void)hub_.take(*visitor);
      hub_.remove_reader(*visitor);
    }
  });
  std::thread publisher([this] { publish(1, kCalls); });

  uint64_t seen = 0;
  while (seen < kCalls) {
    const auto message = hub_.take(*reader);
    if (!message.has_value()) continue;
    seen += 1 + message->missed_count;
    ASSERT_EQ(message->call->id, seen);
  }

  publisher.join();
  visitors.join();
  EXPECT_EQ(seen, kCalls);
}

}  // namespace
}  // namespace gpuperf
