#include "daemon/export/http.h"

#include "daemon/export/http_listener.h"
#include "daemon/export/prometheus.h"

namespace gpuperf {
namespace {

constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";

constexpr char kIndex[] =
    "gpuperfd\n"
    "/metrics  Prometheus metrics\n"
    "/healthz  200 while the daemon lives\n"
    "/readyz   200 once probes can be attached and data is there, else 503 and why\n";
constexpr char kNotFound[] =
    "not found: gpuperfd serves /metrics, /healthz and /readyz (GET, HEAD)\n";

void add_routes(HttpListener& listener, const prometheus::Collectable& metrics,
                const SnapshotBoard& board) {
  using httplib::Request;
  using httplib::Response;
  listener.Get("/metrics", [&metrics](const Request&, Response& response) {
    response.set_content(render_metrics_text(metrics), kMetricsText);
  });
  listener.Get("/healthz", [](const Request&, Response& response) {
    response.set_content("ok\n", kPlainText);
  });
  listener.Get("/readyz", [&board](const Request&, Response& response) {
    const std::string reasons = explain_not_ready(*board.get());
    response.status = reasons.empty() ? 200 : 503;
    response.set_content(reasons.empty() ? "ready\n" : reasons, kPlainText);
  });
  listener.Get(
      "/", [](const Request&, Response& response) { response.set_content(kIndex, kPlainText); });
  listener.set_error_handler([](const Request&, Response& response) {
    if (response.status == 404) response.set_content(kNotFound, kPlainText);
  });
  listener.set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
    response.status = 500;
    response.set_content("internal error: out of memory?\n", kPlainText);
  });
}

}  // namespace

std::string explain_not_ready(const Snapshot& snapshot) {
  if (snapshot.daemon == nullptr || snapshot.probes == nullptr) {
    return "starting: nothing has been read yet\n";
  }
  if (snapshot.probes->mechanism != "none") return {};
  std::string reasons;
  for (const Problem& problem : snapshot.probes->problems) {
    reasons += problem.subject + ": " + problem.message;
    if (!problem.hint.empty()) reasons += " (" + problem.hint + ")";
    reasons += '\n';
  }
  return reasons.empty() ? "probes: cannot be attached; `gpuperfctl status` says more\n" : reasons;
}

HttpServer::HttpServer() : listener_(std::make_unique<HttpListener>()) {}

HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(std::string_view listen,
                                                      const prometheus::Collectable& metrics,
                                                      const SnapshotBoard& board) {
  const std::string setting = "metrics.listen: ";
  Result<HostPort> address = parse_host_port(listen);
  if (!address.ok()) {
    return Status(address.status().code(), setting + std::string(address.status().message()));
  }
  auto server = std::unique_ptr<HttpServer>(new HttpServer());
  if (const Status opened = server->listener_->open(*address); !opened.ok()) {
    return Status(opened.code(), setting + std::string(opened.message()));
  }
  server->address_ = *std::move(address);
  add_routes(*server->listener_, metrics, board);
  server->thread_ = std::thread([listener = server->listener_.get()] { listener->run(); });
  return server;
}

void HttpServer::stop() {
  listener_->stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gpuperf
