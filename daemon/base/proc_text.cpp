#include "daemon/base/proc_text.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "daemon/base/clock_tick.h"
#include "daemon/base/fd.h"

namespace gpuperf {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;
// A stat line is some 300 bytes; the name in it at most 64.
constexpr size_t kMaxStatBytes = 4'096;

template <typename T>
bool parse_decimal(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<BoundedText> read_bounded_text(const std::string& path, size_t max_bytes) {
  // Not blocking: under a foreign root the name may have become a FIFO.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return errno_status(errno, path + ": open");
  BoundedText result;
  while (result.text.size() <= max_bytes) {
    const size_t old_bytes = result.text.size();
    const size_t wanted = std::min(kChunkBytes, max_bytes + 1 - old_bytes);
    result.text.resize(old_bytes + wanted);
    const ssize_t count = ::read(file.get(), result.text.data() + old_bytes, wanted);
    const int error = errno;
    result.text.resize(old_bytes + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && error == EINTR) continue;
    if (count < 0) return errno_status(error, path + ": read");
    if (count == 0) break;
  }
  result.truncated = result.text.size() > max_bytes;
  if (result.truncated) result.text.resize(max_bytes);
  return result;
}

std::string get_proc_path(std::string_view proc_root, uint32_t pid, std::string_view name) {
  std::string path(proc_root);
  path += '/';
  path += std::to_string(pid);
  path += '/';
  path += name;
  return path;
}

Result<std::vector<uint32_t>> list_pids(const std::string& proc_root) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(proc_root.c_str()), &::closedir);
  if (directory == nullptr) return errno_status(errno, proc_root + ": list processes");
  std::vector<uint32_t> pids;
  // readdir is safe here: the stream is ours alone.
  while (const dirent* entry = ::readdir(directory.get())) {
    uint32_t pid = 0;
    if (parse_decimal(std::string_view(entry->d_name), pid) && pid != 0) pids.push_back(pid);
  }
  std::ranges::sort(pids);
  return pids;
}

namespace {

// A field of /proc/PID/stat behind the name, by its position from 1 on as proc(5) has it; empty =
// there is none.
Result<std::string> read_stat_field(std::string_view proc_root, uint32_t pid, int wanted) {
  const std::string path = get_proc_path(proc_root, pid, "stat");
  ASSIGN_OR_RETURN(const BoundedText stat, read_bounded_text(path, kMaxStatBytes));
  // "71 (any name, with ) and spaces) S 1 …": the state, field 3, follows the last parenthesis.
  std::string_view rest = stat.text;
  const size_t name_end = rest.rfind(')');
  rest.remove_prefix(name_end == std::string_view::npos ? rest.size() : name_end + 1);
  for (int field = 3; field <= wanted && !rest.empty(); ++field) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const size_t length = std::min(rest.find_first_of(" \n"), rest.size());
    if (field == wanted) return std::string(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return std::string();
}

Result<uint64_t> read_stat_number(std::string_view proc_root, uint32_t pid, int wanted) {
  ASSIGN_OR_RETURN(const std::string text, read_stat_field(proc_root, pid, wanted));
  uint64_t value = 0;
  if (parse_decimal(std::string_view(text), value)) return value;
  return absl::DataLossError(get_proc_path(proc_root, pid, "stat") + ": no number in field " +
                             std::to_string(wanted));
}

}  // namespace

Result<uint64_t> read_start_ticks(std::string_view proc_root, uint32_t pid) {
  return read_stat_number(proc_root, pid, 22);
}

Result<uint64_t> read_start_stack(std::string_view proc_root, uint32_t pid) {
  return read_stat_number(proc_root, pid, 28);
}

Result<EnvironmentPlace> read_environment_place(std::string_view proc_root, uint32_t pid) {
  ASSIGN_OR_RETURN(const uint64_t begin, read_stat_number(proc_root, pid, 50));
  ASSIGN_OR_RETURN(const uint64_t end, read_stat_number(proc_root, pid, 51));
  return EnvironmentPlace{.begin = begin, .end = end};
}

Result<uint64_t> read_session(std::string_view proc_root, uint32_t pid) {
  return read_stat_number(proc_root, pid, 6);
}

Result<char> read_process_state(std::string_view proc_root, uint32_t pid) {
  ASSIGN_OR_RETURN(const std::string state, read_stat_field(proc_root, pid, 3));
  if (state.size() == 1) return state[0];
  return absl::DataLossError(get_proc_path(proc_root, pid, "stat") + ": no state");
}

bool is_running_since(std::string_view proc_root, uint32_t pid, uint64_t start_boot_ns) {
  const Result<uint64_t> ticks = read_start_ticks(proc_root, pid);
  return ticks.ok() && (start_boot_ns == 0 || *ticks == start_boot_ns / kTickNs);
}

}  // namespace gpuperf
