// What changes the daemon: config reload, probes add|enable|disable|threshold.

#include <nlohmann/json.hpp>

#include "cli_fixture.h"
#include "client/render.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

class CliControlTest : public CliTest {
 protected:
  CliControlTest() {
    daemon_.answers.change.set_added(1);
    daemon_.answers.change.set_removed(2);
    daemon_.answers.change.set_changed(3);
    daemon_.answers.change.set_unchanged(1041);
  }
};

TEST_F(CliControlTest, ReloadsAndSaysWhatChanged) {
  const auto result = run({"config", "reload"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "1 added, 2 removed, 3 changed, 1,041 unchanged\n");
  EXPECT_THAT(daemon_.requests(), ElementsAre("ReloadConfig: "));
}

TEST_F(CliControlTest, NamesSettingsThatNeedARestart) {
  daemon_.answers.change.add_restart_needed("grpc.listen");
  daemon_.answers.change.add_restart_needed("stats.\x1b[2J");

  EXPECT_THAT(run({"config", "reload"}).out,
              HasSubstr("Takes effect when gpuperfd is restarted: grpc.listen, stats.\\x1b[2J\n"));
}

TEST_F(CliControlTest, ShowsTheChangeAsJsonAndCsv) {
  EXPECT_EQ(ordered_json::parse(run({"config", "reload", "-o", "json"}).out),
            to_json(daemon_.answers.change));
  EXPECT_EQ(run({"config", "reload", "-o", "csv"}).out,
            "added,removed,changed,unchanged,restart_needed,warnings\n1,2,3,1041,[],[]\n");
}

TEST_F(CliControlTest, DemandsLessOrMoreObservationForATime) {
  EXPECT_EQ(run({"overhead", "stand-down", "--for", "10m", "--reason", "SLO"}).out,
            "1 added, 2 removed, 3 changed, 1,041 unchanged\n");
  EXPECT_EQ(run({"overhead", "detail", "--for", "1d"}).exit_code, 0);
  EXPECT_EQ(run({"overhead", "release"}).exit_code, 0);
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"stand-down"},
                                             {"detail", "--for", "0s"},
                                             {"detail", "--for", "25h"},
                                             {"detail", "--for", "10"},
                                             {"release", "--for", "1m"}}) {
    std::vector<std::string> command = {"overhead"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    EXPECT_EQ(run(command).exit_code, 2) << arguments.back();
  }

  EXPECT_THAT(daemon_.requests(),
              ElementsAre("SetOverheadDemand: demand: OVERHEAD_DEMAND_STAND_DOWN duration_ns: "
                          "600000000000 reason: \"SLO\"",
                          "SetOverheadDemand: demand: OVERHEAD_DEMAND_DETAIL duration_ns: "
                          "86400000000000 reason: \"gpuperfctl\"",
                          "SetOverheadDemand: demand: OVERHEAD_DEMAND_NONE"));
}

TEST_F(CliControlTest, ShowsTheRulesAndHowTheyStand) {
  EXPECT_THAT(run({"overhead", "rules"}).out, HasSubstr("No rule is configured"));
  v1::QosRule& rule = *daemon_.answers.status.add_qos_rules();
  rule.set_name("decode");
  rule.set_text("p99 gpuperf_step_seconds > 0.05: \x1b[2J");
  rule.set_value(0.0625);
  rule.set_limit(0.05);
  rule.set_breached(true);
  rule.set_age_ns(3'000'000'000);
  rule.set_breaches(2);
  daemon_.answers.status.add_qos_rules()->set_name("queue");

  EXPECT_EQ(run({"overhead", "rules"}).out,
            "NAME    STATE      SINCE   VALUE  LIMIT  BREACHES  RULE\n"
            "decode  breached  3.00 s  0.0625   0.05         2  p99 gpuperf_step_seconds > 0.05: "
            "\\x1b[2J\n"
            "queue   kept           -       -      0         0  -\n");
  rule.set_caused_by_gpuperf(true);
  EXPECT_THAT(run({"overhead", "rules"}).out, HasSubstr("breached by gpuperf"));
  rule.set_fault("connect: Connection refused\x1b");
  EXPECT_THAT(run({"overhead", "rules"}).out,
              AllOf(HasSubstr("decode  not read"),
                    HasSubstr("\ndecode is not read: connect: Connection refused\\x1b\n")));
  EXPECT_EQ(ordered_json::parse(run({"overhead", "rules", "-o", "json"}).out)[0], to_json(rule));
  EXPECT_EQ(run({"overhead", "rules", "--pid", "7"}).exit_code, 2);
}

TEST_F(CliControlTest, AddsASymbolOrAnObject) {
  EXPECT_EQ(run({"probes", "add", "custom_sym", "f", "_Z1fv \"x\"", "-o", "json"}).exit_code, 0);
  EXPECT_EQ(run({"probes", "add", "custom_sym", "g", R"({"symbol": "g"})", "-o", "json"}).exit_code,
            0);

  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(AddProbe: section: "custom_sym" name: "f" )"
                                              R"(value_json: "\"_Z1fv \\\"x\\\"\"")",
                                              R"(AddProbe: section: "custom_sym" name: "g" )"
                                              R"(value_json: "{\"symbol\": \"g\"}")"));
}

