#pragma once

namespace gpuperf {

// What every message says where a right is missing: all that the daemon needs, as its unit has it
// (deploy/systemd/gpuperfd.service).
inline constexpr const char* kNeededRights =
    "run gpuperfd as root, or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";

}  // namespace gpuperf
