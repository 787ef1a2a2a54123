#include "daemon/app/otlp_part.h"

#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "daemon/base/log.h"

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

Status OtlpPart::start() {
  if (!otlp::is_wanted(core_.settings, std::getenv)) return absl::OkStatus();
  auto options = otlp::read_options(core_.settings, std::getenv);
  if (!options.ok()) {
    add_problem({"otlp", std::string(options.status().message()),
                 "nothing is sent until you fix this and restart gpuperfd"},
                "nothing is sent over OTLP");
    return absl::OkStatus();
  }
  log_info("sending over OTLP", {{"receiver", format_host_port(options->endpoint.address)},
                                 {"tls", options->endpoint.is_encrypted ? "true" : "false"}});
  exporter_ = std::make_unique<otlp::OtlpExporter>(
      *std::move(options), otlp::OtlpExporter::Parts{.metrics = core_.metrics,
                                                     .clock = core_.clock,
                                                     .drops = core_.drops,
                                                     .start_unix_ns = core_.facts->start_unix_ns,
                                                     .version = core_.facts->version,
                                                     .host_name = read_host_name(),
                                                     .host_id = read_machine_id()});
  return absl::OkStatus();
}

void OtlpPart::advance(int64_t /*now_mono_ns*/) {
  if (!exporter_) return;
  auto problems = exporter_->list_problems();
  if (problems == sending_problems_) return;
  sending_problems_ = std::move(problems);
  core_.changed = true;
}

void OtlpPart::fill(Snapshot& snapshot) const {
  snapshot.problems.insert(snapshot.problems.end(), sending_problems_.begin(),
                           sending_problems_.end());
  if (exporter_) exporter_->fill(snapshot.self);
}

}  // namespace gpuperf
