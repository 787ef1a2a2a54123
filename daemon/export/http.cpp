#include "daemon/export/http.h"

#include <utility>

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
constexpr char kPageLine[] = "/ui/      the page for people, in a browser\n";
constexpr char kNotFound[] =
    "not found: gpuperfd serves /metrics, /healthz and /readyz (GET, HEAD)\n";

constexpr size_t kMaxAlertNameBytes = 100;

// Alertmanager tells of the end of alerts, too, in the same way.
bool is_resolved(const std::string& body) {
  std::string dense;
  for (const char c : body) {
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') dense += c;
  }
  return dense.find("\"status\":\"resolved\"") != std::string::npos &&
         dense.find("\"status\":\"firing\"") == std::string::npos;
}

void answer_alert(const HttpServer::OnAlert& on_alert, const httplib::Request& request,
                  httplib::Response& response) {
  if (is_resolved(request.body)) {
    return response.set_content("nothing to do: the alert is over\n", kPlainText);
  }
  if (on_alert(request.get_param_value("name").substr(0, kMaxAlertNameBytes))) {
    response.status = 202;
    return response.set_content("the flight recorder is frozen\n", kPlainText);
  }
  response.status = 429;
  response.set_content("frozen less than a minute ago: that capture has it\n", kPlainText);
}

bool wants_html(const httplib::Request& request) {
  return request.get_header_value("Accept").find("text/html") != std::string::npos;
}

void add_routes(HttpListener& listener, const prometheus::Collectable& metrics,
                const SnapshotBoard& board, HttpServer::OnAlert on_alert,
                const HttpServer::AddPage& add_page) {
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
  if (on_alert) {
    listener.Post("/freeze",
                  [on_alert = std::move(on_alert)](const Request& request, Response& response) {
                    answer_alert(on_alert, request, response);
                  });
  }
  if (add_page) add_page(listener);
  listener.Get("/", [has_page = add_page != nullptr](const Request& request, Response& response) {
    // A browser keeps what stands behind the # of the address.
    if (has_page && wants_html(request)) return response.set_redirect("/ui/");
    response.set_content(has_page ? std::string(kIndex) + kPageLine : kIndex, kPlainText);
  });
  listener.set_error_handler([](const Request&, Response& response) {
    if (response.status == 404 && response.body.empty())
      response.set_content(kNotFound, kPlainText);
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
                                                      const SnapshotBoard& board, OnAlert on_alert,
                                                      const AddPage& add_page) {
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
  add_routes(*server->listener_, metrics, board, std::move(on_alert), add_page);
  server->thread_ = std::thread([listener = server->listener_.get()] { listener->run(); });
  return server;
}

void HttpServer::stop() {
  listener_->stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gpuperf
