#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <optional>
#include <string>

#include "daemon/base/result.h"
#include "daemon/rpc/observe_service.h"
#include "daemon/rpc/unix_socket.h"

namespace gpuperf {

struct RpcOptions {
  std::string listen;             // "unix:/path" or host:port of a loopback address
  std::string group = "gpuperf";  // may use the socket, where that group exists
};

// Serves gpuperf.v1, health checks and reflection over gRPC.
//
// Thread: start and stop on the daemon's, start before others make files (it narrows the process's
// umask for a moment); answers on gRPC's threads. The sources must outlive it.
// Bounds: 64 calls at once per connection, messages of 1 MiB in and 4 MiB out, 64 MiB of buffers in
// all; connections idle for ten minutes are closed.
// Access: a Unix socket is 0660 for the group, 0600 where there is none. Over TCP only loopback:
// nothing there says who calls.
class RpcServer {
 public:
  // Listens before it returns. The error names address and cause.
  static Result<std::unique_ptr<RpcServer>> start(const RpcOptions& options,
                                                  ObserveSources sources);
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // What a client connects to, with the port it got when 0 was asked for.
  const std::string& address() const { return address_; }
  // Refuses new calls, ends watch streams, gives running calls a second, removes the socket. Closes
  // the hub for good. Any number of times.
  void stop();

 private:
  explicit RpcServer(ObserveSources sources);
  Status start_unix(const std::string& path, const std::string& group);
  Status start_tcp(const std::string& listen);
  int build();

  // Set once in start.
  std::string address_;
  std::string socket_path_;  // empty for TCP
  std::optional<FileId> socket_id_;
  WatchHub& watch_;
  ObserveService service_;
  std::unique_ptr<grpc::Server> server_;  // null once stopped; before service_ is destroyed
};

}  // namespace gpuperf
