#include "daemon/app/rights.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/syscall_filter.h"

namespace gpuperf {
namespace {

constexpr uint64_t make_mask(int capability) { return uint64_t{1} << capability; }
// As in deploy/systemd/gpuperfd.service, which says what each is for.
constexpr uint64_t kKept = make_mask(CAP_BPF) | make_mask(CAP_PERFMON) | make_mask(CAP_SYS_PTRACE) |
                           make_mask(CAP_DAC_READ_SEARCH) | make_mask(CAP_SYSLOG) |
                           make_mask(CAP_NET_BIND_SERVICE) | make_mask(CAP_CHECKPOINT_RESTORE);

// What the worker needs that attaches to processes, and nobody else.
constexpr unsigned kAttachCalls[] = {
    __NR_ptrace,
    __NR_process_vm_writev,
    __NR_pidfd_getfd,
};

// What an intruder would want and the daemon never calls. execve stays: workers are executed anew.
constexpr unsigned kRefusedCalls[] = {
    __NR_process_madvise,
    __NR_mount,
    __NR_umount2,
    __NR_pivot_root,
    __NR_chroot,
    __NR_move_mount,
    __NR_open_tree,
    __NR_fsopen,
    __NR_fsmount,
    __NR_mount_setattr,
    __NR_setns,
    __NR_unshare,
    __NR_init_module,
    __NR_finit_module,
    __NR_delete_module,
    __NR_kexec_load,
    __NR_kexec_file_load,
    __NR_reboot,
    __NR_swapon,
    __NR_swapoff,
    __NR_settimeofday,
    __NR_clock_settime,
    __NR_adjtimex,
    __NR_clock_adjtime,
    __NR_acct,
    __NR_quotactl,
    __NR_iopl,
    __NR_ioperm,
    __NR_add_key,
    __NR_request_key,
    __NR_keyctl,
    __NR_open_by_handle_at,
    __NR_userfaultfd,
    __NR_io_uring_setup,
    __NR_sethostname,
    __NR_setdomainname,
    __NR_personality,
    __NR_vhangup,
    __NR_modify_ldt,
    __NR_migrate_pages,
    __NR_move_pages,
};

Status join_group(const std::string& name) {
  const group* const found = getgrnam(name.c_str());
  if (found == nullptr) return absl::OkStatus();  // then there is nothing to give to it
  std::vector<gid_t> groups(static_cast<size_t>(NGROUPS_MAX));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  if (count < 0) return errno_status(errno, "own groups");
  groups.resize(static_cast<size_t>(count));
  groups.push_back(found->gr_gid);
  if (setgroups(groups.size(), groups.data()) == 0) return absl::OkStatus();
  return errno_status(errno, "join group " + name);
}

// Of the calling thread, and of those it starts.
Status reduce_capabilities(uint64_t kept) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, held) != 0) return errno_status(errno, "own capabilities");
  for (size_t word = 0; word < std::size(held); ++word) {
    const auto mask = static_cast<uint32_t>(kept >> (32 * word));
    held[word].permitted &= mask;
    held[word].effective &= mask;
    held[word].inheritable &= mask;
  }
  if (syscall(SYS_capset, &header, held) == 0) return absl::OkStatus();
  return errno_status(errno, "give up capabilities");
}

// Whether events of every process on a CPU, which tell of new mappings, can be had with what is
// kept. Where kernel.perf_event_paranoid is above 2, distributions' kernels want CAP_SYS_ADMIN.
// Tried on a thread that ends.
bool can_watch_mappings(uint64_t kept) {
  bool can = false;
  std::thread([kept, &can] {
    if (!reduce_capabilities(kept).ok()) return;
    perf_event_attr event{};
    event.type = PERF_TYPE_SOFTWARE;
    event.size = sizeof event;
    event.config = PERF_COUNT_SW_DUMMY;
    const Fd opened(
        static_cast<int>(syscall(SYS_perf_event_open, &event, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)));
    can = opened.valid();
  }).join();
  return can;
}

Status keep_capabilities(uint64_t kept) {
  // Who may not do this has no other capabilities to lose.
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    if ((kept & make_mask(capability)) == 0) (void)prctl(PR_CAPBSET_DROP, capability);
  }
  return reduce_capabilities(kept);
}

// Whether this kernel is older than 6.6, the first with uprobes of many places at once.
bool needs_perf_probes() {
  constexpr int kMajor = 6, kMinor = 6;
  utsname name{};
  int major = 0, minor = 0;
  if (uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &major, &minor) != 2) return true;
  return major < kMajor || (major == kMajor && minor < kMinor);
}

}  // namespace

Status drop_rights(const std::string& group, bool through_perf) {
  if (geteuid() == 0) RETURN_IF_ERROR(join_group(group));
  const bool needs_admin = through_perf || needs_perf_probes() || !can_watch_mappings(kKept);
  RETURN_IF_ERROR(keep_capabilities(needs_admin ? kKept | make_mask(CAP_SYS_ADMIN) : kKept));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno_status(errno, "no new privileges");
  RETURN_IF_ERROR(refuse_syscalls(kAttachCalls));
  return refuse_syscalls(kRefusedCalls);
}

Status drop_rights_but_attaching() {
  RETURN_IF_ERROR(keep_capabilities(kKept));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno_status(errno, "no new privileges");
  return refuse_syscalls(kRefusedCalls);
}

}  // namespace gpuperf
