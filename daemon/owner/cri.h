#pragma once

// Asks the container runtime of a Kubernetes node which pod a container belongs to.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

struct PodName {
  std::string pod;
  std::string pod_namespace;
  bool operator==(const PodName&) const = default;
};

// Where runtimes listen: containerd, k3s, CRI-O, cri-dockerd, microk8s.
const std::vector<std::string>& cri_sockets();

// The pod of the container whose id begins with `container`; nullopt when the runtime knows no such
// container, or it belongs to no pod. NotFound = none of `sockets` is there; else what the first
// one that is there answered. Blocks for a second at most. Any thread.
Result<std::optional<PodName>> find_pod(const std::vector<std::string>& sockets,
                                        std::string_view container);

}  // namespace gpuperf
