#include "daemon/inject/injection_ways.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/work_watch.h"
#include "daemon/inject/cdi_spec.h"
#include "daemon/inject/injector_file.h"

namespace gpuperf {
namespace {

std::string get_folder(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

Status check_socket(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) return absl::OkStatus();
  return absl::UnavailableError(path + ": the ingest socket was removed; restart gpuperfd");
}

Status check_health(const std::string& library, const std::string& socket) {
  RETURN_IF_ERROR(check_injector_file(library));
  return check_socket(socket);
}

std::string get_text(const Status& status) { return std::string(status.message()); }

}  // namespace

InjectionWays::InjectionWays(Options options, std::function<void()> on_change)
    : options_(std::move(options)),
      on_change_(std::move(on_change)),
      cdi_text_(
          render_cdi_spec(make_container_edits(options_.library, get_folder(options_.socket)))),
      plugin_(options_.plugin.folder.empty()
                  ? nullptr
                  : std::make_unique<DevicePlugin>(
                        options_.plugin,
                        make_container_edits(options_.library, get_folder(options_.socket)))),
      thread_([this] { run(); }) {}

InjectionWays::~InjectionWays() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (plugin_) plugin_->cancel();
  thread_.join();
}

InjectionWays::Report InjectionWays::report() const {
  const MutexLock lock(mutex_);
  return report_;
}

void InjectionWays::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    {
      const Work work("inject");
      publish(look());
    }
    lock.lock();
    const auto next_look = std::chrono::steady_clock::now() + options_.interval;
    while (!stopping_ && wake_.wait_until(lock, next_look)) continue;
  }
}

InjectionWays::Report InjectionWays::look() {
  Report report;
  const Status health = check_health(options_.library, options_.socket);
  if (!health.ok()) {
    report.problems.push_back({"injection", get_text(health),
                               "until this is fixed, containers that request injection wait or "
                               "start without it: docs/injection.md"});
  }
  const auto add = [&](const char* name, const Status& status, std::string working,
                       const char* hint) {
    const Status& fault = health.ok() ? status : health;
    report.ways.push_back({name, fault.ok(), fault.ok() ? std::move(working) : get_text(fault)});
    if (health.ok() && !status.ok())
      report.problems.push_back({"injection", get_text(status), hint});
  };
  if (!options_.cdi_spec.empty()) {
    add("cdi", look_at_cdi(health),
        options_.cdi_spec + ": --device " + std::string(kInjectResource) + "=all",
        "gpuperfd retries every second; if you do not need it, set ingest.cdi_spec = \"\"");
  }
  if (plugin_) {
    add("device_plugin", plugin_->update(health),
        std::string(kInjectResource) + ": " + std::to_string(kInjectDevices) +
            " devices, registered with " + plugin_->kubelet_socket(),
        "gpuperfd keeps retrying; on a Kubernetes node, give gpuperfd access to the kubelet's "
        "folder, elsewhere set ingest.device_plugin = false");
  }
  return report;
}

// Written once, and again when it has gone; somebody's later changes are theirs.
Status InjectionWays::look_at_cdi(const Status& health) {
  if (!health.ok()) return cdi_written_;
  if (cdi_written_.ok() && access(options_.cdi_spec.c_str(), F_OK) == 0) return cdi_written_;
  cdi_written_ = write_cdi_spec(options_.cdi_spec, cdi_text_);
  return cdi_written_;
}

void InjectionWays::publish(Report report) {
  {
    const MutexLock lock(mutex_);
    if (report == report_) return;
    for (const InjectionWay& way : report.ways) {
      if (std::ranges::find(report_.ways, way) != report_.ways.end()) continue;
      (way.is_working ? log_info : log_warn)(
          way.is_working ? "injection works" : "injection does not work",
          {{"way", way.name}, {"detail", way.detail}});
    }
    report_ = std::move(report);
  }
  on_change_();
}

}  // namespace gpuperf
