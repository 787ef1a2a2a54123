// Captures: trace, flamegraph, diff, kernels --by.

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliTraceTest : public CliTest {
 protected:
  CliTraceTest() {
    v1::Capture capture;
    capture.set_id(7);
    capture.set_name("epoch 3");
    capture.set_trigger("request");
    capture.mutable_target()->set_pid(4242);
    capture.set_state(v1::CAPTURE_STATE_STORED);
    capture.set_start_unix_ns(1'777'630'245'123'456'789);
    capture.set_duration_ns(10'000'000'000);
    capture.set_events(12'345);
    capture.set_launches(1'000);
    capture.set_work(1'200);
    capture.set_work_matched(1'140);
    capture.set_stored_bytes(3'000'000);
    daemon_.answers.captures = {capture};
    daemon_.answers.recorder.set_enabled(true);
    daemon_.answers.recorder.set_span_ns(30'000'000'000);
    daemon_.answers.recorder.set_events(5);
    daemon_.answers.matches.set_launches_exact(990);
    daemon_.answers.matches.set_launches_ambiguous(10);
    daemon_.answers.matches.set_work(1'200);
    daemon_.answers.matches.set_work_matched(1'140);
    daemon_.answers.matches.set_nodes(500);
    daemon_.answers.matches.set_nodes_placed(480);
  }
  std::string path(const std::string& name) const { return (daemon_.folder() / name).string(); }
};

TEST_F(CliTraceTest, ListsCapturesAndTheRecorder) {
  const auto result = run({"trace", "list"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("epoch 3"));
  EXPECT_THAT(result.out, HasSubstr("pid 4242"));
  EXPECT_THAT(result.out, HasSubstr("95.0 %"));
  EXPECT_THAT(result.out, HasSubstr("The flight recorder holds the last 30"));
  const auto json = ordered_json::parse(run({"trace", "list", "-o", "json"}).out);
  EXPECT_EQ(json[0], to_json(daemon_.answers.captures[0]));
  EXPECT_EQ(json[0]["state"], "stored");
  EXPECT_THAT(run({"trace", "list", "-o", "csv"}).out, HasSubstr("id,name,trigger,target,state"));
}

TEST_F(CliTraceTest, ShowsOneWithItsMatches) {
  const auto result = run({"trace", "show", "7"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("990 exact, 10 ambiguous"));
  EXPECT_THAT(result.out, HasSubstr("1,200, 1,140 matched"));
  EXPECT_THAT(result.out, HasSubstr("500, 480 with their capture site"));
  EXPECT_EQ(run({"trace", "show", "8"}).exit_code, 1);
}

TEST_F(CliTraceTest, StartsWithEverythingThatWasAsked) {
  const auto result =
      run({"trace", "start", "--pid", "4242", "--container", "abc", "--pod", "p", "--duration",
           "10s", "--align", "60s", "--name", "n", "--gpu-only", "--nodes"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("running"));
  EXPECT_THAT(result.out, HasSubstr("gpuperfctl trace stop 7"));
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("StartCapture: name: \"n\" target { pid: 4242 container: \"abc\" pod: "
                          "\"p\" } duration_ms: 10000 align_ms: 60000 parts: CAPTURE_PARTS_GPU "
                          "nodes: true"));
}

TEST_F(CliTraceTest, WaitsUntilItIsStored) {
  daemon_.answers.running_answers = 3;

  const auto result = run({"trace", "start", "--duration", "1s", "--wait", "-o", "json"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ordered_json::parse(result.out)["state"], "stored");
  EXPECT_EQ(result.err, "") << "progress is for terminals";
  EXPECT_EQ(daemon_.requests().size(), 5u);
}

TEST_F(CliTraceTest, SaysWhyACaptureFailed) {
  daemon_.answers.captures[0].set_state(v1::CAPTURE_STATE_FAILED);
  daemon_.answers.captures[0].set_problem("no room on the disk");

  const auto result = run({"trace", "freeze", "--last", "5s"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "gpuperfctl: capture 7 failed: no room on the disk\n");
  EXPECT_EQ(daemon_.requests()[0], "FreezeRecorder: target { } last_ms: 5000");
}

TEST_F(CliTraceTest, RefusesFlagsThatMakeNoSense) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"trace"},
        {"trace", "start", "--wait"},
        {"trace", "start", "--duration", "10"},
        {"trace", "start", "--duration", "1ns"},
        {"trace", "start", "--cpu-only", "--gpu-only"},
        {"trace", "fetch", "7"},
        {"trace", "fetch", "x", "--format", "folded"},
        {"trace", "fetch", "7", "--format", "folded", "-o", "a.folded"},
        {"trace", "fetch", "7", "--format", "folded", "--weight", "time"},
        {"flamegraph", "7", "--duration", "5s"},
        {"flamegraph", "7", "--pid", "3"},
        {"diff", "7"},
        {"diff", "7", "8", "--by", "line"},
        {"kernels", "--capture", "7"},
        {"kernels", "--by", "weather"},
        {"kernels", "--by", "stack", "--sort", "launches"},
        {"record"}}) {
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(arguments) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliTraceTest, StopsAndDeletes) {
  EXPECT_EQ(run({"trace", "stop", "7"}).exit_code, 0);
  EXPECT_EQ(run({"trace", "delete", "7"}).exit_code, 0);

  EXPECT_THAT(daemon_.requests(), ElementsAre("StopCapture: id: 7", "DeleteCapture: id: 7"));
}

TEST_F(CliTraceTest, FetchesToStandardOutputOrAFile) {
  const auto piped = run({"trace", "fetch", "7", "--format", "folded", "--weight", "off-cpu",
                          "--per-process", "--per-thread", "--lines"});
  const auto filed = run({"trace", "fetch", "7", "--format", "chrome", "--file", path("a.json")});

  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(piped.out, "form");
  EXPECT_EQ(filed.exit_code, 0) << filed.err;
  EXPECT_EQ(filed.out, "");
  EXPECT_EQ(read_file(path("a.json")), "form");
  EXPECT_EQ(daemon_.requests()[0],
            "FetchCapture: id: 7 format: \"folded\" weight: CAPTURE_WEIGHT_OFF_CPU_TIME path { "
            "per_process: true per_thread: true lines: true }");
}

TEST_F(CliTraceTest, WritesNoFormToATerminal) {
  const auto result = run({"trace", "fetch", "7", "--format", "folded"},
                          {.terminal = true, .terminal_columns = 80});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--file FILE"));
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliTraceTest, LeavesNoFileOfAFetchThatFailed) {
  daemon_.answers.failure = grpc::Status(grpc::StatusCode::DATA_LOSS, "7.capture: damaged");
  std::ofstream(path("a.svg")) << "before";

  const auto result =
      run({"trace", "fetch", "7", "--format", "flamegraph", "--file", path("a.svg")});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "gpuperfctl: cannot fetch capture 7: 7.capture: damaged\n");
  EXPECT_EQ(read_file(path("a.svg")), "before");
  EXPECT_EQ(run({"trace", "fetch", "7", "--format", "raw", "--file", path("no/such")}).exit_code,
            1);
}

TEST_F(CliTraceTest, DrawsTheRecorderAsAFlameGraph) {
  const auto result = run({"flamegraph", "--file", path("f.svg"), "--pid", "4242"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_file(path("f.svg")), "form");
  EXPECT_THAT(
      daemon_.requests(),
      ElementsAre("FreezeRecorder: name: \"flamegraph\" target { pid: 4242 }", "GetCapture: id: 7",
                  "FetchCapture: id: 7 format: \"flamegraph\" path { }", "DeleteCapture: id: 7"));
}

TEST_F(CliTraceTest, KeepsWhatItLookedAtOnlyWhenAsked) {
  const auto result = run({"flamegraph", "--file", path("f.svg"), "--keep"});
  EXPECT_EQ(run({"kernels", "--by", "stack", "--keep"}).exit_code, 0);

  EXPECT_THAT(result.err, HasSubstr("capture 7; other formats"));
  EXPECT_THAT(daemon_.requests(), Not(Contains(HasSubstr("DeleteCapture"))));
  EXPECT_EQ(run({"flamegraph", "7", "--keep"}).exit_code, 2);
}

TEST_F(CliTraceTest, DrawsTheNextSecondsOrACapture) {
  EXPECT_EQ(run({"flamegraph", "--duration", "2s"}).exit_code, 0);
  const auto result = run({"flamegraph", "9", "--weight", "cpu"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "form");
  EXPECT_EQ(daemon_.requests()[0],
            "StartCapture: name: \"flamegraph\" target { } duration_ms: 2000");
  EXPECT_THAT(daemon_.requests().back(), HasSubstr("FetchCapture: id: 9"));
}

TEST_F(CliTraceTest, ShowsWhatChanged) {
  v1::CaptureDiffRow grown;
  grown.set_name("forward (model.py)");
  grown.set_before_ns(1'000'000);
  grown.set_after_ns(3'500'000);
  grown.set_delta_ns(2'500'000);
  v1::CaptureDiffRow gone;
  gone.set_name("old");
  gone.set_before_ns(2'000);
  gone.set_delta_ns(-2'000);
  daemon_.answers.diff_rows = {grown, gone};

  const auto result =
      run({"diff", "7", "8", "--by", "path", "--limit", "5", "--svg", path("d.svg")});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("+2.50 ms"));
  EXPECT_THAT(result.out, HasSubstr("+250.0 %"));
  EXPECT_THAT(result.out, HasSubstr("gone"));
  EXPECT_EQ(read_file(path("d.svg")), "form");
  EXPECT_EQ(daemon_.requests()[0],
            "DiffCaptures: before_id: 7 after_id: 8 by: CAPTURE_DIFF_BY_PATH path { } limit: 5 "
            "scale: CAPTURE_DIFF_SCALE_PER_SECOND");
  EXPECT_THAT(daemon_.requests()[1], HasSubstr("format: \"diff-flamegraph\""));
  EXPECT_THAT(daemon_.requests()[1], HasSubstr("before_id: 7"));
  const auto json = ordered_json::parse(run({"diff", "7", "8", "-o", "json"}).out);
  EXPECT_EQ(json[0], to_json(grown));
}

TEST_F(CliTraceTest, AddsUpKernelsByWhatLaunchedThem) {
  v1::CaptureWorkRow row;
  row.set_name("linear_forward");
  row.set_gpu_ns(900'000);
  row.set_share_ratio(0.9);
  row.set_work(30);
  row.set_launches(30);
  row.add_top_kernels("gemm<float>");
  daemon_.answers.work_rows = {row};

  const auto result = run({"kernels", "--by", "operator", "--capture", "7", "--kernel", "gemm*"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("linear_forward"));
  EXPECT_THAT(result.out, HasSubstr("90.0 %"));
  EXPECT_THAT(result.out, HasSubstr("gemm<float>"));
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("SummariseCapture: id: 7 by: CAPTURE_GROUPING_OPERATOR kernel: "
                          "\"gemm*\" short_names: true"));
  const auto json = ordered_json::parse(run({"kernels", "--by", "stack", "-o", "json"}).out);
  EXPECT_EQ(json[0], to_json(row));
  EXPECT_THAT(daemon_.requests()[1], HasSubstr("FreezeRecorder"));
  EXPECT_EQ(daemon_.requests().back(), "DeleteCapture: id: 7");
}

TEST_F(CliTraceTest, AsksForTheLineThatLaunched) {
  const auto result = run({"kernels", "--by", "line", "--capture", "7", "--depth", "2", "--module",
                           "transformers", "--full-names"});
  const auto stacks = run({"kernels", "--by", "stack", "--capture", "7", "--interpreter-frames"});
  const auto refused = run({"kernels", "--by", "stack", "--capture", "7", "--depth", "2"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(stacks.exit_code, 0) << stacks.err;
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("SummariseCapture: id: 7 by: CAPTURE_GROUPING_LINE depth: 2 module: "
                          "\"transformers\"",
                          "SummariseCapture: id: 7 by: CAPTURE_GROUPING_STACK short_names: true "
                          "interpreter_frames: true"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("need --by line"));
}

TEST_F(CliTraceTest, EndsWithFourWhenNotPermitted) {
  daemon_.answers.control_failure =
      grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "a process of another user");

  const auto result = run({"trace", "start", "--pid", "1"});

  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("a process of another user"));
}

TEST_F(CliTraceTest, ShowsProgressOnATerminalAlone) {
  daemon_.answers.running_answers = 2;
  daemon_.start();
  // Standard error is a pipe here: nothing but the message may be on it.
  const auto result = run({"flamegraph", "--duration", "1s", "--file", path("f.svg")},
                          {.terminal = true, .terminal_columns = 80});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace gpuperf::client
