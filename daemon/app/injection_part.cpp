#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/app/leaf_parts.h"
#include "daemon/app/sessions_part.h"
#include "daemon/inject/injection_ways.h"
#include "daemon/inject/injector_file.h"
#include "daemon/inject/socket_folder.h"

namespace gpuperf {
namespace {

// What containers need to get the injected library. The folder with the socket is there whether a
// way is switched on or not: containers can also be told to mount it by hand.
class InjectionPart final : public Part {
 public:
  InjectionPart(Core& core, const SessionsPart& sessions) : Part(core), sessions_(sessions) {}

  Status start() override {
    const auto& ingest = core_.settings.ingest;
    const bool is_wanted = !ingest.cdi_spec.empty() || ingest.device_plugin;
    if (!sessions_.is_running()) {
      return is_wanted ? go_without("gpuperfd accepts no sessions") : Status();
    }
    Result<SocketFolder> folder = SocketFolder::make(core_.facts->ingest_socket);
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
    ways_ = std::make_unique<InjectionWays>(
        std::move(options), [this] { core_.loop->post([this] { core_.changed = true; }); });
    return absl::OkStatus();
  }

  void stop() override {
    ways_.reset();
    socket_folder_.reset();
  }

  void fill(Snapshot& snapshot) const override {
    if (!ways_) return;
    InjectionWays::Report report = ways_->report();
    snapshot.injection_ways = std::move(report.ways);
    for (Problem& problem : report.problems) snapshot.problems.push_back(std::move(problem));
  }

 private:
  Status go_without(std::string why) {
    add_problem({"injection", std::move(why),
                 "no container is injected until you fix this and restart gpuperfd"},
                "containers are not injected");
    return absl::OkStatus();
  }

  const SessionsPart& sessions_;
  std::optional<SocketFolder> socket_folder_;  // empty = sessions are not taken
  std::unique_ptr<InjectionWays> ways_;        // null = no way is switched on
};

}  // namespace

std::unique_ptr<Part> make_injection_part(Core& core, const SessionsPart& sessions) {
  return std::make_unique<InjectionPart>(core, sessions);
}

}  // namespace gpuperf
