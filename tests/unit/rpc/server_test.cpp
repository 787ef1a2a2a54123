#include "daemon/rpc/server.h"

#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/base/listen_address.h"
#include "tests/unit/matchers.h"
#include "tests/unit/rpc/rpc_fixture.h"
#include "tests/unit/rpc/unix_peer.h"

namespace gpuperf {
namespace {

using testing::RpcFixture;
using Stub = v1::Observe::Stub;

class ServerTest : public RpcFixture {
 protected:
  std::string explain_refusal(const std::string& listen) {
    const auto server = RpcServer::start({.listen = listen}, sources(), nullptr);
    EXPECT_FALSE(server.ok());
    return std::string(server.status().message());
  }
  // Calls any method with one message of raw bytes, as a client that knows no proto of ours.
  std::string call_raw(const std::string& method, const std::string& request) {
    grpc::GenericStub stub(connect());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::CompletionQueue queue;
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    const grpc::Slice slice(request);
    const grpc::ByteBuffer message(&slice, 1);
    grpc::ByteBuffer response;
    const auto stream = stub.PrepareCall(&context, method, &queue);
    stream->StartCall(nullptr);
    EXPECT_TRUE(wait());
    stream->Write(message, grpc::WriteOptions().set_last_message(), nullptr);
    EXPECT_TRUE(wait());
    stream->Read(&response, nullptr);
    EXPECT_TRUE(wait());
    stream->Finish(&status_, nullptr);
    EXPECT_TRUE(wait());
    grpc::Slice bytes;
    EXPECT_TRUE(response.DumpToSingleSlice(&bytes).ok());
    return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
  }
  static mode_t get_mode(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
  }
};

// A field of wire type 2: key, length, bytes.
std::string encode_field(int number, const std::string& value) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(value.size())} + value;
}

TEST_F(ServerTest, LogsNothingOfAMessageThatIsNotUtf8) {
  start();
  v1::ListFunctionsRequest request;
  request.set_sort("\xff");

  ::testing::internal::CaptureStderr();
  call(&Stub::ListFunctions, request);

  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(status_.ok());
}

TEST_F(ServerTest, SaysThatItIsServing) {
  start();

  const std::string serving = "\x08\x01";  // status = SERVING
  EXPECT_EQ(call_raw("/grpc.health.v1.Health/Check", ""), serving);
  EXPECT_EQ(call_raw("/grpc.health.v1.Health/Check", encode_field(1, "gpuperf.v1.Observe")),
            serving);
  EXPECT_EQ(call_raw("/grpc.health.v1.Health/Check", encode_field(1, "gpuperf.v1.Control")),
            serving);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ServerTest, DescribesItselfByReflection) {
  start();
  const std::string method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

  const std::string services = call_raw(method, encode_field(7, "*"));
  const std::string file = call_raw(method, encode_field(4, "gpuperf.v1.Observe"));

  EXPECT_THAT(services, HasSubstr("gpuperf.v1.Observe"));
  EXPECT_THAT(services, HasSubstr("gpuperf.v1.Control"));
  EXPECT_THAT(services, HasSubstr("grpc.health.v1.Health"));
  EXPECT_THAT(file, HasSubstr("WatchSlowCalls"));
}

TEST_F(ServerTest, MakesItsFolderAndASocketOnlyItsOwnerMayUse) {
  const mode_t mask = umask(0);
  auto server = RpcServer::start(
      {.listen = "unix:" + (folder_ / "run/api.sock"), .group = "no-such-group-here"}, sources(),
      nullptr);
  ASSERT_TRUE(server.ok()) << server.status();

  EXPECT_EQ(get_mode(folder_ / "run"), 0755u);
  EXPECT_EQ(get_mode(folder_ / "run/api.sock"), 0600u);
  EXPECT_EQ(umask(mask), 0u) << "the mask is the whole process's: not to be changed";
}

TEST_F(ServerTest, OpensTheSocketToItsGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file to another group";
  auto server = RpcServer::start({.listen = "unix:" + (folder_ / "api.sock"), .group = "daemon"},
                                 sources(), nullptr);
  ASSERT_TRUE(server.ok()) << server.status();

  EXPECT_EQ(get_mode(folder_ / "api.sock"), 0660u);
}

