// Turns of a loop that reads results back from the GPU, as the kernel side tells them.

#include <gmock/gmock.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/kernel/probe_fixture.h"
#include "tests/kernel/probe_targets.h"

namespace gpuperf {
namespace {

constexpr uint32_t kCopy = 0, kWait = 1, kProduct = 2, kReplay = 3, kBegin = 4, kEnd = 5,
                   kInstantiate = 6;
constexpr uint64_t kToDevice = 1, kToHost = 2;  // cudaMemcpyKind

// A function of CUDA for each number; returns `status`.
template <uint32_t>
__attribute__((noinline)) int target_api(uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                         int status) {
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(status) : : "memory");
  return status;
}
void copy(uint64_t kind, int status = 0) { (void)target_api<kCopy>(0, 0, 8, kind, status); }
void wait() { (void)target_api<kWait>(0, 0, 0, 0, 0); }
void multiply(int m, int n, int k) { (void)target_gemm(m, n, k, 0); }

std::shared_ptr<ArgumentPlan> make_plan(StepRole role, std::vector<uint8_t> arguments) {
  auto plan = std::make_shared<ArgumentPlan>();
  for (const uint8_t argument : arguments) {
    plan->fields.push_back({.name = "value", .capture = {.source = argument, .size_bytes = 8}});
  }
  plan->step_role = role;
  if (role != StepRole::kNone) plan->report = CallReport::kStep;
  return plan;
}

class TurnProbeTest : public FunctionProbeTest {
 protected:
  void SetUp() override {
    FunctionProbeTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const auto copies = make_plan(StepRole::kResultCopy, {2, 3});
    copies->rules.byte_factors[0] = 1;
    copies->rules.element_bytes[0] = 1;
    copies->rules.byte_kind = 2;
    probe(kCopy, target_api<kCopy>, {.symbol = "cudaMemcpyAsync", .arguments = copies});
    probe(kWait, target_api<kWait>,
          {.symbol = "cudaStreamSynchronize", .arguments = make_plan(StepRole::kResultWait, {})});
    const auto products = make_plan(StepRole::kNone, {0, 1, 2});
    products->rules.shape_dimensions = 3;
    probe(kProduct, target_gemm, {.symbol = "cublasGemmEx", .arguments = products});
    probe(kReplay, target_api<kReplay>, {.symbol = "cudaGraphLaunch"});
    probe(kBegin, target_api<kBegin>, {.symbol = "cuStreamBeginCapture_v2"});
    probe(kEnd, target_api<kEnd>, {.symbol = "cuStreamEndCapture"});
    probe(kInstantiate, target_api<kInstantiate>, {.symbol = "cuGraphInstantiateWithFlags"});
  }
  static void rest() { usleep(300); }  // as long as turns are apart that are reported each
  std::vector<gpuperf_reported_call> take() { return drain<gpuperf_reported_call>("report_ring"); }
};

TEST_P(TurnProbeTest, ACopyToTheHostAfterWorkIsReportedAndTheWaitForIt) {
  wait();
  copy(kToHost);  // after nothing
  copy(kToDevice);
  multiply(4'096, 7, 1'024);
  multiply(1'024, 7, 4'096);
  multiply(50'000, 1, 1'024);
  copy(kToHost);
  copy(kToHost);  // likewise
  wait();
  wait();

  const auto records = take();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].function_id, kCopy);
  EXPECT_EQ(records[0].values[0], 8u);
  EXPECT_NE(records[0].stack_id, 0u);
  EXPECT_EQ(records[0].turn.products.products, 3u);
  EXPECT_EQ(records[0].turn.products.rows, 7u);
  EXPECT_EQ(records[0].turn.products.lead, 1u);
  EXPECT_EQ(records[0].turn.graphs, 0u);
  EXPECT_GT(records[0].turn.start_mono_ns, 0u);
  EXPECT_LT(records[0].turn.start_mono_ns, records[0].start_mono_ns);
  EXPECT_EQ(records[1].function_id, kWait);
  EXPECT_EQ(records[1].stack_id, 0u);
  EXPECT_EQ(records[1].turn.start_mono_ns, 0u);
  EXPECT_EQ(count(kCopy).completed, 4u);
  EXPECT_EQ(count(kWait).completed, 3u);
}

