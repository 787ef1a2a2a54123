#pragma once

// Clients of a Unix socket that are not gRPC's, and connections made by somebody else.

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "daemon/base/fd.h"

namespace gpuperf::testing {

inline constexpr uid_t kNobody = 65534;

inline Fd make_unix_socket() { return Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

inline int connect_unix(const Fd& fd, const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

inline Fd connect_unix(const std::string& path) {
  Fd fd = make_unix_socket();
  EXPECT_EQ(connect_unix(fd, path), 0) << path << ": " << std::strerror(errno);
  return fd;
}

// A connection that a child process makes after it became that user. The socket itself is
// inherited: the kernel takes the credentials when it connects. Root only.
inline Fd connect_as(const std::string& path, uid_t uid) {
  Fd fd = make_unix_socket();
  const pid_t child = fork();
  if (child == 0) {  // nothing but system calls: other threads' locks were copied as they were
    const bool dropped = syscall(SYS_setgroups, 0, nullptr) == 0 &&
                         syscall(SYS_setresgid, uid, uid, uid) == 0 &&
                         syscall(SYS_setresuid, uid, uid, uid) == 0;
    _exit(dropped && connect_unix(fd, path) == 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << uid << " could not connect to " << path;
  return fd;
}
inline Fd connect_as_nobody(const std::string& path) { return connect_as(path, kNobody); }

// Waits until the other side closes; what it said before does not matter. False after 30 s.
inline bool wait_for_end(const Fd& fd) {
  char byte = 0;
  for (;;) {
    pollfd watched = {fd.get(), POLLIN, 0};
    if (poll(&watched, 1, 30'000) != 1) return false;
    if (recv(fd.get(), &byte, 1, 0) <= 0) return true;
  }
}

// Whether the other side keeps the connection, as far as it has decided by now.
inline bool is_open(const Fd& fd) {
  char byte = 0;
  return recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

inline void make_nonblocking(const Fd& fd) {
  EXPECT_EQ(fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK), 0);
}

}  // namespace gpuperf::testing
