#include "daemon/resolve/perf_map_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/proc_text.h"
#include "daemon/base/thread_cpu.h"
#include "daemon/probe/discovery/process_files.h"

namespace gpuperf {
namespace {

// A map kept costs that beside its functions, so that many empty ones leave, too.
constexpr size_t kEntryBytes = 256;

std::string get_map_path(uint32_t pid) { return "/tmp/perf-" + std::to_string(pid) + ".map"; }

constexpr size_t kLargeBytes = size_t{64} << 10;
// As many pauses are known: of the processes that were named last.
constexpr size_t kMaxPauses = 4'096;

std::string read_at(int fd, uint64_t offset, uint64_t most_bytes) {
  std::string text(most_bytes, '\0');
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

bool is_same_file(const FileIdentity& a, const FileIdentity& b) {
  return a.device == b.device && a.inode == b.inode;
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
      max_bytes_(max_bytes),
      max_map_bytes_(max_bytes / 2),
      count_drop_(std::move(count_drop)),
      clock_(clock),
      users_(proc_root_),
      pauses_(kMaxPauses) {}

PerfMapCache::Kept* PerfMapCache::find_kept(const ProcessKey& process) {
  const auto user = maps_.find(users_.find(process.pid, process.start_boot_ns));
  return user == maps_.end() ? nullptr : user->second.find(process);
}

void PerfMapCache::keep(const ProcessKey& process, Kept kept) {
  const uint32_t uid = users_.find(process.pid, process.start_boot_ns);
  const size_t bytes = kEntryBytes + kept.map.size_bytes();
  (void)maps_.try_emplace(uid, max_bytes_).first->second.put(process, std::move(kept), bytes);
  // Not the map just kept: it would be read from its beginning again and again.
  const auto count_expendable = [&](const auto& user) {
    const size_t of_user = user.second.bytes();
    return user.first == uid && of_user == bytes ? 0 : of_user;
  };
  const auto add_bytes = [](size_t sum, const auto& user) { return sum + user.second.bytes(); };
  while (std::accumulate(maps_.begin(), maps_.end(), size_t{0}, add_bytes) > max_bytes_) {
    const auto most = std::ranges::max_element(maps_, {}, count_expendable);
    most->second.drop_oldest();
    if (most->second.empty()) maps_.erase(most);
  }
}

bool PerfMapCache::is_known(const Kept& kept, uint64_t address, int64_t now_mono_ns) const {
  if (kept.is_reading) return false;
  const std::chrono::nanoseconds age(now_mono_ns - kept.looked_mono_ns);
  // What is not in it may have been made since.
  return age < kMaxAge && kept.map.find(address);
}

bool PerfMapCache::read_ahead(const ProcessKey& process, uint64_t address) {
  Kept* const known = find_kept(process);
  const int64_t now_mono_ns = clock_.mono_ns();
  if (known != nullptr && is_known(*known, address, now_mono_ns)) return true;
  Kept kept = known != nullptr ? std::move(*known) : Kept{.map = PerfMap(max_map_bytes_)};
  const std::optional<OpenedFile> opened = open_map(process);
  if (!opened || (kept.is_reading && !is_same_file(opened->identity, kept.file))) {
    kept.is_reading = false;  // what was read of it stays
  } else if (!kept.is_reading) {
    look(process, kept, *opened, now_mono_ns);
  }
  kept.looked_mono_ns = now_mono_ns;
  if (kept.is_reading) {
    const uint64_t begun_ns = read_thread_cpu_ns();
    read_piece(kept, *opened);
    kept.cost_ns += read_thread_cpu_ns() - begun_ns;
    if (!kept.is_reading) pause(process, kept);
  }
  const bool is_done = !kept.is_reading;
  if (kept.map.size_bytes() > kLargeBytes) used_mono_ns_[process] = now_mono_ns;
  keep(process, std::move(kept));
  return is_done;
}

std::optional<PerfMap::Match> PerfMapCache::find(const ProcessKey& process, uint64_t address) {
  const Kept* const kept = find_kept(process);
  return kept == nullptr ? std::nullopt : kept->map.find(address);
}

void PerfMapCache::forget_gone(const std::function<bool(const ProcessKey&)>& is_running) {
  const int64_t now_mono_ns = clock_.mono_ns();
  std::erase_if(used_mono_ns_, [&](const auto& entry) {
    const auto& [process, used_mono_ns] = entry;
    if (std::chrono::nanoseconds(now_mono_ns - used_mono_ns) < kKeepGone) return false;
    if (is_running(process)) return false;
    keep(process, Kept{.map = PerfMap(max_map_bytes_)});
    return true;
  });
}

// Begins to read what is new of the file, if there is any, and it is time.
void PerfMapCache::look(const ProcessKey& process, Kept& kept, const OpenedFile& opened,
                        int64_t now_mono_ns) {
  const FileIdentity& now = opened.identity;
  if (now == kept.file) return;
  const bool is_grown = is_same_file(now, kept.file) && now.size_bytes > kept.file.size_bytes;
  const Pause* const paused = pauses_.find(process);
  const int64_t due_mono_ns = paused == nullptr ? INT64_MIN
                              : is_grown        ? paused->appended_mono_ns
                                                : paused->anew_mono_ns;
  if (now_mono_ns < due_mono_ns) return count_drop_(DropCause::kNamesMapPaused);
  if (!is_grown) kept = Kept{.map = PerfMap(max_map_bytes_)};
  kept.file = now;
  kept.is_reading = true;
  kept.is_anew = !is_grown;
  kept.cost_ns = 0;
}

void PerfMapCache::read_piece(Kept& kept, const OpenedFile& opened) const {
  const uint64_t end = std::min(kept.file.size_bytes, kMaxFileBytes);
  const uint64_t left_bytes = end - std::min(end, kept.read_bytes);
  const uint64_t piece_bytes = std::min(left_bytes, kPieceBytes);
  const std::string text = read_at(opened.fd.get(), kept.read_bytes, piece_bytes);
  const uint64_t taken_bytes = kept.map.append(text);
  kept.is_reading = text.size() == piece_bytes && piece_bytes < left_bytes && !kept.map.is_full();
  // A line longer than a piece is none.
  kept.read_bytes += taken_bytes == 0 && kept.is_reading ? piece_bytes : taken_bytes;
}

void PerfMapCache::pause(const ProcessKey& process, const Kept& kept) {
  const std::chrono::nanoseconds cost(kept.cost_ns);
  if (cost < kQuickRead) return;
  const Pause* const known = pauses_.find(process);
  Pause pause = known != nullptr ? *known : Pause();
  (kept.is_anew ? pause.anew_mono_ns : pause.appended_mono_ns) =
      clock_.mono_ns() + kPauseFactor * cost.count();
  (void)pauses_.put(process, pause, 1);  // there is room for kMaxPauses
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

}  // namespace gpuperf
