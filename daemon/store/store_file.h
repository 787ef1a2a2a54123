#pragma once

// The file of the store among other files.

#include <cstddef>
#include <string>

#include "daemon/base/result.h"

namespace gpuperf {

// So many damaged stores are kept; the oldest leaves. Two, because the first may tell why there is
// a second, and each may be as large as a store may be.
inline constexpr size_t kMaxSetAside = 2;

// Makes the file (0640) and the folders above it (0750) where they are missing. Follows no link and
// takes regular files only.
Status prepare_store_file(const std::string& path);

// Moves a damaged store, with its log, to PATH.corrupt-<unix seconds>: nothing is at `path` then.
// Says in the log why. No connection to it may be open.
Status set_aside_store(const std::string& path, const Status& damage);

}  // namespace gpuperf
