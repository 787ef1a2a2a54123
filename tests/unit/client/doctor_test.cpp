#include "client/doctor.h"

#include <filesystem>
#include <fstream>

#include "fake_daemon.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

using ::testing::Field;

v1::Probe make_probe(const std::string& category, const std::string& function, v1::ProbeState state,
                     const std::string& reason = "") {
  v1::Probe probe;
  probe.set_category(category);
  probe.set_function(function);
  probe.set_state(state);
  probe.set_reason(reason);
  if (state == v1::PROBE_STATE_ATTACHED || state == v1::PROBE_STATE_ENTRY_ONLY) {
    probe.set_mechanism("session");
    probe.set_library("/usr/lib/lib" + category + ".so");
  }
  return probe;
}

// A daemon with nothing to complain about.
DaemonAnswers make_healthy() {
  DaemonAnswers answers;
  answers.status.set_version(GPUPERF_VERSION);
  answers.status.set_mechanism("session");
  answers.status.set_kernel("6.18.5");
  answers.status.set_calls(1'234);
  answers.status.set_processes(2);
  answers.config.set_path("/etc/gpuperf/config.json");
  answers.config.set_json("{}");
  answers.config_file = "{}";
  answers.probes = {make_probe("cuda", "cudaMalloc", v1::PROBE_STATE_ATTACHED)};
  return answers;
}

auto is_check(const std::string& name, CheckState state, const std::string& message,
              const std::string& hint = "") {
  return AllOf(Field(&Check::check, name), Field(&Check::state, state),
               Field(&Check::message, HasSubstr(message)), Field(&Check::hint, HasSubstr(hint)));
}

TEST(DoctorDaemonTest, FindsNothingWhereNothingIs) {
  for (const Check& check : check_daemon(make_healthy())) {
    EXPECT_EQ(check.state, CheckState::kOk) << check.check << ": " << check.message;
    EXPECT_EQ(check.hint, "") << check.check;
    EXPECT_NE(check.message, "") << check.check;
  }
}

TEST(DoctorDaemonTest, ComparesTheVersions) {
  DaemonAnswers answers = make_healthy();
  answers.status.set_version("0.0.1");

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("version", CheckState::kHint, "gpuperfd 0.0.1", "restart")));
}

TEST(DoctorDaemonTest, SaysWhatTheRecorderHoldsOrThatItIsOff) {
  DaemonAnswers answers = make_healthy();
  answers.status.mutable_recorder()->set_events(1'234);
  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("recorder", CheckState::kHint, "off", "trace.recorder = true")));

  answers.status.mutable_recorder()->set_enabled(true);
  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("recorder", CheckState::kOk, "1,234 events")));
}

TEST(DoctorDaemonTest, SaysThatNothingCanBeProbed) {
  DaemonAnswers answers = make_healthy();
  answers.status.set_mechanism("none");

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("mechanism", CheckState::kProblem, "nothing", "CAP_BPF")));
}

TEST(DoctorDaemonTest, NamesOneCauseOnce) {
  DaemonAnswers answers = make_healthy();
  answers.status.set_mechanism("none");
  answers.status.set_calls(0);
  answers.status.add_problems()->set_message("no CAP_BPF");
  answers.probes = {make_probe("cuda", "cudaMalloc", v1::PROBE_STATE_FAILED, "no CAP_BPF"),
                    make_probe("nccl", "ncclAllReduce", v1::PROBE_STATE_FAILED, "no CAP_BPF")};

  std::vector<std::string> said;
  for (const Check& check : check_daemon(answers)) {
    if (check.state != CheckState::kOk) said.push_back(check.message);
  }

  EXPECT_THAT(said, ElementsAre("no CAP_BPF"));
}

TEST(DoctorDaemonTest, WarnsOfTheSlowMechanism) {
  DaemonAnswers answers = make_healthy();
  answers.status.set_mechanism("perf");

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("mechanism", CheckState::kHint, "one by one", "6.6")));
}

TEST(DoctorDaemonTest, PassesOnEachProblemOfTheDaemon) {
  DaemonAnswers answers = make_healthy();
  auto* problem = answers.status.add_problems();
  problem->set_subject("discovery");
  problem->set_message("cannot watch");
  problem->set_hint("give it CAP_PERFMON");

  EXPECT_THAT(check_daemon(answers), Contains(Check{"discovery", CheckState::kProblem,
                                                    "cannot watch", "give it CAP_PERFMON"}));
}

