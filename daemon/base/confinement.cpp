#include "daemon/base/confinement.h"

#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "daemon/base/proc_text.h"
#include "daemon/base/syscall_filter.h"

namespace gpuperf {
namespace {

constexpr uid_t kNobody = 65'534;
constexpr rlim_t kMaxDescriptors = 128;  // the reader keeps two for each of its files

// Sanitizers reserve terabytes: a limit on memory would end the process at once.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kLimitsMemory = false;
#else
constexpr bool kLimitsMemory = true;
#endif

// Reading, memory, messages, the end. No call here takes a path that matters: newfstatat is how
// fstat is called. abort() needs tgkill, which reaches this process only.
constexpr std::array kAllowedCalls = {
    __NR_read,           __NR_pread64,     __NR_lseek,           __NR_fstat,
    __NR_newfstatat,     __NR_close,       __NR_fcntl,           __NR_write,
    __NR_recvmsg,        __NR_sendmsg,     __NR_sendto,          __NR_poll,
    __NR_mmap,           __NR_munmap,      __NR_mremap,          __NR_mprotect,
    __NR_madvise,        __NR_brk,         __NR_futex,           __NR_clock_gettime,
    __NR_getpid,         __NR_gettid,      __NR_rt_sigaction,    __NR_rt_sigreturn,
    __NR_rt_sigprocmask, __NR_sigaltstack, __NR_getrandom,       __NR_sched_yield,
    __NR_exit,           __NR_exit_group,  __NR_restart_syscall, __NR_shutdown,
};

bool limit(int resource, rlim_t value) {
  const rlimit both{.rlim_cur = value, .rlim_max = value};
  return ::setrlimit(static_cast<__rlimit_resource>(resource), &both) == 0;
}

// Private writable memory the process has now: the sixth number of statm, in pages.
uint64_t read_data_bytes() {
  const Result<BoundedText> statm = read_bounded_text("/proc/self/statm", 256);
  unsigned long pages = 0;
  if (!statm.ok() || std::sscanf(statm->text.c_str(), "%*u %*u %*u %*u %*u %lu", &pages) != 1) {
    return 0;
  }
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Of the wanted ones those that the process has.
bool keep_capabilities(uint64_t wanted) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, held) != 0) return false;
  for (size_t word = 0; word < std::size(held); ++word) {
    const auto kept = static_cast<uint32_t>(wanted >> (32 * word)) & held[word].permitted;
    held[word] = {.effective = kept, .permitted = kept, .inheritable = 0};
  }
  return ::syscall(SYS_capset, &header, held) == 0;
}

// Nobody, with no other capability left. A daemon that may not change its user (a service with few
// capabilities) stays who it is: what that user may do to files and to other processes of his is
// left to the filter, which has no call for it.
bool become_nobody(uint64_t capabilities) {
  if (::prctl(PR_SET_KEEPCAPS, 1) != 0) return false;
  const bool changed = ::setgroups(0, nullptr) == 0 &&
                       ::setresgid(kNobody, kNobody, kNobody) == 0 &&
                       ::setresuid(kNobody, kNobody, kNobody) == 0;
  if (!changed && errno != EPERM) return false;
  return keep_capabilities(capabilities);
}

// What the daemon ignores or blocks is inherited.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number) (void)::signal(number, SIG_DFL);
  sigset_t none;
  (void)sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

bool confine(const Confinement& confinement) {
  reset_signals();
  (void)::prctl(PR_SET_NAME, confinement.name);  // only for those who look
  if (!limit(RLIMIT_CORE, 0) || !limit(RLIMIT_NOFILE, kMaxDescriptors)) return false;
  if (kLimitsMemory && !limit(RLIMIT_DATA, read_data_bytes() + confinement.memory_bytes)) {
    return false;
  }
  if (!become_nobody(confinement.capabilities)) return false;
  // After the change of user, which takes it back. The parent may be gone by now.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != confinement.parent) return false;
  if (::prctl(PR_SET_DUMPABLE, 0) != 0 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return false;
  }
  std::vector<unsigned> calls(kAllowedCalls.begin(), kAllowedCalls.end());
  calls.insert(calls.end(), confinement.more_calls.begin(), confinement.more_calls.end());
  return allow_syscalls(calls, ::getpid(), confinement.open_flags).ok();
}

}  // namespace gpuperf
