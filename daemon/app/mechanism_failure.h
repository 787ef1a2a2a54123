#pragma once

#include <optional>
#include <span>
#include <string>

#include "daemon/base/result.h"
#include "daemon/probe/attach/programs.h"

namespace gpuperf {

struct MechanismFailure {
  Mechanism mechanism = Mechanism::kSession;
  Status status;
};

struct KernelFacts {
  std::string release;   // as of uname(2)
  std::string lockdown;  // of securityfs, "none [integrity] confidentiality"; empty = not there
};
KernelFacts read_kernel_facts();

// Why no probe can be attached, in words that say what to do. `failures`: of the mechanisms tried,
// in the order tried, at least one. `forced`: no other was to be tried. What a kernel of that
// version lacks by nature is no cause: the failure of the best mechanism that it has is.
Status explain_failures(const KernelFacts& kernel, std::span<const MechanismFailure> failures,
                        std::optional<Mechanism> forced);

}  // namespace gpuperf
