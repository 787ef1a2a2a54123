#include "client/connection.h"

#include <fmt/format.h>
#include <grpc/grpc.h>

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

double to_seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Connection::Connection(Address address, std::chrono::nanoseconds timeout, Interrupt* interrupt)
    : address_(std::move(address)),
      timeout_(timeout),
      interrupt_(interrupt),
      channel_(grpc::CreateCustomChannel(address_.grpc_target, grpc::InsecureChannelCredentials(),
                                         make_channel_arguments())),
      stub_(v1::Observe::NewStub(channel_)),
      control_(v1::Control::NewStub(channel_)) {}

Result<std::unique_ptr<Connection>> Connection::open(std::string_view address_text,
                                                     std::chrono::nanoseconds timeout,
                                                     Interrupt* interrupt) {
  ASSIGN_OR_RETURN(Address address, parse_address(address_text));
  RETURN_IF_ERROR(probe_socket(address, timeout));
  // Never undone: the shutdown of gRPC 1.51 may wait 10 s for a poller of its own (measured after
  // large messages). The program ends soon enough.
  grpc_init();
  std::unique_ptr<Connection> connection(new Connection(std::move(address), timeout, interrupt));
  RETURN_IF_ERROR(connection->wait_until_connected());
  return connection;
}

// A failed attempt is not reported here: the call that follows fails at once and knows the cause.
Status Connection::wait_until_connected() {
  const auto deadline = std::chrono::system_clock::now() + timeout_;
  for (;;) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return absl::OkStatus();
    }
    if (interrupt_ != nullptr && interrupt_->happened()) return absl::CancelledError("interrupted");
    const auto now = std::chrono::system_clock::now();
    if (now >= deadline) {
      return explain(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""), "connect");
    }
    channel_->WaitForStateChange(state, std::min(deadline, now + kConnectStep));
  }
}

// Unlike a question, a change may have been made although its answer was never seen; and who may
// change is not who may read: the daemon says it itself.
Status Connection::explain_change(const grpc::Status& status, std::string_view action) const {
  switch (status.error_code()) {
    case grpc::StatusCode::PERMISSION_DENIED:
      return absl::PermissionDeniedError(
          fmt::format("cannot {}: gpuperfd at {} does not permit it: {}", action, address_.text,
                      status.error_message()));
    case grpc::StatusCode::ALREADY_EXISTS:
      return absl::AlreadyExistsError(fmt::format("cannot {}: {}", action, status.error_message()));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::UnavailableError(fmt::format(
          "cannot {}: gpuperfd at {} did not answer within {:g} s; the change may still "
          "come into force, see: gpuperfctl probes; or wait longer: --timeout",
          action, address_.text, to_seconds(timeout_)));
    default:  // the remaining codes mean what they mean for a question
      return explain(status, action);
  }
}

Status Connection::explain(const grpc::Status& status, std::string_view action) const {
  const std::string failed = fmt::format("cannot {}: gpuperfd at {}", action, address_.text);
  const std::string cause = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::CANCELLED:
      if (interrupt_ != nullptr && interrupt_->happened()) return absl::CancelledError(cause);
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
                      failed, to_seconds(timeout_)));
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

}  // namespace gpuperf::client
