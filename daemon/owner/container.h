#pragma once

// Which container and pod a process runs in, from its control groups.

#include <span>
#include <string>
#include <string_view>

#include "bpf/records.h"
#include "daemon/base/proc_files.h"
#include "daemon/model/function.h"
#include "daemon/owner/world.h"

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

// The same of the names of one cgroup and those above it, innermost first; empty ones are skipped.
ContainerIds parse_cgroup_names(std::span<const std::string_view> names);

// Who a process belongs to. `info`, null where the kernel kept none, is what holds for processes
// that have gone already; what it does not tell is read from /proc while that process lives, and
// stays empty otherwise: cgroups of version 1, outer cgroups, the name, the Slurm job. `comm` may
// be that of a changed name. `pod` is the pod's uid: its name and namespace are not known here. Any
// thread; reads four small files. `world`, where not null, becomes what its launcher says.
Owner read_owner(const ProcFiles& files, const ProcessKey& process,
                 const gpuperf_process_info* info, WorldTask* world = nullptr);

}  // namespace gpuperf
