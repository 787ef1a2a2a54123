#include "tests/unit/injector/daemon_end.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>

namespace gpuperf::injector {

DaemonEnd::DaemonEnd() {
  char folder[] = "/tmp/gpuperf-injector-test-XXXXXX";
  folder_ = mkdtemp(folder);
  path_ = folder_ + "/socket";
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path_.c_str());
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_, 8) != 0) {
    std::perror(path_.c_str());
    std::abort();
  }
}

DaemonEnd::~DaemonEnd() {
  close();
  ::close(listener_);
  unlink(path_.c_str());
  rmdir(folder_.c_str());
}

void DaemonEnd::accept() {
  close();
  connection_ = ::accept(listener_, nullptr, nullptr);
}

void DaemonEnd::close() {
  if (connection_ >= 0) ::close(connection_);
  connection_ = -1;
}

std::vector<uint8_t> DaemonEnd::take() {
  std::vector<uint8_t> bytes(GPUPERF_MESSAGE_BYTES_MAX);
  const ssize_t count = recv(connection_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return bytes;
}

void DaemonEnd::send(const void* message, size_t length_bytes) {
  (void)!::send(connection_, message, length_bytes, MSG_NOSIGNAL);
}

void DaemonEnd::welcome(uint32_t batch_bytes_max) {
  gpuperf_control control = {};
  control.header = {GPUPERF_SESSION_MAGIC, GPUPERF_SESSION_VERSION, GPUPERF_MESSAGE_WELCOME,
                    sizeof(control), sequence_++};
  control.session_id = 1;
  control.enabled_kinds = GPUPERF_SESSION_ALL_KINDS;
  control.mode = GPUPERF_SESSION_RUN;
  control.sample_every = 1;
  control.batch_bytes_max = batch_bytes_max;
  send(&control, sizeof(control));
}

bool DaemonEnd::come_together(DaemonLink& link, uint64_t now_ms) {
  link.set_up(path());
  if (!link.try_connect(now_ms)) return false;
  accept();
  (void)take();  // the hello
  welcome();
  return link.receive(now_ms);
}

}  // namespace gpuperf::injector
