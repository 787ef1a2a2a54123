#include "daemon/rpc/control_service.h"

#include <thread>

#include "gpuperf/v1/control.grpc.pb.h"
#include "tests/unit/matchers.h"
#include "tests/unit/rpc/fake_control_port.h"
#include "tests/unit/rpc/rpc_fixture.h"
#include "tests/unit/rpc/unix_peer.h"

namespace gpuperf {
namespace {

using testing::FakeControlPort;
using testing::RpcFixture;

class ControlServiceTest : public RpcFixture {
 protected:
  ControlServiceTest() { control_port_ = &port_; }

  void start_for_root() {
    if (geteuid() != 0) GTEST_SKIP() << "needs root: nobody else may change the daemon";
    start();
    control_ = v1::Control::NewStub(connect());
  }
  template <typename Request, typename Response>
  Response control(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                   const std::string& request_text = "") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    Response response;
    status_ = (*control_.*method)(&context, parse_text<Request>(request_text), &response);
    return response;
  }

  FakeControlPort port_;
  std::unique_ptr<v1::Control::Stub> control_;
};

TEST_F(ControlServiceTest, DoesWhatRootAsksAndSaysWhatCameOfIt) {
  port_.result = ProbeChange{.added = 1,
                             .removed = 2,
                             .changed = 3,
                             .unchanged = 4,
                             .restart_needed = {"grpc.listen", "stats.max_cells"},
                             .warnings = {"doubtful"}};
  start_for_root();
  if (IsSkipped()) return;
  const std::string expected = parse_text<v1::ProbeChange>(R"(
      added: 1 removed: 2 changed: 3 unchanged: 4
      restart_needed: "grpc.listen" restart_needed: "stats.max_cells" warnings: "doubtful")")
                                   .DebugString();

  EXPECT_EQ(control(&v1::Control::Stub::ReloadConfig).change().DebugString(), expected);
  EXPECT_EQ(control(&v1::Control::Stub::AddProbe,
                    R"(section: "cuda_func_sym" name: "cudaFree" value_json: "\"cudaFree\"")")
                .change()
                .DebugString(),
            expected);
  EXPECT_EQ(control(&v1::Control::Stub::RemoveProbe, R"(section: "cuda" name: "cudaFree")")
                .change()
                .DebugString(),
            expected);
  EXPECT_EQ(control(&v1::Control::Stub::EnableProbes, R"(function: "f*")").change().DebugString(),
            expected);
  EXPECT_EQ(control(&v1::Control::Stub::DisableProbes, R"(category: "cuda" function: "*")")
                .change()
                .DebugString(),
            expected);
  EXPECT_EQ(control(&v1::Control::Stub::SetSlowThreshold,
                    R"(category: "cuda" function: "cudaM*" threshold_ns: 2000000)")
                .change()
                .DebugString(),
            expected);
  EXPECT_TRUE(status_.ok()) << status_.error_message();

  EXPECT_THAT(port_.asked(), ElementsAre("reload", "add cuda_func_sym cudaFree \"cudaFree\"",
                                         "remove cuda cudaFree", "enable  f*", "disable cuda *",
                                         "threshold cuda cudaM* 2000000"));
}

TEST_F(ControlServiceTest, TellsAThresholdOfZeroFromTheConfiguredOne) {
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::SetSlowThreshold, R"(function: "f" threshold_ns: 0)");
  control(&v1::Control::Stub::SetSlowThreshold, R"(function: "f")");

  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(port_.asked(), ElementsAre("threshold  f 0", "threshold  f as configured"));
}

TEST_F(ControlServiceTest, RefusesAThresholdThatNoClockReaches) {
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::SetSlowThreshold,
          R"(function: "f" threshold_ns: 4611686018427387904)");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("threshold_ns: more than 2^62"));
  EXPECT_THAT(port_.asked(), IsEmpty());

  control(&v1::Control::Stub::SetSlowThreshold,
          R"(function: "f" threshold_ns: 4611686018427387903)");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(port_.asked(), ElementsAre("threshold  f 4611686018427387903"));
}

TEST_F(ControlServiceTest, TellsSessionsWhatToCollect) {
  port_.told_sessions = 2;
  start_for_root();
  if (IsSkipped()) return;

  const auto response = control(&v1::Control::Stub::SetSession,
                                "pid: 7 mode: SESSION_MODE_RUN burst_nodes: true burst_ms: 5000");
  control(&v1::Control::Stub::SetSession, "session_id: 3 mode: SESSION_MODE_OFF");

  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_EQ(response.sessions(), 2u);
  EXPECT_THAT(port_.orders(),
              ElementsAre(std::pair(SessionTarget{.pid = 7},
                                    SessionOrder{.burst_flags = GPUPERF_SESSION_BURST_NODES,
                                                 .burst_ms = 5000}),
                          std::pair(SessionTarget{.session_id = 3},
                                    SessionOrder{.mode = SessionOrder::Mode::kOff})));
}

