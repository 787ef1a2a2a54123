#pragma once

// Finds the files that hold what was stripped from another: by its build id, by the name it gives.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/model/drops.h"
#include "daemon/probe/discovery/file_opener.h"
#include "daemon/resolve/debug_facts.h"

namespace gpuperf {

struct DebugFileWanted {
  std::string_view proc_root = "/proc";
  std::string_view host_root;  // below which the daemon's own debug files are; a test's tree
  uint32_t pid = 0;            // whose view of files counts
  std::string_view path;       // of the stripped file, as the process sees it
  uint32_t owner_uid = 0;      // of the stripped file
  const DebugFacts& facts;     // of the stripped file
  // The debug file found earlier: its checksum need not be taken again.
  const FileIdentity* known = nullptr;
  std::function<void(DropCause)> count_drop = [](DropCause) {};
};

struct DebugFile {
  OpenedFile opened;
  std::string path;
  DebugFacts facts;
};

// The separate debug file: /usr/lib/debug/.build-id as the process sees it, then as the daemon
// does; then what .gnu_debuglink names, beside the file, in .debug there, below /usr/lib/debug.
//
// A debug file must have the build id of its file, or, by its name, the checksum that is asked for.
// It must belong to root or to the owner of the file: what is read serves all copies of that file,
// and who mounts a /usr/lib/debug of his own over the system's must not name the code of others.
// And the process's user must be able to read it (ProcessFiles), wherever it is found; of a process
// that is gone, everybody. Files refused for one of these count as kNamesFileRefused.
std::optional<DebugFile> find_debug_file(const DebugFileWanted& wanted);

// The file that several debug files share (dwz), which .gnu_debugaltlink of `debug_path` names.
std::optional<DebugFile> find_alternate_file(const DebugFileWanted& wanted,
                                             std::string_view debug_path,
                                             const AlternateLink& alternate);

}  // namespace gpuperf