TEST_P(TurnProbeTest, TheNextTurnBeginsAnew) {
  multiply(4'096, 7, 1'024);
  copy(kToHost);
  rest();
  multiply(4'096, 9, 1'024);
  copy(kToHost);

  const auto records = take();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_GT(records[1].turn.start_mono_ns, records[0].start_mono_ns);
  EXPECT_EQ(records[1].turn.products.products, 1u);
  EXPECT_EQ(records[1].turn.products.rows, 9u);
}

TEST_P(TurnProbeTest, OfTurnsInQuickSuccessionSomeAreReported) {
  constexpr int kTurns = 2'000;
  for (int i = 0; i < kTurns; ++i) {
    multiply(4'096, 7, 1'024);
    copy(kToHost);
  }
  rest();
  multiply(4'096, 7, 1'024);
  copy(kToHost);

  const auto records = take();
  ASSERT_GE(records.size(), 2u);
  ASSERT_LT(records.size(), size_t{kTurns});
  for (const gpuperf_reported_call& record : records) {
    EXPECT_EQ(record.turn.products.products, 1u) << "of the turn that it ends alone";
  }
  for (size_t i = 1; i < records.size(); ++i) {
    EXPECT_GE(records[i].start_mono_ns + records[i].duration_ns - records[i - 1].start_mono_ns -
                  records[i - 1].duration_ns,
              200'000u);
  }
}

TEST_P(TurnProbeTest, AReplayHasTheProductsOfItsCapture) {
  const uint64_t graph = 0x1000, exec = 0x2000;
  uint64_t made = 0;
  (void)target_api<kBegin>(1, 0, 0, 0, 0);
  multiply(4'096, 16, 1'024);
  multiply(1'024, 16, 4'096);
  made = graph;
  (void)target_api<kEnd>(1, reinterpret_cast<uint64_t>(&made), 0, 0, 0);
  made = exec;
  (void)target_api<kInstantiate>(reinterpret_cast<uint64_t>(&made), graph, 0, 0, 0);
  copy(kToHost);
  (void)take();
  rest();

  (void)target_api<kReplay>(exec, 0, 0, 0, 0);
  copy(kToHost);
  rest();
  (void)target_api<kReplay>(exec + 1, 0, 0, 0, 0);
  copy(kToHost);

  const auto records = take();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].turn.graphs, 1u);
  EXPECT_EQ(records[0].turn.products.products, 2u);
  EXPECT_EQ(records[0].turn.products.rows, 16u);
  EXPECT_EQ(records[1].turn.graphs, 1u);
  EXPECT_EQ(records[1].turn.products.products, 0u) << "its capture was not seen";
}

TEST_P(TurnProbeTest, AnotherThreadMayWait) {
  multiply(4'096, 7, 1'024);
  copy(kToHost);
  std::thread([] { wait(); }).join();

  const auto records = take();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[1].tid, records[0].tid);
}

TEST_P(TurnProbeTest, TurnsOfManyThreadsLeaveRoomForOtherReports) {
  constexpr int kThreads = 8, kTurns = 1'500;  // twice as many as half of the ring holds
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([] {
      for (int turn = 0; turn < kTurns; ++turn) {
        multiply(4'096, 7, 1'024);
        copy(kToHost);
        rest();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_GT(programs_->losses()[GPUPERF_LOSS_REPORT_RING_FULL], 0u);
  constexpr size_t kRingBytes = 2'097'152, kHeaderBytes = 8;
  EXPECT_LE(take().size(),
            kRingBytes / 2 / (sizeof(gpuperf_reported_call) + kHeaderBytes) + kThreads);
}

TEST_P(TurnProbeTest, ACopyThatFailsEndsNoTurn) {
  multiply(4'096, 7, 1'024);
  copy(kToHost, 1);
  EXPECT_TRUE(take().empty());

  copy(kToHost);

  const auto records = take();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].turn.products.products, 1u);
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, TurnProbeTest, testing::ValuesIn(kMechanisms),
                         [](const auto& info) {
                           return std::string(get_mechanism_name(info.param));
                         });

}  // namespace
}  // namespace gpuperf