TEST_F(ControlServiceTest, AttachesDetachesAndListsWithAllThatIsKnown) {
  port_.attachment = AttachRow{.process = {.pid = 7, .start_boot_ns = 5},
                               .owner = {.comm = "py\xff",
                                         .container = "0123456789ab",
                                         .pod = "train-0",
                                         .pod_namespace = "research"},
                               .state = "cannot",
                               .reason = "traced",
                               .detail = "another program traces it: pid 9",
                               .hint = "end it",
                               .held_ns = 1,
                               .longest_hold_ns = 2,
                               .took_ns = 3,
                               .attached_unix_ns = 4,
                               .threads_tried = 5,
                               .kept_kib = 6,
                               .kept_fds = 7};
  start_for_root();
  if (IsSkipped()) return;
  const std::string expected = parse_text<v1::Attachment>(R"(
      pid: 7 comm: "py\357\277\275" state: "cannot" reason: "traced"
      detail: "another program traces it: pid 9" hint: "end it" held_ns: 1 longest_hold_ns: 2
      took_ns: 3 attached_unix_ns: 4 threads_tried: 5 kept_kib: 6 kept_fds: 7
      container: "0123456789ab" pod: "train-0" namespace: "research")")
                                   .DebugString();

  EXPECT_EQ(control(&v1::Control::Stub::AttachProcess, "pid: 7").attachment().DebugString(),
            expected);
  EXPECT_EQ(control(&v1::Control::Stub::AttachProcess, "pid: 7 accept_seccomp: true")
                .attachment()
                .DebugString(),
            expected);
  EXPECT_EQ(control(&v1::Control::Stub::DetachProcess, "pid: 8").attachment().DebugString(),
            expected);
  const auto list = control(&v1::Control::Stub::ListAttachable);
  ASSERT_EQ(list.attachments_size(), 2);
  EXPECT_EQ(list.attachments(0).DebugString(), expected);
  EXPECT_EQ(list.attachments(1).DebugString(),
            parse_text<v1::Attachment>(R"(pid: 71 state: "injected")").DebugString());
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(port_.asked(), ElementsAre("attach 7", "attach 7 whatever its filter", "detach 8",
                                         "list attachable"));
}

TEST_F(ControlServiceTest, AttachesToNoProcessThatIsNotNamed) {
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::AttachProcess, "accept_seccomp: true");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  control(&v1::Control::Stub::DetachProcess);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("pid: missing"));
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(ControlServiceTest, SaysWhyNothingIsAttachedTo) {
  port_.attachment = absl::FailedPreconditionError("sessions.attach is false");
  start_for_root();
  if (IsSkipped()) return;
  const auto expect_forbidden = [&] {
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(status_.error_message(), "sessions.attach is false");
  };

  control(&v1::Control::Stub::AttachProcess, "pid: 7");
  expect_forbidden();
  control(&v1::Control::Stub::DetachProcess, "pid: 7");
  expect_forbidden();
  control(&v1::Control::Stub::ListAttachable);
  expect_forbidden();
}

TEST_F(ControlServiceTest, PassesDemandsOnAndRefusesThoseThatWouldNotEnd) {
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::SetOverheadDemand,
          R"(demand: OVERHEAD_DEMAND_STAND_DOWN duration_ns: 5 reason: "SLO")");
  control(&v1::Control::Stub::SetOverheadDemand,
          "demand: OVERHEAD_DEMAND_DETAIL duration_ns: 86400000000000");
  control(&v1::Control::Stub::SetOverheadDemand, "demand: OVERHEAD_DEMAND_NONE");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(port_.asked(), ElementsAre("demand stand-down 5 SLO", "demand detail 86400000000000 ",
                                         "demand none 0 "));

  for (const std::string& request :
       {std::string("duration_ns: 5"), std::string("demand: OVERHEAD_DEMAND_DETAIL"),
        std::string("demand: OVERHEAD_DEMAND_DETAIL duration_ns: 86400000000001"),
        "demand: OVERHEAD_DEMAND_NONE reason: \"" + std::string(257, 'x') + "\""}) {
    control(&v1::Control::Stub::SetOverheadDemand, request);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request;
  }
  EXPECT_THAT(port_.asked(), SizeIs(3));
}

TEST_F(ControlServiceTest, MeasuresOverheadForAsLongAsThatSaysSomething) {
  start_for_root();
  if (IsSkipped()) return;

  for (const char* request : {"duration_ns: 10000000000", "duration_ns: 600000000000"}) {
    control(&v1::Control::Stub::MeasureOverhead, request);
    EXPECT_TRUE(status_.ok()) << status_.error_message();
  }
  EXPECT_THAT(port_.asked(), ElementsAre("measure 10000000000", "measure 600000000000"));
  for (const char* request : {"", "duration_ns: 9999999999", "duration_ns: 600000000001"}) {
    control(&v1::Control::Stub::MeasureOverhead, request);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request;
  }
  EXPECT_THAT(port_.asked(), SizeIs(2));
}

