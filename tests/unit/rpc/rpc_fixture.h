#pragma once

// A real server on a Unix socket in a folder of its own, and a client of it.

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/rpc/server.h"
#include "gpuperf/v1/observe.grpc.pb.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/export/snapshot_builder.h"
#include "tests/unit/files.h"
#include "tests/unit/proto_text.h"
#include "tests/unit/rpc/unix_peer.h"
#include "tests/unit/throwaway_ca.h"

namespace gpuperf::testing {

class RpcFixture : public ::testing::Test {
 protected:
  ~RpcFixture() override {
    if (server_ != nullptr) server_->stop();
  }

  ObserveSources sources() {
    return {.board = board_,
            .drops = drops_,
            .clock = clock_,
            .watch = hub_,
            .check_config = [this](std::string_view text) { return check_config(text); },
            .captures = captures_};
  }
  void start() { start("unix:" + (folder_ / "api.sock")); }
  void start(const std::string& listen) { start(RpcOptions{.listen = listen}); }
  // Over TCP, with certificates.
  void start_tcp() {
    ca_.emplace();
    start(RpcOptions{.listen = "127.0.0.1:0", .tls = tls()});
  }
  RpcTls tls() const {
    return {.cert_file = ca_->cert_file(),
            .key_file = ca_->key_file(),
            .client_ca_file = ca_->ca_file()};
  }
  void start(const RpcOptions& options) {
    auto started = RpcServer::start(options, sources(), control_port_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::move(started).value();
    stub_ = v1::Observe::NewStub(connect());
  }
  // A connection of its own, shared with no other channel.
  std::shared_ptr<grpc::Channel> connect() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->address(), credentials(), arguments);
  }
  // As another user, whom the socket lets in: told apart by who it is alone.
  std::shared_ptr<grpc::Channel> connect_as(uid_t uid) const {
    const std::string path = folder_ / "api.sock";
    EXPECT_EQ(chmod((folder_ / "").c_str(), 0711), 0);
    EXPECT_EQ(chmod(path.c_str(), 0666), 0);
    Fd connection = testing::connect_as(path, uid);
    make_nonblocking(connection);
    return grpc::CreateInsecureChannelFromFd(std::to_string(uid), connection.release());
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials() const {
    if (!ca_) return grpc::InsecureChannelCredentials();
    return grpc::SslCredentials({.pem_root_certs = read_file(ca_->ca_file()),
                                 .pem_private_key = read_file(ca_->key_file()),
                                 .pem_cert_chain = read_file(ca_->cert_file())});
  }
  // One call; its status goes to `status_`.
  template <typename Request, typename Response>
  Response call(grpc::Status (v1::Observe::Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Response*),
                const std::string& request_text = "") {
    return call(method, parse_text<Request>(request_text));
  }
  template <typename Request, typename Response>
  Response call(grpc::Status (v1::Observe::Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Response*),
                const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    Response response;
    status_ = (*stub_.*method)(&context, request, &response);
    return response;
  }
  virtual std::vector<ConfigError> check_config(std::string_view) { return {}; }

  TempFolder folder_;
  SnapshotBuilder builder_;
  SnapshotBoard board_;
  DropCounters drops_;
  FakeClock clock_;
  WatchHub hub_{drops_};
  ControlPort* control_port_ = nullptr;     // set before start
  const CaptureStore* captures_ = nullptr;  // likewise
  std::optional<ThrowawayCa> ca_;           // of start_tcp
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::Observe::Stub> stub_;
  grpc::Status status_;
};

}  // namespace gpuperf::testing