TEST(DoctorDaemonTest, NoticesAConfigurationThatWasNotReloaded) {
  DaemonAnswers answers = make_healthy();
  answers.config_file = "{ }";

  EXPECT_THAT(check_daemon(answers), Contains(is_check("config", CheckState::kHint, "has changed",
                                                       "sudo gpuperfctl config reload")));
  answers.config_file.reset();
  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("config", CheckState::kOk, "/etc/gpuperf/config.json is in use")));
}

TEST(DoctorDaemonTest, TellsWhatTheBudgetTookOut) {
  DaemonAnswers answers = make_healthy();
  auto* row = answers.status.add_suspensions();
  row->set_category("cuda");
  row->set_function("cudaLaunchKernel");
  row->set_pid(42);
  row->set_comm("train");
  row->set_share_ratio(0.034);
  row->set_remaining_ns(12'000'000'000);
  *answers.status.add_suspensions() = *row;
  answers.status.mutable_suspensions(1)->set_function("cudaMalloc");
  answers.status.mutable_suspensions(1)->set_share_ratio(0.012);
  answers.probes = {make_probe("cuda", "cudaLaunchKernel", v1::PROBE_STATE_SUSPENDED)};

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("budget", CheckState::kHint,
                                "suspended by the overhead budget in process 42 (train): "
                                "cudaLaunchKernel, cudaMalloc; their probes took 4.60 % of its "
                                "time",
                                "their calls are estimated, the next time within 12.0 s; raise "
                                "overhead.budget_percent")));
  EXPECT_EQ(std::ranges::count(check_daemon(answers), CheckState::kHint, &Check::state), 1);
}

TEST(DoctorDaemonTest, SaysThatNothingIsObservedBecauseSomebodyDemandedIt) {
  DaemonAnswers answers = make_healthy();
  answers.status.set_overhead_demand(v1::OVERHEAD_DEMAND_STAND_DOWN);
  answers.status.set_overhead_demand_remaining_ns(300'000'000'000);
  answers.status.set_overhead_demand_reason("SLO of the decode");

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("overhead", CheckState::kProblem,
                                "nothing is probed or recorded for another 5m00s, because it was "
                                "demanded: SLO of the decode",
                                "sudo gpuperfctl overhead release")));
}

TEST(DoctorDaemonTest, NamesWhatWasSuspendedBeforeARestart) {
  DaemonAnswers answers = make_healthy();
  auto* row = answers.status.add_suspensions();
  row->set_function("linear");
  row->set_comm("train");

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("budget", CheckState::kHint,
                                "in train, before gpuperfd was restarted: linear; ", "")));
}

TEST(DoctorDaemonTest, SaysWhatEachDropMeans) {
  DaemonAnswers answers = make_healthy();
  auto* drop = answers.status.add_drops();
  drop->set_stage("bpf");
  drop->set_reason("slow_ring_full");
  drop->set_count(1'234);
  drop->set_meaning("records of slow calls");

  EXPECT_THAT(check_daemon(answers),
              Contains(Check{"drops", CheckState::kHint,
                             "bpf slow_ring_full: 1,234 dropped since gpuperfd started",
                             "records of slow calls"}));
}

v1::BoundLevel make_level(const std::string& bound, uint64_t highest, bool is_rotating = false) {
  v1::BoundLevel level;
  level.set_bound(bound);
  level.set_unit("pairs");
  level.set_used(1);
  level.set_highest(highest);
  level.set_limit(1'000);
  level.set_setting("stats.max_cells");
  level.set_rotating(is_rotating);
  level.set_when_full("calls are counted elsewhere");
  return level;
}

TEST(DoctorDaemonTest, WarnsOfLimitsThatAreAlmostReached) {
  DaemonAnswers answers = make_healthy();
  *answers.status.add_bounds() = make_level("shapes", 799);
  *answers.status.add_bounds() = make_level("store_bytes", 1'000, /*is_rotating=*/true);
  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("limits", CheckState::kOk, "none of 2 is 80 % full")));

  *answers.status.add_bounds() = make_level("cells", 800);
  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("limits", CheckState::kHint,
                                "cells was 80.0 % full within the last two minutes: 800 pairs of "
                                "1,000 pairs",
                                "raise stats.max_cells; when it is full: calls are counted "
                                "elsewhere")));
}

