#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "client/address.h"
#include "client/interrupt.h"
#include "client/status.h"
#include "gpuperf/v1/control.pb.h"
#include "gpuperf/v1/observe.pb.h"

namespace grpc {
class ChannelCredentials;
}  // namespace grpc

namespace gpuperf::client {

// The daemon at one address, and its errors in words a user can act on.
//
// Thread: main thread. Owns the channel; `interrupt`, which may be null, must outlive it.
// Every call has the deadline given at open; a stream has none, it is meant to last. Only
// connection.cpp includes gRPC, whose headers take longer to compile than a command does.
// Not here: what is asked and how it is shown.
class Connection {
 public:
  // Fails at once where nothing listens or the socket is forbidden. `tls` is for TCP, which needs
  // it.
  static Result<std::unique_ptr<Connection>> open(std::string_view address, const TlsFiles& tls,
                                                  std::chrono::nanoseconds timeout,
                                                  Interrupt* interrupt);
  ~Connection();

  // The rpc is the one that takes such a request; connection.cpp lists them. `action` completes
  // "cannot …" in the error's text.
  template <typename Request, typename Response>
  Status call(std::string_view action, const Request& request, Response* response);

  // Hand on each message until the stream ends or `on_message` answers false, which is no error.
  Status fetch_capture(std::string_view action, const v1::FetchCaptureRequest& request,
                       const std::function<bool(const v1::FetchCaptureResponse&)>& on_message);
  // `on_open`: from here on no slow call is missed. The daemon never ends a watch while it runs.
  Status watch_slow_calls(std::string_view action, const v1::WatchSlowCallsRequest& request,
                          const std::function<void()>& on_open,
                          const std::function<bool(const v1::WatchSlowCallsResponse&)>& on_message);

  Interrupt* interrupt() { return interrupt_; }
  const Address& address() const { return address_; }

 private:
  struct Channel;

  Connection(Address address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
             std::chrono::nanoseconds timeout, Interrupt* interrupt);
  Status wait_until_connected();

  // Set once in the constructor.
  Address address_;
  std::chrono::nanoseconds timeout_;
  Interrupt* interrupt_;
  std::unique_ptr<Channel> channel_;
};

}  // namespace gpuperf::client
