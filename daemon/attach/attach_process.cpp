#include "daemon/attach/attach_process.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <span>

#include "daemon/attach/attach_sequence.h"
#include "daemon/base/confinement.h"
#include "daemon/base/worker_side.h"

namespace gpuperf {
namespace {

constexpr uint64_t make_mask(int capability) { return uint64_t{1} << capability; }

// Tables of symbols of the C library, stacks, mappings.
constexpr size_t kMemoryBytes = size_t{512} << 20;
constexpr std::chrono::seconds kIdle{10};
constexpr std::array<unsigned, 22> kCalls{__NR_rt_sigtimedwait,
                                          __NR_ptrace,
                                          __NR_wait4,
                                          __NR_process_vm_readv,
                                          __NR_process_vm_writev,
                                          __NR_pidfd_open,
                                          __NR_pidfd_getfd,
                                          __NR_memfd_create,
                                          __NR_ftruncate,
                                          __NR_flock,
                                          __NR_openat,
                                          __NR_getdents64,
                                          __NR_readlink,
                                          __NR_readlinkat,
                                          __NR_nanosleep,
                                          __NR_clock_nanosleep,
                                          __NR_statfs,
                                          __NR_fstatfs,
                                          __NR_statx,
                                          __NR_stat,
                                          __NR_lstat,
                                          __NR_access};

}  // namespace

void run_attach_process(pid_t parent, const std::string& proc_root) {
  const WorkerSide side;
  constexpr uint64_t kCapabilities = make_mask(CAP_SYS_PTRACE) | make_mask(CAP_DAC_READ_SEARCH) |
                                     make_mask(CAP_CHECKPOINT_RESTORE);
  if (!confine({.parent = parent,
                .memory_bytes = kMemoryBytes,
                .name = "gpuperf-attach",
                .capabilities = kCapabilities,
                .more_calls = kCalls}) ||
      !side.tell_ready()) {
    ::_exit(1);
  }
  const ProcFiles files(proc_root);
  while (const std::optional<WorkerMessage> message = side.receive(sizeof(AttachRequest), kIdle)) {
    AttachRequest request;
    if (message->bytes.size() != sizeof request) break;
    std::memcpy(&request, message->bytes.data(), sizeof request);
    AttachSequence::Answer answer = AttachSequence(files, request).answer(message->fds[0]);
    const std::string_view bytes(reinterpret_cast<const char*>(&answer.reply), sizeof answer.reply);
    const int fd = answer.connection.get();
    if (!side.answer(bytes, std::span(&fd, answer.connection.valid() ? 1 : 0))) break;
  }
  ::_exit(0);
}

}  // namespace gpuperf
