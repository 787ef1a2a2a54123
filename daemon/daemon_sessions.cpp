// The daemon's dealings with injected processes.

#include <string>
#include <utility>
#include <variant>

#include "daemon/base/log.h"
#include "daemon/daemon.h"
#include "daemon/inject/injector_file.h"
#include "daemon/resolve/cri.h"

namespace gpuperf {

Status Daemon::start_sessions() {
  pod_names_ = std::make_unique<PodNames>(
      [](const std::string& container) { return find_pod(cri_sockets(), container); }, drops_);
  if (!start_settings_.ingest.enabled) return absl::OkStatus();
  auto source = make_session_source(
      start_settings_, options_.runtime_dir,
      {.clock = clock_, .drops = drops_, .pod_names = *pod_names_, .on_batch = [this] {
         loop_->post([this] { take_session_events(); });
       }});
  // Another daemon's processes are not to be taken over.
  if (absl::IsAlreadyExists(source.status())) return source.status();
  if (!source.ok()) {
    const std::string why(source.status().message());
    problems_.push_back({"sessions", why,
                         "no process can tell what its GPU does until this is mended and gpuperfd "
                         "restarted; ingest.enabled = false says that none is wanted"});
    log_warn("no sessions", {{"error", why}});
    return absl::OkStatus();
  }
  session_source_ = *std::move(source);
  session_source_->start();
  facts_->ingest_socket = find_ingest_socket(start_settings_, options_.runtime_dir);
  return absl::OkStatus();
}
void Daemon::stop_sessions() {
  if (session_source_) {
    session_source_->stop();
    take_session_events();
    session_source_.reset();
  }
  pod_names_.reset();
}

// What containers mount is there whether a way is switched on or not: they can also be told to by
// hand.
Status Daemon::start_injection() {
  const auto& ingest = start_settings_.ingest;
  const bool is_wanted = !ingest.cdi_spec.empty() || ingest.device_plugin;
  const auto go_without = [&](const std::string& why) {
    problems_.push_back(
        {"injection", why, "no container is injected until this is mended and gpuperfd restarted"});
    log_warn("no injection of containers", {{"error", why}});
    return absl::OkStatus();
  };
  if (session_source_ == nullptr) {
    return is_wanted ? go_without("sessions of injected processes are not taken") : Status();
  }
  Result<SocketFolder> folder = SocketFolder::make(facts_->ingest_socket);
  if (!folder.ok()) return go_without(std::string(folder.status().message()));
  socket_folder_.emplace(*std::move(folder));
  if (!is_wanted) return absl::OkStatus();
  InjectionWays::Options options{.cdi_spec = ingest.cdi_spec,
                                 .library = find_injector_file(ingest.injector_path),
                                 .socket = socket_folder_->socket()};
  if (ingest.device_plugin) {
    options.plugin.folder = ingest.device_plugin_dir.empty() ? "/var/lib/kubelet/device-plugins"
                                                             : ingest.device_plugin_dir;
  }
  injection_ways_ = std::make_unique<InjectionWays>(
      std::move(options), [this] { loop_->post([this] { changed_ = true; }); });
  return absl::OkStatus();
}
void Daemon::stop_injection() {
  injection_ways_.reset();
  socket_folder_.reset();
}

void Daemon::take_session_events() {
  if (session_source_ == nullptr) return;  // posted before the stop, run after it: all was taken
  const int64_t now_mono_ns = clock_.mono_ns();
  while (auto batch = session_source_->try_pop()) {
    for (SessionEvent& event : *batch) {
      gpu_sessions_.apply(event, now_mono_ns);
      std::visit([this](const auto& known) { tracing_->apply(known); }, event);
      session_intake_.take(event);
    }
    changed_ = true;
  }
}

void Daemon::post_session_order(const SessionTarget& target, const SessionOrder& order,
                                SessionsDone done) {
  loop_->post([this, target, order, done = std::move(done)] {
    if (session_source_ == nullptr) {
      return done(absl::UnavailableError("sessions of injected processes are not taken"));
    }
    session_source_->post_order(target, order, [this, done](Result<size_t> told) {
      loop_->post([done, told = std::move(told)] { done(told); });
    });
  });
}

}  // namespace gpuperf