TEST(DoctorDaemonTest, WarnsOfALateLoopAndASlowDisk) {
  DaemonAnswers answers = make_healthy();
  *answers.status.add_bounds() = make_level("cells", 1);
  for (const char* name : {"loop_delay", "store_write", "drain"}) {
    v1::StepTime& step = *answers.status.add_steps();
    step.set_step(name);
    step.set_p99_ns(2'000'000'000);
    step.set_longest_ns(7'000'000'000);
  }

  const auto checks = check_daemon(answers);

  EXPECT_THAT(checks, Contains(is_check("times", CheckState::kHint,
                                        "main loop is late by 2.00 s in one of a hundred cases "
                                        "since gpuperfd started, and 7.00 s once",
                                        "CPU")));
  EXPECT_THAT(checks,
              Contains(is_check("times", CheckState::kHint, "writing slow calls", "storage.path")));
  EXPECT_EQ(std::ranges::count(checks, "times", &Check::check), 2);
}

TEST(DoctorDaemonTest, NoticesThatNobodyCalled) {
  DaemonAnswers answers = make_healthy();
  answers.status.set_calls(0);

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("calls", CheckState::kHint, "no probed function", "workload")));
}

TEST(DoctorDaemonTest, SaysWhatTheProbesCost) {
  DaemonAnswers answers = make_healthy();
  answers.status.set_overhead_ratio(0.0042);
  answers.status.set_overhead_pid(42);

  EXPECT_THAT(check_daemon(answers),
              Contains(is_check("overhead", CheckState::kOk, "an estimated 0.42 %")));
}

TEST(DoctorProbesTest, SumsUpACategoryThatWorks) {
  const std::vector<Check> checks =
      check_probes({make_probe("cuda", "a", v1::PROBE_STATE_ATTACHED),
                    make_probe("cuda", "a", v1::PROBE_STATE_ATTACHED),  // in a second copy
                    make_probe("cuda", "b", v1::PROBE_STATE_ENTRY_ONLY, "C++"),
                    make_probe("cuda", "c", v1::PROBE_STATE_ALIAS, "a")});

  EXPECT_THAT(checks, ElementsAre(Check{"cuda", CheckState::kOk,
                                        "functions probed: 2, in files: 1; counted but not timed: "
                                        "1; counted under another name: 1",
                                        ""}));
}

TEST(DoctorProbesTest, SaysThatNobodyMapsTheLibrary) {
  EXPECT_THAT(check_probes({make_probe("nccl", "a", v1::PROBE_STATE_WAITING)}),
              ElementsAre(Check{
                  "nccl", CheckState::kOk,
                  "no running process has loaded one of its libraries; functions waiting: 1", ""}))
      << "not every host uses each library of the shipped configuration";
  EXPECT_THAT(check_probes({make_probe("custom", "a", v1::PROBE_STATE_WAITING),
                            make_probe("custom", "b", v1::PROBE_STATE_WAITING)}),
              ElementsAre(is_check(
                  "custom", CheckState::kHint,
                  "no running process has loaded one of its libraries; functions waiting: 2",
                  "start the workload")));
}

TEST(DoctorProbesTest, NamesWhatIsMissingFailedOrOff) {
  std::vector<v1::Probe> probes = {make_probe("mine", "ok", v1::PROBE_STATE_ATTACHED)};
  for (int i = 0; i < 7; ++i) {
    probes.push_back(make_probe("mine", "m" + std::to_string(i), v1::PROBE_STATE_SYMBOL_MISSING,
                                "not in libcudart.so.12"));
  }
  probes.push_back(make_probe("mine", "f", v1::PROBE_STATE_FAILED, "EINVAL"));
  probes.push_back(make_probe("mine", "d", v1::PROBE_STATE_DISABLED));

  EXPECT_THAT(check_probes(probes),
              ElementsAre(is_check("mine", CheckState::kOk, "functions probed: 1, in files: 1"),
                          is_check("mine", CheckState::kProblem, "attaching failed: f (EINVAL)",
                                   "gpuperfctl probes --category mine"),
                          is_check("mine", CheckState::kHint,
                                   "not found in the loaded libraries: m0, m1, m2, m3, m4 and 2 "
                                   "more (not in libcudart.so.12)",
                                   "configuration"),
                          is_check("mine", CheckState::kHint, "disabled: d",
                                   "sudo gpuperfctl probes enable")));
}

