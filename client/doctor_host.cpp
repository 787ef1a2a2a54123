#include <absl/strings/numbers.h>
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "client/doctor.h"

namespace gpuperf::client {
namespace {

constexpr std::string_view kDaemonName = "gpuperfd";
// Below it a uprobe cannot carry the function's identity (docs/decisions; perf with cookies).
constexpr int kOldestMajor = 5;
constexpr int kOldestMinor = 15;

// Processes of that name, in ascending order.
std::vector<int> find_processes(const std::string& proc, std::string_view name) {
  std::vector<int> pids;
  std::error_code error;  // a folder that cannot be read holds nobody we could see
  for (const auto& entry : std::filesystem::directory_iterator(proc, error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    std::string comm;
    std::getline(std::ifstream(entry.path() / "comm"), comm);
    if (comm == name) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

Check check_process(const HostPaths& paths) {
  const std::vector<int> pids = find_processes(paths.proc, kDaemonName);
  if (pids.empty()) {
    return {"process", CheckState::kProblem, "no process named gpuperfd found on this host",
            "sudo systemctl start gpuperfd; in a container, look on the host"};
  }
  std::string text = "gpuperfd runs as process";
  for (const int pid : pids) text += fmt::format("{} {}", pid == pids.front() ? "" : ",", pid);
  return {"process", CheckState::kOk, text, ""};
}

Check check_kernel(const std::string& release) {
  int major = 0;
  int minor = 0;
  if (sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) {
    return {"kernel", CheckState::kHint, fmt::format("kernel {}: version not understood", release),
            ""};
  }
  if (std::pair(major, minor) < std::pair(kOldestMajor, kOldestMinor)) {
    return {"kernel", CheckState::kProblem,
            fmt::format("kernel {} is too old: gpuperfd needs 5.15 or later", release),
            "boot a newer kernel; from 6.6 on, probes also attach and detach quickly"};
  }
  const bool fast = std::pair(major, minor) >= std::pair(6, 6);
  return {"kernel", fast ? CheckState::kOk : CheckState::kHint,
          fmt::format("kernel {}{}", release, fast ? "" : ": probes attach and detach one by one"),
          fast ? "" : "kernel 6.6 and later attach all probes of a file at once"};
}

Check check_btf(const std::string& path) {
  if (access(path.c_str(), R_OK) == 0) return {"btf", CheckState::kOk, path + " is there", ""};
  return {"btf", CheckState::kProblem, fmt::format("{}: {}", path, strerror(errno)),
          "boot a kernel built with CONFIG_DEBUG_INFO_BTF"};
}

}  // namespace

std::vector<Check> check_host(const HostPaths& paths) {
  struct utsname name = {};
  (void)uname(&name);  // fails only with a bad pointer
  return {check_process(paths), check_kernel(name.release), check_btf(paths.btf)};
}

std::vector<Check> explain_unreachable(const std::string& message,
                                       const std::optional<Check>& socket,
                                       std::vector<Check> host) {
  const auto process = std::ranges::find(host, "process", &Check::check);
  const bool runs = process == host.end() || process->state == CheckState::kOk;
  const bool has_cause = socket.has_value() && socket->state != CheckState::kOk;
  if (!has_cause) {
    host.insert(host.begin(), {"daemon", CheckState::kProblem, message,
                               "read the daemon's log: journalctl -u gpuperfd"});
  } else if (runs) {
    host.insert(host.begin(), *socket);
  } else {
    host.erase(process);
    host.insert(host.begin(), {"daemon", CheckState::kProblem,
                               fmt::format("gpuperfd is not running ({})", socket->message),
                               "sudo systemctl start gpuperfd; in a container, look on the host; "
                               "a daemon elsewhere: --address"});
  }
  return host;
}

Check check_socket(const Address& address) {
  const std::string& path = address.unix_path;
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    const bool hidden = errno == EACCES;
    return {"socket", CheckState::kProblem, fmt::format("{}: {}", path, strerror(errno)),
            hidden ? "run this as root: sudo gpuperfctl doctor"
                   : "check that gpuperfd is running and that grpc.listen is this path; for "
                     "another address: --address"};
  }
  if (!S_ISSOCK(info.st_mode)) {
    return {"socket", CheckState::kProblem, path + " is not a socket",
            "give the path of gpuperfd's socket: --address"};
  }
  if (access(path.c_str(), W_OK) != 0) {
    return {
        "socket", CheckState::kProblem, fmt::format("{}: {}", path, strerror(errno)),
        "reading needs root or membership of group gpuperf: sudo usermod -aG gpuperf \"$USER\", "
        "then log in again"};
  }
  return {"socket", CheckState::kOk, path + " is accessible", ""};
}

Check check_caller(bool root) {
  if (root) return {"caller", CheckState::kOk, "root: may read and change", ""};
  return {"caller", CheckState::kOk, "not root: may read, not change",
          "run commands that change the daemon as root: sudo gpuperfctl …"};
}

}  // namespace gpuperf::client
