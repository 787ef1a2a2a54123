#include "daemon/rpc/server.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "daemon/base/listen_address.h"
#include "daemon/base/log.h"
#include "grpc/health/v1/health.pb.h"

namespace gpuperf {
namespace {

constexpr std::chrono::seconds kStopTimeout{1};
// CheckConfig takes 1 MiB of text; the rest is room for the message around it.
constexpr int kMaxRequestBytes = 1024 * 1024 + 64 * 1024;
// What gRPC clients accept by default; lists page below it.
constexpr int kMaxAnswerBytes = 4 * 1024 * 1024;
constexpr size_t kBufferBytes = size_t{64} * 1024 * 1024;
// Only reflection still takes a thread per call.
constexpr int kReflectionThreads = 8;

const struct {
  const char* name;
  int value;
} kChannelArguments[] = {
    {GRPC_ARG_MAX_CONCURRENT_STREAMS, 64},
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
  spdlog::debug("{}",
                format_log_line("grpc", {{"file", fmt::format("{}:{}", args->file, args->line)},
                                         {"message", args->message}}));
}

Status with_setting(const Status& status) {
  return Status(status.code(), "grpc.listen: " + std::string(status.message()));
}

// Makes new files 0600 while it lives.
class PrivateFiles {
 public:
  PrivateFiles() : old_mask_(umask(0177)) {}
  ~PrivateFiles() { (void)umask(old_mask_); }
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;

 private:
  const mode_t old_mask_;
};

}  // namespace

RpcServer::RpcServer(ObserveSources sources)
    : watch_(sources.watch), service_(std::move(sources)) {}

RpcServer::~RpcServer() { stop(); }

Result<std::unique_ptr<RpcServer>> RpcServer::start(const RpcOptions& options,
                                                    ObserveSources sources) {
  constexpr std::string_view kUnix = "unix:";
  // Never undone: the shutdown of gRPC 1.51 may wait 10 s for a poller of its own.
  grpc_init();
  auto server = std::unique_ptr<RpcServer>(new RpcServer(std::move(sources)));
  const Status started =
      options.listen.starts_with(kUnix)
          ? server->start_unix(options.listen.substr(kUnix.size()), options.group)
          : server->start_tcp(options.listen);
  if (!started.ok()) return with_setting(started);
  grpc::HealthCheckServiceInterface& health = *server->server_->GetHealthCheckService();
  health.SetServingStatus(v1::Observe::service_full_name(), true);
  health.SetServingStatus(true);
  // Keeps the description of the health service in the program, for reflection to find.
  (void)grpc::health::v1::HealthCheckRequest::descriptor();
  return server;
}

Status RpcServer::start_unix(const std::string& path, const std::string& group) {
  RETURN_IF_ERROR(prepare_unix_socket(path));
  address_ = "unix:" + path;
  {
    const PrivateFiles private_files;
    (void)build();  // a Unix socket has no port
  }
  if (server_ == nullptr) {
    return absl::UnavailableError(
        path + ": listen: refused; is the folder writable, and is its file system a real one?");
  }
  socket_path_ = path;
  socket_id_ = find_file_id(path);
  if (const Status opened = open_socket_to_group(path, group); !opened.ok()) {
    // The owner can still use it: better than no API at all.
    log_warn("api_socket_private", {{"path", path}, {"cause", std::string(opened.message())}});
  }
  return absl::OkStatus();
}

Status RpcServer::start_tcp(const std::string& listen) {
  ASSIGN_OR_RETURN(HostPort address, parse_host_port(listen));
  if (!is_loopback(address)) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: not a loopback address: without certificates, which this version does not have, "
        "anyone "
        "who reaches it could read; listen on unix:/run/gpuperf/api.sock, 127.0.0.1 or [::1]",
        listen));
  }
  RETURN_IF_ERROR(check_listenable(address));
  address_ = format_host_port(address);
  const int port = build();
  if (server_ == nullptr || port == 0) {
    return absl::UnavailableError(listen + ": listen: taken by another program just now");
  }
  address.port = static_cast<uint16_t>(port);
  address_ = format_host_port(address);
  return absl::OkStatus();
}

// Listens on address_ and sets server_, null on failure. Returns the port.
int RpcServer::build() {
  gpr_set_log_function(write_grpc_log);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service_);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.SetMaxSendMessageSize(kMaxAnswerBytes);
  for (const auto& [name, value] : kChannelArguments) builder.AddChannelArgument(name, value);
  grpc::ResourceQuota quota("api");
  quota.Resize(kBufferBytes).SetMaxThreads(kReflectionThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  server_ = builder.BuildAndStart();
  return port;
}

void RpcServer::stop() {
  if (server_ == nullptr) return;
  watch_.close();
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(std::chrono::system_clock::now() + kStopTimeout);
  server_->Wait();
  server_.reset();
  // gRPC removes it too, except after some failures; by now it may also be another daemon's.
  if (socket_id_.has_value() && find_file_id(socket_path_) == socket_id_) {
    (void)unlink(socket_path_.c_str());  // best effort: the next start removes a stale one
  }
}

}  // namespace gpuperf
