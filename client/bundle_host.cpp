// What a support bundle says of this host, read from /proc and /sys.

#include <absl/strings/numbers.h>
#include <errno.h>
#include <fmt/format.h>
#include <pwd.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "client/bundle.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

using nlohmann::ordered_json;

constexpr uid_t kFirstUser = 1000;  // below them are the system's, whose names are words
constexpr uid_t kNobody = 65534;
constexpr size_t kLogLines = 2'000;

// Lines of /proc/PID/status that say who and where; the rest are numbers.
constexpr std::string_view kStatusKeys[] = {"State",
                                            "FDSize",
                                            "NStgid",
                                            "VmPeak",
                                            "VmSize",
                                            "VmLck",
                                            "VmPin",
                                            "VmHWM",
                                            "VmRSS",
                                            "RssAnon",
                                            "RssFile",
                                            "RssShmem",
                                            "VmData",
                                            "VmStk",
                                            "VmSwap",
                                            "Threads",
                                            "CapInh",
                                            "CapPrm",
                                            "CapEff",
                                            "CapBnd",
                                            "CapAmb",
                                            "NoNewPrivs",
                                            "Seccomp",
                                            "Seccomp_filters",
                                            "Cpus_allowed_list",
                                            "voluntary_ctxt_switches",
                                            "nonvoluntary_ctxt_switches"};

std::optional<std::string> find_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return std::nullopt;
  return text;
}

ordered_json find_line(const std::string& path) {
  const auto text = find_text(path);
  if (!text) return nullptr;
  return std::string(strip_blanks(*text));
}

// "v2", "v1", or both.
std::string find_cgroup_mode(const std::string& sys) {
  const bool is_unified = access((sys + "/fs/cgroup/cgroup.controllers").c_str(), F_OK) == 0;
  const bool is_hybrid = access((sys + "/fs/cgroup/unified").c_str(), F_OK) == 0;
  return is_unified ? "v2" : is_hybrid ? "v1 and v2" : "v1";
}

ordered_json find_memory_kib(const std::string& proc) {
  constexpr std::string_view kKey = "MemTotal:";
  const std::string text = find_text(proc + "/meminfo").value_or("");
  for (const std::string_view line : split_lines(text)) {
    if (!line.starts_with(kKey)) continue;
    return std::strtoull(std::string(line.substr(kKey.size())).c_str(), nullptr, 10);
  }
  return nullptr;
}

// "socket", "pipe", "anon_inode:bpf-map", "/path" as "file".
std::string find_descriptor_kind(const std::string& target) {
  if (target.starts_with("/dev/nvidia")) return "nvidia device";
  if (target.starts_with('/')) return "file";
  if (target.starts_with("anon_inode:")) return target;
  return target.substr(0, target.find(':'));
}

}  // namespace

void learn_host_names(const std::string& proc, Redactor& redactor) {
  utsname name{};
  if (uname(&name) == 0) {
    redactor.learn("host", name.nodename);
    redactor.learn(
        "host",
        std::string_view(name.nodename).substr(0, std::string_view(name.nodename).find('.')));
  }
  setpwent();
  while (const passwd* user = getpwent()) {
    if (user->pw_uid >= kFirstUser && user->pw_uid != kNobody)
      redactor.learn("user", user->pw_name);
  }
  endpwent();
  std::error_code error;  // a folder that cannot be read names nobody
  for (const auto& entry : std::filesystem::directory_iterator(proc, error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const auto comm = find_text(entry.path().string() + "/comm");
    if (comm) redactor.learn("comm", strip_blanks(*comm));
  }
}

ordered_json describe_host(const std::string& proc, const std::string& sys) {
  ordered_json host;
  utsname name{};
  (void)uname(&name);  // fails only with a bad pointer
  host["kernel"] = name.release;
  host["kernel_build"] = name.version;
  host["machine"] = name.machine;
  host["cpus"] = sysconf(_SC_NPROCESSORS_ONLN);
  host["memory_kib"] = find_memory_kib(proc);
  host["cgroups"] = find_cgroup_mode(sys);
  host["has_btf"] = access((sys + "/kernel/btf/vmlinux").c_str(), R_OK) == 0;
  host["lockdown"] = find_line(sys + "/kernel/security/lockdown");
  host["security_modules"] = find_line(sys + "/kernel/security/lsm");
  for (const char* setting : {"perf_event_paranoid", "unprivileged_bpf_disabled", "kptr_restrict",
                              "yama/ptrace_scope", "pid_max", "randomize_va_space"}) {
    host[std::string("kernel.") + setting] = find_line(proc + "/sys/kernel/" + setting);
  }
  host["bpf_jit_enable"] = find_line(proc + "/sys/net/core/bpf_jit_enable");
  host["nvidia_driver"] = find_line(proc + "/driver/nvidia/version");
  host["pressure_cpu"] = find_line(proc + "/pressure/cpu");
  host["pressure_memory"] = find_line(proc + "/pressure/memory");
  host["load"] = find_line(proc + "/loadavg");
  return host;
}

Result<ordered_json> describe_process(const std::string& proc, uint32_t pid) {
  const std::string folder = fmt::format("{}/{}", proc, pid);
  const auto status = find_text(folder + "/status");
  if (!status) {
    return absl::NotFoundError(fmt::format("{}/status: {}", folder, strerror(errno)));
  }
  ordered_json process;
  for (const std::string_view line : split_lines(*status)) {
    const std::string_view key = line.substr(0, line.find(':'));
    if (key.size() == line.size() || !std::ranges::count(kStatusKeys, key)) continue;
    process["status"][std::string(key)] = std::string(strip_blanks(line.substr(key.size() + 1)));
  }
  process["limits"] = ordered_json::array();
  const std::string limits = find_text(folder + "/limits").value_or("");
  for (const std::string_view line : split_lines(limits)) {
    process["limits"].push_back(std::string(strip_blanks(line)));
  }
  std::map<std::string, uint64_t> kinds;
  std::error_code error;  // not root: none are seen
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd", error)) {
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (!error) ++kinds[find_descriptor_kind(target.string())];
  }
  process["descriptors"] = kinds;
  return process;
}

Result<std::string> read_last_lines(const std::string& path) {
  const auto text = find_text(path);
  if (!text) return absl::NotFoundError(fmt::format("{}: {}", path, strerror(errno)));
  size_t begin = text->size();
  for (size_t lines = 0; begin > 0 && lines <= kLogLines; --begin) {
    if ((*text)[begin - 1] == '\n' && ++lines > kLogLines) break;
  }
  return text->substr(begin);
}

}  // namespace gpuperf::client
