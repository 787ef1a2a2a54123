// gpuperfctl why.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "client/text.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliWhyTest : public CliTest {
 protected:
  CliWhyTest() {
    v1::Capture capture;
    capture.set_id(7);
    capture.set_state(v1::CAPTURE_STATE_STORED);
    daemon_.answers.captures = {capture};
    v1::ExplainCaptureResponse& answer = daemon_.answers.explanation;
    answer.set_duration_ns(5'000'000'000);
    v1::ProcessTime& process = *answer.add_processes();
    process.set_pid(4242);
    process.set_comm("python3");
    process.set_gpu(0);
    process.set_gpu_uuid("GPU-8f1ab2c3");
    process.set_wall_ns(5'000'000'000);
    process.set_verdict(v1::TIME_VERDICT_LAUNCH_BOUND);
    process.set_verdict_text("launch-bound");
    process.set_summary(
        "The GPU had work for 2.7 % of 5.000 s, and waited for host code for 97.3 %.");
    add_part(process, v1::TIME_CAUSE_HOST_COMPUTING, 4'500'000'000, "GPU idle: host computing");
    add_part(process, v1::TIME_CAUSE_LAUNCHING, 365'000'000,
             "GPU idle: launching, and the way to the GPU");
    add_part(process, v1::TIME_CAUSE_GPU_COMPUTING, 135'000'000, "GPU computing");
    v1::TimeFinding& first = add_finding(process, v1::TIME_CAUSE_HOST_COMPUTING, 3'600'000'000);
    first.set_text("in cudnnBackendFinalize, on the CPU");
    first.set_stretches(72);
    first.set_longest_ns(51'200'000);
    first.set_tid(4243);
    first.set_thread_comm("python3");
    for (const char* frame : {"main (train.py)", "step (train.py)", "cudnnBackendFinalize"}) {
      first.add_stack(frame);
    }
    first.set_advice("Call it less often.");
    first.set_command("gpuperfctl slow list --pid 4242 --function cudnnBackendFinalize");
    v1::TimeFinding& second = add_finding(process, v1::TIME_CAUSE_HOST_COMPUTING, 900'000'000);
    second.set_text("in forward (model.py), on the CPU");
    second.set_stretches(1);
    second.set_longest_ns(900'000'000);
    second.set_estimated_ns(450'000'000);
    second.set_command("gpuperfctl trace fetch 7 --format report --file 7.html");
  }

  static void add_part(v1::ProcessTime& process, v1::TimeCause cause, uint64_t time_ns,
                       const char* text) {
    v1::TimeShare& part = *process.add_parts();
    part.set_cause(cause);
    part.set_text(text);
    part.set_time_ns(time_ns);
    part.set_share_ratio(static_cast<double>(time_ns) / 5e9);
  }
  static v1::TimeFinding& add_finding(v1::ProcessTime& process, v1::TimeCause cause,
                                      uint64_t time_ns) {
    v1::TimeFinding& finding = *process.add_findings();
    finding.set_cause(cause);
    finding.set_time_ns(time_ns);
    finding.set_share_ratio(static_cast<double>(time_ns) / 5e9);
    return finding;
  }
};

TEST_F(CliWhyTest, ExplainsACaptureOnOnePage) {
  const auto result = run({"why", "--capture", "7", "--pid", "4242"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            R"(python3 (pid 4242), GPU 0: launch-bound
The GPU had work for 2.7 % of 5.000 s, and waited for host code for 97.3 %.

 SHARE    TIME  WALL TIME
90.0 %  4.50 s  GPU idle: host computing
 7.3 %  365 ms  GPU idle: launching, and the way to the GPU
 2.7 %  135 ms  GPU computing

1. 3.60 s (72.0 %) in cudnnBackendFinalize, on the CPU
   72 times, 50.0 ms on average, 51.2 ms at most. Thread 4243 (python3).
   main (train.py) > step (train.py) > cudnnBackendFinalize
   Call it less often.
   More: gpuperfctl slow list --pid 4242 --function cudnnBackendFinalize

2. 900 ms (18.0 %) in forward (model.py), on the CPU
   Once. The place is estimated for 50.0 %.
   More: gpuperfctl trace fetch 7 --format report --file 7.html

Capture 7, 5.00 s. Again: gpuperfctl why --capture 7; everything: gpuperfctl trace fetch 7 --format report
)");
  EXPECT_THAT(daemon_.requests(), ElementsAre("ExplainCapture: id: 7 pid: 4242 limit: 3"));
}

TEST_F(CliWhyTest, TellsWhatTheLongestStepSpentMoreTimeOn) {
  v1::ProcessTime& process = *daemon_.answers.explanation.mutable_processes(0);
  process.clear_findings();
  v1::StepsTime& steps = *process.add_steps();
  steps.set_summary("32 decode steps (llama_decode): half of them took at most 12.0 ms.");
  v1::TimeShare& part = *steps.add_parts();
  part.set_share_ratio(0.8);
  part.set_text("GPU computing");
  steps.add_parts();
  steps.mutable_parts(1)->set_share_ratio(0.2);
  steps.mutable_parts(1)->set_text("GPU idle: host blocked");
  steps.set_longest_summary("The longest took 31.2 ms, 1.200 s after the capture began.");
  v1::StepDifference& difference = *steps.add_differences();
  difference.mutable_finding()->set_time_ns(19'000'000);
  difference.mutable_finding()->set_text("waiting for a lock or another thread in step");
  difference.set_usual_ns(900'000);

  const auto result = run({"why", "--capture", "7", "--pid", "4242"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr(R"(32 decode steps (llama_decode): half of them took at most 12.0 ms.
   Their time: 80.0 % GPU computing, 20.0 % GPU idle: host blocked.
   The longest took 31.2 ms, 1.200 s after the capture began.
    MORE    IN IT  IN OTHERS  WHAT
+18.1 ms  19.0 ms     900 µs  waiting for a lock or another thread in step
)"));
}

class CliWhyStepTest : public CliWhyTest {
 protected:
  CliWhyStepTest() {
    v1::Step& step = *daemon_.answers.step.mutable_step();
    step.set_id(17);
    step.set_pid(4242);
    step.set_start_unix_ns(read_wall_clock_ns() - 2'000'000'000);
    daemon_.answers.recorder.set_span_ns(30'000'000'000);
    v1::StepsTime& steps = *daemon_.answers.explanation.mutable_processes(0)->add_steps();
    steps.set_asked(true);
    steps.set_steps(5);
    steps.set_summary("5 decode steps (llama_decode): half of them took at most 10.0 ms.");
    steps.set_longest_summary("The one asked for took 20.0 ms, 1.200 s after the capture began.");
    add(*steps.add_parts(), 48'000'000, 0.8);
    add(*steps.add_longest_parts(), 20'000'000, 1.0);
    v1::StepDifference& difference = *steps.add_differences();
    v1::TimeFinding& finding = *difference.mutable_finding();
    finding.set_time_ns(15'000'000);
    finding.set_share_ratio(0.75);
    finding.set_text("waiting for a lock or another thread in step");
    finding.set_stretches(1);
    finding.set_advice("See who holds it.");
    finding.set_command("gpuperfctl slow list --pid 4242");
    difference.set_usual_ns(900'000);
  }
  static void add(v1::TimeShare& part, uint64_t time_ns, double ratio) {
    part.set_cause(v1::TIME_CAUSE_HOST_BLOCKED);
    part.set_text("GPU idle: host blocked");
    part.set_time_ns(time_ns);
    part.set_share_ratio(ratio);
  }
};

TEST_F(CliWhyStepTest, ExplainsOneStepBesideTheOthers) {
  const auto result = run({"why", "--step", "17"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            R"(python3 (pid 4242), GPU 0: one step
5 decode steps (llama_decode): half of them took at most 10.0 ms.
The one asked for took 20.0 ms, 1.200 s after the capture began.

  SHARE     TIME  IN OTHERS  WALL TIME
100.0 %  20.0 ms    7.00 ms  GPU idle: host blocked

1. 15.0 ms (75.0 %, 900 µs in others) waiting for a lock or another thread in step
   Once.
   See who holds it.
   More: gpuperfctl slow list --pid 4242

Capture 7, 5.00 s. Again: gpuperfctl why --capture 7 --step 17; everything: gpuperfctl trace fetch 7 --format report
)");
  const std::vector<std::string> requests = daemon_.requests();
  EXPECT_THAT(requests, Contains(AllOf(StartsWith("FreezeRecorder: name: \"step 17\""),
                                       HasSubstr("pid: 4242"), HasSubstr("last_ms: "))));
  EXPECT_THAT(requests, Contains(fmt::format(
                            "ExplainCapture: id: 7 pid: 4242 limit: 3 step_start_unix_ns: {}",
                            daemon_.answers.step.step().start_unix_ns())));
}

TEST_F(CliWhyStepTest, AStepHasItsProcessAndItsTime) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--pid", "7"},
                                             {"--pod", "a"},
                                             {"--container", "c"},
                                             {"--since", "1s"},
                                             {"--for", "1s"}}) {
    std::vector<std::string> words = {"why", "--step", "17"};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(run(words).exit_code, 2) << flags[0];
  }
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliWhyStepTest, AStepOfACaptureNeedsNoRecorder) {
  daemon_.answers.recorder.set_span_ns(1);
  EXPECT_EQ(run({"why", "--capture", "7", "--step", "17"}).exit_code, 0);
  EXPECT_THAT(daemon_.requests(), Not(Contains(StartsWith("FreezeRecorder"))));

  const auto result = run({"why", "--step", "17"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("step 17 began "), HasSubstr("holds the last 1 ns"),
                                HasSubstr("gpuperfctl why --capture ID --step 17")));
  EXPECT_THAT(daemon_.requests(), Not(Contains(StartsWith("FreezeRecorder"))));
}

TEST_F(CliWhyTest, MakesACaptureOrFreezesTheRecorder) {
  EXPECT_EQ(run({"why", "--for", "2s", "--pod", "web-0"}).exit_code, 0);
  EXPECT_EQ(run({"why", "--since", "10s", "-o", "json"}).exit_code, 0);

  const std::vector<std::string> requests = daemon_.requests();
  EXPECT_THAT(requests, Contains(AllOf(StartsWith("StartCapture: name: \"why\""),
                                       HasSubstr("pod: \"web-0\""), HasSubstr("2000"))));
  EXPECT_THAT(requests, Contains(AllOf(StartsWith("FreezeRecorder: name: \"why\""),
                                       HasSubstr("last_ms: 10000"))));
  EXPECT_THAT(requests, Contains("ExplainCapture: id: 7 pod: \"web-0\" limit: 3"));
  EXPECT_THAT(requests, Contains("ExplainCapture: id: 7 limit: 1000"));
}

TEST_F(CliWhyTest, JsonIsTheAnswer) {
  const auto json = ordered_json::parse(run({"why", "--capture", "7", "-o", "json"}).out);

  EXPECT_EQ(json, to_json(daemon_.answers.explanation));
  EXPECT_EQ(json["processes"][0]["verdict"], "launch_bound");
  EXPECT_EQ(json["processes"][0]["findings"][0]["cause"], "host_computing");
}

TEST_F(CliWhyTest, AnEmptyCaptureSaysWhatToDo) {
  daemon_.answers.explanation.Clear();
  daemon_.answers.explanation.add_notes("Something is missing.");

  const auto result = run({"why", "--capture", "7"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("No probed call and no GPU work was recorded."));
  EXPECT_THAT(result.out, HasSubstr("Something is missing."));
  EXPECT_EQ(run({"why", "--capture", "7", "--for", "5s"}).exit_code, 2);
}

}  // namespace
}  // namespace gpuperf::client
