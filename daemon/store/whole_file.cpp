#include "daemon/store/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "daemon/base/fd.h"
#include "daemon/base/write_all.h"

namespace gpuperf {
namespace {

// Without this the name may be gone after a power cut, though the file is there.
Status sync_folder_of(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const Fd opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid() || fsync(opened.get()) != 0) return errno_status(errno, "bring to the disk");
  return absl::OkStatus();
}

Status write_and_rename(const std::string& path, const std::string& unfinished,
                        std::string_view bytes, mode_t mode) {
  const Fd file(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.valid()) return errno_status(errno, "make");
  // The mask of whoever started the daemon must not make it unreadable to those it is for.
  if (mode != kPrivateFile && fchmod(file.get(), mode) != 0) return errno_status(errno, "set mode");
  RETURN_IF_ERROR(write_all(file.get(), bytes));
  if (fsync(file.get()) != 0) return errno_status(errno, "bring to the disk");
  if (rename(unfinished.c_str(), path.c_str()) != 0) return errno_status(errno, "rename");
  return sync_folder_of(path);
}

}  // namespace

Status write_whole_file(const std::string& path, std::string_view bytes, mode_t mode) {
  const std::string unfinished = path + std::string(kUnfinishedSuffix);
  const Status written = write_and_rename(path, unfinished, bytes, mode);
  if (written.ok()) return written;
  (void)unlink(unfinished.c_str());  // it may not have been made
  return {written.code(), path + ": " + std::string(written.message()) +
                              "; let gpuperfd write there, make room "
                              "on the disk, or give another folder"};
}

Result<std::string> read_file_beginning(const std::string& path, size_t max_bytes) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return errno_status(errno, path);
  if (!S_ISREG(status.st_mode)) return absl::DataLossError(path + ": not a file");
  std::string bytes(std::min(max_bytes, static_cast<size_t>(status.st_size)), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, path + ": read");
    if (count == 0) break;  // it was cut off meanwhile
    filled += static_cast<size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace gpuperf
