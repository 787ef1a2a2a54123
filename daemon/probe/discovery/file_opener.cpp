#include "daemon/probe/discovery/file_opener.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

#include "daemon/base/proc_text.h"
#include "daemon/probe/discovery/path_walk.h"

namespace gpuperf {
namespace {

int64_t to_ns(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

Fd take_root(const ProcFiles& files, uint32_t pid) {
  return Fd(
      ::open(get_proc_path(files.root(), pid, "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

Fd take(const std::string& path) { return Fd(::open(path.c_str(), O_PATH | O_CLOEXEC)); }

bool is_inode(int fd, const MappedInode& expected) {
  struct stat found {};
  return ::fstat(fd, &found) == 0 && found.st_dev == expected.device &&
         found.st_ino == expected.inode;
}

// Of a file found by the path that the mapping has in its process. An overlay may tell of a file
// another device than of its mapping: that of the layer it is in.
bool is_file_of(int fd, const MappedInode& expected) {
  struct stat found {};
  struct statfs file_system {};
  if (::fstat(fd, &found) != 0 || found.st_ino != expected.inode) return false;
  return found.st_dev == expected.device ||
         (::fstatfs(fd, &file_system) == 0 && file_system.f_type == OVERLAYFS_SUPER_MAGIC);
}

// What opens a file anew, whatever has become of its path.
std::string get_link(const Fd& taken) { return "/proc/self/fd/" + std::to_string(taken.get()); }

// True when that is the mapped file, as far as its name tells: the range may have been unmapped and
// used again since the mapping was read.
bool has_name(const Fd& taken, const MapEntry& mapping) {
  std::array<char, PATH_MAX> target;
  const ssize_t length = ::readlink(get_link(taken).c_str(), target.data(), target.size());
  if (length < 0) return false;
  const std::string expected = mapping.path + (mapping.deleted ? " (deleted)" : "");
  return std::string_view(target.data(), static_cast<size_t>(length)) == expected;
}

std::string get_range_name(const MapEntry& mapping) {
  std::array<char, 40> name;  // two numbers of 16 digits and a dash
  (void)std::snprintf(name.data(), name.size(), "%lx-%lx", mapping.start_address,
                      mapping.end_address);
  return name.data();
}

// All but the descriptor. FailedPrecondition when it is no regular file.
Result<OpenedFile> read_identity(int fd, std::string_view name) {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return errno_status(errno, std::string(name) + ": fstat");
  if (!S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(std::string(name) + ": not a regular file");
  }
  struct statfs file_system {};
  if (::fstatfs(fd, &file_system) != 0) {
    return errno_status(errno, std::string(name) + ": fstatfs");
  }
  const bool overlay = file_system.f_type == OVERLAYFS_SUPER_MAGIC;
  return OpenedFile{.identity = {.device = overlay ? 0 : found.st_dev,
                                 .inode = found.st_ino,
                                 .size_bytes = static_cast<uint64_t>(found.st_size),
                                 .modified_unix_ns = to_ns(found.st_mtim),
                                 .changed_unix_ns = to_ns(found.st_ctim)},
                    .owner_uid = found.st_uid,
                    .name_count = found.st_nlink};
}

}  // namespace

Result<OpenedFile> open_taken(const Fd& taken, std::string_view name) {
  // Checked before it is opened: opening a device can act on it.
  ASSIGN_OR_RETURN(OpenedFile opened, read_identity(taken.get(), name));
  opened.fd = Fd(::open(get_link(taken).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened.fd.valid()) return errno_status(errno, std::string(name) + ": open for reading");
  return opened;
}

Result<OpenedFile> open_named_file(const std::string& path) {
  const Fd taken = take(path);
  if (!taken.valid()) return errno_status(errno, path + ": open");
  return open_taken(taken, path);
}

Result<OpenedFile> open_once_mapped_file(const std::string& path) {
  const Fd root = take("/");
  if (!root.valid()) return errno_status(errno, "/: open");
  const Result<Fd> taken = PathWalk(root.get(), nullptr, PathWalk::Links::kRefused).find(path);
  if (!taken.ok())
    return Status(taken.status().code(), path + ": open: " + std::string(taken.status().message()));
  return open_taken(*taken, path);
}

Result<OpenedFile> open_mapped_file(const ProcFiles& files, uint32_t pid, const MapEntry& mapping) {
  const std::string name = mapping.path + " in pid " + std::to_string(pid);
  if (mapping.file.inode == 0) {
    return absl::FailedPreconditionError(name + ": mapping without a file");
  }
  const Result<Fd> mapped = files.take_mapped(pid, get_range_name(mapping));
  if (mapped.ok() && (is_inode(mapped->get(), mapping.file) || has_name(*mapped, mapping))) {
    return open_taken(*mapped, name);
  }
  const Fd root = take_root(files, pid);
  if (root.valid()) {
    const Result<Fd> taken = PathWalk(root.get()).find(mapping.path);
    if (taken.ok() && is_file_of(taken->get(), mapping.file)) return open_taken(*taken, name);
  }
  const Fd host = take(mapping.path);
  if (host.valid() && is_inode(host.get(), mapping.file)) return open_taken(host, name);
  if (!mapped.ok()) {
    return Status(mapped.status().code(), name + ": open by mapping and by path: " +
                                              std::string(mapped.status().message()));
  }
  return absl::NotFoundError(name + ": the mapping is now of another file");
}

}  // namespace gpuperf
