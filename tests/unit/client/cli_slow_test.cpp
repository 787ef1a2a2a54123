// gpuperfctl slow list|show|watch.

#include <signal.h>

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "example_calls.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliSlowTest : public CliTest {
 protected:
  CliSlowTest() {
    for (const v1::SlowCall& call : daemon_.answers.slow_calls) {
      *daemon_.answers.watch.emplace_back().mutable_slow_call() = call;
    }
  }

  std::vector<std::string> with_address(std::vector<std::string> arguments) {
    daemon_.start();
    arguments.insert(arguments.begin(), {"--address", daemon_.address()});
    return arguments;
  }
  ProgramResult run(std::vector<std::string> arguments) {
    return run_program(with_address(std::move(arguments)));
  }
};

TEST_F(CliSlowTest, ListsAsATable) {
  EXPECT_EQ(run({"slow", "list"}).out,
            "ID  START                    DURATION  THRESHOLD  CATEGORY  FUNCTION     PID   TID  "
            "COMM     RETURNED\n"
            "17  2026-05-01 10:11:02.123    250 ms     100 ms  cuda      cudaMalloc  4242  4243  "
            "python3  cudaSuccess\n"
            " 9  2026-05-01 10:10:54.123    120 ms     100 ms  cuda      cudaMalloc  4242  4243  "
            "python3  cudaSuccess\n");
}

TEST_F(CliSlowTest, ListsWhatDominatedAndWhatHasNotReturned) {
  daemon_.answers.slow_calls = {make_in_flight_call(), make_futex_call(),
                                daemon_.answers.slow_calls[1]};

  EXPECT_EQ(
      run({"slow", "list"}).out,
      "ID  START                    DURATION  THRESHOLD  MOSTLY          CATEGORY  FUNCTION    "
      "            PID   TID  COMM     RETURNED\n"
      "13  2026-05-01 10:10:45.123    31.2 s     100 ms  GPU wait 100 %  nccl      "
      "ncclAllReduce            70    73  python3  in flight\n"
      "12  2026-05-01 10:10:45.123    412 ms     100 ms  futex 97 %      cuda      "
      "cudaStreamSynchronize    70    73  python3  cudaSuccess\n"
      " 9  2026-05-01 10:10:54.123    120 ms     100 ms  -               cuda      cudaMalloc  "
      "           4242  4243  python3  cudaSuccess\n");
}

TEST_F(CliSlowTest, ListsAsJson) {
  const auto rows = ordered_json::parse(run({"slow", "list", "-o", "json"}).out);

  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0], to_json(daemon_.answers.slow_calls[0]));
}

TEST_F(CliSlowTest, SendsEveryFilter) {
  (void)run({"slow", "list", "-o", "json", "--pid", "5", "--min-duration", "1.5ms", "--since",
             "2026-05-01T10:10:45Z", "--sort", "start_unix_ns"});

  EXPECT_THAT(
      daemon_.requests(),
      ElementsAre("ListSlowCalls: filter { pid: 5 since_unix_ns: 1777630245000000000 "
                  "min_duration_ns: 1500000 } page { limit: 100 } sort: \"start_unix_ns\""));
}

TEST_F(CliSlowTest, SaysWhyTheListIsEmpty) {
  daemon_.answers.slow_calls.clear();

  EXPECT_THAT(run({"slow", "list"}).out,
              EndsWith("\n\nNo slow call yet. Thresholds: gpuperfctl probes\n"));
  EXPECT_THAT(run({"slow", "list", "--since", "1h"}).out, HasSubstr("No slow call matches."));
}

