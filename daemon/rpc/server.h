#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "daemon/base/result.h"
#include "daemon/base/unix_socket.h"
#include "daemon/model/control_port.h"
#include "daemon/rpc/control_service.h"
#include "daemon/rpc/observe_service.h"
#include "daemon/rpc/peer_acceptor.h"

namespace gpuperf {

struct RpcOptions {
  std::string listen;             // "unix:/path" or host:port of a loopback address
  std::string group = "gpuperf";  // may use the socket, where that group exists
  PeerLimits limits;              // of the Unix socket
};

// Serves gpuperf.v1, health checks and reflection over gRPC.
//
// Thread: start and stop on the daemon's; answers on gRPC's threads. The sources and the port,
// which may be null (Control is UNAVAILABLE then), must outlive it. Bounds: connections as in
// PeerLimits; 64 calls at once per connection, messages of 1 MiB in and 4 MiB out, 64 MiB of
// buffers in all; connections idle for ten minutes are closed. Access: a Unix socket is 0660 for
// the group, 0600 where there is none. Who may change the daemon is decided when a connection is
// accepted: those of root go to a server of their own, everybody else's to one whose Control
// refuses. No call can reach the wrong one, whatever it says. Over TCP only loopback, and Control
// refuses: nothing there says who calls.
class RpcServer {
 public:
  // Listens before it returns. The error names address and cause.
  static Result<std::unique_ptr<RpcServer>> start(const RpcOptions& options, ObserveSources sources,
                                                  ControlPort* port = nullptr);
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // What a client connects to, with the port it got when 0 was asked for.
  const std::string& address() const { return address_; }
  // Refuses new calls, ends watch streams, gives running calls a second, removes the socket. Closes
  // the hub for good. Any number of times.
  void stop();

 private:
  // The services as one kind of caller has them, and the server that gets that kind's connections.
  struct Side {
    Side(const ObserveSources& sources, ControlPort* port, Caller caller)
        : observe(sources), control(port, caller) {}
    ObserveService observe;
    ControlService control;
    std::unique_ptr<grpc::Server> server;  // before the services are destroyed
  };

  RpcServer(ObserveSources sources, ControlPort* port);
  Status start_unix(const std::string& path, const RpcOptions& options);
  Status start_tcp(const std::string& listen);
  std::unique_ptr<Side> make_side(Caller caller, const std::string& listen, int* port);
  static void stop_side(Side* side, std::chrono::system_clock::time_point deadline);

  // Set once in start.
  std::string address_;
  std::string socket_path_;  // empty for TCP
  std::optional<FileId> socket_id_;
  const ObserveSources sources_;
  ControlPort* const port_;
  grpc::ResourceQuota quota_;  // shared by both sides
  // Null once stopped. Destroyed in the opposite order: nothing is accepted for a server that is
  // gone.
  std::unique_ptr<Side> others_;            // everybody's for TCP
  std::unique_ptr<Side> root_;              // null for TCP
  std::unique_ptr<PeerAcceptor> acceptor_;  // null for TCP
};

}  // namespace gpuperf
