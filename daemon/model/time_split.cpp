#include "daemon/model/time_split.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace gpuperf {
namespace {

// asm/unistd_64.h: those a thread can wait in.
constexpr std::pair<int32_t, std::string_view> kSyscallNames[] = {
    {0, "read"},           {1, "write"},
    {3, "close"},          {7, "poll"},
    {9, "mmap"},           {10, "mprotect"},
    {11, "munmap"},        {16, "ioctl"},
    {17, "pread64"},       {18, "pwrite64"},
    {19, "readv"},         {20, "writev"},
    {23, "select"},        {24, "sched_yield"},
    {25, "mremap"},        {26, "msync"},
    {28, "madvise"},       {34, "pause"},
    {35, "nanosleep"},     {40, "sendfile"},
    {42, "connect"},       {43, "accept"},
    {44, "sendto"},        {45, "recvfrom"},
    {46, "sendmsg"},       {47, "recvmsg"},
    {56, "clone"},         {57, "fork"},
    {58, "vfork"},         {59, "execve"},
    {61, "wait4"},         {72, "fcntl"},
    {73, "flock"},         {74, "fsync"},
    {75, "fdatasync"},     {76, "truncate"},
    {77, "ftruncate"},     {149, "mlock"},
    {151, "mlockall"},     {202, "futex"},
    {208, "io_getevents"}, {230, "clock_nanosleep"},
    {232, "epoll_wait"},   {247, "waitid"},
    {257, "openat"},       {270, "pselect6"},
    {271, "ppoll"},        {275, "splice"},
    {281, "epoll_pwait"},  {285, "fallocate"},
    {288, "accept4"},      {295, "preadv"},
    {296, "pwritev"},      {299, "recvmmsg"},
    {307, "sendmmsg"},     {426, "io_uring_enter"},
    {435, "clone3"},       {441, "epoll_pwait2"},
    {449, "futex_waitv"},  {455, "futex_wait"},
};
static_assert(std::ranges::is_sorted(kSyscallNames, {},
                                     &std::pair<int32_t, std::string_view>::first));

uint64_t& find_largest_off_cpu(TimeParts& parts) {
  uint64_t* largest = std::ranges::max_element(parts.blocked_ns);
  if (parts.runnable_ns > *largest) largest = &parts.runnable_ns;
  if (parts.throttled_ns > *largest) largest = &parts.throttled_ns;
  return *largest;
}

}  // namespace

std::string_view get_wait_kind_name(WaitKind kind) {
  switch (kind) {
    case WaitKind::kOther:
      return "other";
    case WaitKind::kFutex:
      return "futex";
    case WaitKind::kIo:
      return "io";
    case WaitKind::kPoll:
      return "poll";
    case WaitKind::kGpu:
      return "gpu";
    case WaitKind::kSleep:
      return "sleep";
    case WaitKind::kFault:
      return "page_fault";
  }
  return "other";  // only reached with a value outside the enum
}

TimeParts make_time_parts(const TimeSplit& split, uint64_t duration_ns) {
  TimeParts parts{.runnable_ns = split.runnable_ns,
                  .throttled_ns = split.throttled_ns,
                  .blocked_ns = split.waits_ns};
  const uint64_t off_ns = parts.runnable_ns + parts.throttled_ns + get_blocked_ns(parts);
  for (uint64_t beyond_ns = off_ns - std::min(off_ns, duration_ns); beyond_ns > 0;) {
    uint64_t& largest_ns = find_largest_off_cpu(parts);
    const uint64_t taken_ns = std::min(largest_ns, beyond_ns);
    largest_ns -= taken_ns;
    beyond_ns -= taken_ns;
  }
  const uint64_t on_ns = duration_ns - std::min(off_ns, duration_ns);
  const uint64_t samples = std::accumulate(split.ticks.begin(), split.ticks.end(), uint64_t{0});
  const auto share = [&](uint32_t ticks) {
    return samples == 0 ? 0
                        : static_cast<uint64_t>(static_cast<double>(on_ns) * ticks /
                                                static_cast<double>(samples));
  };
  // A double may round a share of months up beyond what there is.
  parts.on_cpu_kernel_ns = std::min(share(split.ticks[GPUPERF_TICK_SYSCALL]), on_ns);
  parts.on_cpu_fault_ns =
      std::min(share(split.ticks[GPUPERF_TICK_FAULT]), on_ns - parts.on_cpu_kernel_ns);
  parts.on_cpu_user_ns = on_ns - parts.on_cpu_kernel_ns - parts.on_cpu_fault_ns;
  return parts;
}

uint64_t get_on_cpu_ns(const TimeParts& parts) {
  return parts.on_cpu_user_ns + parts.on_cpu_kernel_ns + parts.on_cpu_fault_ns;
}

uint64_t get_blocked_ns(const TimeParts& parts) {
  return std::accumulate(parts.blocked_ns.begin(), parts.blocked_ns.end(), uint64_t{0});
}

std::optional<WaitKind> find_main_wait(const TimeParts& parts) {
  const auto most = std::ranges::max_element(parts.blocked_ns);
  if (*most == 0) return std::nullopt;
  return static_cast<WaitKind>(most - parts.blocked_ns.begin());
}

std::string get_syscall_name(int32_t number) {
  if (number < 0) return "";
  const auto* row = std::ranges::lower_bound(kSyscallNames, number, {},
                                             &std::pair<int32_t, std::string_view>::first);
  if (row != std::end(kSyscallNames) && row->first == number) return std::string(row->second);
  return "syscall " + std::to_string(number);
}

std::string_view get_file_kind_name(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFIFO:
      return "pipe";
    case S_IFSOCK:
      return "socket";
    case S_IFREG:
      return "file";
    case S_IFDIR:
      return "directory";
    case S_IFCHR:
    case S_IFBLK:
      return "device";
    default:
      return "";
  }
}

std::string_view get_thread_state_name(ThreadState state) {
  switch (state) {
    case ThreadState::kRunning:
      return "running";
    case ThreadState::kRunnable:
      return "runnable";
    case ThreadState::kBlocked:
      return "blocked";
  }
  return "running";  // only reached with a value outside the enum
}

}  // namespace gpuperf
