#include "daemon/probe/attach/loader_watch.h"

#include <span>

namespace gpuperf {

Status LoaderWatch::watch(int fd, const FileIdentity& identity, uint64_t offset_bytes) {
  if (watched_.contains(identity)) return absl::OkStatus();
  if (watched_.size() >= kMaxLoaders) {
    return absl::ResourceExhaustedError("more than 64 dynamic loaders on this host");
  }
  watched_.insert(identity);  // tried once
  const ProbePlace place{.offset_bytes = offset_bytes};
  return add_probe_links(programs_, {.fd = fd, .name = "dynamic loader"}, "note_code_change",
                         std::span(&place, 1), links_);
}

}  // namespace gpuperf
