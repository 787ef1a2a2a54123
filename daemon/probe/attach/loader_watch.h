#pragma once

#include <set>

#include "daemon/base/result.h"
#include "daemon/probe/attach/probe_links.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/discovery/file_opener.h"

namespace gpuperf {

// Counts the changes that dynamic loaders make to what processes have mapped, by a probe on the
// function they call for debuggers (_dl_debug_state: glibc, musl).
//
// Thread: one. `programs` must outlive it; destroying it removes the probes. A loader is watched as
// long as the daemon runs: there are a few on a host. A call costs its process some microseconds,
// twice for each dlopen, dlclose and program start.
class LoaderWatch {
 public:
  explicit LoaderWatch(const Programs& programs) : programs_(programs) {}
  LoaderWatch(const LoaderWatch&) = delete;
  LoaderWatch& operator=(const LoaderWatch&) = delete;

  // Watches a loader's file, once; `offset_bytes`: of that function in it.
  Status watch(int fd, const FileIdentity& identity, uint64_t offset_bytes);

 private:
  static constexpr size_t kMaxLoaders = 64;

  const Programs& programs_;
  std::set<FileIdentity> watched_;
  ProbeLinks links_;
};

}  // namespace gpuperf
