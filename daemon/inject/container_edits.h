#pragma once

// What a container needs so that its CUDA programs are injected: the same for every way.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpuperf {

// What containers ask for: a CDI device of this kind, a Kubernetes resource of this name.
inline constexpr std::string_view kInjectResource = "gpuperf.dev/inject";

struct ContainerEdits {
  struct Mount {
    std::string host_path;  // as the container runtime sees it
    std::string container_path;
    bool operator==(const Mount&) const = default;
  };
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<Mount> mounts;  // all of them read-only
  bool operator==(const ContainerEdits&) const = default;
};

// `library`: libgpuperf_injector.so; `socket_folder`: holds ingest.sock. The folder and not the
// socket: a mounted socket would stay that of the daemon that made it, and be dead after a restart.
// In the container the socket is where the library looks for it, so that nothing else must be set.
ContainerEdits make_container_edits(const std::string& library, const std::string& socket_folder);

}  // namespace gpuperf
