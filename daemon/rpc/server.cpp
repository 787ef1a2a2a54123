#include "daemon/rpc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server_posix.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/listen_address.h"
#include "daemon/base/log.h"
#include "daemon/base/pem_file.h"
#include "grpc/health/v1/health.pb.h"

namespace gpuperf {
namespace {

constexpr int kTcpBacklog = 128;  // connections that wait to be accepted
constexpr std::chrono::seconds kStopTimeout{1};
// CheckConfig takes 1 MiB of text; the rest is room for the message around it.
constexpr int kMaxRequestBytes = 1024 * 1024 + 64 * 1024;
// Lists page below the 4 MiB that gRPC clients accept by default; the rows of a capture may be
// more.
constexpr int kMaxAnswerBytes = 16 * 1024 * 1024;
constexpr size_t kBufferBytes = size_t{64} * 1024 * 1024;
constexpr size_t kUserBufferBytes = size_t{16} * 1024 * 1024;
// Of answers that wait to be taken: root's, one user's, those of all users. gRPC holds about three
// times as much for them.
constexpr size_t kRootAnswerBytes = size_t{64} * 1024 * 1024;
constexpr size_t kUserAnswerBytes = size_t{16} * 1024 * 1024;
constexpr size_t kUsersAnswerBytes = size_t{32} * 1024 * 1024;
// Everybody who reaches the port may take a place, until the handshake.
constexpr PeerLimits kTcpLimits = {.connections = 64, .kept_for_root = 0, .per_user = 64};
// Only reflection still takes a thread per call.
constexpr int kReflectionThreads = 8;

const struct {
  const char* name;
  int value;
} kChannelArguments[] = {
    {GRPC_ARG_MAX_CONCURRENT_STREAMS, 64},
    // Requests are small: the window and the frames need not grow (FrameGuard).
    {GRPC_ARG_HTTP2_BDP_PROBE, 0},
    // A second daemon must be refused, not given half of the calls.
    {GRPC_ARG_ALLOW_REUSEPORT, 0},
    // Finds clients that vanished without closing, and keeps a watch alive through proxies.
    {GRPC_ARG_KEEPALIVE_TIME_MS, 60'000},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000},
    // Clients that ping more often are cut off.
    {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000},
    {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 600'000},
    {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000},
};

// gRPC's own lines are about its insides; what concerns the user comes back as a Status.
void write_grpc_log(gpr_log_func_args* args) {
  log_debug("grpc",
            {{"file", fmt::format("{}:{}", args->file, args->line)}, {"message", args->message}});
}

// libprotobuf has one for each string of a message that is not UTF-8: clients, and damaged files,
// could fill the log with them.
void write_protobuf_log(google::protobuf::LogLevel, const char* file, int line,
                        const std::string& message) {
  log_debug("protobuf", {{"file", fmt::format("{}:{}", file, line)}, {"message", message}});
}

// Credentials that watch their files would only fail at the first handshake.
Status check_files(const RpcTls& tls) {
  ASSIGN_OR_RETURN(const std::string certificate, read_pem_file(tls.cert_file));
  ASSIGN_OR_RETURN(const std::string key, read_pem_file(tls.key_file));
  RETURN_IF_ERROR(read_pem_file(tls.client_ca_file).status());
  if (is_key_of(key, certificate)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "grpc.cert_file and grpc.key_file do not belong together or cannot be read; look at them "
      "with openssl x509 -noout -text -in CERT and openssl pkey -noout -in KEY");
}

Result<std::shared_ptr<grpc::ServerCredentials>> make_credentials(const RpcTls& tls) {
  if (tls.cert_file.empty() || tls.key_file.empty() || tls.client_ca_file.empty()) {
    return absl::InvalidArgumentError(
        "TCP needs certificates on both sides: set grpc.cert_file, grpc.key_file and "
        "grpc.client_ca_file, or listen on a Unix socket: unix:/run/gpuperf/api.sock");
  }
  RETURN_IF_ERROR(check_files(tls));
  // Reads the files again when they change; connections keep what they began with.
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          tls.key_file, tls.cert_file, tls.client_ca_file,
          static_cast<unsigned>(tls.refresh.count())));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

Status with_setting(const Status& status) {
  return Status(status.code(), "grpc.listen: " + std::string(status.message()));
}

}  // namespace

RpcServer::RpcServer(ObserveSources sources, ControlPort* port)
    : sources_(std::move(sources)),
      port_(port),
      quota_("api"),
      owners_(sources_.board),
      users_answers_(kUsersAnswerBytes, nullptr, sources_.drops) {
  quota_.Resize(kBufferBytes).SetMaxThreads(kReflectionThreads);
}

RpcServer::Side::Side(RpcServer& server, CallerId caller)
    : budget(caller.caller == Caller::kRoot ? kRootAnswerBytes : kUserAnswerBytes,
             caller.caller == Caller::kRoot ? nullptr : &server.users_answers_,
             server.sources_.drops),
      observe(server.sources_, server.queue_, budget, caller.caller == Caller::kRoot),
      control(server.port_, caller, server.owners_, budget) {}

RpcServer::~RpcServer() { stop(); }

Result<std::unique_ptr<RpcServer>> RpcServer::start(const RpcOptions& options,
                                                    ObserveSources sources, ControlPort* port) {
  constexpr std::string_view kUnix = "unix:";
  // Never undone: the shutdown of gRPC 1.51 may wait 10 s for a poller of its own.
  grpc_init();
  gpr_set_log_function(write_grpc_log);
  google::protobuf::SetLogHandler(write_protobuf_log);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // Keeps the description of the health service in the program, for reflection to find.
  (void)grpc::health::v1::HealthCheckRequest::descriptor();
  auto server = std::unique_ptr<RpcServer>(new RpcServer(std::move(sources), port));
  const Status started = options.listen.starts_with(kUnix)
                             ? server->start_unix(options.listen.substr(kUnix.size()), options)
                             : server->start_tcp(options);
  if (!started.ok()) return with_setting(started);
  return server;
}

Status RpcServer::start_unix(const std::string& path, const RpcOptions& options) {
  RETURN_IF_ERROR(prepare_unix_socket(path));
  address_ = "unix:" + path;
  others_ = make_side({.caller = Caller::kOther});
  root_ = make_side({.caller = Caller::kRoot});
  if (others_->server == nullptr || root_->server == nullptr) {
    return absl::ResourceExhaustedError(path + ": start gRPC: no thread or descriptor to be had");
  }
  ASSIGN_OR_RETURN(Fd listening, listen_on_unix_socket(path));
  socket_path_ = path;
  socket_id_ = find_file_id(path);
  if (const Status opened = open_socket_to_group(path, options.group); !opened.ok()) {
    // The owner can still use it: better than no API at all.
    log_warn("api_socket_private", {{"path", path}, {"cause", std::string(opened.message())}});
  }
  ASSIGN_OR_RETURN(relay_, PeerRelay::start(sources_.drops));
  ASSIGN_OR_RETURN(acceptor_, PeerAcceptor::start(
                                  std::move(listening), options.limits, sources_.drops,
                                  [this](Fd connection, uid_t uid) {
                                    take_connection(std::move(connection), uid);
                                  },
                                  [this](uid_t uid) { end_connection(uid); }));
  return absl::OkStatus();
}

// Which server a connection is given to is what says who calls, for all its life.
void RpcServer::take_connection(Fd connection, uid_t uid) {
  Result<Fd> guarded = relay_->post_connection(std::move(connection), uid);
  if (!guarded.ok()) {
    return log_debug("api_connection_lost", {{"cause", std::string(guarded.status().message())}});
  }
  Side* side = uid == 0 ? root_.get() : find_user(uid);
  if (side == nullptr) side = others_.get();
  ++side->connections;
  grpc::AddInsecureChannelFromFd(side->server.get(), guarded->release());
}

void RpcServer::end_connection(uid_t uid) {
  const auto found = users_.find(uid);
  // One that was given to `others_` while there was no place may end here: its user then looks
  // gone too soon, and loses calls that run, but nobody gets another's.
  if (found != users_.end() && found->second->connections > 0) --found->second->connections;
}

// The user's server; null where there can be none. Those of users who have gone stay until their
// place is needed: programs come back.
RpcServer::Side* RpcServer::find_user(uid_t uid) {
  if (const auto found = users_.find(uid); found != users_.end()) return found->second.get();
  if (users_.size() >= kUsers) {
    const auto idle = std::ranges::find_if(
        users_, [](const auto& user) { return user.second->connections == 0; });
    if (idle == users_.end()) return nullptr;
    stop_side(idle->second.get(), std::chrono::system_clock::now());
    users_.erase(idle);
  }
  std::unique_ptr<Side> made = make_side({.caller = Caller::kUser, .uid = uid});
  if (made->server == nullptr) return nullptr;
  return users_.emplace(uid, std::move(made)).first->second.get();
}

Status RpcServer::start_tcp(const RpcOptions& options) {
  ASSIGN_OR_RETURN(HostPort address, parse_host_port(options.listen));
  ASSIGN_OR_RETURN(auto credentials, make_credentials(options.tls));
  ASSIGN_OR_RETURN(Fd listening, listen_on(address, kTcpBacklog));
  others_ = make_side({.caller = Caller::kTcp}, std::move(credentials), &tcp_);
  if (others_->server == nullptr) return absl::InternalError(options.listen + ": start gRPC");
  ASSIGN_OR_RETURN(acceptor_, PeerAcceptor::start(std::move(listening), kTcpLimits, sources_.drops,
                                                  [this](Fd connection, uid_t) {
                                                    TcpAcceptor::NewConnectionParameters parameters;
                                                    parameters.fd = connection.release();
                                                    tcp_->HandleNewConnection(&parameters);
                                                  }));
  address_ = format_host_port(address);
  return absl::OkStatus();
}

std::unique_ptr<RpcServer::Side> RpcServer::make_side(
    CallerId caller, std::shared_ptr<grpc::ServerCredentials> credentials,
    std::unique_ptr<TcpAcceptor>* tcp) {
  auto side = std::make_unique<Side>(*this, caller);
  grpc::ServerBuilder builder;
  if (credentials != nullptr) {
    *tcp = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        std::move(credentials));
  }
  builder.RegisterService(&side->observe);
  builder.RegisterService(&side->control);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.SetMaxSendMessageSize(kMaxAnswerBytes);
  for (const auto& [name, value] : kChannelArguments) builder.AddChannelArgument(name, value);
  // A quota of its own for each user: gRPC aborts where a server finds no thread left in its quota.
  grpc::ResourceQuota user_quota("user");
  user_quota.Resize(kUserBufferBytes).SetMaxThreads(kReflectionThreads);
  builder.SetResourceQuota(caller.caller == Caller::kUser ? user_quota : quota_);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  side->server = builder.BuildAndStart();
  if (side->server == nullptr) return side;
  grpc::HealthCheckServiceInterface& health = *side->server->GetHealthCheckService();
  health.SetServingStatus(v1::Observe::service_full_name(), true);
  health.SetServingStatus(v1::Control::service_full_name(), true);
  health.SetServingStatus(true);
  return side;
}

std::shared_ptr<grpc::Channel> RpcServer::open_channel(Caller caller) {
  std::unique_ptr<Side> side = make_side({.caller = caller});
  if (side->server == nullptr) return nullptr;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  return inner_.emplace_back(std::move(side))->server->InProcessChannel(arguments);
}

void RpcServer::stop_side(Side* side, std::chrono::system_clock::time_point deadline) {
  if (side == nullptr || side->server == nullptr) return;
  side->server->GetHealthCheckService()->Shutdown();
  side->server->Shutdown(deadline);
  side->server->Wait();
}

void RpcServer::fill(SelfReport& report) {
  if (acceptor_) acceptor_->fill(report);
  const uint64_t answer_bytes = users_answers_.take_highest();
  report.add(Bound::kApiAnswers, answer_bytes, users_answers_.max_bytes());
  report.add(MemoryPart::kAnswers, answer_bytes);
}

void RpcServer::stop() {
  if (others_ == nullptr) return;
  acceptor_.reset();
  tcp_.reset();
  sources_.watch.close();
  const auto deadline = std::chrono::system_clock::now() + kStopTimeout;
  {
    // All within the same second.
    std::vector<std::jthread> stopping;
    stopping.emplace_back([this, deadline] { stop_side(others_.get(), deadline); });
    for (const auto& [uid, side] : users_) {
      stopping.emplace_back([side = side.get(), deadline] { stop_side(side, deadline); });
    }
    for (const std::unique_ptr<Side>& side : inner_) {
      stopping.emplace_back([&side, deadline] { stop_side(side.get(), deadline); });
    }
    stop_side(root_.get(), deadline);
  }
  inner_.clear();
  users_.clear();
  root_.reset();
  others_.reset();
  relay_.reset();  // passes on what the servers said last
  // By now it may also be another daemon's.
  if (socket_id_.has_value() && find_file_id(socket_path_) == socket_id_) {
    (void)unlink(socket_path_.c_str());  // best effort: the next start removes a stale one
  }
}

}  // namespace gpuperf
