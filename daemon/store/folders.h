#pragma once

#include <filesystem>

#include "daemon/base/result.h"

namespace gpuperf {

// Makes a store's folder and those it lies in, where they are not there, for its owner and group
// only: stores tell what tenants run. Any thread. Errors: the one that could not be made, and why.
Status make_folders(const std::filesystem::path& folder);

}  // namespace gpuperf
