#include "daemon/store/folders.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

namespace gpuperf {
namespace {

constexpr mode_t kFolderMode = 0750;

}  // namespace

Status make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  if (folder.has_relative_path()) RETURN_IF_ERROR(make_folders(folder.parent_path()));
  if (mkdir(folder.c_str(), kFolderMode) == 0 || std::filesystem::is_directory(folder, error)) {
    return absl::OkStatus();
  }
  return errno_status(errno == EEXIST ? ENOTDIR : errno, folder.string() + ": make folder");
}

}  // namespace gpuperf
