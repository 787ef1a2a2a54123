#include "daemon/probe/attach/load_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>

#include "daemon/base/needed_rights.h"

namespace gpuperf {
namespace {

// libbpf's own words about the load in progress on this thread, kept for the error.
thread_local std::string load_log;

// The first line says what failed; the last one of the verifier, before what it took, says why.
std::string summarize_load_log() {
  std::string line = load_log.substr(0, load_log.find('\n'));
  if (line.starts_with("libbpf: ")) line.erase(0, 8);
  const size_t end = load_log.find("\nprocessed ");
  if (end == std::string::npos || end == 0) return line;
  const size_t begin = load_log.rfind('\n', end - 1) + 1;  // 0 where there is none
  return line + ": " + load_log.substr(begin, end - begin);
}

}  // namespace

int keep_load_message(libbpf_print_level level, const char* format, va_list arguments) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  if (level != LIBBPF_WARN || load_log.size() > kMaxBytes) return 0;
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length <= 0) return length;
  const size_t begin = load_log.size();
  load_log.resize(begin + static_cast<size_t>(length) + 1);  // what is printed ends with a zero
  (void)std::vsnprintf(load_log.data() + begin, load_log.size() - begin, format, arguments);
  load_log.pop_back();
  return length;
}

void begin_load_log() { load_log.clear(); }

Status explain_load_failure(int error_number) {
  std::string what = "load BPF programs";
  if (!load_log.empty()) what += " (" + summarize_load_log() + ")";
  if (error_number == EACCES) {  // the verifier's answer, not that of permissions
    return absl::UnimplementedError(what + ": this kernel refuses the program");
  }
  if (error_number == EPERM) {
    what += std::string(": not permitted: ") + kNeededRights;
    return absl::PermissionDeniedError(what);
  }
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    what +=
        ": the kernel offers no BTF at /sys/kernel/btf/vmlinux: use a kernel built with "
        "CONFIG_DEBUG_INFO_BTF, and mount /sys into the container";
    return absl::FailedPreconditionError(what);
  }
  return errno_status(error_number, what);
}

}  // namespace gpuperf
