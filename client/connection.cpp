#include "client/connection.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "gpuperf/v1/control.grpc.pb.h"
#include "gpuperf/v1/observe.grpc.pb.h"

namespace gpuperf::client {
namespace {

// A page of slow calls with deep stacks of long C++ names passes gRPC's default of 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;
// How soon an interrupt is noticed while connecting.
constexpr auto kConnectStep = std::chrono::milliseconds(100);

grpc::ChannelArguments make_channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // The daemon is never behind a web proxy; http_proxy in the environment is for others.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

Result<std::string> read_pem_file(std::string_view flag, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is missing: over TCP gpuperfctl and gpuperfd both show a certificate; give --ca-file, "
        "--cert-file and --key-file, or the address of a Unix socket",
        flag));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: cannot read {}: {}", flag, path, strerror(errno)));
  }
  return text;
}

Result<std::shared_ptr<grpc::ChannelCredentials>> make_credentials(const Address& address,
                                                                   const TlsFiles& files) {
  if (!address.unix_path.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  ASSIGN_OR_RETURN(options.pem_root_certs, read_pem_file("--ca-file", files.ca_file));
  ASSIGN_OR_RETURN(options.pem_cert_chain, read_pem_file("--cert-file", files.cert_file));
  ASSIGN_OR_RETURN(options.pem_private_key, read_pem_file("--key-file", files.key_file));
  return grpc::SslCredentials(options);
}

double to_seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

struct Connection::Channel {
  Channel(const Connection& its_connection,
          const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : connection(its_connection),
        channel(grpc::CreateCustomChannel(connection.address_.grpc_target, credentials,
                                          make_channel_arguments())),
        observe(channel),
        control(channel) {}

  template <typename Stub, typename Request, typename Response>
  grpc::Status run(Stub& stub,
                   grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                   const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + connection.timeout_);
    const InterruptibleCall interruptible(connection.interrupt_, context);
    return (stub.*method)(&context, request, response);
  }

  // True in the end = `on_message` ended it.
  template <typename Message>
  Result<bool> read(std::string_view action, grpc::ClientContext& context,
                    grpc::ClientReader<Message>& stream,
                    const std::function<bool(const Message&)>& on_message) {
    Message message;
    while (stream.Read(&message)) {
      if (on_message(message)) continue;
      context.TryCancel();
      (void)stream.Finish();  // cancelled by us
      return true;
    }
    RETURN_IF_ERROR(explain(stream.Finish(), action));
    return false;
  }

  Status explain(const grpc::Status& status, std::string_view action) const;
  Status explain_change(const grpc::Status& status, std::string_view action) const;

  const Connection& connection;
  const std::shared_ptr<grpc::Channel> channel;
  v1::Observe::Stub observe;
  v1::Control::Stub control;
};

Connection::Connection(Address address,
                       const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                       std::chrono::nanoseconds timeout, Interrupt* interrupt)
    : address_(std::move(address)),
      timeout_(timeout),
      interrupt_(interrupt),
      channel_(std::make_unique<Channel>(*this, credentials)) {}

Connection::~Connection() = default;

Result<std::unique_ptr<Connection>> Connection::open(std::string_view address_text,
                                                     const TlsFiles& tls,
                                                     std::chrono::nanoseconds timeout,
                                                     Interrupt* interrupt) {
  ASSIGN_OR_RETURN(Address address, parse_address(address_text));
  ASSIGN_OR_RETURN(const auto credentials, make_credentials(address, tls));
  RETURN_IF_ERROR(probe_socket(address, timeout));
  // Never undone: the shutdown of gRPC 1.51 may wait 10 s for a poller of its own (measured after
  // large messages). The program ends soon enough.
  grpc_init();
  std::unique_ptr<Connection> connection(
      new Connection(std::move(address), credentials, timeout, interrupt));
  RETURN_IF_ERROR(connection->wait_until_connected());
  return connection;
}

// A failed attempt is not reported here: the call that follows fails at once and knows the cause.
Status Connection::wait_until_connected() {
  const auto deadline = std::chrono::system_clock::now() + timeout_;
  for (;;) {
    const grpc_connectivity_state state = channel_->channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return absl::OkStatus();
    }
    if (interrupt_ != nullptr && interrupt_->happened()) return absl::CancelledError("interrupted");
    const auto now = std::chrono::system_clock::now();
    if (now >= deadline) {
      return channel_->explain(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""), "connect");
    }
    channel_->channel->WaitForStateChange(state, std::min(deadline, now + kConnectStep));
  }
}

