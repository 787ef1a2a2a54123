#pragma once

// What the daemon and its attach worker send each other (base/worker_message.h): these structs,
// both ends being the same program. The worker may have been taken over by a process that it
// attached to, so its answers are read with the care due to any input.

#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/attach/target.h"

namespace gpuperf {

enum class AttachAsk : uint32_t {
  kLook,    // how the process is
  kAttach,  // with the library's descriptor; the answer has the connection's
  kDetach,
  kAdopt,  // take the connection that the library offers; the answer has it
};

struct AttachRequest {
  AttachAsk ask = AttachAsk::kLook;
  uint32_t pid = 0;
  uint32_t accept_seccomp = 0;
};

// How a process is with respect to the library.
enum class AttachState : uint32_t {
  kNoCuda,  // not of interest
  kCannot,  // refused, for the reason given
  kCan,
  kInjected,  // at its start
  kAttached,
};
inline constexpr size_t kAttachStates = 5;

struct AttachReply {
  AttachRefusal refusal = AttachRefusal::kNone;
  AttachState state = AttachState::kNoCuda;
  uint64_t held_ns = 0;          // one thread, in all
  uint64_t longest_hold_ns = 0;  // at a time
  uint64_t took_ns = 0;
  uint64_t attached_unix_ns = 0;
  uint32_t threads_tried = 0;
  uint32_t kept_kib = 0;  // after detach
  uint32_t kept_fds = 0;
  char comm[16] = "";
  char text[512] = "";  // the refusal; what became of CUPTI
};

// Nothing: not of a reply's length, or with a state or a refusal that there is not. Texts are cut
// to be terminated.
std::optional<AttachReply> decode_attach_reply(std::string_view bytes);

}  // namespace gpuperf
