#pragma once

// The part of the kernel's bpf(2) interface that is newer than Debian 12's headers (Linux 6.1).
// Values and layout: include/uapi/linux/bpf.h of Linux 6.13; the kernel never changes them.

#include <cstdint>

namespace gpuperf {

inline constexpr uint32_t kAttachUprobeMulti = 48;    // BPF_TRACE_UPROBE_MULTI, 6.6
inline constexpr uint32_t kAttachUprobeSession = 57;  // BPF_TRACE_UPROBE_SESSION, 6.13
inline constexpr uint32_t kUprobeMultiReturn = 1;     // BPF_F_UPROBE_MULTI_RETURN

// union bpf_attr for BPF_LINK_CREATE of a uprobe_multi link.
struct UprobeMultiLinkAttr {
  uint32_t prog_fd = 0;
  uint32_t target_fd = 0;
  uint32_t attach_type = 0;
  uint32_t flags = 0;
  uint64_t path = 0;  // addresses as integers, as the kernel takes them
  uint64_t offsets = 0;
  uint64_t ref_ctr_offsets = 0;
  uint64_t cookies = 0;
  uint32_t cnt = 0;
  uint32_t multi_flags = 0;
  uint32_t pid = 0;
  uint32_t pad = 0;
};
static_assert(sizeof(UprobeMultiLinkAttr) == 64);

}  // namespace gpuperf