TEST_F(ServerTest, TakesTheSocketOfADaemonThatWasKilled) {
  const std::string path = folder_ / "api.sock";
  start("unix:" + path);
  ASSERT_EQ(rename(path.c_str(), (folder_ / "kept").c_str()), 0);
  server_->stop();
  ASSERT_EQ(rename((folder_ / "kept").c_str(), path.c_str()), 0);

  start("unix:" + path);

  EXPECT_EQ(call(&Stub::GetStatus).mechanism(), "none");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ServerTest, LeavesTheSocketOfARunningDaemon) {
  start();
  board_.publish(builder_.build());

  EXPECT_THAT(explain_refusal(server_->address()),
              HasSubstr("grpc.listen: " + (folder_ / "api.sock") + ": socket in use by "));

  EXPECT_EQ(call(&Stub::GetStatus).mechanism(), "session");
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ServerTest, LeavesAFileThatIsNoSocket) {
  std::ofstream(folder_ / "api.sock") << "precious";

  EXPECT_THAT(explain_refusal("unix:" + (folder_ / "api.sock")), HasSubstr("not a socket"));

  EXPECT_TRUE(find_file_id(folder_ / "api.sock").has_value());
}

TEST_F(ServerTest, RemovesItsSocketWhenStopped) {
  start();

  server_->stop();
  server_->stop();

  EXPECT_FALSE(find_file_id(folder_ / "api.sock").has_value());
}

TEST_F(ServerTest, RefusesCallsOnceStopped) {
  start();
  server_->stop();

  call(&Stub::GetStatus);

  EXPECT_EQ(status_.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, ServesManyConnectionsAtOnce) {
  start();
  std::vector<std::unique_ptr<Stub>> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(v1::Observe::NewStub(connect()));

  for (auto& client : clients) {
    std::swap(stub_, client);
    call(&Stub::GetStatus);
    EXPECT_TRUE(status_.ok()) << status_.error_message();
    std::swap(stub_, client);
  }
}

// Finding 15 of docs/security.md: the limit was four times what was documented.
TEST_F(ServerTest, RefusesAnAnswerBeyondItsLimit) {
  start();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  stub_ =
      v1::Observe::NewStub(grpc::CreateCustomChannel(server_->address(), credentials(), arguments));
  for (const size_t mib : {15, 17}) {
    builder_.facts().config_json.assign(mib << 20, 'x');
    board_.publish(builder_.build());

    (void)call(&Stub::GetConfig);

    EXPECT_EQ(status_.error_code(),
              mib < 16 ? grpc::StatusCode::OK : grpc::StatusCode::RESOURCE_EXHAUSTED)
        << status_.error_message();
  }
}

TEST_F(ServerTest, ClosesPeersThatSendGarbage) {
  start();
  const std::string path = folder_ / "api.sock";
  std::string garbage(100'000, '\xa5');
  std::string almost = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + garbage;

  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), garbage, almost}) {
    const Fd peer = testing::connect_unix(path);
    ASSERT_GT(send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(testing::wait_for_end(peer)) << text.substr(0, 20);
  }

  call(&Stub::GetStatus);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ServerTest, ForgetsPeersThatLeave) {
  start(RpcOptions{.listen = "unix:" + (folder_ / "api.sock"),
                   .limits = {.connections = 8, .kept_for_root = 0}});
  for (int i = 0; i < 100; ++i) {
    const Fd peer = testing::connect_unix(folder_ / "api.sock");
    ASSERT_EQ(send(peer.get(), "PRI", 3, MSG_NOSIGNAL), 3);
  }

  call(&Stub::GetStatus);

  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_EQ(drops_.get(DropCause::kApiConnectionsFull), 0u);
}

