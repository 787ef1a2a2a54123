#pragma once

// Opens files that processes, perhaps hostile ones in containers, have mapped or the configuration
// names; what else a process has a say in, process_files.h opens. Every file is first taken without
// opening it (O_PATH), checked to be a regular file, and only then opened for reading through that
// very descriptor: no FIFO blocks, no device is touched, no path is resolved twice.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"
#include "daemon/probe/discovery/process_maps.h"

namespace gpuperf {

// One file's content at one time, for de-duplicating probes and caching symbols. Two containers
// that share an overlay layer show different devices for one inode, and one probe fires in both: on
// overlays the device is left out. Modification and change time tell a copy-up or a rewrite from
// the original.
struct FileIdentity {
  uint64_t device = 0;  // st_dev; 0 on overlays
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t modified_unix_ns = 0;
  int64_t changed_unix_ns = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

struct OpenedFile {
  Fd fd;  // read only
  FileIdentity identity;
  uint32_t owner_uid = UINT32_MAX;  // UINT32_MAX = not known
  uint64_t name_count = 0;          // hard links
};

// Opens the file behind a mapping: by the mapping itself; where this daemon may not (without
// CAP_CHECKPOINT_RESTORE), by its path under the process's root, or in our own root (process gone).
// Whatever links and mounts a path leads through, it is opened only where it is the mapped inode,
// which the process itself had opened for reading. FailedPrecondition when it is no regular file;
// other errors as ProcFiles.
Result<OpenedFile> open_mapped_file(const ProcFiles& files, uint32_t pid, const MapEntry& mapping);

// Opens a file named in the configuration.
Result<OpenedFile> open_named_file(const std::string& path);

// Opens a file that a process had mapped under that name before it ended. The kernel's names of
// mapped files hold no links: none is followed.
Result<OpenedFile> open_once_mapped_file(const std::string& path);

// Opens for reading what was taken (O_PATH), where it is a regular file; `name` is for messages.
Result<OpenedFile> open_taken(const Fd& taken, std::string_view name);

}  // namespace gpuperf
