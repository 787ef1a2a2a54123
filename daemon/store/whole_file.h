#pragma once

// Files that are there whole or not at all.

#include <sys/types.h>

#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace gpuperf {

// What an interrupted write_whole_file leaves behind ends so.
inline constexpr std::string_view kUnfinishedSuffix = ".unfinished";

// As that of slow calls: it tells what tenants run.
inline constexpr mode_t kPrivateFile = 0640;

// The file with these bytes, on the disk when this returns, in place of the one that was there.
// Errors name the file, the cause and what to do; nothing unfinished is left behind, but where the
// folder could not be brought to the disk the new file has taken the old one's place.
Status write_whole_file(const std::string& path, std::string_view bytes,
                        mode_t mode = kPrivateFile);

// At most `max_bytes` of it from its beginning. NotFound.
Result<std::string> read_file_beginning(const std::string& path, size_t max_bytes);

}  // namespace gpuperf
