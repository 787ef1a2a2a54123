#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/config/config.h"

namespace gpuperf {
namespace {

std::string describe_file_type(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

}  // namespace

Result<std::string> read_config_file(const std::string& path) {
  const std::string what = path + ": read configuration";
  // O_NONBLOCK: opening a pipe without a writer must not wait; regular files do not care.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return errno_status(errno, what);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno_status(errno, what);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(what + ": is " + describe_file_type(status.st_mode) +
                                      ", must be a regular file");
  }
  std::string text;
  std::array<char, 65536> chunk;
  for (;;) {
    const ssize_t bytes = ::read(file.get(), chunk.data(), chunk.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno_status(errno, what);
    if (bytes == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(bytes));
    // A growing file, or one whose size the kernel makes up (/proc), is stopped here.
    if (text.size() > kConfigMaxBytes) {
      return absl::InvalidArgumentError(what + ": is larger than " +
                                        std::to_string(kConfigMaxBytes) +
                                        " bytes; keep only the functions you want to see");
    }
  }
}

std::string render_config_errors(std::string_view file, std::span<const ConfigError> errors) {
  std::string lines;
  for (const ConfigError& error : errors) {
    lines.append(file).append(": ").append(error.path).append(": ").append(error.message);
    if (!error.hint.empty()) lines.append("; hint: ").append(error.hint);
    lines += '\n';
  }
  return lines;
}

}  // namespace gpuperf
