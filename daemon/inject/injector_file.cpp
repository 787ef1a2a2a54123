#include "daemon/inject/injector_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "daemon/base/fd.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libgpuperf_injector.so";
constexpr const char* kInstalled = "/usr/lib/gpuperf/libgpuperf_injector.so";

std::vector<fs::path> list_places() {
  std::vector<fs::path> places;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path folder = program.parent_path();
    // The last is where it is built.
    for (const char* beside : {"", "../lib/gpuperf", "../lib/x86_64-linux-gnu/gpuperf",
                               "../lib64/gpuperf", "../injector"}) {
      places.push_back(folder / beside / kName);
    }
  }
  places.emplace_back(kInstalled);
  places.emplace_back(fs::path("/usr/lib/x86_64-linux-gnu/gpuperf") / kName);
  return places;
}

Status find_fault(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return errno_status(errno, path);
  char magic[4] = {};
  if (read(file.get(), magic, sizeof magic) != sizeof magic ||
      std::memcmp(magic, "\177ELF", sizeof magic) != 0) {
    return absl::FailedPreconditionError(path + ": not a shared library");
  }
  struct statvfs system {};
  if (fstatvfs(file.get(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0) {
    return absl::FailedPreconditionError(
        path + ": lies on a file system without execution (noexec, as /run often is)");
  }
  return absl::OkStatus();
}

}  // namespace

std::string find_injector_file(const std::string& asked) {
  if (!asked.empty()) return asked;
  for (const fs::path& place : list_places()) {
    std::error_code error;
    const fs::path found = fs::canonical(place, error);
    if (!error) return found.string();
  }
  return kInstalled;
}

Status check_injector_file(const std::string& path) {
  const Status fault = find_fault(path);
  if (fault.ok()) return fault;
  return {fault.code(), std::string(fault.message()) +
                            "; install it there, or name it with ingest.injector_path: the path "
                            "must be the same for gpuperfd and for the container runtime"};
}

}  // namespace gpuperf
