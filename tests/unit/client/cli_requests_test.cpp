// gpuperfctl requests.

#include "cli_fixture.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

constexpr uint64_t kRequestMs = 1'000'000;

v1::RequestProcess make_server() {
  v1::RequestProcess row;
  row.set_pid(41);
  row.set_comm("server");
  row.set_requests(1'234);
  row.set_open(8);
  row.set_requests_per_second(2.5);
  row.set_first_p50_ns(120 * kRequestMs);
  row.set_first_p99_ns(900 * kRequestMs);
  row.set_gaps(5'000);
  row.set_gap_p50_ns(11 * kRequestMs);
  row.set_gap_p99_ns(40 * kRequestMs);
  row.set_slow_requests(3);
  return row;
}

v1::Request make_answered() {
  v1::Request row;
  row.set_id(7);
  row.set_pid(41);
  row.set_comm("server");
  row.set_start_unix_ns(1'700'000'000'000'000'000);
  row.set_duration_ns(2'000 * kRequestMs);
  row.set_parts(90);
  row.mutable_first()->set_duration_ns(120 * kRequestMs);
  v1::RequestWait& gap = *row.mutable_longest_gap();
  gap.set_duration_ns(850 * kRequestMs);
  gap.set_steps(2);
  gap.set_last_step_id(18);
  gap.set_longest_step_id(17);
  gap.set_longest_step_ns(810 * kRequestMs);
  gap.set_longest_step_phase(v1::STEP_PHASE_PREFILL);
  gap.set_longest_step_tokens(8'192);
  row.set_slow(true);
  return row;
}

class CliRequestsTest : public CliTest {
 protected:
  CliRequestsTest() {
    daemon_.answers.request_processes = {make_server()};
    daemon_.answers.requests = {make_answered()};
  }
};

TEST_F(CliRequestsTest, SaysHowLongClientsWaitBeforeTheTable) {
  const auto result = run({"requests"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "server (pid 41) answers 2.5 requests per second; 99 of 100 clients wait at most "
            "900 ms for the first part, and then for 99 of 100 parts at most 40.0 ms.\n\n"
            "PID  COMM    REQUESTS  PER SECOND  OPEN  FIRST P50     P99  GAP P50      P99  SLOW\n"
            " 41  server     1,234         2.5     8     120 ms  900 ms  11.0 ms  40.0 ms     3\n");
}

TEST_F(CliRequestsTest, NamesTheStepThatAWaitWasSpentOn) {
  const auto result = run({"requests", "list", "--slow", "--pid", "41"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("810 ms step 17: prefill, 8,192 tokens"));
  EXPECT_THAT(result.out, HasSubstr("850 ms"));
  EXPECT_THAT(result.out, HasSubstr("slow"));
  EXPECT_THAT(daemon_.requests(), Contains(HasSubstr("slow_only: true")));
}

TEST_F(CliRequestsTest, SaysWhereNoStepRanMeanwhile) {
  daemon_.answers.requests[0].mutable_longest_gap()->clear_longest_step_id();
  EXPECT_THAT(run({"requests", "list"}).out, HasSubstr("no step within it"));
}

TEST_F(CliRequestsTest, SaysHowToSeeRequestsWhereThereAreNone) {
  daemon_.answers.request_processes.clear();
  daemon_.answers.requests.clear();
  EXPECT_THAT(run({"requests"}).out, HasSubstr("\"requests\": { \"enabled\": true }"));
  EXPECT_THAT(run({"requests", "list", "--slow"}).out, HasSubstr("No slow request yet."));
  EXPECT_THAT(run({"requests", "--pid", "3"}).out, HasSubstr("No process with requests matches."));
}

TEST_F(CliRequestsTest, SaysWhenNoServerIsActive) {
  daemon_.answers.request_processes[0].set_requests_per_second(0);
  EXPECT_THAT(run({"requests"}).out, StartsWith("No process has begun to answer"));
}

}  // namespace
}  // namespace gpuperf::client
