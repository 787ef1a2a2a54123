#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/proc_text.h"
#include "daemon/base/result.h"

namespace gpuperf {

// The files of processes under /proc, of living and hostile ones.
//
// Some wait for the lock of a process's memory, or for its pages: maps, environ, map_files and the
// like. A process can keep both for ever, so the daemon reads these here and nowhere else, and has
// a worker do it (ProcessReader::make_files in unwind/). All others (stat, status, cgroup, comm,
// exe, root, ns, task) take no such lock and are opened by their path below root(). See
// docs/decisions/0024-process-reader.md.
//
// Value; thread: any. Errors: NotFound = the process is gone; those that is_put_off() knows = not
// read for now.
class ProcFiles {
 public:
  // How those that may wait are read.
  struct Ways {
    // At most so many bytes.
    std::function<Result<BoundedText>(uint32_t pid, size_t max_bytes)> read_maps;
    std::function<Result<BoundedText>(uint32_t pid, size_t max_bytes)> read_environment;
    // The mapped file of an address range ("7f01-7f02"), not opened (O_PATH).
    std::function<Result<Fd>(uint32_t pid, const std::string& range)> take_mapped;
  };

  // Read by the calling thread, which waits for as long as the process likes: for tests, and for
  // the daemon's own. `root` is "/proc", or a tree made by a test.
  ProcFiles(std::string root = "/proc");
  ProcFiles(const char* root) : ProcFiles(std::string(root)) {}
  ProcFiles(std::string root, Ways ways) : root_(std::move(root)), ways_(std::move(ways)) {}

  const std::string& root() const { return root_; }
  Result<BoundedText> read_maps(uint32_t pid, size_t max_bytes) const {
    return ways_.read_maps(pid, max_bytes);
  }
  Result<BoundedText> read_environment(uint32_t pid, size_t max_bytes) const {
    return ways_.read_environment(pid, max_bytes);
  }
  Result<Fd> take_mapped(uint32_t pid, const std::string& range) const {
    return ways_.take_mapped(pid, range);
  }

 private:
  std::string root_;
  Ways ways_;
};

// It took too long, or its user is to wait: to be tried again later.
bool is_put_off(const Status& status);

}  // namespace gpuperf