TEST_F(ServerTest, StopsWithinSecondsWhateverIsConnected) {
  start();
  const std::string path = folder_ / "api.sock";
  const Fd silent = testing::connect_unix(path);
  const Fd half_open = testing::connect_unix(path);
  ASSERT_EQ(send(half_open.get(), "PRI", 3, MSG_NOSIGNAL), 3);
  const Fd deaf = testing::connect_unix(path);  // greets, and never answers a ping
  const std::string greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  ASSERT_EQ(send(deaf.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 33);
  call(&Stub::GetStatus);
  grpc::ClientContext context;
  const auto watch = stub_->WatchSlowCalls(&context, {});
  watch->WaitForInitialMetadata();

  const auto begin = std::chrono::steady_clock::now();
  server_->stop();

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  for (const Fd* peer : {&silent, &half_open, &deaf}) EXPECT_TRUE(testing::wait_for_end(*peer));
  v1::WatchSlowCallsResponse response;
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, ServesTcpWhereBothSidesShowACertificate) {
  start_tcp();
  EXPECT_THAT(server_->address(), ::testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));

  call(&Stub::GetStatus);

  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ServerTest, AnswersNobodyOverTcpWithoutTheRightCertificate) {
  start_tcp();
  const ThrowawayCa stranger;
  const std::string roots = read_file(ca_->ca_file());
  const std::shared_ptr<grpc::ChannelCredentials> refused[] = {
      grpc::InsecureChannelCredentials(), grpc::SslCredentials({.pem_root_certs = roots}),
      grpc::SslCredentials({.pem_root_certs = roots,
                            .pem_private_key = read_file(stranger.key_file()),
                            .pem_cert_chain = read_file(stranger.cert_file())})};

  for (const auto& credentials : refused) {
    stub_ = v1::Observe::NewStub(grpc::CreateChannel(server_->address(), credentials));
    call(&Stub::GetStatus);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(ServerTest, RefusesTcpWithoutCertificates) {
  for (const char* listen : {"127.0.0.1:0", "[::]:0"}) {
    EXPECT_THAT(explain_refusal(listen),
                HasSubstr("set grpc.cert_file, grpc.key_file and grpc.client_ca_file"))
        << listen;
  }
}

TEST_F(ServerTest, SaysWhichCertificateItCannotRead) {
  ca_.emplace();
  RpcTls missing = tls();
  missing.client_ca_file = "/no/such.pem";

  const auto server =
      RpcServer::start({.listen = "127.0.0.1:0", .tls = missing}, sources(), nullptr);

  EXPECT_THAT(server.status().message(), HasSubstr("grpc.listen: /no/such.pem: read: "));
}

TEST_F(ServerTest, SaysThatACertificateDoesNotFitItsKey) {
  ca_.emplace();
  const ThrowawayCa stranger;
  RpcTls wrong = tls();
  wrong.key_file = stranger.key_file();

  const auto server = RpcServer::start({.listen = "127.0.0.1:0", .tls = wrong}, sources(), nullptr);

  EXPECT_THAT(server.status().message(),
              HasSubstr("grpc.listen: grpc.cert_file and grpc.key_file do not belong together"));
}

// A renewed certificate of the daemon, and another authority for its clients: as one that issues
// certificates for days replaces them.
TEST_F(ServerTest, TakesOverReplacedCertificatesWithoutARestart) {
  ca_.emplace();
  const TempFolder files;
  const auto install = [&files](const ThrowawayCa& from) {
    for (const auto& [name, path] : {std::pair("cert", from.cert_file()),
                                     {"key", from.key_file()},
                                     {"clients", from.ca_file()}}) {
      std::filesystem::copy_file(path, files / "new");
      std::filesystem::rename(files / "new", files / name);
    }
  };
  install(*ca_);
  start(RpcOptions{.listen = "127.0.0.1:0",
                   .tls = {.cert_file = files / "cert",
                           .key_file = files / "key",
                           .client_ca_file = files / "clients",
                           .refresh = std::chrono::seconds(1)}});
  const auto is_served = [this](const ThrowawayCa& client) {
    const auto credentials =
        grpc::SslCredentials({.pem_root_certs = read_file(client.ca_file()),
                              .pem_private_key = read_file(client.key_file()),
                              .pem_cert_chain = read_file(client.cert_file())});
    grpc::ChannelArguments own;  // no connection of another channel is used again
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Observe::NewStub(grpc::CreateCustomChannel(server_->address(), credentials, own));
    call(&Stub::GetStatus);
    return status_.ok();
  };
  ASSERT_TRUE(is_served(*ca_));
  const auto before = std::move(stub_);

  const ThrowawayCa renewed;
  install(renewed);

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!is_served(renewed) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_FALSE(is_served(*ca_)) << "who has a certificate of the authority of before";
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  EXPECT_TRUE(before->GetStatus(&context, {}, &response).ok()) << "a connection from before";
}

TEST_F(ServerTest, BoundsConnectionsOverTcp) {
  start_tcp();
  const Result<HostPort> address = parse_host_port(server_->address());
  ASSERT_TRUE(address.ok());
  std::vector<Fd> silent;
  for (int i = 0; i < 65; ++i) {
    silent.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(silent.back().get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }

  EXPECT_TRUE(testing::wait_for_end(silent.back()));

  EXPECT_EQ(drops_.get(DropCause::kApiConnectionsFull), 1u);
  silent.clear();
  call(&Stub::GetStatus);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
}

TEST_F(ServerTest, RefusesAPortInUse) {
  start_tcp();
  const auto second =
      RpcServer::start({.listen = server_->address(), .tls = tls()}, sources(), nullptr);

  EXPECT_THAT(second.status().message(),
              HasSubstr("grpc.listen: " + server_->address() + ": listen: address in use"));
}

TEST_F(ServerTest, RefusesAddressesItCannotRead) {
  EXPECT_THAT(explain_refusal("api.sock"), HasSubstr("grpc.listen: address \"api.sock\": no port"));
  EXPECT_THAT(explain_refusal("unix:api.sock"), HasSubstr("must begin with /"));
}

}  // namespace
}  // namespace gpuperf
