// Who may capture what: orders carry the user behind the connection.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpuperf/v1/control.grpc.pb.h"
#include "tests/unit/matchers.h"
#include "tests/unit/rpc/fake_control_port.h"
#include "tests/unit/rpc/rpc_fixture.h"
#include "tests/unit/rpc/unix_peer.h"

namespace gpuperf {
namespace {

using testing::FakeControlPort;
using testing::RpcFixture;
using Control = v1::Control::Stub;

constexpr uid_t kAlice = 64'001;
constexpr uid_t kBob = 64'002;

class CaptureControlTest : public RpcFixture {
 protected:
  CaptureControlTest() { control_port_ = &port_; }

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to be root and somebody else";
    start();
  }
  std::unique_ptr<Control> control_as(uid_t uid) {
    return v1::Control::NewStub(uid == 0 ? connect() : connect_as(uid));
  }
  template <typename Request, typename Response>
  Response ask(Control& control,
               grpc::Status (Control::*method)(grpc::ClientContext*, const Request&, Response*),
               const std::string& request_text = "") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    Response response;
    status_ = (control.*method)(&context, parse_text<Request>(request_text), &response);
    return response;
  }

  FakeControlPort port_;
};

TEST_F(CaptureControlTest, GivesRootEverything) {
  port_.capture = CaptureRow{.id = 4, .name = "x", .state = CaptureState::kRunning};
  const auto root = control_as(0);

  const auto response = ask(*root, &Control::StartCapture,
                            R"(name: "x" target { pid: 7 with_children: true container: "c"
                               pod: "p" } duration_ms: 10000 align_ms: 60000 nodes: true)");
  ask(*root, &Control::StartCapture, "parts: CAPTURE_PARTS_CPU");
  ask(*root, &Control::StartCapture, "parts: CAPTURE_PARTS_GPU");
  ask(*root, &Control::FreezeRecorder, R"(name: "f" last_ms: 30000 target { pid: 3 })");

  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_EQ(response.capture().id(), 4u);
  EXPECT_EQ(response.capture().state(), v1::CAPTURE_STATE_RUNNING);
  const CaptureOrder whole = {
      .name = "x",
      .target = {.pid = 7, .with_children = true, .container = "c", .pod = "p"},
      .duration_ms = 10'000,
      .align_ms = 60'000,
      .nodes = true};
  EXPECT_TRUE(port_.capture_orders() ==
              (std::vector<CaptureOrder>{whole, {.gpu = false}, {.cpu = false}}));
  EXPECT_TRUE(port_.freeze_orders() ==
              (std::vector<FreezeOrder>{{.name = "f", .target = {.pid = 3}, .last_ms = 30'000}}));
}

TEST_F(CaptureControlTest, LimitsOthersToTheirOwnProcesses) {
  const auto alice = control_as(kAlice);
  const auto bob = control_as(kBob);

  ask(*alice, &Control::StartCapture);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  ask(*bob, &Control::FreezeRecorder);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  ask(*alice, &Control::ReloadConfig);

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(port_.capture_orders() == std::vector<CaptureOrder>{{.requester_uid = kAlice}});
  EXPECT_TRUE(port_.freeze_orders() == std::vector<FreezeOrder>{{.requester_uid = kBob}});
}

// Descriptors are used again at once: what a server knows of a peer by its number would be
// another's.
TEST_F(CaptureControlTest, NeverMistakesOneUserForAnother) {
  std::vector<CaptureOrder> expected;
  for (int i = 0; i < 40; ++i) {
    const uid_t uid = i % 3 == 0 ? 0 : i % 3 == 1 ? kAlice : kBob;
    ask(*control_as(uid), &Control::StartCapture);
    EXPECT_TRUE(status_.ok()) << status_.error_message();
    expected.push_back({.requester_uid = uid});
  }

  EXPECT_TRUE(port_.capture_orders() == expected);
}

TEST_F(CaptureControlTest, LetsOnlyItsUserAndRootEndAndDelete) {
  const auto root = control_as(0);
  const auto alice = control_as(kAlice);
  const auto bob = control_as(kBob);
  port_.capture = CaptureRow{.id = 11};
  ask(*alice, &Control::StartCapture);

  ask(*bob, &Control::StopCapture, "id: 11");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status_.error_message(), HasSubstr("another user asked for it"));
  ask(*bob, &Control::DeleteCapture, "id: 11");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  ask(*alice, &Control::StopCapture, "id: 11");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  ask(*root, &Control::DeleteCapture, "id: 11");
  EXPECT_TRUE(status_.ok()) << status_.error_message();

  EXPECT_THAT(port_.asked(), ElementsAre("start", "stop 11", "delete 11"));
}

TEST_F(CaptureControlTest, KnowsWhoAskedAlsoFromTheSnapshot) {
  builder_.snapshot().captures = {{.id = 5, .requester_uid = kAlice}, {.id = 6}};
  board_.publish(builder_.build());
  const auto alice = control_as(kAlice);

  ask(*alice, &Control::DeleteCapture, "id: 5");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  ask(*alice, &Control::DeleteCapture, "id: 6");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::PERMISSION_DENIED) << "root's";
  ask(*alice, &Control::DeleteCapture, "id: 7");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);

  EXPECT_THAT(port_.asked(), ElementsAre("delete 5"));
}

TEST_F(CaptureControlTest, GivesAPlaceToNewUsersWhenOthersHaveGone) {
  for (uid_t uid = 70'000; uid < 70'000 + 2 * RpcServer::kUsers; ++uid) {
    ask(*control_as(uid), &Control::StartCapture);
    EXPECT_TRUE(status_.ok()) << uid << ": " << status_.error_message();
  }
  EXPECT_EQ(port_.capture_orders().back().requester_uid, 70'000 + 2 * RpcServer::kUsers - 1);
}

TEST_F(CaptureControlTest, RefusesUsersItCannotTellApart) {
  std::vector<std::unique_ptr<Control>> open;
  for (uid_t uid = 70'000; uid < 70'000 + RpcServer::kUsers; ++uid) {
    open.push_back(control_as(uid));
    ask(*open.back(), &Control::StartCapture);
    EXPECT_TRUE(status_.ok()) << uid << ": " << status_.error_message();
  }

  ask(*control_as(kAlice), &Control::StartCapture);

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status_.error_message(), HasSubstr("too many other users are connected"));
  ask(*control_as(0), &Control::StartCapture);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(CaptureControlTest, RefusesOrdersThatMakeNoSense) {
  const auto root = control_as(0);

  for (const std::string& request :
       {"name: \"" + std::string(129, 'x') + "\"", std::string("target { with_children: true }"),
        std::string("duration_ms: 86400001"), std::string("align_ms: 86400001"),
        std::string("parts: 9"), std::string("parts: CAPTURE_PARTS_CPU nodes: true"),
        "target { pod: \"" + std::string(257, 'x') + "\" }"}) {
    ask(*root, &Control::StartCapture, request);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << request;
  }
  ask(*root, &Control::FreezeRecorder, "last_ms: 86400001");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(CaptureControlTest, PassesOnTheDaemonsErrors) {
  port_.capture = absl::ResourceExhaustedError("as many captures run as may");

  ask(*control_as(0), &Control::StartCapture);

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status_.error_message(), "as many captures run as may");
}

}  // namespace
}  // namespace gpuperf
