#include "client/injector_path.h"

#include <absl/strings/str_join.h>
#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

namespace gpuperf::client {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libgpuperf_injector.so";

// Why the driver could not load it; empty = nothing seen.
std::string find_fault(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  if (!file.read(magic, sizeof magic)) return strerror(errno == 0 ? EINVAL : errno);
  return memcmp(magic, "\177ELF", sizeof magic) == 0 ? "" : "not a shared library";
}

Result<std::string> make_absolute(const std::string& path) {
  errno = 0;
  if (const std::string fault = find_fault(path); !fault.empty()) {
    return absl::NotFoundError(
        fmt::format("cannot load {}: {}; give the path of {} with --injector, or record CPU work "
                    "only: --cpu-only",
                    path, fault, kName));
  }
  std::error_code error;
  const fs::path absolute = fs::canonical(path, error);
  return error ? path : absolute.string();
}

std::vector<std::string> list_places() {
  std::vector<std::string> places;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path folder = program.parent_path();
    for (const char* beside :
         {"", "../lib/gpuperf", "../injector"}) {  // the last: where it is built
      places.push_back((folder / beside / kName).lexically_normal().string());
    }
  }
  for (const char* folder :
       {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    places.push_back(fmt::format("{}/gpuperf/{}", folder, kName));
  }
  return places;
}

}  // namespace

Result<std::string> find_injector(const std::string& asked) {
  if (!asked.empty()) return make_absolute(asked);
  const char* given = getenv("CUDA_INJECTION64_PATH");
  if (given != nullptr && fs::path(given).filename() == kName) return make_absolute(given);
  const std::vector<std::string> places = list_places();
  for (const std::string& place : places) {
    if (access(place.c_str(), R_OK) == 0) return make_absolute(place);
  }
  return absl::NotFoundError(
      fmt::format("cannot find {}; looked at {}; give its path with --injector, or record CPU work "
                  "only: --cpu-only",
                  kName, absl::StrJoin(places, ", ")));
}

}  // namespace gpuperf::client
