#include "daemon/resolve/perf_map_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/proc_text.h"
#include "daemon/probe/discovery/process_files.h"

namespace gpuperf {
namespace {

// A map kept costs that beside its functions, so that many empty ones leave, too.
constexpr size_t kEntryBytes = 256;

std::string get_map_path(uint32_t pid) { return "/tmp/perf-" + std::to_string(pid) + ".map"; }

// Appends the bytes of the file from `offset` on, PerfMapCache::kMaxFileBytes of the file at most.
std::string read_from(int fd, uint64_t offset, uint64_t file_bytes) {
  const uint64_t end = std::min(file_bytes, PerfMapCache::kMaxFileBytes);
  std::string text(end > offset ? end - offset : 0, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count =
        ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace

bool is_made_at_run_time(const MapEntry& mapping) {
  if (mapping.path.empty()) return true;
  constexpr std::array<std::string_view, 6> kMemory = {"[anon",  "[heap]",  "[stack]",
                                                       "//anon", "/memfd:", "/dev/zero"};
  return std::ranges::any_of(
      kMemory, [&mapping](std::string_view prefix) { return mapping.path.starts_with(prefix); });
}

PerfMapCache::PerfMapCache(std::string proc_root, size_t max_bytes, CountDrop count_drop,
                           const Clock& clock)
    : proc_root_(std::move(proc_root)),
      max_map_bytes_(max_bytes / 2),
      count_drop_(std::move(count_drop)),
      clock_(clock),
      maps_(max_bytes) {}

std::optional<PerfMap::Match> PerfMapCache::find(const ProcessKey& process, uint64_t address) {
  Kept* kept = maps_.find(process);
  const int64_t now_mono_ns = clock_.mono_ns();
  if (kept != nullptr && std::chrono::nanoseconds(now_mono_ns - kept->looked_mono_ns) < kMaxAge) {
    // What is not in it may have been made since.
    if (const auto match = kept->map.find(address)) return match;
  }
  Kept fresh = kept != nullptr ? std::move(*kept) : Kept{.map = PerfMap(max_map_bytes_)};
  refresh(process, fresh);
  fresh.looked_mono_ns = now_mono_ns;
  const size_t bytes = kEntryBytes + fresh.map.size_bytes();
  if (!maps_.put(process, std::move(fresh), bytes)) return std::nullopt;
  return maps_.find(process)->map.find(address);
}

std::optional<OpenedFile> PerfMapCache::open_map(const ProcessKey& process) const {
  const Result<ProcessFiles> files = ProcessFiles::open(proc_root_, process.pid);
  if (!files.ok()) return std::nullopt;
  if (!is_running_since(proc_root_, process.pid, process.start_boot_ns)) return std::nullopt;
  std::vector<uint32_t> pids = files->process().pids;
  pids.insert(pids.begin(), process.pid);
  std::ranges::reverse(pids);
  bool is_refused = false;
  for (const uint32_t pid : pids) {
    Result<OpenedFile> opened = files->open_file(get_map_path(pid));
    if (absl::IsNotFound(opened.status())) continue;
    // Rights alone do not do: who put it there says what the process's functions are called.
    const bool is_its_own =
        opened.ok() && opened->owner_uid == files->process().uid && opened->name_count == 1;
    if (is_its_own) return *std::move(opened);
    is_refused = true;
  }
  if (is_refused) count_drop_(DropCause::kNamesFileRefused);
  return std::nullopt;
}

void PerfMapCache::refresh(const ProcessKey& process, Kept& kept) const {
  const std::optional<OpenedFile> opened = open_map(process);
  if (!opened || opened->identity == kept.file) return;
  const FileIdentity& now = opened->identity;
  const bool is_grown = now.device == kept.file.device && now.inode == kept.file.inode &&
                        now.size_bytes > kept.file.size_bytes;
  if (!is_grown) kept = Kept{.map = PerfMap(max_map_bytes_)};
  const std::string text = read_from(opened->fd.get(), kept.read_bytes, now.size_bytes);
  kept.read_bytes += kept.map.append(text);
  kept.file = now;
}

}  // namespace gpuperf
