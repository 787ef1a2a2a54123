#include "daemon/base/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace gpuperf {
namespace {

std::string read_owner_pid(int fd) {
  char text[32] = {};
  if (pread(fd, text, sizeof text - 1, 0) <= 0) return "unknown";
  return std::to_string(std::atol(text));
}

// Whether `path` still names the file behind `fd`: its last owner may have removed it meanwhile.
bool is_same_file(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

Result<LockFile> LockFile::acquire(const std::string& path) {
  while (true) {
    Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd.valid()) return errno_status(errno, "lock " + path + ": open");
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return errno_status(errno, "lock " + path);
      return absl::AlreadyExistsError("another gpuperfd is running: pid " +
                                      read_owner_pid(fd.get()) + " holds " + path +
                                      "; stop it, or give this one its own --runtime-dir");
    }
    if (!is_same_file(fd.get(), path)) continue;
    const std::string pid = std::to_string(getpid()) + "\n";
    if (ftruncate(fd.get(), 0) != 0 ||
        pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return errno_status(errno, "lock " + path + ": write");
    }
    return LockFile(path, std::move(fd));
  }
}

LockFile::~LockFile() {
  // Still locked here, so nobody else's file can be removed. ENOENT is as good.
  if (fd_.valid()) (void)unlink(path_.c_str());
}

}  // namespace gpuperf
