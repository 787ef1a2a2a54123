#include "daemon/owner/pod_names.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

namespace gpuperf {
namespace {

using State = PodNames::State;

const PodName kName{.pod = "train-0", .pod_namespace = "research"};

Owner make_owner(const std::string& container) { return {.container = container, .pod = "uid"}; }

// A runtime that answers when told to.
class WaitingRuntime {
 public:
  PodNames::Ask ask() {
    return [this](const std::string& container) -> Result<std::optional<PodName>> {
      asked_.release();
      may_answer_.acquire();
      ++answers_;
      if (container == "broken") return absl::UnavailableError("broken");
      if (container == "alone") return std::nullopt;
      return kName;
    };
  }
  void wait_until_asked() { asked_.acquire(); }
  void answer(int count = 1) { may_answer_.release(count); }
  int answers() const { return answers_; }

 private:
  std::counting_semaphore<> asked_{0};
  std::counting_semaphore<> may_answer_{0};
  std::atomic<int> answers_ = 0;
};

class PodNamesTest : public testing::Test {
 protected:
  // The state once the question is answered.
  static State wait_for_answer(PodNames& names, Owner owner) {
    State state = State::kAsked;
    while ((state = names.name(owner)) == State::kAsked) std::this_thread::yield();
    return state;
  }

  WaitingRuntime runtime_;
  DropCounters drops_;
};

TEST_F(PodNamesTest, AsksOnceAndThenKnows) {
  PodNames names(runtime_.ask(), drops_);
  Owner owner = make_owner("a");

  EXPECT_EQ(names.name(owner), State::kAsked);
  EXPECT_EQ(owner.pod, "uid");
  runtime_.wait_until_asked();
  EXPECT_EQ(names.name(owner), State::kAsked);
  runtime_.answer();
  EXPECT_EQ(wait_for_answer(names, owner), State::kNamed);
  EXPECT_EQ(names.name(owner), State::kNamed);

  EXPECT_EQ(owner, (Owner{.container = "a", .pod = "train-0", .pod_namespace = "research"}));
  EXPECT_EQ(runtime_.answers(), 1);
}

TEST_F(PodNamesTest, WaitsForTheAnswerOfOneThatCanAndNoLonger) {
  PodNames names(runtime_.ask(), drops_);
  Owner owner = make_owner("a");

  EXPECT_EQ(names.name_within(owner, std::chrono::milliseconds(1)), State::kAsked);
  EXPECT_EQ(owner.pod, "uid");
  runtime_.answer();
  EXPECT_EQ(names.name_within(owner, std::chrono::minutes(1)), State::kNamed);
  EXPECT_EQ(owner.pod, "train-0");
}

TEST_F(PodNamesTest, LeavesContainersWithoutAPodAlone) {
  PodNames names(runtime_.ask(), drops_);
  Owner docker{.container = "a"};
  Owner host;

  EXPECT_EQ(names.name(docker), State::kUnnamed);
  EXPECT_EQ(names.name(host), State::kUnnamed);
  EXPECT_EQ(docker, Owner{.container = "a"});
}

TEST_F(PodNamesTest, RemembersThatTheRuntimeKnowsNoPod) {
  PodNames names(runtime_.ask(), drops_);
  Owner owner = make_owner("alone");
  runtime_.answer();

  EXPECT_EQ(wait_for_answer(names, owner), State::kUnnamed);
  EXPECT_EQ(names.name(owner), State::kUnnamed);
  EXPECT_EQ(owner.pod, "uid");
  EXPECT_EQ(runtime_.answers(), 1);
}

TEST_F(PodNamesTest, AsksNothingForAWhileAfterAFailure) {
  PodNames names(runtime_.ask(), drops_, {.retry_after = std::chrono::hours(1)});
  Owner broken = make_owner("broken");
  Owner waiting = make_owner("b");
  EXPECT_EQ(names.name(broken), State::kAsked);
  runtime_.wait_until_asked();
  EXPECT_EQ(names.name(waiting), State::kAsked);

  runtime_.answer();

  EXPECT_EQ(wait_for_answer(names, broken), State::kUnnamed);
  EXPECT_EQ(names.name(waiting), State::kUnnamed);
  EXPECT_EQ(runtime_.answers(), 1);
}

TEST_F(PodNamesTest, AsksAgainAfterTheWhile) {
  PodNames names(runtime_.ask(), drops_, {.retry_after = std::chrono::milliseconds(0)});
  Owner broken = make_owner("broken");
  EXPECT_EQ(names.name(broken), State::kAsked);
  runtime_.wait_until_asked();
  runtime_.answer();
  runtime_.answer();

  Owner other = make_owner("a");
  EXPECT_EQ(wait_for_answer(names, other), State::kNamed);
}

TEST_F(PodNamesTest, ForgetsTheOldestName) {
  PodNames names(runtime_.ask(), drops_, {.max_names = 2});
  runtime_.answer(4);
  for (const char* container : {"a", "b", "c"}) {
    EXPECT_EQ(wait_for_answer(names, make_owner(container)), State::kNamed);
  }

  Owner kept = make_owner("b");
  Owner forgotten = make_owner("a");
  EXPECT_EQ(names.name(kept), State::kNamed);
  EXPECT_EQ(names.name(forgotten), State::kAsked);
}

TEST_F(PodNamesTest, CountsWhatItCannotAskAbout) {
  PodNames names(runtime_.ask(), drops_, {.max_names = 2});
  for (const char* container : {"a", "b"}) {
    Owner owner = make_owner(container);
    EXPECT_EQ(names.name(owner), State::kAsked);
  }

  Owner third = make_owner("c");
  EXPECT_EQ(names.name(third), State::kUnnamed);
  EXPECT_EQ(drops_.get(DropCause::kPodNamesFull), 1u);
  runtime_.answer(2);
}

TEST_F(PodNamesTest, StopsWhileQuestionsWait) {
  {
    PodNames names(runtime_.ask(), drops_);
    for (const char* container : {"a", "b", "c"}) {
      Owner owner = make_owner(container);
      EXPECT_EQ(names.name(owner), State::kAsked);
    }
    runtime_.answer();
  }

  EXPECT_LE(runtime_.answers(), 1);
}

}  // namespace
}  // namespace gpuperf
