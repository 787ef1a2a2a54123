#pragma once

#include <fcntl.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>

#include "daemon/base/fd.h"

namespace gpuperf {

// A folder of a test's own, removed with all that lies in it.
class TempFolder {
 public:
  explicit TempFolder(const std::string& parent = "/tmp") {
    std::string path = parent + "/gpuperf-test-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp " + path + " failed");
    path_ = path;
  }
  ~TempFolder() {
    std::error_code ignored;  // a folder left behind in /tmp harms no test
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Empty where it cannot be read.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Fd open_file(const char* path) { return Fd(::open(path, O_RDONLY | O_CLOEXEC)); }

}  // namespace gpuperf