TEST_F(ControlServiceTest, RefusesOrdersToSessionsThatMakeNoSense) {
  start_for_root();
  if (IsSkipped()) return;

  for (const char* request : {"mode: SESSION_MODE_RUN", "pid: 7", "pid: 7 mode: 9",
                              "pid: 7 mode: SESSION_MODE_RUN burst_nodes: true",
                              "pid: 7 mode: SESSION_MODE_RUN burst_ms: 5",
                              "pid: 7 mode: SESSION_MODE_RUN burst_nodes: true burst_ms: 60001",
                              "pid: 7 mode: SESSION_MODE_OFF burst_nodes: true burst_ms: 5",
                              "pid: 7 mode: SESSION_MODE_PAUSE sample_every: 5"}) {
    control(&v1::Control::Stub::SetSession, request);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request;
  }
  EXPECT_THAT(port_.orders(), IsEmpty());
}

TEST_F(ControlServiceTest, PassesOnThatNoSessionsAreTaken) {
  port_.told_sessions = absl::FailedPreconditionError("sessions are not taken");
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::SetSession, "pid: 7 mode: SESSION_MODE_OFF");

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ControlServiceTest, NeverMistakesOnePeerForAnother) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  constexpr size_t kConnections = 40;
  start();
  std::vector<std::unique_ptr<v1::Control::Stub>> root, nobody;
  for (size_t i = 0; i < kConnections; ++i) {
    root.push_back(v1::Control::NewStub(connect()));
    nobody.push_back(v1::Control::NewStub(connect_as(testing::kNobody)));
  }

  for (size_t i = 0; i < kConnections; ++i) {
    control_ = std::move(nobody[i]);
    control(&v1::Control::Stub::DisableProbes, R"(function: "*")");
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    // Its descriptor is free for the next connection from here on.
    control_ = std::move(root[i]);
    control(&v1::Control::Stub::ReloadConfig);
    EXPECT_TRUE(status_.ok()) << status_.error_message();
  }

  EXPECT_EQ(port_.asked(), std::vector<std::string>(kConnections, "reload"));
}

TEST_F(ControlServiceTest, SaysSoWhereNothingCanBeChanged) {
  control_port_ = nullptr;
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::ReloadConfig);

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status_.error_message(), HasSubstr("cannot be changed"));
}

TEST_F(ControlServiceTest, PassesOnTheDaemonsErrors) {
  port_.result = absl::InvalidArgumentError("$.slow: unknown key\n$.stats: not an object");
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::ReloadConfig);

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status_.error_message(), "$.slow: unknown key\n$.stats: not an object");
}

TEST_F(ControlServiceTest, ShortensErrorsThatNoClientWouldTake) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "$.slow: unknown key \"größe\"\n";
  port_.result = absl::InvalidArgumentError(many);
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::ReloadConfig);

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_LT(status_.error_message().size(), 2200u);
  EXPECT_THAT(status_.error_message(),
              HasSubstr("größe\"\n… and more; all of them: gpuperfctl config check FILE"));
}

TEST_F(ControlServiceTest, RefusesAPatternThatIsEmpty) {
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::DisableProbes, R"(category: "cuda")");

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(ControlServiceTest, RefusesAThresholdForAPatternThatIsEmpty) {
  start_for_root();
  if (IsSkipped()) return;

  control(&v1::Control::Stub::SetSlowThreshold, R"(category: "cuda" threshold_ns: 5)");

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("write * for every function"));
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(ControlServiceTest, AnswersWhenTheDaemonIsDone) {
  port_.answers_at_once = false;
  start_for_root();
  if (IsSkipped()) return;
  std::jthread daemon([this] { port_.wait_for_call()(ProbeChange{.added = 7}); });

  EXPECT_EQ(control(&v1::Control::Stub::ReloadConfig).change().added(), 7u);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ControlServiceTest, DoesNotWaitForTheDaemonWhenItStops) {
  port_.answers_at_once = false;
  start_for_root();
  if (IsSkipped()) return;
  ControlPort::Done done;
  {
    const std::jthread client([this] { control(&v1::Control::Stub::ReloadConfig); });
    done = port_.wait_for_call();

    server_->stop();
  }

  EXPECT_THAT(status_.error_code(),
              ::testing::AnyOf(grpc::StatusCode::CANCELLED, grpc::StatusCode::UNAVAILABLE));
  done(ProbeChange{});  // too late, and harmless
}

TEST_F(ControlServiceTest, SurvivesAClientThatGivesUp) {
  port_.answers_at_once = false;
  start_for_root();
  if (IsSkipped()) return;
  grpc::ClientContext context;
  v1::ReloadConfigResponse response;
  grpc::Status gave_up;
  ControlPort::Done done;
  {
    const std::jthread client([&] { gave_up = control_->ReloadConfig(&context, {}, &response); });
    done = port_.wait_for_call();
    context.TryCancel();
  }
  done(ProbeChange{.added = 1});

  EXPECT_EQ(gave_up.error_code(), grpc::StatusCode::CANCELLED);
  std::jthread daemon([this] { port_.wait_for_call()(ProbeChange{.added = 2}); });
  EXPECT_EQ(control(&v1::Control::Stub::ReloadConfig).change().added(), 2u);
}

}  // namespace
}  // namespace gpuperf
