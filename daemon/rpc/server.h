#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/base/unix_socket.h"
#include "daemon/model/control_port.h"
#include "daemon/rpc/capture_owners.h"
#include "daemon/rpc/control_service.h"
#include "daemon/rpc/observe_service.h"
#include "daemon/rpc/peer_acceptor.h"
#include "daemon/rpc/render_queue.h"

namespace gpuperf {

struct RpcOptions {
  std::string listen;             // "unix:/path" or host:port of a loopback address
  std::string group = "gpuperf";  // may use the socket, where that group exists
  PeerLimits limits;              // of the Unix socket
};

// Serves gpuperf.v1, health checks and reflection over gRPC.
//
// Thread: start, open_channel and stop on the daemon's; answers on gRPC's threads. The sources and
// the port, which may be null (Control is UNAVAILABLE then), must outlive it. Bounds: connections
// as in PeerLimits; 64 calls at once per connection, messages of 1 MiB in and 16 MiB out, 64 MiB of
// buffers for root and for all others, 16 MiB for each user told apart; connections idle for ten
// minutes are closed. Access: a Unix socket is 0660 for the group, 0600 where there is none. Who
// may change the daemon is decided when a connection is accepted: those of each user go to a server
// of their own, whose Control knows the user. No call can reach the wrong one, whatever it says:
// gRPC names a peer by its descriptor's number only, which may already be another connection's. At
// most kUsers users beside root have one at a time; a user beyond them shares one whose Control
// refuses. Over TCP only loopback, and Control refuses: nothing there says who calls.
class RpcServer {
 public:
  static constexpr size_t kUsers = 16;

  // Listens before it returns. The error names address and cause.
  static Result<std::unique_ptr<RpcServer>> start(const RpcOptions& options, ObserveSources sources,
                                                  ControlPort* port = nullptr);
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // A way in for a part of this program that knows itself whom it speaks for: kRoot may change the
  // daemon, anyone else may read. The channel's calls fail once the server is stopped.
  std::shared_ptr<grpc::Channel> open_channel(Caller caller);
  // What a client connects to, with the port it got when 0 was asked for.
  const std::string& address() const { return address_; }
  // Refuses new calls, ends watch streams, gives running calls a second, removes the socket. Closes
  // the hub for good. Any number of times.
  void stop();

 private:
  // The services as one kind of caller has them, and the server that gets that kind's connections.
  struct Side {
    Side(RpcServer& server, CallerId caller)
        : observe(server.sources_, server.queue_, caller.caller == Caller::kRoot),
          control(server.port_, caller, server.owners_) {}
    ObserveService observe;
    ControlService control;
    size_t connections = 0;                // of a user's; acceptor's thread only
    std::unique_ptr<grpc::Server> server;  // before the services are destroyed
  };

  RpcServer(ObserveSources sources, ControlPort* port);
  Status start_unix(const std::string& path, const RpcOptions& options);
  Status start_tcp(const std::string& listen);
  std::unique_ptr<Side> make_side(CallerId caller, const std::string& listen, int* port);
  // On the acceptor's thread.
  void take_connection(Fd connection, uid_t uid);
  void end_connection(uid_t uid);
  Side* find_user(uid_t uid);
  static void stop_side(Side* side, std::chrono::system_clock::time_point deadline);

  // Set once in start.
  std::string address_;
  std::string socket_path_;  // empty for TCP
  std::optional<FileId> socket_id_;
  const ObserveSources sources_;
  ControlPort* const port_;
  grpc::ResourceQuota quota_;  // shared by the sides that are always there
  CaptureOwners owners_;
  RenderQueue queue_;
  // Null once stopped. Destroyed in the opposite order: nothing is accepted for a server that is
  // gone.
  std::unique_ptr<Side> others_;              // everybody's for TCP, else of users beyond kUsers
  std::unique_ptr<Side> root_;                // null for TCP
  std::vector<std::unique_ptr<Side>> inner_;  // of open_channel
  // Acceptor's thread only, for as long as there is one.
  std::map<uid_t, std::unique_ptr<Side>> users_;
  std::unique_ptr<PeerAcceptor> acceptor_;  // null for TCP
};

}  // namespace gpuperf
