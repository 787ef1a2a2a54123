#include "daemon/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace gpuperf {
namespace {

TEST(BoundedQueueTest, HandsValuesOutInOrder) {
  BoundedQueue<int> queue(3);
  for (const int value : {1, 2, 3}) EXPECT_TRUE(queue.try_push(int{value}));

  EXPECT_EQ(queue.try_pop(), 1);
  EXPECT_EQ(queue.try_pop(), 2);
  EXPECT_EQ(queue.try_pop(), 3);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueueTest, RefusesWhenFullAndTakesAgainWhenNot) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.try_push(1));

  EXPECT_FALSE(queue.try_push(2));
  EXPECT_EQ(queue.try_pop(), 1);
  EXPECT_TRUE(queue.try_push(3));
}

TEST(BoundedQueueTest, LeavesARefusedValueWithTheCaller) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto refused = std::make_unique<int>(2);

  EXPECT_FALSE(queue.try_push(std::move(refused)));

  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(*refused, 2);
}

TEST(BoundedQueueTest, HandsOutWhatWaitsAfterClosingAndRefusesMore) {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  ASSERT_TRUE(queue.try_push(std::make_unique<int>(7)));

  queue.close();

  EXPECT_FALSE(queue.try_push(std::make_unique<int>(8)));
  EXPECT_EQ(**queue.pop(), 7);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueueTest, TellsHowManyWaitedAtMost) {
  BoundedQueue<int> queue(8);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.try_push(int{i}));
  for (int i = 0; i < 2; ++i) EXPECT_NE(queue.try_pop(), std::nullopt);

  EXPECT_EQ(queue.take_highest(), 3u);
  EXPECT_EQ(queue.take_highest(), 1u);
  EXPECT_EQ(queue.capacity(), 8u);
}

TEST(BoundedQueueTest, TakesALastValueWhenFull) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.try_push(1));

  queue.close_with(2);

  EXPECT_FALSE(queue.try_push(3));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueueTest, WakesAWaitingConsumerWhenClosed) {
  BoundedQueue<int> queue(1);
  std::thread consumer([&queue] { EXPECT_EQ(queue.pop(), std::nullopt); });

  queue.close();

  consumer.join();
}

TEST(BoundedQueueTest, LosesAndDoublesNothingAmongThreads) {
  constexpr int kProducers = 4;
  constexpr int kValues = 5000;
  BoundedQueue<int> queue(16);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue] {
      for (int value = 1; value <= kValues; ++value) {
        while (!queue.try_push(int{value})) std::this_thread::yield();
      }
    });
  }

  int64_t sum = 0;
  for (int i = 0; i < kProducers * kValues; ++i) sum += *queue.pop();

  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(sum, int64_t{kProducers} * kValues * (kValues + 1) / 2);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

}  // namespace
}  // namespace gpuperf