// Unlike a question, a change may have been made although its answer was never seen; and who may
// change is not who may read: the daemon says it itself.
Status Connection::Channel::explain_change(const grpc::Status& status,
                                           std::string_view action) const {
  switch (status.error_code()) {
    case grpc::StatusCode::PERMISSION_DENIED:
      return absl::PermissionDeniedError(
          fmt::format("cannot {}: gpuperfd at {} does not permit it: {}", action,
                      connection.address_.text, status.error_message()));
    case grpc::StatusCode::ALREADY_EXISTS:
      return absl::AlreadyExistsError(fmt::format("cannot {}: {}", action, status.error_message()));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::UnavailableError(
          fmt::format("cannot {}: gpuperfd at {} did not answer within {:g} s; the change may "
                      "still take effect, see: gpuperfctl probes; or wait longer: --timeout",
                      action, connection.address_.text, to_seconds(connection.timeout_)));
    default:  // the remaining codes mean what they mean for a question
      return explain(status, action);
  }
}

Status Connection::Channel::explain(const grpc::Status& status, std::string_view action) const {
  const std::string failed =
      fmt::format("cannot {}: gpuperfd at {}", action, connection.address_.text);
  const std::string cause = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::CANCELLED:
      if (connection.interrupt_ != nullptr && connection.interrupt_->happened())
        return absl::CancelledError(cause);
      [[fallthrough]];  // not by us: the daemon cancels what runs when it stops
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(
          fmt::format("{} is not reachable or has stopped ({}); is gpuperfd running? see: "
                      "systemctl status gpuperfd",
                      failed, cause));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::UnavailableError(
          fmt::format("{} did not answer within {:g} s; see: systemctl status gpuperfd; or wait "
                      "longer: --timeout",
                      failed, to_seconds(connection.timeout_)));
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return absl::PermissionDeniedError(fmt::format(
          "{} does not permit it: {}; reading needs root or membership of group gpuperf", failed,
          cause));
    case grpc::StatusCode::INVALID_ARGUMENT:
      return absl::InvalidArgumentError(fmt::format("cannot {}: {}", action, cause));
    case grpc::StatusCode::NOT_FOUND:
      return absl::NotFoundError(fmt::format("cannot {}: {}", action, cause));
    case grpc::StatusCode::FAILED_PRECONDITION:
      return absl::FailedPreconditionError(fmt::format("cannot {}: {}", action, cause));
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return absl::ResourceExhaustedError(fmt::format("cannot {}: {}", action, cause));
    case grpc::StatusCode::DATA_LOSS:
      return absl::DataLossError(fmt::format("cannot {}: {}", action, cause));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnimplementedError(
          fmt::format("{} does not know this request; it is an older version than this gpuperfctl, "
                      "or not gpuperfd: compare gpuperfctl version",
                      failed));
    default:  // the remaining codes say nothing a user could act on beyond their text
      return absl::InternalError(fmt::format("{} answered: {} (code {})", failed, cause,
                                             static_cast<int>(status.error_code())));
  }
}

// A row for each rpc, of those that look and those that change.
#define GPUPERF_RPC(SERVICE, EXPLAIN, METHOD)                                                     \
  template <>                                                                                     \
  Status Connection::call(std::string_view action, const v1::METHOD##Request& request,            \
                          v1::METHOD##Response* response) {                                       \
    return channel_->EXPLAIN(                                                                     \
        channel_->run(channel_->SERVICE, &decltype(Channel::SERVICE)::METHOD, request, response), \
        action);                                                                                  \
  }
