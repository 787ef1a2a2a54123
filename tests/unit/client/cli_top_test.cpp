// gpuperfctl top.

#include <signal.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli_fixture.h"
#include "client/render.h"
#include "client/text.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliTopTest : public CliTest {
 protected:
  CliTopTest() {
    daemon_.answers.calls_between_answers = 10'000;
    daemon_.answers.functions.resize(2);
    daemon_.answers.functions[1].set_oldest_in_flight_ns(90'000'000'000);
    v1::InFlightCall call;
    call.set_category("cuda");
    call.set_function("cudaMalloc");
    call.set_pid(4242);
    call.set_tid(4243);
    call.set_comm("python3");
    call.set_age_ns(90'000'000'000);
    daemon_.answers.in_flight_calls = {call};
    auto* suspension = daemon_.answers.status.add_suspensions();
    suspension->set_category("cublas");
    suspension->set_function("cublasGemmEx");
    suspension->set_pid(4242);
    suspension->set_comm("python3");
    suspension->set_share_ratio(0.034);
    suspension->set_remaining_ns(12'000'000'000);
    suspension->set_times(3);
    daemon_.answers.status.set_overhead_ratio(0.0042);
    daemon_.answers.status.set_overhead_pid(4242);
  }
  ProgramOptions on_terminal(unsigned short columns, unsigned short rows) {
    ProgramOptions options = with_address();
    options.environment["NO_COLOR"] = "1";
    options.terminal = true;
    options.terminal_columns = columns;
    options.terminal_rows = rows;
    return options;
  }
};

TEST_F(CliTopTest, AnswersOnceWhereNobodyWatches) {
  const auto result = run_program({"top", "--watch=0.1", "--once"}, with_address());

  EXPECT_EQ(result.exit_code, 0) << result.err;
  // The fake daemon's moments are 0.1 s apart, whatever the clock says.
  EXPECT_THAT(result.out,
              HasSubstr(", last 0.10 s: 200,000 calls/s, 0 errors/s; gpuperf takes an estimated "
                        "0.42 % of process 4242\n\n"));
  EXPECT_THAT(
      result.out,
      ::testing::EndsWith(
          "\n\n"
          "CATEGORY  FUNCTION            TIME  CALLS/S  ERRORS/S      AVG      P99  BYTES/S  "
          "IN-FLIGHT  OLDEST\n"
          "cuda      cudaLaunchKernel  10.0 %  100,000         0  1.00 µs  1.02 µs        -  "
          "        0       -\n"
          "cuda      cudaMalloc        10.0 %  100,000         0  1.00 µs  1.02 µs        -  "
          "        1  90.0 s\n"
          "\n"
          "Longest calls in flight\n"
          "   AGE  CATEGORY  FUNCTION     PID   TID  COMM\n"
          "90.0 s  cuda      cudaMalloc  4242  4243  python3\n"
          "\n"
          "Suspended by the overhead budget\n"
          "CATEGORY  FUNCTION       SHARE   PID  COMM     COUNTED IN  TIMES\n"
          "cublas    cublasGemmEx  3.40 %  4242  python3      12.0 s      3\n"));
}

TEST_F(CliTopTest, ShowsOneObjectAsJson) {
  const auto result = run_program({"top", "-o", "json", "--watch=0.1", "--once"}, with_address());

  const auto object = ordered_json::parse(result.out);
  EXPECT_EQ(object["interval_seconds"], 0.1);
  EXPECT_EQ(object["functions"][0], ordered_json::parse(R"({
      "category": "cuda", "function": "cudaLaunchKernel", "time_ratio": 0.1,
      "calls_per_second": 100000.0, "errors_per_second": 0.0, "avg_ns": 1000, "p99_ns": 1024,
      "bytes_per_second": 0.0, "in_flight": 0, "oldest_in_flight_ns": 0, "coverage": 1.0})"));
  EXPECT_EQ(object["in_flight_calls"][0], to_json(daemon_.answers.in_flight_calls[0]));
  EXPECT_EQ(object["suspensions"][0], to_json(daemon_.answers.status.suspensions(0)));
}

TEST_F(CliTopTest, ShowsFunctionsAsCsv) {
  const auto result =
      run_program({"top", "-o", "csv", "--watch=0.1", "--once", "--limit", "1"}, with_address());

  EXPECT_EQ(result.out,
            "category,function,time_ratio,calls_per_second,errors_per_second,avg_ns,p99_ns,"
            "bytes_per_second,in_flight,oldest_in_flight_ns,coverage\n"
            "cuda,cudaLaunchKernel,0.1,100000.0,0.0,1000,1024,0.0,0,0,1.0\n");
}

TEST_F(CliTopTest, GivesOneObjectPerRefreshUntilInterrupted) {
  Program program({"top", "-o", "json", "--watch=0.1"}, with_address());

  const std::string first = program.read_until("\n");
  const std::string second = program.read_until("\n");
  program.send_signal(SIGINT);

  EXPECT_EQ(ordered_json::parse(first)["functions"].size(), 2u);
  EXPECT_EQ(ordered_json::parse(second)["functions"].size(), 2u);
  EXPECT_EQ(program.finish().exit_code, 0);
}

TEST_F(CliTopTest, RedrawsATerminalUntilInterrupted) {
  Program program({"top", "--watch=0.1"}, on_terminal(120, 40));

  const std::string begin = program.read_until("\x1b[H\x1b[2J");
  const std::string first = program.read_until("\x1b[H\x1b[2J");
  program.send_signal(SIGINT);

  EXPECT_THAT(begin, StartsWith("Measuring for 0.1 s …"));
  EXPECT_THAT(first, HasSubstr("cudaLaunchKernel"));
  EXPECT_EQ(program.finish().exit_code, 0);
}

TEST_F(CliTopTest, CutsLinesAndRowsToASmallTerminal) {
  daemon_.answers.functions.resize(40, daemon_.answers.functions[0]);
  for (size_t i = 0; i < 40; ++i) {
    daemon_.answers.functions[i].set_function("f" + std::to_string(i));
  }
  Program program({"top", "--watch=0.1"}, on_terminal(40, 20));
  (void)program.read_until("\x1b[H\x1b[2J");

  std::string screen = program.read_until("\x1b[H\x1b[2J");
  program.send_signal(SIGINT);

  screen.resize(screen.size() - 7);  // the beginning of the next one
  std::erase(screen, '\r');
  std::istringstream lines(screen);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(measure_width(line), 40) << line;
  }
  EXPECT_LE(count, 20);
  EXPECT_THAT(screen, HasSubstr("Suspended by the overhead"));
  EXPECT_EQ(program.finish().exit_code, 0);
}

TEST_F(CliTopTest, SaysThatNothingHappens) {
  daemon_.answers.calls_between_answers = 0;
  daemon_.answers.functions[1].set_in_flight(0);

  EXPECT_THAT(run_program({"top", "--watch=0.1", "--once"}, with_address()).out,
              HasSubstr("No probed function was called, and no call is in flight.\n"));
}

TEST_F(CliTopTest, SendsItsFiltersWithEveryQuestion) {
  (void)run_program({"top", "--watch=0.1", "--once", "--pid", "7", "--function", "f*"},
                    with_address());

  for (const std::string& request : daemon_.requests()) {
    if (request.starts_with("GetStatus")) continue;
    EXPECT_THAT(request, HasSubstr("filter { pid: 7 function: \"f*\" }"));
  }
}

TEST_F(CliTopTest, ShowsNoEscapesOfWorkloads) {
  daemon_.answers.in_flight_calls[0].set_comm("\x1b[2J");

  EXPECT_THAT(run_program({"top", "--watch=0.1", "--once"}, with_address()).out,
              Not(HasSubstr("\x1b")));
}

TEST_F(CliTopTest, EndsWithThreeWhenTheDaemonVanishes) {
  Program program({"top", "--watch=0.1", "-o", "json"}, with_address());
  (void)program.read_until("\n");

  daemon_.stop();

  EXPECT_EQ(program.finish().exit_code, 3);
}

}  // namespace
}  // namespace gpuperf::client
