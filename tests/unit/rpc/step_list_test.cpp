#include "daemon/rpc/step_list.h"

#include <memory>
#include <string>
#include <vector>

#include "daemon/rpc/step_operator_list.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/export/snapshot_builder.h"
#include "tests/unit/matchers.h"
#include "tests/unit/proto_text.h"

namespace gpuperf {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr ProcessKey kServer{.pid = 1, .start_boot_ns = 1};
constexpr ProcessKey kTrainer{.pid = 2, .start_boot_ns = 2};

Step make_step(uint64_t id, uint64_t start_ms, uint64_t duration_ms) {
  return {.id = id,
          .process = kServer,
          .tid = 10,
          .start_mono_ns = start_ms * kMs,
          .returned_mono_ns = (start_ms + duration_ms) * kMs,
          .completed_mono_ns = (start_ms + duration_ms) * kMs,
          .phase = StepPhase::kDecode,
          .tokens = {4, StepQuality::kExact},
          .threshold_ns = 100 * kMs};
}

class StepListTest : public ::testing::Test {
 protected:
  StepListTest() {
    builder_.add_function({.category = "llama", .name = "llama_decode"});
    builder_.snapshot().taken_mono_ns = static_cast<int64_t>(20'000 * kMs);
    builder_.snapshot().processes = {
        {.process = kServer, .owner = {.comm = "server", .container = "0123456789ab", .pod = "p"}},
        {.process = kTrainer, .owner = {.comm = "python"}}};
    server_.process = kServer;
    trainer_.process = kTrainer;
  }
  void add(StepProcess& row, const Step& step) {
    Step added = step;
    added.process = row.process;
    row.recent.push_back(added);
    if (is_slow(added)) row.slow.push_back(added);
    add_step(row.phases[static_cast<size_t>(added.phase)], added);
    row.last_start_mono_ns = added.start_mono_ns;
  }
  void add_operators(const OperatorProcess& row) {
    builder_.snapshot().operators.push_back(std::make_shared<const OperatorProcess>(row));
  }
  std::shared_ptr<const Snapshot> build() {
    builder_.snapshot().steps.processes = {std::make_shared<const StepProcess>(server_),
                                           std::make_shared<const StepProcess>(trainer_)};
    return builder_.build();
  }
  std::vector<uint64_t> list_ids(const std::string& filter, bool slow_only) {
    std::vector<uint64_t> ids;
    for (const v1::Step& step :
         list_steps(*build(), clock_, parse_text<v1::Filter>(filter), slow_only)) {
      ids.push_back(step.id());
    }
    return ids;
  }

  testing::SnapshotBuilder builder_;
  FakeClock clock_;
  StepProcess server_, trainer_;
};

TEST_F(StepListTest, ListsNewestFirstAndSlowOnesLongestFirst) {
  add(server_, make_step(1, 100, 150));
  add(trainer_, make_step(2, 300, 200));
  add(server_, make_step(3, 600, 5));

  EXPECT_THAT(list_ids("", false), ElementsAre(3, 2, 1));
  EXPECT_THAT(list_ids("", true), ElementsAre(2, 1));
  EXPECT_THAT(list_ids("pid: 1", false), ElementsAre(3, 1));
  EXPECT_THAT(list_ids("function: 'other'", false), IsEmpty());
  EXPECT_THAT(list_ids("min_duration_ns: 160000000", false), ElementsAre(2));
}

TEST_F(StepListTest, ListsASlowStepOnceThoughOthersOfItsTimeAreGone) {
  add(server_, make_step(1, 100, 150));
  add(server_, make_step(2, 300, 5));
  add(server_, make_step(3, 400, 150));
  server_.recent.pop_front();

  EXPECT_THAT(list_ids("", false), ElementsAre(3, 2, 1));
}

TEST_F(StepListTest, RatesAreOfTheLastTenSeconds) {
  add(server_, make_step(1, 5'000, 10));
  for (uint64_t i = 0; i < 20; ++i) add(server_, make_step(2 + i, 11'000 + 100 * i, 10));
  add(trainer_, make_step(90, 18'000, 10));

  const auto rows = list_step_processes(*build(), RowFilter(v1::Filter()));

  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].comm(), "server");
  EXPECT_EQ(rows[0].pod(), "p");
  EXPECT_EQ(rows[0].function(), "llama_decode");
  EXPECT_DOUBLE_EQ(rows[0].steps_per_second(), 2);
  EXPECT_DOUBLE_EQ(rows[0].tokens_per_second(), 8);
  EXPECT_EQ(rows[0].steps(), 21u);
  EXPECT_EQ(rows[0].phases(0).tokens(), 84u);
  EXPECT_EQ(rows[0].phases(0).exact_tokens(), 84u);
  EXPECT_DOUBLE_EQ(rows[1].steps_per_second(), 0.5);  // it is two seconds old
}

TEST_F(StepListTest, ListsOperatorsWithTheirShareOfTheTime) {
  add_operators({.process = kTrainer, .exited = true, .operators = {{"ADD", "a", 1, 1, 10}}});
  add_operators(
      {.process = kServer,
       .operators = {{"MUL_MAT", "ffn_up-N", 30, 20, 750}, {"ROPE", "Qcur-N", 30, 20, 250}},
       .other_calls = 5});

  const auto rows = list_step_operators(*build(), RowFilter(v1::Filter()));

  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].comm(), "server");
  EXPECT_EQ(rows[0].operation(), "MUL_MAT");
  EXPECT_EQ(rows[0].tensor(), "ffn_up-N");
  EXPECT_EQ(rows[0].calls(), 30u);
  EXPECT_EQ(rows[0].timed_calls(), 20u);
  EXPECT_EQ(rows[0].total_ns(), 750u);
  EXPECT_DOUBLE_EQ(rows[0].time_ratio(), 0.75);
  EXPECT_EQ(rows[2].operation(), "");
  EXPECT_EQ(rows[2].calls(), 5u);
  EXPECT_TRUE(rows[3].exited());
  EXPECT_THAT(list_step_operators(*build(), RowFilter(parse_text<v1::Filter>("pid: 77"))),
              IsEmpty());
}

TEST_F(StepListTest, SaysHowEvenlyTokensGoToExperts) {
  add_operators({.process = kServer,
                 .layers = {{.layer = "0",
                             .tokens = 20,
                             .read_tokens = 10,
                             .expert_count = 4,
                             .expert_tokens = {2, 6, 2}},
                            {.layer = "1", .tokens = 9, .expert_tokens = {0, 1, 1, 2}},
                            {.layer = "2", .tokens = 9}}});

  const auto rows = list_step_experts(*build(), RowFilter(v1::Filter()));

  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].layer(), "0");
  EXPECT_EQ(rows[0].tokens(), 20u);
  EXPECT_EQ(rows[0].read_tokens(), 10u);
  EXPECT_THAT(rows[0].expert_tokens(), ElementsAre(2, 6, 2, 0));
  EXPECT_EQ(rows[0].unused_experts(), 1u);
  EXPECT_EQ(rows[0].busiest_expert(), 1u);
  EXPECT_DOUBLE_EQ(rows[0].imbalance(), 2.4);
  EXPECT_DOUBLE_EQ(rows[1].imbalance(), 2);
  EXPECT_DOUBLE_EQ(rows[2].imbalance(), 0);
  EXPECT_EQ(rows[2].pod(), "p");
}

TEST_F(StepListTest, SaysSinceWhenAProcessHangs) {
  add(server_, make_step(1, 5'000, 10));
  server_.stall = StepStall::kInStep;
  server_.stalled_mono_ns = 12'000 * kMs;
  server_.stalls = 2;

  const auto rows = list_step_processes(*build(), RowFilter(v1::Filter()));

  EXPECT_EQ(rows[0].stall(), "in_step");
  EXPECT_EQ(rows[0].stall_ns(), 8'000 * kMs);
  EXPECT_EQ(rows[0].stalls(), 2u);
}

TEST_F(StepListTest, SaysWhereALearnedStepReadsItsResults) {
  Step learned = make_step(1, 100, 5);
  learned.is_learned = true;
  learned.site = 7;
  add(server_, learned);
  add(trainer_, make_step(2, 300, 5));
  auto stack = std::make_shared<Stack>();
  stack->frames = {{.symbol = "decode"}};
  builder_.snapshot().named_stacks = {{7, stack}};

  const auto processes = list_step_processes(*build(), RowFilter(v1::Filter()));
  v1::GetStepResponse step;
  ASSERT_TRUE(get_step(*build(), clock_, 1, step).ok());

  ASSERT_EQ(processes.size(), 2u);
  for (const v1::StepProcess& process : processes) {
    const bool is_server = process.pid() == kServer.pid;
    EXPECT_EQ(process.learned(), is_server);
    EXPECT_EQ(process.site_size(), is_server ? 1 : 0);
  }
  EXPECT_TRUE(step.step().learned());
  ASSERT_EQ(step.site_size(), 1);
  EXPECT_EQ(step.site(0).symbol(), "decode");
}

TEST_F(StepListTest, FindsTheLongestSlowCallWithinAStep) {
  add(server_, make_step(1, 1'000, 150));
  add(server_, make_step(2, 2'000, 150));
  const auto add_call = [this](uint64_t id, uint32_t tid, uint64_t start_ms, uint64_t duration_ms) {
    SlowCall call{.id = id};
    call.event.process = kServer;
    call.event.tid = tid;
    call.event.start_mono_ns = start_ms * kMs;
    call.event.duration_ns = duration_ms * kMs;
    builder_.add_slow_call(std::move(call));
  };
  add_call(1, 10, 1'010, 20);
  add_call(2, 10, 1'040, 90);
  add_call(3, 11, 1'000, 150);
  add_call(4, 10, 1'400, 300);
  v1::GetStepResponse response;

  ASSERT_TRUE(get_step(*build(), clock_, 1, response).ok());
  EXPECT_EQ(response.step().slow_call_id(), 2u);
  EXPECT_EQ(response.slow_call().id(), 2u);
  EXPECT_EQ(response.usual().steps(), 2u);
  response.Clear();
  ASSERT_TRUE(get_step(*build(), clock_, 2, response).ok());
  EXPECT_FALSE(response.has_slow_call());
  EXPECT_EQ(get_step(*build(), clock_, 3, response).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gpuperf
