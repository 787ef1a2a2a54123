#pragma once

#include <string>

#include "daemon/base/result.h"

namespace gpuperf {

// The text of a file of certificates or a key. INVALID_ARGUMENT: it is not PEM.
Result<std::string> read_pem_file(const std::string& path);

}  // namespace gpuperf
