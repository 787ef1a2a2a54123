// Changes of the configuration and of single probes, as they are asked for.

#include <unistd.h>

#include <utility>

#include "daemon/base/log.h"
#include "daemon/daemon.h"

namespace gpuperf {
namespace {

constexpr LogEvent kNotReloaded{"configuration not reloaded, nothing has changed",
                                "2777bf7d3d8e4ed78e43810d4e1717c8"};

Result<Config> read_config(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_config_file(path));
  auto parsed = parse_config(text);
  if (const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed)) {
    return absl::InvalidArgumentError(render_config_errors(path, *errors));
  }
  return std::get<Config>(std::move(parsed));
}

}  // namespace

void Daemon::post_reload(Done done) {
  loop_->post([this, done = std::move(done)] { reload(done); });
}

void Daemon::post_add_probe(std::string section, std::string name, std::string value_json,
                            Done done) {
  loop_->post([this, section = std::move(section), name = std::move(name),
               value = std::move(value_json), done = std::move(done)] {
    auto parsed = parse_probe(section, name, value);
    if (const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed)) {
      return done(absl::InvalidArgumentError(render_config_errors("probe", *errors)));
    }
    put_in_force(config_.add(std::get<ProbeSpec>(std::move(parsed))), done);
  });
}

void Daemon::post_set_enabled(std::string category, std::string name, bool enabled, Done done) {
  loop_->post([this, change = ProbeOverride{std::move(category), std::move(name), enabled},
               done = std::move(done)] {
    put_in_force(config_.set_enabled(change, *registry_.get()), done);
  });
}

void Daemon::post_set_threshold(std::string category, std::string name,
                                std::optional<uint64_t> threshold_ns, Done done) {
  loop_->post([this, change = ThresholdOverride{std::move(category), std::move(name), threshold_ns},
               done = std::move(done)] {
    put_in_force(config_.set_threshold(change, *registry_.get()), done);
  });
}

void Daemon::on_reload_signal() {
  reload([](const Result<ProbeChange>& change) {
    if (!change.ok()) {
      log_error(kNotReloaded, {{"error", std::string(change.status().message())}});
      return;
    }
    log_info("configuration reloaded", {{"added", std::to_string(change->added)},
                                        {"removed", std::to_string(change->removed)},
                                        {"changed", std::to_string(change->changed)},
                                        {"unchanged", std::to_string(change->unchanged)}});
  });
}

void Daemon::reload(Done done) {
  service_.tell_reloading();
  put_in_force(reload_file(), [this, done = std::move(done)](Result<ProbeChange> change) {
    service_.tell_ready();
    done(std::move(change));
  });
}

Result<ProbeChange> Daemon::reload_file() {
  if (access(options_.config_path.c_str(), F_OK) != 0) {
    return absl::FailedPreconditionError(
        options_.config_path +
        ": there is no such file to read anew; start gpuperfd with --config FILE");
  }
  ASSIGN_OR_RETURN(Config config, read_config(options_.config_path));
  ProbeChange change = config_.replace_file(std::move(config));
  apply_settings();
  return change;
}

void Daemon::put_in_force(Result<ProbeChange> change, Done done) {
  changed_ = true;
  if (!change.ok()) return done(std::move(change));
  if (!prober_) {
    return done(absl::UnavailableError(
        "nothing can be probed: gpuperfctl status says why; the change is kept"));
  }
  prober_->post_plan(config_.make_plan(),
                     [this, change = *std::move(change), done = std::move(done)] {
                       // After the report of the change, which was posted before.
                       loop_->post([this, change, done] {
                         publish();
                         done(change);
                       });
                     });
}

}  // namespace gpuperf
