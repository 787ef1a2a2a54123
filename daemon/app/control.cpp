#include "daemon/app/control.h"

#include <utility>
#include <variant>

#include "daemon/app/attach_part.h"
#include "daemon/app/overhead_part.h"
#include "daemon/app/probing_part.h"
#include "daemon/app/sessions_part.h"
#include "daemon/app/tracing_part.h"

namespace gpuperf {
namespace {

constexpr LogEvent kNotReloaded{"configuration not reloaded, nothing has changed",
                                "2777bf7d3d8e4ed78e43810d4e1717c8"};

Result<Config> read_config(const ConfigPlace& place) {
  ASSIGN_OR_RETURN(const std::vector<ConfigFile> files, read_config_files(place));
  auto parsed = parse_config(files);
  if (const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed)) {
    return absl::InvalidArgumentError(render_config_errors(place.path, *errors));
  }
  return std::get<Config>(std::move(parsed));
}

}  // namespace

void Control::post_reload(Done done) {
  core_.loop->post([this, done = std::move(done)] { reload(done); });
}

void Control::post_add_probe(std::string section, std::string name, std::string value_json,
                             Done done) {
  core_.loop->post([this, section = std::move(section), name = std::move(name),
                    value = std::move(value_json), done = std::move(done)] {
    auto parsed = parse_probe(section, name, value);
    if (const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed)) {
      return done(absl::InvalidArgumentError(render_config_errors("probe", *errors)));
    }
    put_in_force(probing_.config().add(std::get<ProbeSpec>(std::move(parsed))), done);
  });
}

void Control::post_remove_probe(std::string section, std::string name, Done done) {
  core_.loop->post(
      [this, section = std::move(section), name = std::move(name), done = std::move(done)] {
        put_in_force(probing_.config().remove(section, name), done);
      });
}

void Control::post_set_enabled(std::string category, std::string name, bool enabled, Done done) {
  core_.loop->post([this, change = ProbeOverride{std::move(category), std::move(name), enabled},
                    done = std::move(done)] {
    put_in_force(probing_.config().set_enabled(change, *core_.registry.get()), done);
  });
}

void Control::post_set_threshold(std::string category, std::string name,
                                 std::optional<uint64_t> threshold_ns, Done done) {
  core_.loop->post([this,
                    change = ThresholdOverride{std::move(category), std::move(name), threshold_ns},
                    done = std::move(done)] {
    put_in_force(probing_.config().set_threshold(change, *core_.registry.get()), done);
  });
}

void Control::on_reload_signal() {
  reload([](const Result<ProbeChange>& change) {
    if (!change.ok()) {
      log_error(kNotReloaded, {{"error", std::string(change.status().message())}});
      return;
    }
    for (const std::string& warning : change->warnings)
      log_warn("configuration", {{"warning", warning}});
    log_info("configuration reloaded", {{"added", std::to_string(change->added)},
                                        {"removed", std::to_string(change->removed)},
                                        {"changed", std::to_string(change->changed)},
                                        {"unchanged", std::to_string(change->unchanged)}});
  });
}

void Control::reload(Done done) {
  core_.service.tell_reloading();
  put_in_force(reload_file(), [this, done = std::move(done)](Result<ProbeChange> change) {
    core_.service.tell_ready();
    done(std::move(change));
  });
}

Result<ProbeChange> Control::reload_file() {
  ASSIGN_OR_RETURN(Config config, read_config(core_.options.config));
  ProbeChange change = probing_.config().replace_file(std::move(config));
  core_.apply_settings();
  return change;
}

void Control::put_in_force(Result<ProbeChange> change, Done done) {
  core_.changed = true;
  if (!change.ok()) return done(std::move(change));
  const bool is_posted = probing_.post_plan([this, change = *change, done] {
    core_.publish();
    done(change);
  });
  if (is_posted) return;
  done(absl::FailedPreconditionError(
      "nothing can be probed: gpuperfctl status says why; the change is kept"));
}

void Control::post_measure_overhead(int64_t duration_ns, Done done) {
  core_.loop->post([this, duration_ns, done = std::move(done)] {
    const Status begun = overhead_.begin(duration_ns);
    core_.publish();
    if (!begun.ok()) return done(begun);
    done(ProbeChange{});
  });
}

void Control::post_overhead_demand(OverheadDemand::Kind kind, int64_t duration_ns,
                                   std::string reason, Done done) {
  core_.loop->post([this, kind, duration_ns, reason = std::move(reason), done = std::move(done)] {
    overhead_.end(kind == OverheadDemand::Kind::kNone ? "release" : "a demand: " + reason);
    put_in_force(probing_.set_demand({.kind = kind,
                                      .until_mono_ns = core_.clock.mono_ns() + duration_ns,
                                      .reason = kind == OverheadDemand::Kind::kNone ? "" : reason}),
                 done);
  });
}

void Control::post_session_order(const SessionTarget& target, const SessionOrder& order,
                                 SessionsDone done) {
  core_.loop->post(
      [this, target, order, done = std::move(done)] { sessions_.post_order(target, order, done); });
}

void Control::post_attach(const AttachOrder& order, AttachDone done) {
  core_.loop->post([this, order, done = std::move(done)] { attach_.post_attach(order, done); });
}

void Control::post_detach(uint32_t pid, AttachDone done) {
  core_.loop->post([this, pid, done = std::move(done)] { attach_.post_detach(pid, done); });
}

void Control::post_list_attachable(AttachListDone done) {
  core_.loop->post([this, done = std::move(done)] { attach_.post_list(done); });
}

void Control::post_start_capture(const CaptureOrder& order, CaptureDone done) {
  core_.loop->post([this, order, done = std::move(done)] {
    if (core_.demand.kind == OverheadDemand::Kind::kStandDown) {
      return done(absl::FailedPreconditionError(
          "nothing is observed: it is demanded that gpuperf stands down (" + core_.demand.reason +
          "); " + explain_end(core_.demand)));
    }
    overhead_.end("a capture began");
    auto row = tracing_->captures().start(order);
    probing_.judge_budget(core_.clock.mono_ns());
    core_.publish();
    // By then launch hooks report each launch at once, with its stack.
    const auto answer = [this, done](const Result<CaptureRow>& begun) {
      probing_.post_done([done, begun] { done(begun); });
    };
    if (!row.ok() || order.align_ms != 0) return answer(row);
    tracing_->captures().await_begin(row->id, answer);
  });
}

void Control::post_stop_capture(uint64_t id, CaptureDone done) {
  post_capture_change([this, id] { return tracing_->captures().stop(id); }, std::move(done));
}

void Control::post_freeze_recorder(const FreezeOrder& order, CaptureDone done) {
  post_capture_change([this, order] { return tracing_->captures().freeze(order); },
                      std::move(done));
}

void Control::post_delete_capture(uint64_t id, CaptureDone done) {
  post_capture_change([this, id] { return tracing_->captures().remove(id); }, std::move(done));
}

void Control::post_capture_change(std::function<Result<CaptureRow>()> change, CaptureDone done) {
  core_.loop->post([this, change = std::move(change), done = std::move(done)] {
    const auto row = change();
    core_.publish();
    done(row);
  });
}

}  // namespace gpuperf
