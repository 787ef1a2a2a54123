// Who may call which method, over what: a new method needs a row.

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include <map>
#include <string>

#include "gpuperf/v1/control.grpc.pb.h"
#include "tests/unit/matchers.h"
#include "tests/unit/rpc/fake_control_port.h"
#include "tests/unit/rpc/rpc_fixture.h"
#include "tests/unit/rpc/unix_peer.h"

namespace gpuperf {
namespace {

enum class Access {
  kAll,   // whoever can connect: root, the group of the socket, over TCP with a certificate
  kOwn,   // users on the socket, of their own processes and captures; nobody over TCP
  kRoot,  // root on the socket
};

const std::map<std::string, Access> kMethods = {
    {"Control.ReloadConfig", Access::kRoot},
    {"Control.AddProbe", Access::kRoot},
    {"Control.RemoveProbe", Access::kRoot},
    {"Control.EnableProbes", Access::kRoot},
    {"Control.DisableProbes", Access::kRoot},
    {"Control.SetSlowThreshold", Access::kRoot},
    {"Control.SetOverheadDemand", Access::kRoot},
    {"Control.MeasureOverhead", Access::kRoot},
    {"Control.SetSession", Access::kRoot},
    {"Control.AttachProcess", Access::kRoot},
    {"Control.DetachProcess", Access::kRoot},
    {"Control.ListAttachable", Access::kRoot},
    {"Control.StartCapture", Access::kOwn},
    {"Control.StopCapture", Access::kOwn},
    {"Control.FreezeRecorder", Access::kOwn},
    {"Control.DeleteCapture", Access::kOwn},
    {"Observe.GetStatus", Access::kAll},
    {"Observe.ListProcesses", Access::kAll},
    {"Observe.ListProbes", Access::kAll},
    {"Observe.ListFunctions", Access::kAll},
    {"Observe.ListSlowCalls", Access::kAll},
    {"Observe.GetSlowCall", Access::kAll},
    {"Observe.WatchSlowCalls", Access::kAll},
    {"Observe.ListInFlightCalls", Access::kAll},
    {"Observe.ListShapes", Access::kAll},
    {"Observe.ListKernels", Access::kAll},
    {"Observe.ListSessions", Access::kAll},
    {"Observe.ListStepProcesses", Access::kAll},
    {"Observe.ListSteps", Access::kAll},
    {"Observe.GetStep", Access::kAll},
    {"Observe.ListRequestProcesses", Access::kAll},
    {"Observe.ListRequests", Access::kAll},
    {"Observe.ListStepOperators", Access::kAll},
    {"Observe.ListStepExperts", Access::kAll},
    {"Observe.ListGpus", Access::kAll},
    {"Observe.ListMemory", Access::kAll},
    {"Observe.ListOutOfMemory", Access::kAll},
    {"Observe.ListNccl", Access::kAll},
    {"Observe.ListCaptures", Access::kAll},
    {"Observe.GetCapture", Access::kAll},
    {"Observe.FetchCapture", Access::kAll},
    {"Observe.SummariseCapture", Access::kAll},
    {"Observe.ExplainCapture", Access::kAll},
    {"Observe.DiffCaptures", Access::kAll},
    {"Observe.GetConfig", Access::kAll},
    {"Observe.CheckConfig", Access::kAll},
};

class AccessTest : public testing::RpcFixture {
 protected:
  AccessTest() { control_port_ = &port_; }

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to be root and somebody else";
  }

  // With an empty request.
  static grpc::Status call(const std::shared_ptr<grpc::Channel>& channel,
                           const std::string& method) {
    grpc::ClientContext context;
    // What is answered at all is answered sooner; a stream goes on until then.
    const bool is_stream = method == "Observe.WatchSlowCalls";
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(is_stream ? 1 : 30));
    const size_t dot = method.find('.');
    const std::string path = "/gpuperf.v1." + method.substr(0, dot) + "/" + method.substr(dot + 1);
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel);
    const auto pending =
        stub.PrepareUnaryCall(&context, path, grpc::ByteBuffer(nullptr, 0), &queue);
    pending->StartCall();
    grpc::Status status;
    grpc::ByteBuffer answer;
    pending->Finish(&answer, &status, &queue);
    void* tag = nullptr;
    bool is_ok = false;
    (void)queue.Next(&tag, &is_ok);
    return status;
  }

  void expect_access(const std::shared_ptr<grpc::Channel>& channel, Access highest,
                     const std::string& why) {
    for (const auto& [method, access] : kMethods) {
      SCOPED_TRACE(method);
      const size_t asked = port_.asked().size();
      const grpc::Status status = call(channel, method);
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
      if (access <= highest) {
        EXPECT_NE(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
            << status.error_message();
      } else {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
        EXPECT_THAT(status.error_message(), HasSubstr(why));
        EXPECT_EQ(port_.asked().size(), asked);
      }
    }
  }

  testing::FakeControlPort port_;
};

TEST_F(AccessTest, IsSaidOfEveryMethod) {
  for (const char* name : {"gpuperf.v1.Control", "gpuperf.v1.Observe"}) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    ASSERT_NE(service, nullptr);
    for (int i = 0; i < service->method_count(); ++i) {
      EXPECT_TRUE(kMethods.contains(service->name() + "." + service->method(i)->name()))
          << service->method(i)->full_name() << ": say who may call it";
    }
  }
}

TEST_F(AccessTest, RootMayCallEverything) {
  start();
  expect_access(connect(), Access::kRoot, "");
}

TEST_F(AccessTest, UsersReadAndCaptureTheirOwn) {
  start();
  expect_access(connect_as(testing::kNobody), Access::kOwn,
                "only root may change the daemon; run it as root: sudo gpuperfctl");
}

TEST_F(AccessTest, CertificatesOnlyRead) {
  start_tcp();
  expect_access(connect(), Access::kAll, "over TCP");
}

}  // namespace
}  // namespace gpuperf
