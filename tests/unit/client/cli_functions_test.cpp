// What gpuperfctl functions shows beside its plain list: bytes, calls in flight, coverage, shapes.

#include <signal.h>

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliFunctionsTest : public CliTest {
 protected:
  CliFunctionsTest() {
    v1::Shape shape;
    shape.set_category("cublas");
    shape.set_function("cublasGemmEx");
    shape.set_m(4096);
    shape.set_n(16);
    shape.set_k(1024);
    shape.set_batch(1);
    shape.set_calls(28);
    shape.set_flops(28.0 * 2 * 4096 * 16 * 1024);
    daemon_.answers.shapes = {shape};
    v1::InFlightCall call;
    call.set_category("nccl");
    call.set_function("ncclAllReduce");
    call.set_pid(4242);
    call.set_tid(4250);
    call.set_comm("evil\x1b[2J");
    call.set_age_ns(41'200'000'000);
    daemon_.answers.in_flight_calls = {call};
  }
};

TEST_F(CliFunctionsTest, ShowsBytesAgeAndCoverageWhereThereAreAny) {
  daemon_.answers.functions[1].set_oldest_in_flight_ns(41'200'000'000);
  daemon_.answers.functions[1].set_bytes(3 << 20);
  daemon_.answers.functions[1].set_coverage(0.25);

  const auto result = run({"functions"});

  EXPECT_THAT(result.out, HasSubstr("         IN-FLIGHT     BYTES  COVERAGE  ERROR NAMES\n"));
  EXPECT_THAT(result.out, HasSubstr(" 1 (oldest 41.2 s)  3.00 MiB    25.0 %  cudaErrorMemory"));
  EXPECT_THAT(result.out, Not(HasSubstr("BYTES/S")));
}

TEST_F(CliFunctionsTest, ShowsBytesPerSecondInAWatch) {
  daemon_.answers.bytes_between_answers = 1 << 20;  // 0.1 s between the moments they show
  Program program({"functions", "--watch=0.1"}, with_address());

  const std::string shown = program.read_until("10.0 MiB");
  program.send_signal(SIGINT);

  EXPECT_THAT(shown, HasSubstr("BYTES/S"));
  EXPECT_EQ(program.finish().exit_code, 0);
}

TEST_F(CliFunctionsTest, ListsGemmShapes) {
  const auto result = run({"functions", "--shapes", "--sort", "calls", "--category", "cublas"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("cublasGemmEx  4096  16  1024      1"));
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListShapes: filter { category: \"cublas\" } page { limit: 1000 } "
                          "sort: \"calls\""));
}

TEST_F(CliFunctionsTest, ListsCallsInFlight) {
  const auto result = run({"functions", "--in-flight", "--pid", "4242"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "   AGE  CATEGORY  FUNCTION        PID   TID  COMM\n"
            "41.2 s  nccl      ncclAllReduce  4242  4250  evil\\x1b[2J\n"
            "\nLast scan: 1.20 s ago.\n");
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("ListInFlightCalls: filter { pid: 4242 } page { limit: 1000 }"));
}

TEST_F(CliFunctionsTest, GivesShapesAndCallsInFlightAsJson) {
  EXPECT_EQ(ordered_json::parse(run({"functions", "--shapes", "-o", "json"}).out),
            ordered_json::array({to_json(daemon_.answers.shapes[0])}));
  EXPECT_EQ(ordered_json::parse(run({"functions", "--in-flight", "-o", "json"}).out),
            ordered_json::array({to_json(daemon_.answers.in_flight_calls[0])}));
}

TEST_F(CliFunctionsTest, SaysWhyAListIsEmpty) {
  daemon_.answers.shapes.clear();
  daemon_.answers.in_flight_calls.clear();

  EXPECT_THAT(run({"functions", "--shapes"}).out, HasSubstr("No GEMM succeeded yet."));
  EXPECT_THAT(run({"functions", "--shapes", "--pid", "1"}).out, HasSubstr("No GEMM matches."));
  EXPECT_THAT(run({"functions", "--in-flight"}).out,
              HasSubstr("No call is in flight. Last scan: 1.20 s ago."));
  EXPECT_THAT(run({"functions", "--in-flight", "--pid", "1"}).out,
              HasSubstr("No call matches. Last scan: 1.20 s ago."));
}

TEST_F(CliFunctionsTest, SaysThatNobodyHasLookedYet) {
  daemon_.answers.in_flight_calls.clear();
  daemon_.answers.look_age_ns = 0;

  EXPECT_THAT(
      run({"functions", "--in-flight"}).out,
      HasSubstr("gpuperfd has not scanned for calls in flight yet; try again in a few seconds."));
}

TEST_F(CliFunctionsTest, RefusesFlagsThatWouldBeIgnored) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--shapes", "--in-flight"},
                                                {"--shapes", "--per-process"},
                                                {"--in-flight", "--per-process"},
                                                {"--in-flight", "--sort", "calls"}}) {
    std::vector<std::string> command = {"functions"};
    command.insert(command.end(), flags.begin(), flags.end());
    const auto result = run(command);
    EXPECT_EQ(result.exit_code, 2) << flags[0] << " " << flags[1];
    EXPECT_THAT(result.err, HasSubstr("excludes"));
  }
}

}  // namespace
}  // namespace gpuperf::client
