#include "daemon/base/result.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace gpuperf {

Status errno_status(int error_number, std::string_view what) {
  return absl::Status(absl::ErrnoToStatusCode(error_number),
                      std::string(what) + ": " + std::strerror(error_number));
}

}  // namespace gpuperf
