#include "daemon/probe/loader_watch.h"

#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "daemon/probe/kernel_abi.h"

namespace gpuperf {

LoaderWatch::~LoaderWatch() {
  for (bpf_link* link : perf_links_) (void)bpf_link__destroy(link);  // whatever it answers
}

Status LoaderWatch::watch(int fd, const FileIdentity& identity, uint64_t offset_bytes) {
  constexpr const char* kProgram = "note_code_change";
  if (watched_.contains(identity)) return absl::OkStatus();
  if (watched_.size() >= kMaxLoaders) {
    return absl::ResourceExhaustedError("more than 64 dynamic loaders on this host");
  }
  watched_.insert(identity);  // tried once
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (programs_.mechanism() == Mechanism::kPerf) {
    bpf_link* const link = bpf_program__attach_uprobe(programs_.program(kProgram), false, -1,
                                                      path.c_str(), offset_bytes);
    if (link == nullptr) return errno_status(errno, std::string("attach ") + kProgram);
    perf_links_.push_back(link);
    return absl::OkStatus();
  }
  const uint64_t cookie = 0;
  UprobeMultiLinkAttr attr;
  attr.prog_fd = static_cast<uint32_t>(programs_.program_fd(kProgram));
  attr.attach_type = kAttachUprobeMulti;
  attr.path = reinterpret_cast<uint64_t>(path.c_str());
  attr.offsets = reinterpret_cast<uint64_t>(&offset_bytes);
  attr.cookies = reinterpret_cast<uint64_t>(&cookie);
  attr.cnt = 1;
  const long link = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof attr);
  if (link < 0) return errno_status(errno, std::string("attach ") + kProgram);
  links_.emplace_back(static_cast<int>(link));
  return absl::OkStatus();
}

}  // namespace gpuperf
