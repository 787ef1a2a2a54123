#pragma once

#include <cstdint>
#include <string>

#include "daemon/model/function.h"

namespace gpuperf {

// How a process is with respect to attaching, or what attaching to it or detaching from it came to.
struct AttachRow {
  ProcessKey process;
  Owner owner;
  // "injected", "attached", "can", "cannot": in it from its start, in it since, may be attached to,
  // may not.
  std::string state;
  std::string reason;            // of "cannot": "no_cuda", "traced", ... (daemon/attach/target.h)
  std::string detail;            // why, for people; after a detach what became of CUPTI
  std::string hint;              // what to do next
  uint64_t held_ns = 0;          // one of its threads, in all; 0 = none was
  uint64_t longest_hold_ns = 0;  // at a time
  uint64_t took_ns = 0;
  uint64_t attached_unix_ns = 0;
  uint32_t threads_tried = 0;
  uint32_t kept_kib = 0;  // what detaching left in it
  uint32_t kept_fds = 0;
  bool operator==(const AttachRow&) const = default;
};

// Which process to attach to.
struct AttachOrder {
  uint32_t pid = 0;
  bool accept_seccomp = false;  // also where its filter cannot be read
};

// How an attached process's session began.
struct AttachFacts {
  uint64_t held_ns = 0;
  uint64_t attached_unix_ns = 0;  // 0 = not attached: injected at its start
  bool operator==(const AttachFacts&) const = default;
};

}  // namespace gpuperf