TEST(DoctorProbesTest, HasNoHintAgainstTheShippedConfiguration) {
  EXPECT_THAT(
      check_probes({make_probe("cuda", "ok", v1::PROBE_STATE_ATTACHED),
                    make_probe("cuda", "newer", v1::PROBE_STATE_SYMBOL_MISSING)}),
      ElementsAre(is_check("cuda", CheckState::kOk, "functions probed: 1, in files: 1"),
                  Check{"cuda", CheckState::kOk, "not found in the loaded libraries: newer", ""}));
}

TEST(DoctorProbesTest, NoticesThatNothingIsConfigured) {
  EXPECT_THAT(check_probes({}),
              ElementsAre(is_check("probes", CheckState::kProblem, "no function is configured",
                                   "config reload")));
}

class DoctorHostTest : public ::testing::Test {
 protected:
  void add_process(int pid, const std::string& comm) {
    const auto process = folder_.path() / std::to_string(pid);
    std::filesystem::create_directory(process);
    std::ofstream(process / "comm") << comm << "\n";
  }
  std::vector<Check> check() const {
    return check_host({.proc = folder_.path(), .btf = folder_ / "vmlinux"});
  }

  TempFolder folder_;
};

TEST_F(DoctorHostTest, LooksForTheDaemonsProcess) {
  add_process(1, "systemd");
  EXPECT_THAT(check(), Contains(is_check("process", CheckState::kProblem, "no process named",
                                         "systemctl start gpuperfd")));

  add_process(812, "gpuperfd");
  EXPECT_THAT(check(), Contains(is_check("process", CheckState::kOk, "process 812")));
}

TEST_F(DoctorHostTest, LooksForBtf) {
  EXPECT_THAT(check(), Contains(is_check("btf", CheckState::kProblem, "No such file",
                                         "CONFIG_DEBUG_INFO_BTF")));

  std::ofstream(folder_ / "vmlinux") << "x";
  EXPECT_THAT(check(), Contains(is_check("btf", CheckState::kOk, "is there")));
}

TEST_F(DoctorHostTest, NamesTheKernel) {
  EXPECT_THAT(check(), Contains(is_check("kernel", CheckState::kOk, "kernel ")));
}

TEST_F(DoctorHostTest, SaysWhatIsWrongWithTheSocket) {
  const std::string path = folder_ / "api.sock";
  EXPECT_THAT(check_socket(*parse_address(path)),
              is_check("socket", CheckState::kProblem, "No such file", "--address"));

  std::ofstream(path) << "x";
  EXPECT_THAT(check_socket(*parse_address(path)),
              is_check("socket", CheckState::kProblem, "is not a socket"));

  FakeDaemon daemon;
  daemon.start();
  EXPECT_THAT(check_socket(*parse_address(daemon.address())),
              is_check("socket", CheckState::kOk, "is accessible"));
}

TEST(DoctorUnreachableTest, NamesTheCauseOnce) {
  const Check socket = {"socket", CheckState::kProblem, "/run/x: No such file", "other address?"};
  const Check open = {"socket", CheckState::kOk, "is there", ""};
  const Check none = {"process", CheckState::kProblem, "no process", "start it"};
  const Check runs = {"process", CheckState::kOk, "runs", ""};
  const Check kernel = {"kernel", CheckState::kOk, "6.12", ""};

  EXPECT_THAT(explain_unreachable("cannot reach", socket, {none, kernel}),
              ElementsAre(is_check("daemon", CheckState::kProblem,
                                   "gpuperfd is not running (/run/x: No such file)",
                                   "systemctl start gpuperfd"),
                          kernel));
  EXPECT_THAT(explain_unreachable("cannot reach", socket, {runs, kernel}),
              ElementsAre(socket, runs, kernel));
  EXPECT_THAT(explain_unreachable("timeout", open, {runs}),
              ElementsAre(is_check("daemon", CheckState::kProblem, "timeout"), runs));
  EXPECT_THAT(explain_unreachable("timeout", std::nullopt, {}),
              ElementsAre(is_check("daemon", CheckState::kProblem, "timeout")));
}

