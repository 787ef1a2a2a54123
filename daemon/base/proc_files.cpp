#include "daemon/base/proc_files.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace gpuperf {
namespace {

ProcFiles::Ways make_direct_ways(const std::string& root) {
  const auto read = [root](const char* name) {
    return [root, name](uint32_t pid, size_t max_bytes) {
      return read_bounded_text(get_proc_path(root, pid, name), max_bytes);
    };
  };
  const auto take = [root](uint32_t pid, const std::string& range) -> Result<Fd> {
    const std::string path = get_proc_path(root, pid, "map_files/" + range);
    Fd taken(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!taken.valid()) return errno_status(errno, path + ": open");
    return taken;
  };
  return {.read_maps = read("maps"), .read_environment = read("environ"), .take_mapped = take};
}

}  // namespace

ProcFiles::ProcFiles(std::string root) : root_(std::move(root)), ways_(make_direct_ways(root_)) {}

bool is_put_off(const Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status);
}

}  // namespace gpuperf
