#include "daemon/app/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <string_view>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

constexpr unsigned kMib = 20;
// Two CPUs, default configuration, kernel 6.18: 102 MB of the control group (tables of the kernel
// side for the most part), 506 MB of addresses. More CPUs take more.
constexpr uint64_t kStartBytes = uint64_t{128} << kMib;
constexpr uint64_t kStartAddressBytes = uint64_t{640} << kMib;

constexpr std::string_view kOutOfMemory =
    "gpuperfd: out of memory: an allocation failed, so the daemon ends. See the limits of its "
    "address space (ulimit -v, LimitAS=) and of its control group (memory.max).\n";

std::string to_mib(uint64_t bytes) { return std::to_string(bytes >> kMib) + " MiB"; }

// "max", or bytes.
uint64_t read_limit(const std::string& path) {
  constexpr size_t kMaxBytes = 64;
  uint64_t bytes = ~uint64_t{0};
  const Result<BoundedText> text = read_bounded_text(path, kMaxBytes);
  if (text.ok()) {
    (void)std::from_chars(text->text.data(), text->text.data() + text->text.size(), bytes);
  }
  return bytes;
}

// The path behind `key` in the text of /proc/self/cgroup: "0::" is version 2, ":memory:" version 1.
std::string find_group(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return "/";
  text.remove_prefix(at + key.size());
  return std::string(text.substr(0, text.find('\n')));
}

// Of `group` and those above it, as `file` of their folders says.
void apply_group(const std::string& root, std::string group, const std::string& file,
                 MemoryLimits& limits) {
  while (true) {
    const uint64_t bytes = read_limit(root + group + "/" + file);
    if (bytes < limits.group_bytes) {
      limits.group_bytes = bytes;
      limits.group = group;
    }
    if (group.size() <= 1) return;
    group.resize(std::max<size_t>(group.rfind('/'), 1));
  }
}

}  // namespace

MemoryLimits read_memory_limits(const std::string& proc_root, const std::string& cgroup_root) {
  MemoryLimits limits;
  constexpr size_t kMaxBytes = size_t{64} << 10;
  const Result<BoundedText> own = read_bounded_text(proc_root + "/self/cgroup", kMaxBytes);
  const std::string text = own.ok() ? "\n" + own->text : "";
  apply_group(cgroup_root, find_group(text, "\n0::"), "memory.max", limits);
  apply_group(cgroup_root + "/memory", find_group(text, ":memory:"), "memory.limit_in_bytes",
              limits);
  rlimit address{};
  if (getrlimit(RLIMIT_AS, &address) == 0 && address.rlim_cur != RLIM_INFINITY) {
    limits.address_bytes = address.rlim_cur;
  }
  return limits;
}

Status check_memory_limits(const MemoryLimits& limits) {
  if (limits.group_bytes < kStartBytes) {
    return absl::ResourceExhaustedError("memory: control group " + limits.group + " may use " +
                                        to_mib(limits.group_bytes) + ", and a start takes " +
                                        to_mib(kStartBytes) +
                                        "; raise MemoryMax= or the container's limit");
  }
  if (limits.address_bytes < kStartAddressBytes) {
    return absl::ResourceExhaustedError(
        "memory: the address space is limited to " + to_mib(limits.address_bytes) +
        ", and a start takes " + to_mib(kStartAddressBytes) + "; raise `ulimit -v` or LimitAS=");
  }
  return absl::OkStatus();
}

void report_failed_allocations() {
  std::set_new_handler([] {
    (void)!write(STDERR_FILENO, kOutOfMemory.data(), kOutOfMemory.size());
    _exit(1);
  });
}

}  // namespace gpuperf
