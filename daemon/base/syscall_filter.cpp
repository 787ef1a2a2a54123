#include "daemon/base/syscall_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <vector>

namespace gpuperf {
namespace {

constexpr auto kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr auto kJumpEqual = BPF_JMP | BPF_JEQ | BPF_K;
constexpr auto kJumpAtLeast = BPF_JMP | BPF_JGE | BPF_K;
constexpr auto kReturn = BPF_RET | BPF_K;
constexpr unsigned kRefuse = SECCOMP_RET_ERRNO | EPERM;

class Filter {
 public:
  Filter() {
    constexpr unsigned kX32Calls = 0x4000'0000;
    code_ = {
        BPF_STMT(kLoad, offsetof(seccomp_data, arch)),
        BPF_JUMP(kJumpEqual, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(kReturn, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
        BPF_JUMP(kJumpAtLeast, kX32Calls, 0, 1),
        BPF_STMT(kReturn, SECCOMP_RET_KILL_PROCESS),
    };
  }

  void add_tgkill(pid_t target) {
    const sock_filter part[] = {
        BPF_JUMP(kJumpEqual, __NR_tgkill, 0, 4),
        BPF_STMT(kLoad, offsetof(seccomp_data, args[0])),  // its lower half: a pid has no more
        BPF_JUMP(kJumpEqual, static_cast<unsigned>(target), 0, 1),
        BPF_STMT(kReturn, SECCOMP_RET_ALLOW),
        BPF_STMT(kReturn, kRefuse),
    };
    code_.insert(code_.end(), std::begin(part), std::end(part));
  }

  Status install(std::span<const unsigned> calls, unsigned what, unsigned others) {
    for (const unsigned number : calls) {
      code_.push_back(BPF_JUMP(kJumpEqual, number, 0, 1));
      code_.push_back(BPF_STMT(kReturn, what));
    }
    code_.push_back(BPF_STMT(kReturn, others));
    const sock_fprog program{.len = static_cast<unsigned short>(code_.size()),
                             .filter = code_.data()};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return absl::OkStatus();
    return errno_status(errno, "filter of system calls");
  }

 private:
  std::vector<sock_filter> code_;
};

}  // namespace

Status allow_syscalls(std::span<const unsigned> allowed, pid_t self) {
  Filter filter;
  filter.add_tgkill(self);
  return filter.install(allowed, SECCOMP_RET_ALLOW, kRefuse);
}

Status refuse_syscalls(std::span<const unsigned> refused) {
  return Filter().install(refused, kRefuse, SECCOMP_RET_ALLOW);
}

}  // namespace gpuperf
