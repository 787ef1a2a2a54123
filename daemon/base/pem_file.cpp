#include "daemon/base/pem_file.h"

#include <cerrno>
#include <fstream>
#include <iterator>

namespace gpuperf {

Result<std::string> read_pem_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) return errno_status(errno, path + ": read");
  if (text.find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(path + ": contains no PEM text (-----BEGIN …)");
  }
  return text;
}

}  // namespace gpuperf
