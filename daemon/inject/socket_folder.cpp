#include "daemon/inject/socket_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace gpuperf {

Result<SocketFolder> SocketFolder::make(const std::string& socket) {
  const std::string folder = std::filesystem::path(socket).parent_path() / "ingest";
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return errno_status(errno, folder + ": make folder");
  }
  // The mask of whoever started the daemon must not lock out a container's users.
  if (chmod(folder.c_str(), 0755) != 0) return errno_status(errno, folder + ": set mode 0755");
  const std::optional<FileId> file = find_file_id(socket);
  if (!file) return errno_status(errno, socket);
  const std::string name = folder + "/ingest.sock";
  if (unlink(name.c_str()) != 0 && errno != ENOENT) {
    return errno_status(errno, name + ": remove what an earlier daemon left");
  }
  if (link(socket.c_str(), name.c_str()) != 0) {
    return errno_status(errno, name + ": make a second name of " + socket);
  }
  return SocketFolder(folder, *file);
}

SocketFolder::SocketFolder(SocketFolder&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, std::nullopt)) {}

SocketFolder::~SocketFolder() {
  if (!file_ || find_file_id(socket()) != file_) return;
  (void)unlink(socket().c_str());  // best effort: the next start removes it
}

}  // namespace gpuperf
