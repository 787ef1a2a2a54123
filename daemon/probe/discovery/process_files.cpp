#include "daemon/probe/discovery/process_files.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "daemon/base/proc_text.h"
#include "daemon/probe/discovery/path_walk.h"

namespace gpuperf {
namespace {

Result<OpenedFile> open_below(int root, const ProcessStatus& process, std::string_view path) {
  const std::string name = std::string(path) + " as user " + std::to_string(process.uid);
  const Result<Fd> taken = PathWalk(root, &process).find(path);
  if (!taken.ok()) {
    return Status(taken.status().code(), name + ": " + std::string(taken.status().message()));
  }
  return open_taken(*taken, name);
}

}  // namespace

// All through one descriptor of the process's folder, which is of no other process ever.
Result<ProcessFiles> ProcessFiles::open(std::string_view proc_root, uint32_t pid) {
  const std::string path = get_proc_path(proc_root, pid, "");
  const Fd folder(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return errno_status(errno, path + ": open");
  ASSIGN_OR_RETURN(ProcessStatus process,
                   read_process_status("/proc/self/fd/" + std::to_string(folder.get())));
  Fd root(::openat(folder.get(), "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return errno_status(errno, path + "root: open");
  return ProcessFiles(std::move(root), std::move(process));
}

Result<OpenedFile> ProcessFiles::open_file(std::string_view path) const {
  return open_below(root_.get(), process_, path);
}

Result<OpenedFile> open_host_file(const ProcessStatus& process, const std::string& host_root,
                                  std::string_view path) {
  const Fd root(::open((host_root + "/").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return errno_status(errno, host_root + "/: open");
  return open_below(root.get(), process, path);
}

}  // namespace gpuperf
