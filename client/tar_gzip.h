#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/status.h"

namespace gpuperf::client {

struct ArchivedFile {
  std::string name;  // at most 99 bytes, "folder/name"
  std::string bytes;
};

// A .tar.gz of regular files (ustar), readable by their owner only. Names that are too long are a
// bug of the caller's.
Result<std::string> make_tar_gzip(const std::vector<ArchivedFile>& files, uint64_t unix_seconds);

}  // namespace gpuperf::client