TEST(DoctorTextTest, ShowsOneLineACheckAndItsHintBelow) {
  EXPECT_EQ(render_checks({{"daemon", CheckState::kOk, "answers", ""},
                           {"a-long-category", CheckState::kProblem, "x\x1b[2J", "do this"}},
                          {}),
            "1 problem: x\\x1b[2J\n"
            "\n"
            "ok       daemon      answers\n"
            "problem  a-long-category x\\x1b[2J\n"
            "                     do this\n");
}

TEST(DoctorTextTest, SumsUp) {
  const Check good = {"a", CheckState::kOk, "fine", ""};
  const Check hint = {"b", CheckState::kHint, "know this", ""};
  const Check problem = {"c", CheckState::kProblem, "broken", ""};

  EXPECT_EQ(summarise_checks({good, good}), "No problems: 2 checks");
  EXPECT_EQ(summarise_checks({good, hint}), "No problems, 1 hint");
  EXPECT_EQ(summarise_checks({hint, good, problem, problem, hint}),
            "2 problems and 2 hints: broken");
}

TEST(DoctorTextTest, IsAnArrayInJson) {
  EXPECT_EQ(to_json({{"daemon", CheckState::kHint, "m", "h"}}),
            nlohmann::ordered_json::parse(
                R"([{"check": "daemon", "state": "hint", "message": "m", "hint": "h"}])"));
}

v1::Session make_session(uint32_t pid, const std::string& state, const std::string& cause,
                         const std::string& detail = "") {
  v1::Session session;
  session.set_pid(pid);
  session.set_comm("python3");
  session.set_state(state);
  session.set_cause(cause);
  session.set_detail(detail);
  return session;
}

v1::FunctionStats make_cuda_call(uint32_t pid) {
  v1::FunctionStats row;
  row.set_category("cuda");
  row.set_pid(pid);
  row.set_comm("train");
  row.set_calls(3);
  return row;
}

TEST(DoctorSessionsTest, CountsProcessesThatSendTheirKernels) {
  DaemonAnswers answers = make_healthy();
  answers.sessions = {make_session(7, "collecting", "none"), make_session(8, "collecting", "none")};
  answers.cuda_calls = {make_cuda_call(7)};

  EXPECT_THAT(check_sessions(answers),
              ElementsAre(is_check("sessions", CheckState::kOk, "report their kernels: 2")));
}

TEST(DoctorSessionsTest, NamesProcessesThatCallCudaWithoutASession) {
  DaemonAnswers answers = make_healthy();
  answers.sessions = {make_session(7, "waiting", "none")};
  v1::FunctionStats exited = make_cuda_call(9);
  exited.set_exited(true);
  answers.cuda_calls = {make_cuda_call(7), make_cuda_call(8), make_cuda_call(8), exited};

  EXPECT_THAT(check_sessions(answers), ElementsAre(is_check("injection", CheckState::kHint,
                                                            "does not see their kernels: 8 (train)",
                                                            "CUDA_INJECTION64_PATH")));
}

