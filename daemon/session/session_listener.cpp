#include "daemon/session/session_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace gpuperf {
namespace {

constexpr int kBacklog = 4'096;

}  // namespace

Result<SessionListener> SessionListener::open(const std::string& path) {
  RETURN_IF_ERROR(prepare_unix_socket(path, SOCK_SEQPACKET));
  ASSIGN_OR_RETURN(Fd listening, listen_on_unix_socket(path, SOCK_SEQPACKET));
  // Accepted connections inherit it on newer kernels; then no message goes without its sender.
  const int on = 1;
  (void)setsockopt(listening.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  // Connects that wait while the daemon is busy: the first of a job's thousand processes must not
  // turn away the rest. The kernel takes off what is beyond net.core.somaxconn.
  if (listen(listening.get(), kBacklog) != 0) return errno_status(errno, path + ": listen");
  if (chmod(path.c_str(), 0666) != 0) return errno_status(errno, path + ": set mode 0666");
  return SessionListener(std::move(listening), path, find_file_id(path));
}

SessionListener::~SessionListener() {
  if (!listening_.valid() || !file_ || find_file_id(path_) != file_) return;
  (void)unlink(path_.c_str());  // best effort: the next start removes a stale one
}

Result<Fd> SessionListener::accept() {
  for (;;) {
    Fd connection(accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.valid()) return connection;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return absl::NotFoundError("no connection waits");
    return absl::ResourceExhaustedError(
        std::string(errno_status(errno, path_ + ": accept").message()));
  }
}

}  // namespace gpuperf