TEST_F(CliSlowTest, ExplainsOne) {
  const auto result = run({"slow", "show", "17"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      HasSubstr(
          "Slow call 17: cudaMalloc (cuda) took 250 ms, 2.5 times its threshold of 100 ms\n"));
  EXPECT_THAT(result.out,
              EndsWith("Arguments  at entry\n"
                       "  arg0 = 0x7ffd1c20\n"
                       "  arg1 = 0x100000\n"
                       "Stack      of the caller, innermost frame first\n"
                       "    0  cudaMalloc+0xc0  (/usr/lib/x86_64-linux-gnu/libcudart.so.12)\n"
                       "    1  allocate_weights(int, unsigned long)+0x34  (/opt/train/train)\n"
                       "    2  0x560100001100  /opt/train/train+0x0\n"));
}

TEST_F(CliSlowTest, ExplainsOneInFlightInAscii) {
  daemon_.answers.slow_calls = {make_in_flight_call()};

  const auto result = run({"slow", "show", "13"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("ncclAllReduce (nccl) is still in flight after 31.2 s"));
  EXPECT_THAT(result.out, HasSubstr("  blocked: GPU  ##############################   31.2 s"));
  EXPECT_THAT(result.out, HasSubstr("Returned   not yet: blocked\n"));
}

TEST_F(CliSlowTest, ShowsOneAsAnObject) {
  EXPECT_EQ(ordered_json::parse(run({"slow", "show", "9", "-o", "json"}).out),
            to_json(daemon_.answers.slow_calls[1]));
  EXPECT_THAT(run({"slow", "show", "9", "-o", "csv"}).out,
              MatchesRegex("id,category,function.*user_stack_id,gpu\n9,cuda,cudaMalloc,4242,.*\n"));
}

TEST_F(CliSlowTest, FailsOnAnIdThatIsNotKept) {
  const auto result = run({"slow", "show", "18"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "gpuperfctl: cannot show slow call 18: no slow call 18\n");
}

TEST_F(CliSlowTest, WatchesAsATable) {
  const auto result = run({"slow", "watch", "--limit", "2"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.out,
      "    ID  START                    DURATION  THRESHOLD  MOSTLY            CATEGORY  "
      "FUNCTION                          PID      TID  COMM             RETURNED              "
      "CONTAINER     POD\n"
      "    17  2026-05-01 10:11:02.123    250 ms     100 ms  -                 cuda      "
      "cudaMalloc            "
      "           4242     4243  python3          cudaSuccess           -             -\n"
      "     9  2026-05-01 10:10:54.123    120 ms     100 ms  -                 cuda      "
      "cudaMalloc            "
      "           4242     4243  python3          cudaSuccess           -             -\n");
}

TEST_F(CliSlowTest, WatchesACallInFlightReturn) {
  v1::SlowCall call = make_in_flight_call();
  *daemon_.answers.watch[0].mutable_slow_call() = call;
  call.set_in_flight(false);
  call.clear_state();
  call.set_return_value("ncclSuccess");
  *daemon_.answers.watch[1].mutable_slow_call() = call;

  const auto result = run({"slow", "watch", "--limit", "2"});

  EXPECT_THAT(
      result.out,
      HasSubstr("    13  2026-05-01 10:10:45.123    31.2 s     100 ms  GPU wait 100 %    "
                "nccl      ncclAllReduce                      70       73  python3          "
                "in flight             -             -\n"
                "    13  2026-05-01 10:10:45.123    31.2 s     100 ms  GPU wait 100 %    "
                "nccl      ncclAllReduce                      70       73  python3          "
                "ncclSuccess           -             -\n"));
}

TEST_F(CliSlowTest, WatchesAsOneJsonDocumentPerLine) {
  Program program(with_address({"slow", "watch", "-o", "json"}));

  const std::string first = program.read_until("\n");
  const std::string second = program.read_until("\n");
  program.send_signal(SIGINT);
  const auto result = program.finish();

  EXPECT_EQ(ordered_json::parse(first), to_json(daemon_.answers.slow_calls[0]));
  EXPECT_EQ(ordered_json::parse(second), to_json(daemon_.answers.slow_calls[1]));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "");
}

TEST_F(CliSlowTest, WatchesAsCsvUnderOneHeader) {
  const auto result = run({"slow", "watch", "-o", "csv", "--limit", "2"});

  EXPECT_THAT(result.out, MatchesRegex("id,category,[^\n]*\n17,cuda,[^\n]*\n9,cuda,[^\n]*\n"));
}

TEST_F(CliSlowTest, SendsFiltersWithTheWatch) {
  (void)run({"slow", "watch", "--limit", "1", "--function", "cuda*", "--min-duration", "5ms"});

  EXPECT_THAT(
      daemon_.requests(),
      ElementsAre("WatchSlowCalls: filter { function: \"cuda*\" min_duration_ns: 5000000 }"));
}

TEST_F(CliSlowTest, SaysHowManyItMissed) {
  daemon_.answers.watch[1].set_missed_count(40);

  const auto result = run({"slow", "watch", "-o", "json", "--limit", "2"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("gpuperfctl: missed 40: slow calls came faster"));
}

TEST_F(CliSlowTest, SaysHowManyItMissedWithoutACallBeside) {
  v1::WatchSlowCallsResponse only_missed;
  only_missed.set_missed_count(3);
  daemon_.answers.watch.insert(daemon_.answers.watch.begin(), only_missed);

  const auto result = run({"slow", "watch", "-o", "json", "--limit", "1"});

  EXPECT_EQ(ordered_json::parse(result.out)["id"], 17);
  EXPECT_THAT(result.err, HasSubstr("missed 3: slow calls"));
}

TEST_F(CliSlowTest, EndsWithThreeWhenTheDaemonStops) {
  Program program(with_address({"slow", "watch", "-o", "json"}));
  (void)program.read_until("\n");

  daemon_.stop();
  const auto result = program.finish();

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("cannot go on watching slow calls: gpuperfd at " + daemon_.address()));
  EXPECT_THAT(result.err, HasSubstr("systemctl status gpuperfd"));
}

TEST_F(CliSlowTest, EndsWithThreeWhenTheDaemonEndsTheStream) {
  daemon_.answers.watch_ends = true;

  const auto result = run({"slow", "watch", "-o", "json"});

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("it ended the stream"));
}

TEST_F(CliSlowTest, EndsQuietlyOnSigterm) {
  Program program(with_address({"slow", "watch"}));
  (void)program.read_until("\n");

  program.send_signal(SIGTERM);
  const auto result = program.finish();

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST_F(CliSlowTest, EndsQuietlyWhenItsReaderLeavesThoughNothingHappens) {
  daemon_.answers.watch.clear();
  Program program(with_address({"slow", "watch"}));
  (void)program.read_until("\n");

  program.close_output();
  const auto result = program.finish();

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace gpuperf::client
