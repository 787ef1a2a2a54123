#include "daemon/probe/attach/loader_watch.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <span>
#include <utility>

#include "daemon/probe/attach/multi_link.h"

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
  std::string what = "attach ";
  what += kProgram;
  if (programs_.mechanism() == Mechanism::kPerf) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    bpf_link* const link = bpf_program__attach_uprobe(programs_.program(kProgram), false, -1,
                                                      path.c_str(), offset_bytes);
    if (link == nullptr) return errno_status(errno, what);
    perf_links_.push_back(link);
    return absl::OkStatus();
  }
  const uint64_t cookie = 0;
  ASSIGN_OR_RETURN(Fd link, create_multi_link({.program_fd = programs_.program_fd(kProgram),
                                               .file_fd = fd,
                                               .offsets = std::span(&offset_bytes, 1),
                                               .cookies = std::span(&cookie, 1)},
                                              what));
  links_.push_back(std::move(link));
  return absl::OkStatus();
}

}  // namespace gpuperf
