#include "daemon/probe/attach/multi_link.h"

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace gpuperf {

Result<Fd> create_multi_link(const MultiLink& link, std::string_view what) {
  const std::string path = "/proc/self/fd/" + std::to_string(link.file_fd);
  UprobeMultiLinkAttr attr;
  attr.prog_fd = static_cast<uint32_t>(link.program_fd);
  attr.attach_type = link.attach_type;
  attr.path = reinterpret_cast<uint64_t>(path.c_str());
  attr.offsets = reinterpret_cast<uint64_t>(link.offsets.data());
  attr.cookies = reinterpret_cast<uint64_t>(link.cookies.data());
  if (!link.semaphores.empty()) {
    attr.ref_ctr_offsets = reinterpret_cast<uint64_t>(link.semaphores.data());
  }
  attr.cnt = static_cast<uint32_t>(link.offsets.size());
  attr.multi_flags = link.flags;
  const long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof attr);
  if (fd < 0) return errno_status(errno, what);
  return Fd(static_cast<int>(fd));
}

}  // namespace gpuperf
