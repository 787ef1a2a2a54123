// The daemon's dealings with receivers of OpenTelemetry data.

#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/daemon.h"

namespace gpuperf {
namespace {

std::string read_host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Empty where there is none, as in containers.
std::string read_machine_id() {
  std::string id;
  std::ifstream("/etc/machine-id") >> id;
  return id;
}

}  // namespace

// Without a receiver that can be reached the daemon does everything else, and says so.
Status Daemon::start_otlp() {
  if (!otlp::is_wanted(start_settings_, std::getenv)) return absl::OkStatus();
  auto options = otlp::read_options(start_settings_, std::getenv);
  if (!options.ok()) {
    const std::string why(options.status().message());
    problems_.push_back(
        {"otlp", why, "nothing is sent until this is mended and gpuperfd restarted"});
    log_warn("nothing is sent over OTLP", {{"error", why}});
    return absl::OkStatus();
  }
  log_info("sending over OTLP", {{"receiver", format_host_port(options->endpoint.address)},
                                 {"tls", options->endpoint.is_encrypted ? "true" : "false"}});
  otlp_ = std::make_unique<otlp::OtlpExporter>(
      *std::move(options), otlp::OtlpExporter::Parts{.metrics = metrics_,
                                                     .clock = clock_,
                                                     .drops = drops_,
                                                     .start_unix_ns = facts_->start_unix_ns,
                                                     .version = facts_->version,
                                                     .host_name = read_host_name(),
                                                     .host_id = read_machine_id()});
  exporters_.push_back(otlp_.get());
  return absl::OkStatus();
}
void Daemon::stop_otlp() {
  std::erase(exporters_, otlp_.get());
  otlp_.reset();
}

void Daemon::add_otlp(Snapshot& snapshot) {
  if (!otlp_) return;
  otlp_problems_ = otlp_->list_problems();
  snapshot.problems.insert(snapshot.problems.end(), otlp_problems_.begin(), otlp_problems_.end());
}

}  // namespace gpuperf
