#include "daemon/state/step_operators.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

enum : uint32_t { kStepCall, kPartCall, kOperatorCall };

FunctionList make_functions() {
  FunctionList functions;
  for (const StepRole role : {StepRole::kStep, StepRole::kPart, StepRole::kOperator}) {
    auto plan = std::make_shared<ArgumentPlan>();
    plan->step_role = role;
    functions.push_back(
        {.id = static_cast<uint32_t>(functions.size()), .arguments = std::move(plan)});
  }
  return functions;
}

class StepOperatorsTest : public testing::Test {
 protected:
  StepOperatorsTest() { layouts_.add({.fields = {}, .operations = {"NONE", "MUL", "ROPE"}}); }

  void take(const ReportedCall& call) { operators_.apply(ReportedCalls{{call}}, functions_); }
  ReportedCall make_operator(uint32_t operation, const std::string& name, uint64_t start_ns,
                             uint64_t lost = 0) const {
    return {.start_mono_ns = start_ns,
            .process = kProcess,
            .tid = 1,
            .function_id = kOperatorCall,
            .operator_call = std::make_shared<const OperatorCall>(
                OperatorCall{.layout = 1, .operation = operation, .name = name, .lost = lost})};
  }
  void begin(uint32_t operation, const std::string& name, uint64_t start_ns, uint64_t lost = 0) {
    take(make_operator(operation, name, start_ns, lost));
  }
  void end_part(uint64_t end_ns) {
    take({.start_mono_ns = 1,
          .duration_ns = end_ns - 1,
          .process = kProcess,
          .tid = 1,
          .function_id = kPartCall});
  }
  void route(const std::string& name, uint64_t tokens, const std::vector<int32_t>& experts) {
    take({.process = kProcess,
          .tid = 1,
          .function_id = kOperatorCall,
          .routing = std::make_shared<const Routing>(Routing{.name = name,
                                                             .tokens = tokens,
                                                             .read_tokens = experts.size(),
                                                             .expert_count = 6,
                                                             .experts = experts})});
  }
  OperatorReport list() const {
    Snapshot snapshot;
    operators_.fill(snapshot);
    return snapshot.operators;
  }
  // "ROPE Qcur-N 2: 1 in 30 ns" of each kind: calls, and those that are timed.
  std::vector<std::string> describe() const {
    std::vector<std::string> kinds;
    for (const OperatorRow& row : list().at(0)->operators) {
      kinds.push_back(row.operation + " " + row.tensor + " " + std::to_string(row.calls) + ": " +
                      std::to_string(row.timed_calls) + " in " + std::to_string(row.total_ns) +
                      " ns");
    }
    return kinds;
  }

  const FunctionList functions_ = make_functions();
  TensorLayouts layouts_;
  DropCounters drops_;
  StepOperators operators_{std::chrono::seconds(600), layouts_, drops_};
};

TEST_F(StepOperatorsTest, AnOperatorLastsUntilTheNextOneAndTheLastUntilItsStepEnds) {
  for (const uint64_t at : {1'000u, 5'000u}) {
    begin(2, "Qcur-0", at);
    begin(2, "Qcur-1", at + 30);
    begin(1, "out", at + 50);
    end_part(at + 150);
  }
  EXPECT_THAT(describe(), ElementsAre("MUL out 2: 2 in 200 ns", "ROPE Qcur-N 4: 4 in 100 ns"));
}

