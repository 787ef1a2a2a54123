#include "daemon/app/mechanism_failure.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

namespace gpuperf {
namespace {

using Version = std::pair<int, int>;

constexpr Version kOldest{5, 15};  // the first whose uprobes carry a function's id

Version get_first_version(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::kSession:
      return {6, 13};
    case Mechanism::kMulti:
      return {6, 6};
    case Mechanism::kPerf:
      return kOldest;
  }
  return kOldest;  // only reached with a value outside the enum
}

std::string spell(Version version) {
  return std::to_string(version.first) + "." + std::to_string(version.second);
}

// Of a version that cannot be read: one that has everything.
Version read_version(const std::string& release) {
  Version version{1000, 0};
  (void)std::sscanf(release.c_str(), "%d.%d", &version.first, &version.second);
  return version;
}

}  // namespace

KernelFacts read_kernel_facts() {
  KernelFacts facts;
  utsname name{};
  if (uname(&name) == 0) facts.release = name.release;
  std::ifstream lockdown("/sys/kernel/security/lockdown");
  std::getline(lockdown, facts.lockdown);  // stays empty where there is none
  return facts;
}

Status explain_failures(const KernelFacts& kernel, std::span<const MechanismFailure> failures,
                        std::optional<Mechanism> forced) {
  const Version version = read_version(kernel.release);
  if (version < kOldest) {
    return absl::FailedPreconditionError("kernel " + kernel.release +
                                         " is too old: gpuperfd needs " + spell(kOldest) +
                                         " or later: boot a newer kernel");
  }
  const auto is_possible = [version](const MechanismFailure& failure) {
    return version >= get_first_version(failure.mechanism);
  };
  const auto cause = std::ranges::find_if(failures, is_possible);
  if (cause == failures.end()) {
    const Mechanism mechanism = forced.value_or(failures.front().mechanism);
    return absl::FailedPreconditionError(
        "kernel " + kernel.release + " has no mechanism " +
        std::string(get_mechanism_name(mechanism)) + ": it came with kernel " +
        spell(get_first_version(mechanism)) + ": start gpuperfd without --mechanism");
  }
  const std::string message(cause->status.message());
  if (kernel.lockdown.find("[confidentiality]") != std::string::npos) {
    return absl::FailedPreconditionError(
        "the kernel is locked down for confidentiality, where no BPF program may read memory: boot "
        "with lockdown=integrity or without lockdown (" +
        message + ")");
  }
  if (cause->mechanism == Mechanism::kPerf && absl::IsPermissionDenied(cause->status)) {
    return absl::PermissionDeniedError(
        message +
        ": perf events, by which kernels before 6.6 are probed, need CAP_SYS_ADMIN: add it " +
        "to CapabilityBoundingSet and AmbientCapabilities (systemctl edit gpuperfd)");
  }
  return cause->status;
}

}  // namespace gpuperf
