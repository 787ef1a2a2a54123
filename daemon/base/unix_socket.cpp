#include "daemon/base/unix_socket.h"

#include <grp.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "daemon/base/dying_process.h"

namespace gpuperf {
namespace {

constexpr int kBacklog =
    128;  // connects that wait while the daemon is busy; the kernel's own default
// gRPC clients read the address as a URI: "%20" or "?" would name another file there than here.
constexpr std::string_view kPathCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@,~";

Status make_folder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  if (mkdir(folder.c_str(), 0755) != 0) {
    return errno == EEXIST ? absl::OkStatus() : errno_status(errno, folder + ": make folder");
  }
  // The mask of whoever started the daemon must not lock out the group.
  if (chmod(folder.c_str(), 0755) != 0) return errno_status(errno, folder + ": set mode 0755");
  return absl::OkStatus();
}

// Who listens; 0 = one of another pid namespace.
pid_t find_peer(const Fd& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool is_known = getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  return is_known ? peer.pid : 0;
}

// "gpuperfd (pid 12)", as far as it can be known.
std::string name_peer(pid_t pid) {
  if (pid == 0) return "another program";
  std::string comm;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), comm);
  return fmt::format("{} (pid {})", comm.empty() ? "another program" : comm, pid);
}

// Whether nobody listens at the socket `path`: its owner was killed, perhaps without an end.
Result<bool> is_stale(const std::string& path, const sockaddr_un& address, int type) {
  const Fd probe(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return errno_status(errno, path + ": make a socket to try it");
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const pid_t peer = find_peer(probe);
    if (peer != 0 && is_dying("/proc", static_cast<uint32_t>(peer))) return true;
    return absl::AlreadyExistsError(fmt::format(
        "{}: socket in use by {}; stop it or choose another path", path, name_peer(peer)));
  }
  if (errno == ECONNREFUSED) return true;
  if (errno == ENOENT) return false;  // removed meanwhile
  if (errno == EPROTOTYPE) {
    return absl::AlreadyExistsError(
        path + ": socket in use by a program of another kind; `ss -xlp` names it");
  }
  if (errno == EAGAIN) {
    return absl::AlreadyExistsError(
        path + ": socket in use by a program that does not accept; `ss -xlp` names it");
  }
  return errno_status(errno, path + ": try whether the socket is in use");
}

}  // namespace

Status prepare_unix_socket(const std::string& path, int type) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (!path.starts_with('/')) {
    return absl::InvalidArgumentError("unix:" + path + ": the path must begin with /");
  }
  if (path.find_first_not_of(kPathCharacters) != std::string::npos) {
    return absl::InvalidArgumentError(
        "unix:" + path + ": only letters, digits and / . _ - + @ , ~ can be in the path");
  }
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} bytes; the path of a socket has at most {}", path, path.size(),
                    sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  RETURN_IF_ERROR(make_folder(path));
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? absl::OkStatus() : errno_status(errno, path + ": look at it");
  }
  if (!S_ISSOCK(status.st_mode)) {
    return absl::AlreadyExistsError(
        path + ": exists and is not a socket; move it away or choose another path");
  }
  ASSIGN_OR_RETURN(const bool stale, is_stale(path, address, type));
  if (stale && unlink(path.c_str()) != 0 && errno != ENOENT) {
    return errno_status(errno, path + ": remove the socket of a daemon that is gone");
  }
  return absl::OkStatus();
}

Result<Fd> listen_on_unix_socket(const std::string& path, int type) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
  Fd listening(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening.valid()) return errno_status(errno, path + ": make a socket");
  // Before bind: Linux gives the file the mode of the socket, so that it is never open to others.
  if (fchmod(listening.get(), 0600) != 0) return errno_status(errno, path + ": set mode 0600");
  if (bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno_status(errno, path + ": bind a socket");
  }
  if (listen(listening.get(), kBacklog) != 0) {
    const int error = errno;
    (void)unlink(path.c_str());  // best effort: the next start removes a stale one
    return errno_status(error, path + ": listen");
  }
  return listening;
}

Status open_socket_to_group(const std::string& path, const std::string& group) {
  // getgrnam_r needs room for all members; 64 KiB is some thousands of them.
  std::vector<char> buffer(size_t{64} * 1024);
  struct group entry {};
  struct group* found = nullptr;
  const int error = getgrnam_r(group.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (error != 0) return errno_status(error, "group " + group + ": look up");
  if (found == nullptr) return absl::OkStatus();
  // The owner first: with the mode first, the daemon's own group could connect for a moment.
  if (chown(path.c_str(), static_cast<uid_t>(-1), found->gr_gid) != 0) {
    return errno_status(errno, path + ": give to group " + group);
  }
  if (chmod(path.c_str(), 0660) != 0) return errno_status(errno, path + ": set mode 0660");
  return absl::OkStatus();
}

std::optional<FileId> find_file_id(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return std::nullopt;
  return FileId{.device = status.st_dev, .inode = status.st_ino};
}

}  // namespace gpuperf
