#pragma once

#include <string>

#include "daemon/base/result.h"

namespace gpuperf {

// Gives up, for this process and all that it starts, every right that the daemon does not need: all
// capabilities but CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH and, where it is had,
// CAP_SYSLOG (names of the kernel's functions), CAP_NET_BIND_SERVICE (ports below 1024),
// CAP_CHECKPOINT_RESTORE (mapped files that were deleted) and CAP_SYS_ADMIN where probes go through
// perf (`through_perf`, and kernels before 6.6, which cannot attach uprobes to many places at once)
// or kernel.perf_event_paranoid is above 2, which takes it; new rights through executed files, and
// the system calls that change the machine, other processes or namespaces. Root joins `group`
// first, so that its sockets can be given to that group without a capability.
//
// Thread: main, before any other starts. Error: what the kernel refused; what was given up before
// stays so.
Status drop_rights(const std::string& group, bool through_perf);

// The same for the one thread that starts the worker that attaches to processes (ProcessAttacher):
// it, and what it starts, keep the system calls for that, which all others give up. The worker
// gives up the rest.
Status drop_rights_but_attaching();

}  // namespace gpuperf
