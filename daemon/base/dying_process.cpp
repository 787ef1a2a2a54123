#include "daemon/base/dying_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/proc_text.h"
#include "daemon/base/process_status.h"

namespace gpuperf {
namespace {

// Of a line like "SigPnd:\t0000000000000100".
bool has_signal(std::string_view status, std::string_view key, int signal) {
  const std::string_view mask = find_status_field(status, key);
  uint64_t signals = 0;
  (void)std::from_chars(mask.data(), mask.data() + mask.size(), signals, 16);
  return (signals >> (signal - 1) & 1) != 0;
}

// PIDFD_THREAD of Linux 6.9, which the C library's headers do not have yet.
constexpr unsigned kPidfdThread = O_EXCL;

// Of a thread, or, on older kernels, of a process by its first thread.
Fd open_thread(uint32_t thread) {
  Fd opened(static_cast<int>(syscall(SYS_pidfd_open, thread, kPidfdThread)));
  if (!opened.valid()) opened = Fd(static_cast<int>(syscall(SYS_pidfd_open, thread, 0)));
  return opened;
}

bool is_listening(const Fd& socket) {
  int listens = 0;
  socklen_t length = sizeof listens;
  return getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 &&
         listens != 0;
}

}  // namespace

bool is_dying(std::string_view proc_root, uint32_t pid) {
  const Result<char> state = read_process_state(proc_root, pid);
  if (state.ok() && (*state == 'Z' || *state == 'X')) return true;
  const std::string tasks = get_proc_path(proc_root, pid, "task");
  const Result<std::vector<uint32_t>> threads = list_pids(tasks);
  if (!threads.ok()) return false;
  return std::ranges::any_of(*threads, [&tasks](uint32_t thread) {
    const Result<std::string> status = read_status_text(tasks + "/" + std::to_string(thread));
    return status.ok() &&
           (has_signal(*status, "SigPnd", SIGKILL) || has_signal(*status, "ShdPnd", SIGKILL));
  });
}

void stop_listening_of(uint32_t pid) {
  const std::string tasks = get_proc_path("/proc", pid, "task");
  const Result<std::vector<uint32_t>> threads = list_pids(tasks);
  if (!threads.ok()) return;
  for (const uint32_t thread : *threads) {
    // All threads share their descriptors, but one that has ended lists none.
    const Result<std::vector<uint32_t>> descriptors =
        list_pids(tasks + "/" + std::to_string(thread) + "/fd");
    if (!descriptors.ok() || descriptors->empty()) continue;
    const Fd owner = open_thread(thread);
    for (const uint32_t descriptor : *descriptors) {
      const Fd copy(static_cast<int>(syscall(SYS_pidfd_getfd, owner.get(), descriptor, 0)));
      if (copy.valid() && is_listening(copy)) (void)shutdown(copy.get(), SHUT_RDWR);
    }
    return;
  }
}

}  // namespace gpuperf