TEST_F(StepOperatorsTest, IsNotTimedWhereTheProbeWasTakenOutBeforeTheNext) {
  begin(2, "Qcur-0", 1'000);
  begin(1, "out", 1'030);
  end_part(1'130);
  begin(2, "Qcur-0", 5'000);
  end_part(5'900);  // with "out" before it, unseen

  EXPECT_THAT(describe(), ElementsAre("MUL out 1: 1 in 100 ns", "ROPE Qcur-N 2: 1 in 30 ns"));
}

TEST_F(StepOperatorsTest, IsNotTimedAcrossLostOnesAndPauses) {
  begin(2, "Qcur-0", 1'000, 0);
  begin(2, "Qcur-1", 1'500, 3);
  begin(2, "Qcur-2", 1'510, 3);
  begin(2, "Qcur-0", 1'510 + StepOperators::kMaxOperatorNs + 1, 3);

  EXPECT_THAT(describe(), ElementsAre("ROPE Qcur-N 4: 1 in 10 ns"));
}

TEST_F(StepOperatorsTest, AnOperatorOfTheNextStepMayComeBeforeTheEndOfTheLast) {
  begin(2, "Qcur-0", 1'000);
  begin(1, "out", 1'030);
  begin(2, "Qcur-0", 2'000);
  end_part(1'500);  // before it began
  begin(1, "out", 2'030);

  EXPECT_THAT(describe(), Contains("ROPE Qcur-N 2: 2 in 60 ns"));
}

TEST_F(StepOperatorsTest, ThreadsAndUnknownNumbersAreApart) {
  begin(2, "a", 1'000);
  ReportedCall other = make_operator(77, "b", 1'010);
  other.tid = 2;
  take(other);
  begin(2, "a", 1'100);

  EXPECT_THAT(describe(), ElementsAre("ROPE a 2: 1 in 100 ns", "operation 77 b 1: 0 in 0 ns"));
}

TEST_F(StepOperatorsTest, CountsTokensByExpert) {
  route("ffn_moe_down-10", 2, {0, 5});
  route("ffn_moe_down-2", 70, {1, 1, 3, -1, 5'000});

  const auto row = list().at(0);
  ASSERT_EQ(row->layers.size(), 2u);
  EXPECT_EQ(row->layers[0], (ExpertLayer{.layer = "2",
                                         .tokens = 70,
                                         .read_tokens = 5,
                                         .expert_count = 6,
                                         .expert_tokens = {0, 2, 0, 1}}));
  EXPECT_EQ(row->layers[1].layer, "10");
  EXPECT_THAT(row->layers[1].expert_tokens, ElementsAre(1, 0, 0, 0, 0, 1));
  EXPECT_EQ(row->other_tokens, 2u);
}

TEST_F(StepOperatorsTest, KeepsSoMuchOfAProcessAndCountsTheRest) {
  for (size_t i = 0; i < StepOperators::kMaxKinds + 3; ++i) {
    begin(2, "t" + std::to_string(i) + "x", 1'000 + i);
  }
  for (size_t i = 0; i < StepOperators::kMaxLayers + 2; ++i) {
    route("ffn_moe_down-" + std::to_string(i), 1, {0});
  }
  auto row = list().at(0);
  EXPECT_EQ(row->operators.size(), StepOperators::kMaxKinds);
  EXPECT_EQ(row->other_calls, 3u);
  EXPECT_EQ(row->layers.size(), StepOperators::kMaxLayers);
  EXPECT_EQ(row->other_tokens, 2u);

  for (int i = 0; i < 100; ++i) {
    route("ffn_moe_down-" + std::to_string(i), 1, {StepOperators::kMaxExperts - 1});
  }
  size_t counters = 0;
  row = list().at(0);
  for (const ExpertLayer& layer : row->layers) counters += layer.expert_tokens.size();
  EXPECT_LE(counters, StepOperators::kMaxCounters);
  EXPECT_GT(counters, StepOperators::kMaxCounters - StepOperators::kMaxExperts);
  EXPECT_GT(row->other_tokens, 60u);
}

TEST_F(StepOperatorsTest, CountsOperatorsOfProcessesBeyondTheLimit) {
  for (uint32_t pid = 1; pid <= StepOperators::kMaxProcesses + 1; ++pid) {
    ReportedCall call = make_operator(2, "a", 1'000);
    call.process = make_process(pid);
    take(call);
  }
  EXPECT_EQ(drops_.get(DropCause::kStepsProcessesFull), 1u);
  EXPECT_EQ(list().size(), StepOperators::kMaxProcesses);

  operators_.apply(ProcessExited{make_process(1)}, kNowNs);
  ReportedCall call = make_operator(2, "a", 1'000);
  call.process = make_process(999);
  take(call);
  EXPECT_EQ(drops_.get(DropCause::kStepsProcessesFull), 1u);  // the one that exited made room
}

TEST_F(StepOperatorsTest, ForgetsAProcessSomeTimeAfterItsEnd) {
  begin(2, "a", 1'000);
  operators_.apply(ProcessExited{kProcess}, kNowNs);
  EXPECT_TRUE(list().at(0)->exited);
  operators_.expire(kNowNs + 599 * kSecondNs);
  EXPECT_EQ(list().size(), 1u);
  operators_.expire(kNowNs + 600 * kSecondNs);
  EXPECT_THAT(list(), IsEmpty());
}

TEST_F(StepOperatorsTest, WhatComesAfterTheEndOfItsProcessIsForgottenToo) {
  operators_.apply(ProcessExited{kProcess}, kNowNs);
  route("ffn_moe_down-1", 1, {0});
  EXPECT_TRUE(list().at(0)->exited);
  operators_.expire(kNowNs + 600 * kSecondNs);
  EXPECT_THAT(list(), IsEmpty());
}

TEST_F(StepOperatorsTest, RowsHandedOutDoNotChange) {
  begin(2, "a", 1'000);
  const auto before = list().at(0);
  EXPECT_EQ(list().at(0), before);  // not made anew for nothing
  begin(2, "a", 1'010);
  EXPECT_EQ(before->operators[0].calls, 1u);
  EXPECT_EQ(list().at(0)->operators[0].calls, 2u);
}

TEST(TensorKindTest, IsTheSameInEachLayer) {
  EXPECT_EQ(get_tensor_kind("ffn_moe_down-12"), "ffn_moe_down-N");
  EXPECT_EQ(get_tensor_kind("Qcur-3 (reshaped) (view)"), "Qcur-N (reshaped) (view)");
  EXPECT_EQ(get_tensor_kind("cache_k_l0 (view)"), "cache_k_lN (view)");
  EXPECT_EQ(get_tensor_kind("node_97"), "node_N");
  EXPECT_EQ(get_tensor_kind("blk.2.attn"), "blk.N.attn");
  EXPECT_EQ(get_tensor_kind("result_norm"), "result_norm");
  EXPECT_EQ(get_tensor_kind("a1b"), "a1b");
  EXPECT_EQ(get_tensor_kind(""), "");
}

}  // namespace
}  // namespace gpuperf
