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

  // That call with `value` as the lower half of its argument, of which the kernel takes no more.
  void allow_with(unsigned call, size_t argument, unsigned value) {
    const auto offset =
        static_cast<unsigned>(offsetof(seccomp_data, args) + argument * sizeof(__u64));
    const sock_filter part[] = {
        BPF_JUMP(kJumpEqual, call, 0, 4),  BPF_STMT(kLoad, offset),
        BPF_JUMP(kJumpEqual, value, 0, 1), BPF_STMT(kReturn, SECCOMP_RET_ALLOW),
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

Status allow_syscalls(std::span<const unsigned> allowed, pid_t self,
                      std::optional<unsigned> open_flags) {
  Filter filter;
  filter.allow_with(__NR_tgkill, 0, static_cast<unsigned>(self));
  if (open_flags) filter.allow_with(__NR_openat, 2, *open_flags);
  return filter.install(allowed, SECCOMP_RET_ALLOW, kRefuse);
}

Status refuse_syscalls(std::span<const unsigned> refused) {
  return Filter().install(refused, kRefuse, SECCOMP_RET_ALLOW);
}

}  // namespace gpuperf
