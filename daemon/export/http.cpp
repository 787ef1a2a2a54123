#include "daemon/export/http.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/base/work_watch.h"
#include "daemon/export/http_listener.h"
#include "daemon/export/prometheus.h"

namespace gpuperf {
namespace {

constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kOpenMetricsText[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

constexpr char kIndex[] =
    "gpuperfd\n"
    "/metrics  Prometheus metrics\n"
    "/healthz  200 while the daemon lives\n"
    "/readyz   200 once probes can be attached and data is there, else 503 and why\n";
constexpr char kPageLine[] = "/ui/      the web page\n";
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

HttpResponse answer_alert(const HttpServer::OnAlert& on_alert, const HttpRequest& request) {
  if (is_resolved(request.body)) {
    return make_text_response(200, "nothing to do: the alert is over\n");
  }
  std::string name;
  for (const auto& [key, value] : parse_query(request.query)) {
    if (key == "name" && name.empty()) name = value.substr(0, kMaxAlertNameBytes);
  }
  if (on_alert(name)) return make_text_response(202, "the flight recorder is frozen\n");
  return make_text_response(429, "frozen less than a minute ago: that capture has it\n");
}

HttpResponse answer_index(bool has_page, const HttpRequest& request) {
  // A browser keeps what stands behind the # of the address.
  if (has_page && find_header(request, "Accept").find("text/html") != std::string_view::npos) {
    return make_redirect("/ui/");
  }
  return make_text_response(200, has_page ? std::string(kIndex) + kPageLine : kIndex);
}

// By what the threads themselves say: a loop that hangs publishes nothing.
std::string describe_late_work() {
  std::string text;
  for (const WorkAtHand& work : list_late_work()) {
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(work.age);
    text += "thread " + work.thread + ": at one piece of work for " + std::to_string(age.count()) +
            " s\n";
  }
  return text;
}

HttpResponse answer_readiness(const SnapshotBoard& board) {
  const std::string reasons = describe_late_work() + explain_not_ready(*board.get());
  return make_text_response(reasons.empty() ? 200 : 503, reasons.empty() ? "ready\n" : reasons);
}

// What makes the answer to a scrape in one of its forms.
std::function<HttpResponse()> make_metrics_answer(const HttpServer::Parts& parts,
                                                  MetricsFormat format, bool is_packed) {
  return [&metrics = parts.metrics, list_exemplars = parts.list_exemplars, format, is_packed] {
    const bool is_open = format == MetricsFormat::kOpenMetrics;
    const Exemplars exemplars = is_open && list_exemplars ? list_exemplars() : Exemplars();
    HttpResponse response{.media_type = is_open ? kOpenMetricsText : kMetricsText};
    if (is_packed) response.headers = {{"Content-Encoding", "gzip"}};
    response.body = make_body(is_packed ? render_metrics_gzip(metrics, format, exemplars)
                                        : render_metrics_text(metrics, format, exemplars));
    return response;
  };
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

HttpServer::HttpServer(const Parts& parts)
    : plain_metrics_(make_metrics_answer(parts, MetricsFormat::kPrometheus, false), parts.drops),
      gzip_metrics_(make_metrics_answer(parts, MetricsFormat::kPrometheus, true), parts.drops),
      plain_open_metrics_(make_metrics_answer(parts, MetricsFormat::kOpenMetrics, false),
                          parts.drops),
      gzip_open_metrics_(make_metrics_answer(parts, MetricsFormat::kOpenMetrics, true),
                         parts.drops) {}

HttpServer::~HttpServer() { stop(); }

// Prometheus names OpenMetrics before its own text where it stores exemplars or asks for either.
SharedAnswer& HttpServer::find_metrics(const HttpRequest& request) {
  const bool is_packed = accepts_gzip(request);
  const bool is_open =
      find_header(request, "Accept").find("application/openmetrics-text") != std::string_view::npos;
  if (is_open) return is_packed ? gzip_open_metrics_ : plain_open_metrics_;
  return is_packed ? gzip_metrics_ : plain_metrics_;
}

std::vector<HttpRoute> HttpServer::make_routes(Parts parts) {
  std::vector<HttpRoute> routes = {
      {"GET", "/metrics",
       [this](const HttpRequest& request, const HttpReply& reply) {
         find_metrics(request).post(reply);
       }},
      {"GET", "/healthz",
       answer_at_once([](const HttpRequest&) { return make_text_response(200, "ok\n"); })},
      {"GET", "/readyz", answer_at_once([&board = parts.board](const HttpRequest&) {
         return answer_readiness(board);
       })},
      {"GET", "/", answer_at_once([has_page = !parts.page.empty()](const HttpRequest& request) {
         return answer_index(has_page, request);
       })},
  };
  if (parts.on_alert) {
    routes.push_back(
        {"POST", "/freeze",
         answer_at_once([on_alert = std::move(parts.on_alert)](const HttpRequest& request) {
           return answer_alert(on_alert, request);
         })});
  }
  std::ranges::move(parts.page, std::back_inserter(routes));
  routes.push_back({"", "*", answer_at_once([](const HttpRequest&) {
                      return make_text_response(404, kNotFound);
                    })});
  return routes;
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(std::string_view listen, Parts parts) {
  const std::string setting = "metrics.listen: ";
  Result<HostPort> address = parse_host_port(listen);
  if (!address.ok()) {
    return Status(address.status().code(), setting + std::string(address.status().message()));
  }
  auto server = std::unique_ptr<HttpServer>(new HttpServer(parts));
  DropCounters& drops = parts.drops;
  auto listener =
      HttpListener::start(*address, server->make_routes(std::move(parts)), HttpLimits(), drops);
  if (!listener.ok()) {
    return Status(listener.status().code(), setting + std::string(listener.status().message()));
  }
  server->address_ = *std::move(address);
  server->listener_ = *std::move(listener);
  return server;
}

void HttpServer::fill(SelfReport& report) { listener_->fill(report); }

void HttpServer::stop() {
  if (listener_) listener_->stop();
}

}  // namespace gpuperf
