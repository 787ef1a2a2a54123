#pragma once

#include <sys/types.h>

#include <optional>
#include <span>

#include "daemon/base/result.h"

namespace gpuperf {

// For this thread and those it starts, for good: `allowed` calls alone, others fail with EPERM; of
// tgkill, which abort() needs, only what reaches `self`; of openat, unless it is among `allowed`,
// only what has exactly the flags `open_flags`. Calls of 32-bit programs end the process. Needs
// no_new_privs or CAP_SYS_ADMIN.
Status allow_syscalls(std::span<const unsigned> allowed, pid_t self,
                      std::optional<unsigned> open_flags);

// Likewise all calls but the `refused`.
Status refuse_syscalls(std::span<const unsigned> refused);

}  // namespace gpuperf
