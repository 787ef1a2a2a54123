#include "daemon/resolve/turn_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuperf {
namespace {

constexpr WorkOwner kNobody;
constexpr WorkOwner kRoot{.uid = 0, .process = {.pid = 1}};
constexpr WorkOwner kAlice{.uid = 1000, .process = {.pid = 10}};
constexpr WorkOwner kAlicesOther{.uid = 1000, .process = {.pid = 11}};
constexpr WorkOwner kBob{.uid = 1001, .process = {.pid = 20}};
constexpr uint64_t kAllOfABurst = 8'000'000'000;

class TurnQueueTest : public testing::Test {
 protected:
  void push(const WorkOwner& owner, std::string value) {
    EXPECT_TRUE(queue_.try_push(owner, std::move(value)));
  }
  // Until it would wait, and each finished at that cost.
  std::vector<std::string> pop(size_t count, uint64_t cpu_ns = 0) {
    std::vector<std::string> values;
    for (size_t i = 0; i < count; ++i) {
      auto turn = queue_.pop();
      if (!turn) break;
      values.push_back(turn->value);
      queue_.finish(turn->owner, cpu_ns);
    }
    return values;
  }

  TurnQueue<std::string> queue_{16};
};

using Values = std::vector<std::string>;

TEST_F(TurnQueueTest, KeepsTheOrderOfAProcess) {
  for (const char* value : {"1", "2", "3"}) push(kAlice, value);

  EXPECT_EQ(pop(3), (Values{"1", "2", "3"}));
}

TEST_F(TurnQueueTest, LetsUsersTakeTurnsHoweverManyProcessesTheyHave) {
  for (const char* value : {"a1", "a2"}) push(kAlice, value);
  for (const char* value : {"o1", "o2"}) push(kAlicesOther, value);
  for (const char* value : {"b1", "b2"}) push(kBob, value);

  EXPECT_EQ(pop(6), (Values{"a1", "b1", "o1", "b2", "a2", "o2"}));
}

TEST_F(TurnQueueTest, LetsOthersGoOnWhileAUserIsOverHisBudget) {
  push(kAlice, "dear");
  (void)pop(1, kAllOfABurst);
  push(kAlice, "waits");
  push(kAlicesOther, "waits too");
  for (const char* value : {"b1", "b2"}) push(kBob, value);

  EXPECT_EQ(pop(2), (Values{"b1", "b2"}));

  queue_.close();  // whatever it has cost
  EXPECT_EQ(pop(9), (Values{"waits too", "waits"}));
}

TEST_F(TurnQueueTest, BoundsAProcessOfRootButNotRoot) {
  push(kRoot, "dear");
  (void)pop(1, kAllOfABurst);
  push(kRoot, "waits");
  push({.uid = 0, .process = {.pid = 2}}, "another");

  EXPECT_EQ(pop(1), (Values{"another"}));
}

TEST_F(TurnQueueTest, GoesOnWithWhatWasPutBackAfterOthersHadTheirTurn) {
  push(kAlice, "a1");
  push(kAlice, "a2");
  push(kBob, "b1");

  queue_.put_back(*queue_.pop(), 0);

  EXPECT_EQ(pop(3), (Values{"b1", "a1", "a2"}));
}

TEST_F(TurnQueueTest, AnswersWhatIsNobodysBehindWhatWasPushedBefore) {
  push(kAlice, "a1");
  push(kBob, "b1");
  push(kNobody, "nobody's");
  push(kAlice, "a2");

  const Values order = pop(4);

  EXPECT_EQ(Values(order.begin(), order.begin() + 3), (Values{"a1", "b1", "nobody's"}));
}

TEST_F(TurnQueueTest, DoesNotMakeWhatIsNobodysWaitForWhoIsOverHisBudget) {
  push(kAlice, "dear");
  (void)pop(1, kAllOfABurst);
  push(kAlice, "waits");
  push(kNobody, "nobody's");

  EXPECT_EQ(pop(1), (Values{"nobody's"}));
}

TEST_F(TurnQueueTest, KeepsRoomForOthersAndForRoot) {
  const auto fill = [this](const WorkOwner& owner) {
    size_t count = 0;
    while (queue_.try_push(owner, "more")) ++count;
    return count;
  };

  const size_t alices = fill(kAlice);
  EXPECT_EQ(fill(kAlicesOther), 0u);  // the same user
  const size_t bobs = fill(kBob);
  const size_t roots = fill(kRoot);

  EXPECT_GT(bobs, 0u);
  EXPECT_GE(roots, 4u);
  EXPECT_EQ(alices + bobs + roots, 17u);  // none is at work
}

}  // namespace
}  // namespace gpuperf
