#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "client/address.h"
#include "client/interrupt.h"
#include "client/status.h"
#include "gpuperf/v1/control.grpc.pb.h"
#include "gpuperf/v1/observe.grpc.pb.h"

namespace gpuperf::client {

// The daemon at one address, and its errors in words a user can act on.
//
// Thread: main thread. Owns the channel; `interrupt`, which may be null, must outlive it.
// Every call has the deadline given at open; a stream has none, it is meant to last.
// Not here: what is asked and how it is shown.
class Connection {
 public:
  using Stub = v1::Observe::Stub;
  template <typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);
  using ControlStub = v1::Control::Stub;
  template <typename Request, typename Response>
  using ControlMethod = grpc::Status (ControlStub::*)(grpc::ClientContext*, const Request&,
                                                      Response*);

  // Fails at once where nothing listens or the socket is forbidden.
  static Result<std::unique_ptr<Connection>> open(std::string_view address,
                                                  std::chrono::nanoseconds timeout,
                                                  Interrupt* interrupt);

  // `action` completes "cannot …" in the error's text.
  template <typename Request, typename Response>
  Status call(Method<Request, Response> method, std::string_view action, const Request& request,
              Response* response) {
    return explain(run(*stub_, method, request, response), action);
  }
  // The same for what changes the daemon.
  template <typename Request, typename Response>
  Status call(ControlMethod<Request, Response> method, std::string_view action,
              const Request& request, Response* response) {
    return explain_change(run(*control_, method, request, response), action);
  }

  // The error of a call that was to `action`.
  Status explain(const grpc::Status& status, std::string_view action) const;

  Stub& stub() { return *stub_; }
  Interrupt* interrupt() { return interrupt_; }
  const Address& address() const { return address_; }

 private:
  Connection(Address address, std::chrono::nanoseconds timeout, Interrupt* interrupt);
  Status wait_until_connected();
  Status explain_change(const grpc::Status& status, std::string_view action) const;
  template <typename AnyStub, typename Method, typename Request, typename Response>
  grpc::Status run(AnyStub& stub, Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout_);
    const InterruptibleCall interruptible(interrupt_, context);
    return (stub.*method)(&context, request, response);
  }

  // Set once in the constructor.
  Address address_;
  std::chrono::nanoseconds timeout_;
  Interrupt* interrupt_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
  std::unique_ptr<ControlStub> control_;
};

}  // namespace gpuperf::client
