#include "daemon/rpc/answer_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {
namespace {

// An answer of so many bytes and a few more.
v1::GetConfigResponse make_answer(size_t bytes) {
  v1::GetConfigResponse answer;
  answer.set_json(std::string(bytes, 'x'));
  return answer;
}

TEST(AnswerBudgetTest, RefusesAndEmptiesWhatWouldNotFit) {
  DropCounters drops;
  AnswerBudget budget(2'500, nullptr, drops);
  v1::GetConfigResponse answers[] = {make_answer(1'000), make_answer(1'000), make_answer(1'000)};
  AnswerBudget::Hold holds[3];

  EXPECT_TRUE(budget.hold(answers[0], holds[0]).ok());
  EXPECT_TRUE(budget.hold(answers[1], holds[1]).ok());
  EXPECT_EQ(budget.hold(answers[2], holds[2]).code(), absl::StatusCode::kResourceExhausted);

  EXPECT_EQ(answers[1].json().size(), 1'000u);
  EXPECT_EQ(answers[2].ByteSizeLong(), 0u);
  EXPECT_EQ(drops.get(DropCause::kApiAnswersFull), 1u);
}

TEST(AnswerBudgetTest, HasRoomAgainOnceAnAnswerWasTaken) {
  DropCounters drops;
  AnswerBudget budget(1'500, nullptr, drops);
  for (int i = 0; i < 10; ++i) {
    v1::GetConfigResponse answer = make_answer(1'000);
    AnswerBudget::Hold hold;
    EXPECT_TRUE(budget.hold(answer, hold).ok());
  }
}

TEST(AnswerBudgetTest, SharesABound) {
  DropCounters drops;
  AnswerBudget all(2'500, nullptr, drops);
  AnswerBudget first(2'000, &all, drops);
  AnswerBudget second(2'000, &all, drops);
  v1::GetConfigResponse answers[] = {make_answer(1'500), make_answer(1'500)};
  AnswerBudget::Hold hold;
  AnswerBudget::Hold refused;

  EXPECT_TRUE(first.hold(answers[0], hold).ok());
  EXPECT_FALSE(second.hold(answers[1], refused).ok());
  hold.reset();
  answers[1] = make_answer(1'500);

  EXPECT_TRUE(second.hold(answers[1], refused).ok()) << "what was refused is not held";
}

}  // namespace
}  // namespace gpuperf