TEST(DoctorSessionsTest, SaysHowManyLaunchesWentPastTheHooks) {
  DaemonAnswers answers = make_healthy();
  answers.sessions = {make_session(7, "waiting", "none")};
  v1::FunctionStats launches = make_cuda_call(7), copies = make_cuda_call(7);
  launches.set_calls_past_hooks(30);
  copies.set_function("cuMemcpyAsync");
  copies.set_calls_past_hooks(4'000);
  v1::FunctionStats exited = launches;
  exited.set_pid(9);
  exited.set_exited(true);
  answers.cuda_calls = {launches, copies, make_cuda_call(7), exited};

  EXPECT_THAT(check_sessions(answers),
              ElementsAre(is_check("injection", CheckState::kHint,
                                   "4,030 launches, copies and memsets of process 7 (train) "
                                   "bypassed its launch hooks, most of them cuMemcpyAsync",
                                   "before cuInit")));
}

// Those that do not work are problems of the daemon already.
TEST(DoctorSessionsTest, NamesTheWaysByWhichContainersAreInjected) {
  DaemonAnswers answers = make_healthy();
  answers.sessions = {make_session(7, "waiting", "none")};
  v1::InjectionWay& cdi = *answers.status.add_injection_ways();
  cdi.set_way("cdi");
  cdi.set_working(true);
  cdi.set_detail("/run/cdi/gpuperf.json");
  answers.status.add_injection_ways()->set_way("device_plugin");

  EXPECT_THAT(check_sessions(answers),
              ElementsAre(is_check("injection", CheckState::kOk,
                                   "containers are injected by cdi: /run/cdi/gpuperf.json")));
}

TEST(DoctorSessionsTest, SaysWhoHasCuptiInstead) {
  DaemonAnswers answers = make_healthy();
  answers.sessions = {make_session(7, "yielded", "other_client", "libkineto.so")};

  EXPECT_THAT(check_sessions(answers),
              ElementsAre(is_check("session", CheckState::kHint,
                                   "process 7 (python3) is yielded: another CUPTI client in the "
                                   "process has priority: libkineto.so",
                                   "torch.profiler")));
}

TEST(DoctorSessionsTest, SaysWhatCuptiIsMissing) {
  DaemonAnswers answers = make_healthy();
  answers.sessions = {make_session(7, "failed", "no_cupti"),
                      make_session(8, "failed", "cupti_version", "12.1 with a runtime of 13.0")};

  EXPECT_THAT(check_sessions(answers),
              ElementsAre(is_check("session", CheckState::kProblem, "no libcupti", "install CUPTI"),
                          is_check("session", CheckState::kProblem, "12.1 with", "CUDA toolkit")));
}

TEST(DoctorSessionsTest, SaysWhatToDoAboutGraphsThatWereMadeBefore) {
  DaemonAnswers answers = make_healthy();
  answers.sessions = {make_session(7, "collecting", "graphs_unseen")};

  EXPECT_THAT(check_sessions(answers),
              Contains(is_check("session", CheckState::kHint, "graphs were created before",
                                "sessions burst 7 --nodes")));
}

TEST(DoctorSessionsTest, NamesWhatWasLost) {
  DaemonAnswers answers = make_healthy();
  v1::Session session = make_session(7, "collecting", "none");
  session.set_lost_records(1'500);
  for (const auto& [reason, count] : {std::pair("queue_full", 1'500), std::pair("sampled", 9)}) {
    session.add_losses()->set_reason(reason);
    session.mutable_losses()->rbegin()->set_count(static_cast<uint64_t>(count));
  }
  answers.sessions = {session};

  EXPECT_THAT(check_sessions(answers),
              Contains(is_check("session", CheckState::kHint,
                                "process 7 (python3) lost 1,500 records: queue_full 1,500",
                                "run 7 --sample-every 10")));
}

TEST(DoctorSessionsTest, SaysOfEachProcessThatUsesCudaHowTheLibraryIsInItOrCanBe) {
  DaemonAnswers answers = make_healthy();
  const auto add = [&answers](uint32_t pid, const char* state) -> v1::Attachment& {
    v1::Attachment& row = answers.attachments.emplace_back();
    row.set_pid(pid);
    row.set_comm("python3");
    row.set_state(state);
    return row;
  };
  add(7, "injected");
  add(8, "attached").set_held_ns(1'400'000);
  add(9, "can");
  v1::Attachment& refused = add(10, "cannot");
  refused.set_detail("another program traces it: pid 9");
  refused.set_hint("end the debugger");

  EXPECT_THAT(
      check_sessions(answers),
      ::testing::IsSupersetOf(
          {is_check("attach", CheckState::kOk, "process 7 (python3) was injected at its start"),
           is_check("attach", CheckState::kOk,
                    "process 8 (python3) was attached to: one thread was held for 1.40 ms"),
           is_check("attach", CheckState::kOk, "process 9 (python3) can be attached to"),
           is_check("attach", CheckState::kHint,
                    "process 10 (python3) cannot be attached to: another program traces it: pid 9",
                    "end the debugger")}));
}

}  // namespace
}  // namespace gpuperf::client
