#include "daemon/owner/thread_look.h"

#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxBytes = 4'096;
constexpr size_t kMaxLevels = 16;  // of control groups
// Of the time since the last reading: less is not what a thread is held up by.
constexpr uint64_t kThrottledShare = 10;  // one in
constexpr uint64_t kRunnableShare = 2;

std::string read_text(const std::string& path) {
  Result<BoundedText> text = read_bounded_text(path, kMaxBytes);
  return text.ok() ? std::move(text->text) : std::string();
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::string_view take_word(std::string_view& text, char separator) {
  const size_t length = std::min(text.find(separator), text.size());
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return word;
}

// The path of the control group that has the CPU controller: "/a/b"; and below which folder.
struct CpuGroup {
  std::string_view controller{};  // "cpu" of version 1, empty of version 2
  std::string_view path;
};
std::optional<CpuGroup> find_cpu_group(std::string_view text) {
  std::optional<CpuGroup> unified;
  while (!text.empty()) {
    std::string_view line = take_word(text, '\n');
    const std::string_view number = take_word(line, ':');
    std::string_view controllers = take_word(line, ':');
    if (number == "0" && controllers.empty()) unified = CpuGroup{.path = line};
    while (!controllers.empty()) {
      if (take_word(controllers, ',') == "cpu") return CpuGroup{.controller = "cpu", .path = line};
    }
  }
  return unified;
}

// Of the text of cpu.stat, either version.
uint64_t parse_throttled_ns(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = take_word(text, '\n');
    const std::string_view name = take_word(line, ' ');
    if (name == "throttled_usec") return parse_number(line).value_or(0) * 1'000;
    if (name == "throttled_time") return parse_number(line).value_or(0);
  }
  return 0;
}

// 0 where it fell: the process has another control group.
uint64_t get_gain(uint64_t before, uint64_t now) { return now - std::min(now, before); }

NcclActivity judge_wait(uint32_t syscall) {
  switch (syscall) {
    case SYS_futex:
#ifdef SYS_futex_waitv
    case SYS_futex_waitv:
#endif
      return NcclActivity::kLock;
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
      return NcclActivity::kSleep;
    case SYS_ioctl:
      return NcclActivity::kDriver;
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_accept:
    case SYS_connect:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_openat:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
      return NcclActivity::kIo;
  }
  return NcclActivity::kOtherWait;
}

}  // namespace

NcclActivity judge_activity(const ThreadReading& before, const ThreadReading& now) {
  switch (now.state) {
    case 'T':
    case 't':
      return NcclActivity::kStopped;
    case 'S':
    case 'D':
      return judge_wait(now.syscall);
    case 'R':
      break;
    default:
      return NcclActivity::kUnknown;
  }
  if (before.mono_ns == 0) return NcclActivity::kRunning;
  const auto elapsed_ns = static_cast<uint64_t>(now.mono_ns - before.mono_ns);
  if (get_gain(before.throttled_ns, now.throttled_ns) * kThrottledShare >= elapsed_ns) {
    return NcclActivity::kThrottled;
  }
  if (get_gain(before.runnable_ns, now.runnable_ns) * kRunnableShare >= elapsed_ns) {
    return NcclActivity::kRunnable;
  }
  return NcclActivity::kRunning;
}

uint64_t ThreadReader::read_throttled_ns(uint32_t pid) const {
  const std::string text = read_text(get_proc_path(proc_root_, pid, "cgroup"));
  const auto group = find_cpu_group(text);
  if (!group || group->path.find("..") != std::string_view::npos) return 0;
  std::string folder = cgroup_root_;
  if (!group->controller.empty()) folder += "/" + std::string(group->controller);
  std::string path(group->path == "/" ? "" : group->path);
  uint64_t throttled_ns = 0;
  // A quota of a group around it holds the thread up as well.
  for (size_t level = 0; level < kMaxLevels && !path.empty(); ++level) {
    throttled_ns += parse_throttled_ns(read_text(folder + path + "/cpu.stat"));
    path.erase(path.rfind('/'));
  }
  return throttled_ns;
}

ThreadReading ThreadReader::read(uint32_t pid, uint32_t tid, int64_t now_mono_ns) const {
  ThreadReading reading{.mono_ns = now_mono_ns};
  // A thread's files are found under its own id, too.
  const Result<char> state = read_process_state(proc_root_, tid);
  if (!state.ok()) return reading;
  reading.state = *state;
  if (*state != 'R') {
    const std::string text = read_text(get_proc_path(proc_root_, tid, "syscall"));
    const auto number = parse_number(text);
    if (number) reading.syscall = static_cast<uint32_t>(*number);
  }
  std::string schedstat = read_text(get_proc_path(proc_root_, tid, "schedstat"));
  std::string_view rest = schedstat;
  (void)take_word(rest, ' ');  // on a CPU
  reading.runnable_ns = parse_number(take_word(rest, ' ')).value_or(0);
  reading.throttled_ns = read_throttled_ns(pid);
  return reading;
}

}  // namespace gpuperf
