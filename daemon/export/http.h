#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/listen_address.h"
#include "daemon/base/result.h"
#include "daemon/export/http_message.h"
#include "daemon/export/metrics_text.h"
#include "daemon/export/shared_answer.h"
#include "daemon/model/drops.h"
#include "daemon/model/self_report.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

class HttpListener;

// Serves /metrics (OpenMetrics for clients that accept it), /healthz and /readyz over HTTP, GET and
// HEAD; and POST /freeze, where it is wanted, for an Alertmanager's webhook; and a page for people,
// where one is given.
//
// Thread: start and stop on the daemon's; answers on threads of its own, where `on_alert` is
// called, too. What it is given must outlive it.
// Bounds: those of HttpListener, and of SharedAnswer for /metrics.
// Not here: what the metrics are (PrometheusMetrics), TLS (metrics are for this host or a proxy).
class HttpServer {
 public:
  // An alert has come, with the name that the query gives it; empty = none. False: it is one too
  // many. Must not wait.
  using OnAlert = std::function<bool(const std::string& name)>;

  struct Parts {
    const prometheus::Collectable& metrics;
    const SnapshotBoard& board;
    DropCounters& drops;
    OnAlert on_alert = nullptr;  // null = alerts are not taken
    // Of OpenMetrics; null = none.
    std::function<Exemplars()> list_exemplars = nullptr;
    std::vector<HttpRoute> page = {};  // at /ui/; empty = there is none
  };

  // Listens before it returns. `listen`: see parse_host_port. The error names address and cause.
  static Result<std::unique_ptr<HttpServer>> start(std::string_view listen, Parts parts);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the port it got when 0 was asked for.
  const HostPort& address() const { return address_; }
  // How full its bounds are. Any thread.
  void fill(SelfReport& report);
  // Refuses new connections, cuts open ones, joins. Any number of times.
  void stop();

 private:
  explicit HttpServer(const Parts& parts);
  std::vector<HttpRoute> make_routes(Parts parts);
  SharedAnswer& find_metrics(const HttpRequest& request);

  HostPort address_;  // set once in start
  SharedAnswer plain_metrics_;
  SharedAnswer gzip_metrics_;
  SharedAnswer plain_open_metrics_;
  SharedAnswer gzip_open_metrics_;
  std::unique_ptr<HttpListener> listener_;  // last: it uses all of the above
};

// Why the daemon is not ready, one reason a line; empty = ready. Ready: a snapshot was published
// and probes can be attached.
std::string explain_not_ready(const Snapshot& snapshot);

}  // namespace gpuperf