#define GPUPERF_OBSERVE(METHOD) GPUPERF_RPC(observe, explain, METHOD)
#define GPUPERF_CONTROL(METHOD) GPUPERF_RPC(control, explain_change, METHOD)
GPUPERF_OBSERVE(GetStatus)
GPUPERF_OBSERVE(ListProcesses)
GPUPERF_OBSERVE(ListProbes)
GPUPERF_OBSERVE(ListFunctions)
GPUPERF_OBSERVE(ListSlowCalls)
GPUPERF_OBSERVE(GetSlowCall)
GPUPERF_OBSERVE(ListInFlightCalls)
GPUPERF_OBSERVE(ListShapes)
GPUPERF_OBSERVE(ListKernels)
GPUPERF_OBSERVE(ListSessions)
GPUPERF_OBSERVE(ListStepProcesses)
GPUPERF_OBSERVE(ListSteps)
GPUPERF_OBSERVE(ListStepOperators)
GPUPERF_OBSERVE(ListStepExperts)
GPUPERF_OBSERVE(ListRequestProcesses)
GPUPERF_OBSERVE(ListRequests)
GPUPERF_OBSERVE(GetStep)
GPUPERF_OBSERVE(ListGpus)
GPUPERF_OBSERVE(ListMemory)
GPUPERF_OBSERVE(ListOutOfMemory)
GPUPERF_OBSERVE(ListNccl)
GPUPERF_OBSERVE(ListCaptures)
GPUPERF_OBSERVE(GetCapture)
GPUPERF_OBSERVE(SummariseCapture)
GPUPERF_OBSERVE(ExplainCapture)
GPUPERF_OBSERVE(DiffCaptures)
GPUPERF_OBSERVE(GetConfig)
GPUPERF_OBSERVE(CheckConfig)
GPUPERF_CONTROL(ReloadConfig)
GPUPERF_CONTROL(AddProbe)
GPUPERF_CONTROL(RemoveProbe)
GPUPERF_CONTROL(EnableProbes)
GPUPERF_CONTROL(DisableProbes)
GPUPERF_CONTROL(SetSlowThreshold)
GPUPERF_CONTROL(MeasureOverhead)
GPUPERF_CONTROL(SetOverheadDemand)
GPUPERF_CONTROL(SetSession)
GPUPERF_CONTROL(AttachProcess)
GPUPERF_CONTROL(DetachProcess)
GPUPERF_CONTROL(ListAttachable)
GPUPERF_CONTROL(StartCapture)
GPUPERF_CONTROL(StopCapture)
GPUPERF_CONTROL(FreezeRecorder)
GPUPERF_CONTROL(DeleteCapture)

Status Connection::fetch_capture(
    std::string_view action, const v1::FetchCaptureRequest& request,
    const std::function<bool(const v1::FetchCaptureResponse&)>& on_message) {
  grpc::ClientContext context;
  const InterruptibleCall interruptible(interrupt_, context);
  const auto stream = channel_->observe.FetchCapture(&context, request);
  return channel_->read(action, context, *stream, on_message).status();
}

Status Connection::watch_slow_calls(
    std::string_view action, const v1::WatchSlowCallsRequest& request,
    const std::function<void()>& on_open,
    const std::function<bool(const v1::WatchSlowCallsResponse&)>& on_message) {
  grpc::ClientContext context;
  const InterruptibleCall interruptible(interrupt_, context);
  const auto stream = channel_->observe.WatchSlowCalls(&context, request);
  stream->WaitForInitialMetadata();  // comes once the daemon has us among its readers
  on_open();
  ASSIGN_OR_RETURN(const bool is_ended_here, channel_->read(action, context, *stream, on_message));
  if (is_ended_here) return absl::OkStatus();
  return channel_->explain(grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended the stream"),
                           action);
}

}  // namespace gpuperf::client
