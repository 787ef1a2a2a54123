#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "daemon/base/listen_address.h"
#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"

namespace httplib {
class Server;
}

namespace gpuperf {

class HttpListener;

// Serves /metrics, /healthz and /readyz over HTTP, GET and HEAD; and POST /freeze, where it is
// wanted, for an Alertmanager's webhook; and a page for people, where one is given.
//
// Thread: start and stop on the daemon's; accepts and answers on threads of its own, where
// `on_alert` is called, too. The metrics and the board must outlive it.
// Bounds: see HttpListener.
// Not here: what the metrics are (PrometheusMetrics), TLS (metrics are for this host or a proxy).
class HttpServer {
 public:
  // An alert has come, with the name that the query gives it; empty = none. False: it is one too
  // many. Null = alerts are not taken.
  using OnAlert = std::function<bool(const std::string& name)>;

  // Adds the routes of a page for people at /ui/. Null = there is none.
  using AddPage = std::function<void(httplib::Server& server)>;

  // Listens before it returns. `listen`: see parse_host_port. The error names address and cause.
  static Result<std::unique_ptr<HttpServer>> start(std::string_view listen,
                                                   const prometheus::Collectable& metrics,
                                                   const SnapshotBoard& board,
                                                   OnAlert on_alert = nullptr,
                                                   const AddPage& add_page = nullptr);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the port it got when 0 was asked for.
  const HostPort& address() const { return address_; }
  // Refuses new connections, cuts open ones, joins. Any number of times.
  void stop();

 private:
  HttpServer();

  HostPort address_;  // set once in start
  std::unique_ptr<HttpListener> listener_;
  std::thread thread_;
};

// Why the daemon is not ready, one reason a line; empty = ready. Ready: a snapshot was published
// and probes can be attached.
std::string explain_not_ready(const Snapshot& snapshot);

}  // namespace gpuperf
