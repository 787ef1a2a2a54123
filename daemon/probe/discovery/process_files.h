#pragma once

#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/process_status.h"
#include "daemon/base/result.h"
#include "daemon/probe/discovery/file_opener.h"

namespace gpuperf {

// Opens files whose paths a process, perhaps a hostile one, has a say in: perf maps, debug files
// that its libraries name.
//
// This daemon may read every file; a process must not make it read one that its user could not. So
// a path is walked one name at a time, and each step asks what that user may do: folders on the way
// must let him pass and the file must let him read, by owner, groups and mode; root may do
// everything. Links are followed where root or that user made them. None leads out of the root that
// the path begins at, and neither a mount nor a link changes whose rights count. What is no regular
// file is not opened.
//
// Value; any thread. Holds on to the process it was made for: a later one with the same pid is not
// taken for it.
class ProcessFiles {
 public:
  // NotFound when the process is gone.
  static Result<ProcessFiles> open(std::string_view proc_root, uint32_t pid);

  const ProcessStatus& process() const { return process_; }

  // `path` as the process sees it. NotFound = nothing is there; PermissionDenied = its user may not
  // read it.
  Result<OpenedFile> open_file(std::string_view path) const;

 private:
  ProcessFiles(Fd root, ProcessStatus process)
      : root_(std::move(root)), process_(std::move(process)) {}

  Fd root_;
  ProcessStatus process_;
};

// `path` as this daemon sees it, below `host_root` (a test's tree; empty = "/"), by the same rules.
Result<OpenedFile> open_host_file(const ProcessStatus& process, const std::string& host_root,
                                  std::string_view path);

}  // namespace gpuperf
