#include "client/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace gpuperf::client {
namespace {

Status explain(const std::string& path, const char* action, int error_number) {
  return absl::InternalError(
      fmt::format("{}: cannot {}: {}; choose another file", path, action, strerror(error_number)));
}

bool is_special(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

}  // namespace

Result<OutputFile> OutputFile::make(const std::string& path) {
  if (is_special(path)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return explain(path, "open it", errno);
    return OutputFile(path, "", fd);
  }
  std::string unfinished = path + ".XXXXXX";
  const int fd = mkostemp(unfinished.data(), O_CLOEXEC);
  if (fd < 0) return explain(path, "create a file next to it", errno);
  const mode_t mask = umask(0);
  (void)umask(mask);
  (void)fchmod(fd, 0666 & ~mask);  // as files are made otherwise; 0600 serves, too
  return OutputFile(path, std::move(unfinished), fd);
}

OutputFile::OutputFile(std::string path, std::string unfinished, int fd)
    : path_(std::move(path)), unfinished_(std::move(unfinished)), fd_(fd) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      unfinished_(std::exchange(other.unfinished_, "")),
      fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!unfinished_.empty()) (void)unlink(unfinished_.c_str());
}

Status OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return explain(path_, "write", errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

Status OutputFile::commit() {
  if (close(std::exchange(fd_, -1)) != 0) return explain(path_, "write", errno);
  if (unfinished_.empty()) return absl::OkStatus();
  if (rename(unfinished_.c_str(), path_.c_str()) != 0) return explain(path_, "make it", errno);
  unfinished_.clear();
  return absl::OkStatus();
}

Status check_writable(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string& asked = is_special(path) ? path : folder;
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return explain(path, "write", EISDIR);
  }
  return access(asked.c_str(), W_OK) == 0 ? absl::OkStatus() : explain(path, "make it", errno);
}

}  // namespace gpuperf::client
