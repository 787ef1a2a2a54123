#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

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
#include "daemon/rpc/answer_budget.h"
#include "daemon/rpc/capture_owners.h"
#include "daemon/rpc/control_service.h"
#include "daemon/rpc/observe_service.h"
#include "daemon/rpc/peer_acceptor.h"
#include "daemon/rpc/peer_relay.h"
#include "daemon/rpc/render_queue.h"

namespace gpuperf {

// Files in PEM form, for TCP: both sides show a certificate. Handshakes use what the files hold, at
// most `refresh` and the time of a handshake ago. Where a certificate does not fit its key
// meanwhile, handshakes fail.
struct RpcTls {
  std::string cert_file;       // of the daemon
  std::string key_file;        // its key
  std::string client_ca_file;  // who vouches for the clients
  std::chrono::seconds refresh{10};
};

struct RpcOptions {
  std::string listen;             // "unix:/path" or host:port
  std::string group = "gpuperf";  // may use the Unix socket, where that group exists
  PeerLimits limits;              // of the Unix socket
  RpcTls tls = {};
};

// Serves gpuperf.v1, health checks and reflection over gRPC.
//
// Thread: start, open_channel and stop on the daemon's; answers on gRPC's threads. The sources and
// the port, which may be null (Control is UNAVAILABLE then), must outlive it. Bounds: connections
// as in PeerLimits; what a connection and a user may send as in FrameGuard; messages of 1 MiB in
// and 16 MiB out; answers that wait to be taken, 64 MiB of root's, 16 MiB of each user's and 32 MiB
// of all of them; connections idle for ten minutes are closed. Access: a Unix socket is 0660 for
// the group, 0600 where there is none. Who may change the daemon is decided when a connection is
// accepted: those of each user go to a server of their own, whose Control knows the user. No call
// can reach the wrong one, whatever it says: gRPC names a peer by its descriptor's number only,
// which may already be another connection's. At most kUsers users beside root have one at a time; a
// user beyond them shares one whose Control refuses. Over TCP both sides show certificates, and
// Control refuses: one does not say who of this host calls.
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
  // How full its bounds are. Any thread, until it is stopped.
  void fill(SelfReport& report);
  // What a client connects to, with the port it got when 0 was asked for.
  const std::string& address() const { return address_; }
  // Refuses new calls, ends watch streams, gives running calls a second, removes the socket. Closes
  // the hub for good. Any number of times.
  void stop();

 private:
  // The services as one kind of caller has them, and the server that gets that kind's connections.
  struct Side {
    Side(RpcServer& server, CallerId caller);
    AnswerBudget budget;
    ObserveService observe;
    ControlService control;
    size_t connections = 0;                // of a user's; acceptor's thread only
    std::unique_ptr<grpc::Server> server;  // before the services are destroyed
  };

  RpcServer(ObserveSources sources, ControlPort* port);
  Status start_unix(const std::string& path, const RpcOptions& options);
  Status start_tcp(const RpcOptions& options);
  // Its server is null where it could not start. With credentials, `tcp` says what takes its
  // connections.
  using TcpAcceptor = grpc::experimental::ExternalConnectionAcceptor;
  std::unique_ptr<Side> make_side(CallerId caller,
                                  std::shared_ptr<grpc::ServerCredentials> credentials = nullptr,
                                  std::unique_ptr<TcpAcceptor>* tcp = nullptr);
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
  AnswerBudget users_answers_;
  // Null once stopped. Destroyed in the opposite order: nothing is accepted for a server that is
  // gone.
  std::unique_ptr<Side> others_;              // everybody's for TCP, else of users beyond kUsers
  std::unique_ptr<Side> root_;                // null for TCP
  std::vector<std::unique_ptr<Side>> inner_;  // of open_channel
  // Acceptor's thread only, for as long as there is one.
  std::map<uid_t, std::unique_ptr<Side>> users_;
  std::unique_ptr<TcpAcceptor> tcp_;  // null for a Unix socket
  std::unique_ptr<PeerRelay> relay_;  // null for TCP
  std::unique_ptr<PeerAcceptor> acceptor_;
};

}  // namespace gpuperf
