#include "daemon/app/sessions_part.h"

#include <string>
#include <utility>

#include "daemon/app/session_intake.h"
#include "daemon/owner/cri.h"

namespace gpuperf {

SessionsPart::SessionsPart(Core& core)
    : Part(core),
      statistics_({.keep_exited = std::chrono::seconds(core.settings.stats.keep_exited_seconds),
                   .max_exited_processes = core.settings.stats.max_exited_processes},
                  core.drops),
      registry_({.keep_closed = std::chrono::seconds(core.settings.stats.keep_exited_seconds),
                 .max_closed = core.settings.stats.max_exited_processes},
                core.drops) {
  statistics_.follow(registry_);
  log_.follow(registry_);
}

Status SessionsPart::start() {
  pod_names_ = std::make_unique<PodNames>(
      [](const std::string& container) { return find_pod(cri_sockets(), container); }, core_.drops);
  if (!core_.settings.ingest.enabled) return absl::OkStatus();
  auto source = make_session_source(
      core_.settings, core_.options.runtime_dir,
      {.clock = core_.clock, .drops = core_.drops, .pod_names = *pod_names_, .on_batch = [this] {
         core_.loop->post([this] { take_events(); });
       }});
  // Another daemon's processes are not to be taken over.
  if (absl::IsAlreadyExists(source.status())) return source.status();
  if (!source.ok()) {
    add_problem({"sessions", std::string(source.status().message()),
                 "no process can tell what its GPU does until this is mended and gpuperfd "
                 "restarted; ingest.enabled = false says that none is wanted"},
                "no sessions");
    return absl::OkStatus();
  }
  source_ = *std::move(source);
  source_->start();
  core_.facts->ingest_socket = find_ingest_socket(core_.settings, core_.options.runtime_dir);
  return absl::OkStatus();
}

void SessionsPart::stop() {
  if (source_) {
    source_->stop();
    take_events();
    source_.reset();
  }
  pod_names_.reset();
}

void SessionsPart::apply_settings(const Settings& settings) {
  const std::chrono::seconds keep(settings.stats.keep_exited_seconds);
  registry_.set_keep_closed(keep);
  statistics_.set_keep_exited(keep);
}

void SessionsPart::advance(int64_t now_mono_ns) {
  registry_.expire(now_mono_ns);
  statistics_.expire(now_mono_ns);
}

void SessionsPart::fill(Snapshot& snapshot) const {
  registry_.fill(snapshot.gpu);
  statistics_.fill(snapshot.gpu);
}

void SessionsPart::take_events() {
  if (source_ == nullptr) return;  // posted before the stop, run after it: all was taken
  const int64_t now_mono_ns = core_.clock.mono_ns();
  while (auto batch = source_->try_pop()) {
    for (const SessionEvent& event : *batch) registry_.apply(event, now_mono_ns);
    core_.changed = true;
  }
}

void SessionsPart::post_order(const SessionTarget& target, const SessionOrder& order,
                              ControlPort::SessionsDone done) {
  if (source_ == nullptr) {
    return done(absl::UnavailableError("sessions of injected processes are not taken"));
  }
  source_->post_order(target, order, [this, done = std::move(done)](Result<size_t> told) {
    core_.loop->post([done, told = std::move(told)] { done(told); });
  });
}

}  // namespace gpuperf
