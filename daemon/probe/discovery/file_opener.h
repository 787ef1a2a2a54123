#pragma once

// Opens files that processes, perhaps hostile ones in containers, have mapped or the configuration
// names. Every file is first taken without opening it (O_PATH), checked to be a regular file, and
// only then opened for reading through that very descriptor: no FIFO blocks, no device is touched,
// no path is resolved twice.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
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
};

// Opens the file behind a mapping: by its path under the process's root where that still is the
// mapped inode; by the mapping itself (deleted or replaced files, chroots); by the path in our own
// root (process gone). FailedPrecondition when it is no regular file.
Result<OpenedFile> open_mapped_file(std::string_view proc_root, uint32_t pid,
                                    const MapEntry& mapping);

// Opens the file a process sees as `path`: links are followed below its root, none leads out.
Result<OpenedFile> open_file_of_process(std::string_view proc_root, uint32_t pid,
                                        std::string_view path);

// Opens a file named in the configuration.
Result<OpenedFile> open_named_file(const std::string& path);

}  // namespace gpuperf
