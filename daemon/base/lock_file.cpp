#include "daemon/base/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>

#include "daemon/base/dying_process.h"
#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

struct Owner {
  uint32_t pid = 0;  // 0 = not said
  uint64_t start_ticks = 0;
  uint64_t pid_namespace = 0;  // its inode; 0 = not said
};

uint64_t read_own_pid_namespace() {
  struct stat named {};
  return stat("/proc/self/ns/pid", &named) == 0 ? named.st_ino : 0;
}

// Of "71 12345 4026531836", as write_owner() writes it.
Owner read_owner(int fd) {
  char text[64] = {};
  Owner owner;
  if (pread(fd, text, sizeof text - 1, 0) <= 0) return owner;
  char* rest = nullptr;
  owner.pid = static_cast<uint32_t>(std::strtoul(text, &rest, 10));
  owner.start_ticks = std::strtoull(rest, &rest, 10);
  owner.pid_namespace = std::strtoull(rest, nullptr, 10);
  return owner;
}

bool write_owner(int fd) {
  const auto pid = static_cast<uint32_t>(getpid());
  const Result<uint64_t> ticks = read_start_ticks("/proc", pid);
  const std::string text = std::to_string(pid) + " " + std::to_string(ticks.ok() ? *ticks : 0) +
                           " " + std::to_string(read_own_pid_namespace()) + "\n";
  return ftruncate(fd, 0) == 0 &&
         pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

// Whether the owner will never let go of the lock, or somebody else holds it.
bool is_gone(const Owner& owner) {
  if (owner.pid == 0) return false;  // it has only just begun
  // Its pid says nothing here: a daemon in a container may share the folder.
  if (owner.pid_namespace != read_own_pid_namespace()) return false;
  const Result<uint64_t> ticks = read_start_ticks("/proc", owner.pid);
  if (!ticks.ok()) return true;
  if (owner.start_ticks != 0 && *ticks != owner.start_ticks) return true;
  return is_dying("/proc", owner.pid);
}

Status make_held_error(const std::string& path, const Owner& owner, std::string_view setting) {
  return absl::AlreadyExistsError("another gpuperfd is running: pid " +
                                  (owner.pid == 0 ? "unknown" : std::to_string(owner.pid)) +
                                  " holds " + path + "; stop it, or give this one its own " +
                                  std::string(setting));
}

// Whether `path` still names the file behind `fd`: its last owner may have removed it meanwhile.
bool is_same_file(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

Result<LockFile> LockFile::acquire_file(const std::string& path, std::string_view setting) {
  while (true) {
    Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return errno_status(errno, "lock " + path + ": open");
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return errno_status(errno, "lock " + path);
      return make_held_error(path, read_owner(fd.get()), setting);
    }
    if (!is_same_file(fd.get(), path)) continue;
    if (fchmod(fd.get(), 0600) != 0 || !write_owner(fd.get())) {
      return errno_status(errno, "lock " + path + ": write");
    }
    return LockFile(path, std::move(fd));
  }
}

Result<LockFile> LockFile::acquire(const std::string& path, std::string_view setting) {
  Result<LockFile> lock = acquire_file(path, setting);
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  const auto find_gone_owner = [&path]() -> std::optional<Owner> {
    const Fd held(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!held.valid()) return std::nullopt;
    const Owner owner = read_owner(held.get());
    return is_gone(owner) ? std::optional(owner) : std::nullopt;
  };
  if (!find_gone_owner()) return lock;
  // One at a time replaces it, and looks again: another may have done so.
  Result<LockFile> fresh = acquire_file(path + ".new", setting);
  if (!fresh.ok()) return lock;
  const std::optional<Owner> owner = find_gone_owner();
  if (!owner) return lock;
  if (rename(fresh->path_.c_str(), path.c_str()) != 0) {
    return errno_status(errno, "lock " + path + ": replace");
  }
  if (is_dying("/proc", owner->pid)) stop_listening_of(owner->pid);
  fresh->path_ = path;
  return fresh;
}

LockFile::~LockFile() {
  // Still locked here, so nobody else's file can be removed. ENOENT is as good.
  if (fd_.valid()) (void)unlink(path_.c_str());
}

}  // namespace gpuperf