TEST_F(CliControlTest, ShowsWarningsAndWhatBecameOfAnAddedProbe) {
  daemon_.answers.change.add_warnings("probe: $.cuda_fun: unknown section");
  daemon_.answers.probes.resize(1);

  const auto result = run({"probes", "add", "cuda_fun_sym", "f", "cudaLaunchKernel"});

  EXPECT_THAT(result.out, StartsWith("1 added, 2 removed, 3 changed, 1,041 unchanged\n"
                                     "Warning: probe: $.cuda_fun: unknown section\n"
                                     "\n"
                                     "CATEGORY  FUNCTION"));
  EXPECT_THAT(result.out, HasSubstr("cudaLaunchKernel  attached"));
  EXPECT_THAT(daemon_.requests(),
              Contains(HasSubstr(R"(filter { category: "cuda_fun" function: "f" })")));
}

TEST_F(CliControlTest, RemovesAnAddedProbe) {
  EXPECT_EQ(run({"probes", "remove", "custom_sym", "f"}).exit_code, 0);
  EXPECT_EQ(run({"probes", "remove", "custom_sym"}).exit_code, 2);

  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(RemoveProbe: section: "custom_sym" name: "f")"));
}

TEST_F(CliControlTest, RefusesAnObjectThatIsNoJsonBeforeAsking) {
  const auto result = run({"probes", "add", "custom_sym", "g", "{symbol: g}"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "gpuperfctl: cannot add g: not valid JSON: {symbol: g}\n");
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliControlTest, EnablesAndDisablesByPatternAndCategory) {
  EXPECT_EQ(run({"probes", "disable", "cublas*"}).exit_code, 0);
  EXPECT_EQ(run({"probes", "enable", "*", "--category", "cublas"}).exit_code, 0);

  EXPECT_THAT(daemon_.requests(), ElementsAre(R"(DisableProbes: function: "cublas*")",
                                              R"(EnableProbes: category: "cublas" function: "*")"));
}

TEST_F(CliControlTest, SetsAThresholdByPatternAndCategory) {
  const auto result = run({"probes", "threshold", "cuda*", "20ms", "--category", "cuda"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "1 added, 2 removed, 3 changed, 1,041 unchanged\n");
  EXPECT_THAT(daemon_.requests(),
              ElementsAre("SetSlowThreshold: category: \"cuda\" function: \"cuda*\" "
                          "threshold_ns: 20000000"));
}

TEST_F(CliControlTest, TakesAThresholdInEveryForm) {
  for (const char* threshold : {"1.5s", "0", "0ms", "config"}) {
    EXPECT_EQ(run({"probes", "threshold", "f", threshold}).exit_code, 0) << threshold;
  }

  EXPECT_THAT(daemon_.requests(),
              ElementsAre("SetSlowThreshold: function: \"f\" threshold_ns: 1500000000",
                          "SetSlowThreshold: function: \"f\" threshold_ns: 0",
                          "SetSlowThreshold: function: \"f\" threshold_ns: 0",
                          "SetSlowThreshold: function: \"f\""));
}

TEST_F(CliControlTest, RefusesAThresholdThatIsNoneBeforeAsking) {
  const auto result = run({"probes", "threshold", "f", "20"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "gpuperfctl: DURATION: \"20\": no unit; write a number with a unit, like 500ms, 10m, "
            "1h30m or 2d; 0 means no call is slow, config means the configured threshold; see: "
            "gpuperfctl probes threshold --help\n");
  for (const char* threshold : {"", "never", "-5ms", "00", "Config", "4611686018427387904ns"}) {
    EXPECT_EQ(run({"probes", "threshold", "f", threshold}).exit_code, 2) << threshold;
  }
  EXPECT_EQ(run({"probes", "threshold", "f"}).exit_code, 2);
  EXPECT_EQ(run({"probes", "threshold", "", "5ms"}).exit_code, 2);
  EXPECT_EQ(run({"probes", "threshold", "f", "5ms", "--limit", "3"}).exit_code, 2);
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliControlTest, TakesTheLongestThreshold) {
  (void)run({"probes", "threshold", "f", "4611686018427387903ns"});

  EXPECT_THAT(daemon_.requests(),
              ElementsAre("SetSlowThreshold: function: \"f\" threshold_ns: 4611686018427387903"));
}

TEST_F(CliControlTest, SaysWhichThresholdCouldNotBeSet) {
  daemon_.answers.control_failure = grpc::Status(grpc::StatusCode::NOT_FOUND, "no such function");

  const auto result = run({"probes", "threshold", "cudaMaloc", "5ms"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "gpuperfctl: cannot set the threshold of cudaMaloc: no such function\n");
}

TEST_F(CliControlTest, TakesNoFlagsOfTheList) {
  const auto result = run({"probes", "disable", "x", "--limit", "3"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("not expected: --limit; see: gpuperfctl probes disable --help"));
  EXPECT_EQ(run({"probes", "disable", ""}).exit_code, 2);
  EXPECT_EQ(run({"probes", "add", "s", "n"}).exit_code, 2);
  EXPECT_THAT(daemon_.requests(), IsEmpty());
}

TEST_F(CliControlTest, EndsWithFourWhenNotPermitted) {
  daemon_.answers.control_failure = grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                                                 "only root may; run it as root: sudo gpuperfctl");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"config", "reload"},
                                                  {"probes", "add", "s_sym", "n", "f"},
                                                  {"probes", "enable", "f"},
                                                  {"probes", "disable", "f"},
                                                  {"probes", "threshold", "f", "5ms"}}) {
    const auto result = run(command);
    EXPECT_EQ(result.exit_code, 4) << command[1];
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("does not permit it: only root may; run it as root: sudo"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(CliControlTest, PrintsEachErrorOfAConfigurationOnALine) {
  daemon_.answers.control_failure = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                                 "$.slow: unknown key \"treshold\"\n$.\x1b: wrong");

  const auto result = run({"config", "reload"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "gpuperfctl: cannot reload the configuration: nothing has changed, because of 2 "
            "errors:\n"
            "  $.slow: unknown key \"treshold\"\n"
            "  $.\\x1b: wrong\n");
}

// The daemon's answer, and what becomes of it.
struct RefusalCase {
  grpc::StatusCode code;
  int exit_code;
  const char* said;
};

TEST_F(CliControlTest, TurnsEveryAnswerIntoItsExitCode) {
  const RefusalCase kCases[] = {
      {grpc::StatusCode::INVALID_ARGUMENT, 2, "gpuperfctl: cannot enable f: because\n"},
      {grpc::StatusCode::NOT_FOUND, 1, "gpuperfctl: cannot enable f: because\n"},
      {grpc::StatusCode::ALREADY_EXISTS, 1, "gpuperfctl: cannot enable f: because\n"},
      {grpc::StatusCode::UNAVAILABLE, 3, "has stopped (because)"},
      {grpc::StatusCode::UNIMPLEMENTED, 1, "older version than this gpuperfctl"},
      {grpc::StatusCode::DEADLINE_EXCEEDED, 3, "the change may still take effect"}};
  for (const RefusalCase& refusal : kCases) {
    FakeDaemon daemon;
    daemon.answers.control_failure = grpc::Status(refusal.code, "because");
    daemon.start();

    const auto result = run_program({"probes", "enable", "f", "--address", daemon.address()});

    EXPECT_EQ(result.exit_code, refusal.exit_code) << refusal.said;
    EXPECT_THAT(result.err, HasSubstr(refusal.said));
  }
}

}  // namespace
}  // namespace gpuperf::client
