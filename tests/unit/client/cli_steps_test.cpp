// gpuperfctl steps.

#include "cli_fixture.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

constexpr uint64_t kMs = 1'000'000;

v1::StepPhaseStats make_phase(v1::StepPhase phase, uint64_t steps, uint64_t total_ms) {
  v1::StepPhaseStats stats;
  stats.set_phase(phase);
  stats.set_steps(steps);
  stats.set_total_ns(total_ms * kMs);
  stats.set_p50_ns(12 * kMs);
  stats.set_p99_ns(20 * kMs);
  return stats;
}

v1::StepProcess make_process() {
  v1::StepProcess row;
  row.set_pid(41);
  row.set_comm("server");
  row.set_category("llama");
  row.set_function("llama_decode");
  row.set_steps(1'234);
  row.set_steps_per_second(81.5);
  row.set_tokens_per_second(652);
  row.set_p50_ns(12 * kMs);
  row.set_p99_ns(20 * kMs);
  *row.add_phases() = make_phase(v1::STEP_PHASE_PREFILL, 34, 250);
  *row.add_phases() = make_phase(v1::STEP_PHASE_DECODE, 1'200, 750);
  return row;
}

v1::Step make_step() {
  v1::Step step;
  step.set_id(7);
  step.set_pid(41);
  step.set_tid(42);
  step.set_comm("server");
  step.set_category("llama");
  step.set_function("llama_decode");
  step.set_phase(v1::STEP_PHASE_DECODE);
  step.set_phase_quality(v1::STEP_QUALITY_EXACT);
  step.set_start_unix_ns(1'700'000'000'000'000'000);
  step.set_duration_ns(300 * kMs);
  step.set_duration_quality(v1::STEP_QUALITY_EXACT);
  step.set_call_ns(299 * kMs);
  step.set_calls(1);
  step.set_tokens(8);
  step.set_tokens_quality(v1::STEP_QUALITY_EXACT);
  step.set_sequences(8);
  step.set_sequences_quality(v1::STEP_QUALITY_ESTIMATED);
  step.set_threshold_ns(100 * kMs);
  step.set_slow(true);
  step.set_slow_call_id(3);
  return step;
}

class CliStepsTest : public CliTest {
 protected:
  CliStepsTest() {
    daemon_.answers.step_processes = {make_process()};
    daemon_.answers.steps = {make_step()};
    *daemon_.answers.step.mutable_step() = make_step();
    *daemon_.answers.step.mutable_usual() = make_phase(v1::STEP_PHASE_DECODE, 1'200, 750);
  }
};

TEST_F(CliStepsTest, SaysWhatALoopDoesBeforeTheTable) {
  const auto result = run({"steps"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "server (pid 41) makes 81.5 steps and 652 tokens per second; half of its steps take at "
            "most 12.0 ms, 99 of 100 at most 20.0 ms.\n\n"
            "PID  COMM    FUNCTION      STEPS  STEPS/S      P50      P99  TOKENS/S"
            "  TIME BY PHASE                  SLOW\n"
            " 41  server  llama_decode  1,234     81.5  12.0 ms  20.0 ms       652"
            "  decode 75.0 %, prefill 25.0 %     0\n");
}

TEST_F(CliStepsTest, NamesAProcessThatHangsFirst) {
  v1::StepProcess hangs = make_process();
  hangs.set_pid(50);
  hangs.set_stall("in_step");
  hangs.set_stall_ns(12'000 * kMs);
  daemon_.answers.step_processes.push_back(hangs);

  EXPECT_THAT(run({"steps"}).out,
              StartsWith("server (pid 50) hangs in a step for 12.0 s; its steps take 12.0 ms at "
                         "the median.\n\n"));
}

TEST_F(CliStepsTest, SaysWhenNoLoopIsActive) {
  daemon_.answers.step_processes[0].set_steps_per_second(0);
  EXPECT_THAT(run({"steps"}).out, StartsWith("No process has made a step within the last 10"));
}

TEST_F(CliStepsTest, SaysWhatAStepIsWhereThereIsNone) {
  daemon_.answers.step_processes.clear();
  EXPECT_THAT(run({"steps"}).out, HasSubstr("No process has made a step. A step is"));
}

TEST_F(CliStepsTest, ListsStepsWithTheirSlowCalls) {
  const auto result = run({"steps", "list", "--slow", "--pid", "41"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("300 ms  decode         ~8       8  llama_decode"));
  EXPECT_THAT(daemon_.requests(), Contains(StartsWith("ListSteps: filter { pid: 41 }")));
  EXPECT_THAT(daemon_.requests(), Contains(HasSubstr("slow_only: true")));
}

TEST_F(CliStepsTest, ExplainsOneStep) {
  const std::string out = run({"steps", "show", "7"}).out;

  EXPECT_THAT(out, StartsWith("Step 7 of server: decode, 25 x the median of 1,200 decode steps, "
                              "12.0 ms; 99 of 100 take at most 20.0 ms.\n"));
  EXPECT_THAT(out, HasSubstr("300 ms, until its thread had the results (exact)\n"));
  EXPECT_THAT(out, HasSubstr("8 (estimated)\n"));
  EXPECT_THAT(out, HasSubstr("Where its time went is not known"));
}

TEST_F(CliStepsTest, AddsTheSlowCallThatTellsWhereTheTimeWent) {
  *daemon_.answers.step.mutable_slow_call() = daemon_.answers.slow_calls[0];

  EXPECT_THAT(run({"steps", "show", "7"}).out, HasSubstr("\nSlow call 3 within it:\n\n"));
}

TEST_F(CliStepsTest, GivesEverythingAsJson) {
  const auto rows = ordered_json::parse(run({"steps", "list", "-o", "json"}).out);

  EXPECT_EQ(rows[0]["phase"], "decode");
  EXPECT_EQ(rows[0]["sequences_quality"], "estimated");
  EXPECT_EQ(rows[0]["slow_call_id"], 3);
}

v1::StepOperator make_operator(const std::string& operation, uint64_t total_ms, double ratio) {
  v1::StepOperator row;
  row.set_pid(41);
  row.set_comm("server");
  row.set_operation(operation);
  row.set_tensor("ffn_up-N");
  row.set_calls(3'000);
  row.set_timed_calls(total_ms == 0 ? 0 : 2'000);
  row.set_total_ns(total_ms * kMs);
  row.set_time_ratio(ratio);
  return row;
}

TEST_F(CliStepsTest, SaysWhichOperatorsStepsSpendTheirTimeOn) {
  daemon_.answers.operators = {make_operator("MUL_MAT", 300, 0.75),
                               make_operator("ROPE", 100, 0.25), make_operator("", 0, 0)};

  const auto result = run({"steps", "operators", "--pid", "41"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "server (pid 41) spends 75.0 % of its operators' time on MUL_MAT of ffn_up-N.\n\n"
            "PID  COMM    OPERATION  TENSOR    CALLS    TIME   SHARE     MEAN\n"
            " 41  server  MUL_MAT    ffn_up-N  3,000  300 ms  75.0 %   150 µs\n"
            " 41  server  ROPE       ffn_up-N  3,000  100 ms  25.0 %  50.0 µs\n"
            " 41  server  others     ffn_up-N  3,000       -       -        -\n");
  EXPECT_THAT(daemon_.requests(), Contains(StartsWith("ListStepOperators: filter { pid: 41 }")));
}

TEST_F(CliStepsTest, NamesTheMostUnevenLayerOfExperts) {
  v1::ExpertLayer even, uneven;
  for (v1::ExpertLayer* layer : {&even, &uneven}) {
    layer->set_pid(41);
    layer->set_comm("server");
    layer->set_tokens(3'000);
    layer->set_read_tokens(2'000);
    layer->mutable_expert_tokens()->Resize(8, 500);
  }
  even.set_layer("3");
  even.set_imbalance(1);
  uneven.set_layer("4");
  uneven.set_unused_experts(2);
  uneven.set_busiest_expert(5);
  uneven.set_imbalance(3.25);
  daemon_.answers.expert_layers = {even, uneven};

  const auto result = run({"steps", "experts"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("server (pid 41): layer 4 is the most uneven: expert 5 gets "
                                     "3.25 times the mean of its 8 experts.\n\n"));
  EXPECT_THAT(result.out,
              HasSubstr("    4   3,000  2,000        8       2        5       3.25 x\n"));
}

TEST_F(CliStepsTest, SaysWhereOperatorsWouldComeFrom) {
  EXPECT_THAT(run({"steps", "operators"}).out,
              HasSubstr("gpuperfctl probes --function ggml_operator"));
  EXPECT_THAT(run({"steps", "experts"}).out, HasSubstr("No layer with experts yet."));
}

TEST_F(CliStepsTest, RefusesFlagsOfTheListBeforeASubcommand) {
  EXPECT_EQ(run({"steps", "--pid", "41", "show", "7"}).exit_code, 2);
}

}  // namespace
}  // namespace gpuperf::client
