#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/app/leaf_parts.h"
#include "daemon/app/slow_calls_part.h"
#include "daemon/app/tracing_part.h"
#include "daemon/export/http.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/watch_hub.h"
#include "daemon/web/web_page.h"

namespace gpuperf {
namespace {

// Where a browser on this host finds the page, which answers this host only. Nowhere where it
// listens on an address that is only for others.
std::optional<HostPort> find_page_address(HostPort address) {
  if (address.host == "0.0.0.0" || address.host == "::") address.host = "127.0.0.1";
  if (!is_loopback(address)) return std::nullopt;
  return address;
}

std::vector<ConfigError> check_config(std::string_view text) {
  auto parsed = parse_config(text);
  auto* errors = std::get_if<std::vector<ConfigError>>(&parsed);
  return errors ? std::move(*errors) : std::vector<ConfigError>();
}

// Metrics over HTTP, with the page for people, and the gRPC API, which the page asks, too.
class ServingPart final : public Part {
 public:
  ServingPart(Core& core, SlowCallsPart& slow_calls, TracingPart& tracing, ControlPort& control)
      : Part(core), slow_calls_(slow_calls), tracing_(tracing), control_(control) {}

  Status start() override {
    if (!core_.settings.metrics.listen.empty()) {
      RETURN_IF_ERROR(start_metrics());
    }
    return core_.settings.grpc.listen.empty() ? absl::OkStatus() : start_api();
  }

  void stop() override {
    if (page_) page_->set_api(nullptr, nullptr);
    api_.reset();
    http_.reset();
    page_.reset();
  }

  void fill(Snapshot& snapshot) const override {
    core_.metrics.fill(snapshot.self);
    if (http_) http_->fill(snapshot.self);
    if (api_) api_->fill(snapshot.self);
  }

 private:
  Status start_metrics() {
    const Settings& settings = core_.settings;
    HttpServer::OnAlert on_alert;
    if (settings.trace.freeze_on_alert) {
      on_alert = [this](const std::string& name) { return tracing_->post_alert(name); };
    }
    if (settings.metrics.page) make_page();
    ASSIGN_OR_RETURN(
        http_,
        HttpServer::start(settings.metrics.listen,
                          {.metrics = core_.metrics,
                           .board = core_.board,
                           .drops = core_.drops,
                           .on_alert = on_alert,
                           .list_exemplars = [this] { return core_.metrics.list_exemplars(); },
                           .page = page_ ? page_->list_routes() : std::vector<HttpRoute>()}));
    core_.facts->metrics_address = format_host_port(http_->address());
    const std::optional<HostPort> address = find_page_address(http_->address());
    if (page_ && address) {
      log_info("page", {{"address", "http://" + format_host_port(*address) + "/"},
                        {"token_file", page_->tokens().read.path()}});
    }
    return absl::OkStatus();
  }

  // Without it everything else works.
  void make_page() {
    auto page = WebPage::make({.folder = core_.options.runtime_dir}, core_.clock, core_.drops);
    if (page.ok()) {
      page_ = *std::move(page);
      return;
    }
    add_problem({"page", std::string(page.status().message()),
                 "fix this and restart gpuperfd, or set metrics.page = false"},
                "no page");
  }

  Status start_api() {
    core_.publish();  // requests before all parts have started see those that have
    watch_hub_ = std::make_unique<WatchHub>(core_.drops);
    const auto& grpc = core_.settings.grpc;
    ASSIGN_OR_RETURN(api_, RpcServer::start({.listen = grpc.listen,
                                             .tls = {.cert_file = grpc.cert_file,
                                                     .key_file = grpc.key_file,
                                                     .client_ca_file = grpc.client_ca_file}},
                                            {.board = core_.board,
                                             .drops = core_.drops,
                                             .clock = core_.clock,
                                             .watch = *watch_hub_,
                                             .check_config = check_config,
                                             .store = slow_calls_.store(),
                                             .captures = tracing_->captures().store()},
                                            &control_));
    slow_calls_.add_exporter(*watch_hub_);
    if (page_) open_page_channels();
    return absl::OkStatus();
  }

  void open_page_channels() {
    const auto read = api_->open_channel(Caller::kOther);
    const auto change = api_->open_channel(Caller::kRoot);
    if (!read || !change) return log_warn("the page cannot reach the API", {});
    page_->set_api(std::make_shared<ApiStubs>(read), std::make_shared<ApiStubs>(change));
  }

  SlowCallsPart& slow_calls_;
  TracingPart& tracing_;
  ControlPort& control_;
  std::unique_ptr<WebPage> page_;  // null = not wanted, or it has no tokens
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WatchHub> watch_hub_;  // closed by the stop, an exporter to the end
  std::unique_ptr<RpcServer> api_;
};

}  // namespace

std::unique_ptr<Part> make_serving_part(Core& core, SlowCallsPart& slow_calls, TracingPart& tracing,
                                        ControlPort& control) {
  return std::make_unique<ServingPart>(core, slow_calls, tracing, control);
}

}  // namespace gpuperf
