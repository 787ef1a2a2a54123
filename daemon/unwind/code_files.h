#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/byte_lru.h"
#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"
#include "daemon/probe/discovery/file_opener.h"
#include "daemon/probe/discovery/process_maps.h"

namespace gpuperf {

// Files with code, opened and their headers read, one of each content.
//
// Thread: one at a time. Keeps at most kMaxOpen files open, those used least recently are closed;
// whoever still holds one keeps it open.
class CodeFiles {
 public:
  struct Code {
    Fd fd;
    FileIdentity identity;
    CodeFile file;
  };
  using CodePtr = std::shared_ptr<const Code>;
  // The libraries that stacks of a few large programs lead through.
  static constexpr size_t kMaxOpen = 256;

  // The code in a file that was opened. Errors: what reading its headers said.
  Result<CodePtr> keep(OpenedFile opened);
  // The code that the kernel maps into every process ("[vdso]"); DataLoss for one that is not it.
  Result<CodePtr> open_vdso(const MapEntry& mapping);
  // Closes all, so that file systems can be unmounted: to be called now and then.
  void close_all() { open_.clear(); }

 private:
  ByteLru<FileIdentity, CodePtr> open_{kMaxOpen};  // each counts as one byte
  CodePtr vdso_;                                   // one for the whole host
  uint64_t vdso_bytes_ = 0;
};

}  // namespace gpuperf
