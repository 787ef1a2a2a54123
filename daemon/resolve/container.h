#pragma once

// Which container and pod a process runs in, from its control groups.

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/model/function.h"

namespace gpuperf {

struct ContainerIds {
  std::string container;  // the first 12 of its 64 hexadecimal digits; empty = none
  std::string pod_uid;    // as Kubernetes writes it, with dashes; empty = none
  bool operator==(const ContainerIds&) const = default;
};

// Reads the text of /proc/PID/cgroup, v1 or v2. Of nested containers the innermost counts. Known:
// docker, containerd, CRI-O, podman, ECS, and Kubernetes over each with either cgroup driver;
// whatever names a control group by a 64-digit id works. A container that sees only its own control
// groups (a cgroup namespace read from inside) shows none.
ContainerIds parse_cgroup(std::string_view text);

// Owner of a living process; what cannot be read stays empty. `pod` is the pod's uid: its name and
// namespace are not known here. Any thread; reads two small files.
Owner read_owner(uint32_t pid);
Owner read_owner_below(std::string_view proc_root, uint32_t pid);

}  // namespace gpuperf
