#pragma once

#include <string_view>

#include "daemon/base/result.h"

namespace gpuperf {

// Writes all of it, however many calls that takes. An error leaves part of it written.
Status write_all(int fd, std::string_view bytes);

}  // namespace gpuperf
