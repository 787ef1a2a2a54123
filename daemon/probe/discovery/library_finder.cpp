#include "daemon/probe/discovery/library_finder.h"

#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "daemon/base/file_name.h"
#include "daemon/base/proc_text.h"
#include "daemon/base/shares.h"
#include "daemon/probe/discovery/static_runtime.h"

namespace gpuperf {
namespace {

constexpr std::string_view kRuntimeCategory = "cuda";
constexpr std::string_view kDriver = "libcuda.so";
constexpr std::string_view kRuntime = "libcudart";
// PyTorch with all its extensions maps some 400 files.
constexpr size_t kMaxExaminedPerProcess = 2'048;

bool matches_glob(const std::string& glob, const std::string& path) {
  const size_t slash = glob.find('/');
  if (slash == 0) return ::fnmatch(glob.c_str(), path.c_str(), 0) == 0;
  if (slash != std::string::npos) return ::fnmatch(("*/" + glob).c_str(), path.c_str(), 0) == 0;
  const size_t name = path.rfind('/') + 1;  // 0 without a slash
  return ::fnmatch(glob.c_str(), path.c_str() + name, 0) == 0;
}

bool is_plain_path(const std::string& glob) {
  return glob.starts_with('/') && glob.find_first_of("*?[\\") == std::string::npos;
}

// What /proc/PID/exe names, in the spelling of /proc/PID/maps; nullopt for kernel threads.
std::optional<std::string> find_executable(std::string_view proc_root, uint32_t pid) {
  std::array<char, PATH_MAX> target;
  const ssize_t length =
      ::readlink(get_proc_path(proc_root, pid, "exe").c_str(), target.data(), target.size());
  if (length <= 0) return std::nullopt;
  std::string path(target.data(), static_cast<size_t>(length));
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  return path;
}

template <typename T>
void merge_sorted(std::vector<T>& into, const std::vector<T>& more) {
  std::vector<T> merged;
  std::ranges::set_union(into, more, std::back_inserter(merged));
  into = std::move(merged);
}

}  // namespace

struct LibraryFinder::Scan {
  ScanReport report;
  uint32_t uid = ProcessUsers::kRoot;  // whose files are found now
  Shares shares{{.total = kMaxFoundFiles, .kept_for_root = kMaxFoundFiles / 4}};
  std::map<MappedInode, size_t> file_positions;
  std::map<MappedInode, Examined> examined;  // in this scan: opened once for all who map it
  std::set<std::string> stripped;
};

LibraryFinder::LibraryFinder(const ProbeConfig& config) : LibraryFinder(config, Options()) {}

LibraryFinder::LibraryFinder(const ProbeConfig& config, Options options)
    : options_(std::move(options)), users_(options_.proc.root()) {
  std::map<std::pair<std::string, std::string>, size_t> known;  // (category, library) -> target
  for (uint32_t i = 0; i < config.probes.size(); ++i) {
    const ProbeSpec& spec = config.probes[i];
    if (!spec.enabled) continue;
    const std::string category = spec.library.empty() ? spec.category : "";
    const auto [entry, inserted] = known.try_emplace({category, spec.library}, targets_.size());
    if (inserted) {
      Target target;
      const auto libraries = config.libraries.find(category);
      if (!spec.library.empty()) {
        target.globs = {spec.library};
      } else if (libraries != config.libraries.end()) {
        target.globs = libraries->second;
      } else {
        executable_targets_.push_back(targets_.size());
      }
      targets_.push_back(std::move(target));
    }
    targets_[entry->second].probes.push_back(i);
    if (category != kRuntimeCategory) continue;
    runtime_probes_.push_back(i);
    runtime_symbols_.push_back(spec.symbol);
    runtime_exact_.push_back(spec.form == SymbolForm::kExact);
  }
  if (!options_.further_globs.empty()) {
    targets_.push_back({.globs = options_.further_globs, .probes = {}});
  }
}

LibraryFinder::TargetIds LibraryFinder::match(const std::string& path) const {
  TargetIds matched;
  for (size_t id = 0; id < targets_.size(); ++id) {
    const bool matches = std::ranges::any_of(
        targets_[id].globs, [&path](const std::string& glob) { return matches_glob(glob, path); });
    if (matches) matched.push_back(id);
  }
  return matched;
}

const LibraryFinder::TargetIds& LibraryFinder::match_once(const std::string& path) {
  const auto [entry, inserted] = matches_.try_emplace(path);
  if (inserted) entry->second = match(path);
  return entry->second;
}

bool LibraryFinder::concerns(const std::string& path) const { return !match(path).empty(); }

void LibraryFinder::add_targets(const FileUser* user, const std::string& path,
                                const MappedInode& mapped, const TargetIds& targets,
                                Scan& scan) const {
  std::vector<uint32_t> probes;
  for (const size_t id : targets) merge_sorted(probes, targets_[id].probes);
  add_file(user, path, mapped, probes, scan);
}

void LibraryFinder::add_file(const FileUser* user, const std::string& path,
                             const MappedInode& mapped, const std::vector<uint32_t>& probes,
                             Scan& scan) {
  std::vector<FoundFile>& files = scan.report.files;
  const auto known = scan.file_positions.find(mapped);
  if (known == scan.file_positions.end() &&
      scan.shares.take({.uid = scan.uid}) != Shares::Verdict::kTaken) {
    ++scan.report.files_left_out;
    return;
  }
  const size_t position = known == scan.file_positions.end() ? files.size() : known->second;
  if (position == files.size()) {
    files.push_back({.path = path, .mapped = mapped, .uid = scan.uid});
    scan.file_positions.emplace(mapped, position);
  }
  FoundFile& file = files[position];
  merge_sorted(file.probes, probes);
  if (scan.uid == ProcessUsers::kRoot) file.uid = scan.uid;
  if (user == nullptr || file.users.size() >= kMaxFileUsers) return;
  const bool same_process = !file.users.empty() && file.users.back().pid == user->pid;
  if (!same_process) file.users.push_back(*user);
}

void LibraryFinder::add_executable(uint32_t pid, const std::vector<MapEntry>& entries,
                                   Scan& scan) const {
  const std::optional<std::string> path = find_executable(options_.proc.root(), pid);
  if (!path) return;
  const auto entry = std::ranges::find_if(entries, [&path](const MapEntry& candidate) {
    return candidate.file.inode != 0 && candidate.path == *path;
  });
  if (entry == entries.end()) return;
  const FileUser user{.pid = pid, .mapping = *entry};
  add_targets(&user, entry->path, entry->file, executable_targets_, scan);
}

// Every runtime loads the driver when it is first used, so nothing else need be looked into.
void LibraryFinder::add_linked_runtimes(uint32_t pid, const std::vector<MapEntry>& entries,
                                        Scan& scan) {
  const auto has_name = [&entries](std::string_view beginning) {
    return std::ranges::any_of(entries, [beginning](const MapEntry& entry) {
      return entry.file.inode != 0 && get_file_name(entry.path).starts_with(beginning);
    });
  };
  if (runtime_probes_.empty() || !has_name(kDriver)) return;
  const bool has_library = has_name(kRuntime);
  const std::optional<std::string> executable = find_executable(options_.proc.root(), pid);
  size_t examined = 0;
  for (const MapEntry& entry : entries) {
    const std::string_view name = get_file_name(entry.path);
    if (entry.file.inode == 0 || name.starts_with(kDriver) || name.starts_with(kRuntime)) continue;
    if (!scan.examined.contains(entry.file) && examined++ >= kMaxExaminedPerProcess) {
      ++scan.report.files_left_out;
      continue;
    }
    const Examined& found = examine_once(pid, entry, scan);
    if (!found.probes.empty()) {
      const FileUser user{.pid = pid, .mapping = entry};
      add_file(&user, entry.path, entry.file, found.probes, scan);
    }
    const bool is_hidden = found.is_stripped && !has_library && entry.path == executable;
    if (is_hidden && scan.stripped.size() < kMaxStripped) scan.stripped.insert(entry.path);
  }
}

const LibraryFinder::Examined& LibraryFinder::examine_once(uint32_t pid, const MapEntry& entry,
                                                           Scan& scan) {
  const auto [in_scan, is_new] = scan.examined.try_emplace(entry.file);
  if (!is_new) return in_scan->second;
  const Result<OpenedFile> opened = open_mapped_file(options_.proc, pid, entry);
  if (!opened.ok()) {
    if (is_put_off(opened.status())) scan.report.put_off_pids.insert(pid);
    return in_scan->second;  // else the process is on its way out
  }
  // What is forgotten is only looked at again.
  if (examined_.size() >= kMaxExamined) examined_.clear();
  const auto [known, is_unknown] = examined_.try_emplace(opened->identity);
  if (is_unknown) known->second = examine(opened->fd.get());
  return in_scan->second = known->second;
}

LibraryFinder::Examined LibraryFinder::examine(int fd) const {
  const Result<StaticRuntime> runtime = find_static_runtime(fd, runtime_symbols_);
  // Not an ELF file, or a broken one, that happens to be mapped: nobody asked for it.
  if (!runtime.ok()) return {};
  Examined examined{.is_stripped = runtime->is_stripped};
  for (size_t i = 0; i < runtime_probes_.size(); ++i) {
    // A pattern's matches are found with the rest of the file's functions.
    const bool may_match = runtime->is_linked && !runtime_exact_[i];
    if (may_match || runtime->defined[i]) examined.probes.push_back(runtime_probes_[i]);
  }
  return examined;
}

Status LibraryFinder::scan_one(uint32_t pid, Scan& scan) {
  const Result<ProcessMaps> maps = read_executable_maps(options_.proc, pid);
  if (is_put_off(maps.status())) {
    scan.report.put_off_pids.insert(pid);
    return absl::OkStatus();
  }
  if (!maps.ok()) return maps.status();
  ++scan.report.processes;
  scan.report.truncated_processes += maps->truncated ? 1 : 0;
  bool watched = false;
  for (const MapEntry& entry : maps->entries) {
    if (entry.file.inode == 0) continue;
    const TargetIds& targets = match_once(entry.path);
    if (targets.empty()) continue;
    if (!watched) scan.uid = users_.find(pid, 0);
    watched = true;
    const FileUser user{.pid = pid, .mapping = entry};
    add_targets(&user, entry.path, entry.file, targets, scan);
  }
  if (!watched) return absl::OkStatus();
  scan.report.watched_pids.push_back(pid);
  if (!executable_targets_.empty()) add_executable(pid, maps->entries, scan);
  add_linked_runtimes(pid, maps->entries, scan);
  return absl::OkStatus();
}

void LibraryFinder::add_named_file(const std::string& path, const TargetIds& targets,
                                   Scan& scan) const {
  struct stat found {};
  // One that is no regular file is a find as well: opening it says so.
  if (::stat(path.c_str(), &found) != 0) return;
  add_targets(nullptr, path, {.device = found.st_dev, .inode = found.st_ino}, targets, scan);
}

std::vector<FoundFile> LibraryFinder::find_named(const std::vector<std::string>& paths) const {
  Scan scan;
  scan.uid = ProcessUsers::kGone;
  for (const std::string& path : paths) {
    const TargetIds targets = match(path);
    if (!targets.empty()) add_named_file(path, targets, scan);
  }
  for (FoundFile& file : scan.report.files) file.was_mapped = true;
  return std::move(scan.report.files);
}

Status LibraryFinder::scan_processes(const std::vector<uint32_t>& pids, Scan& scan) {
  for (const uint32_t pid : pids) {
    if (options_.is_interrupted && options_.is_interrupted()) {
      return absl::CancelledError("scan interrupted");
    }
    const Status status = scan_one(pid, scan);
    if (absl::IsPermissionDenied(status)) ++scan.report.unreadable_processes;
    // Any other failure: the process has gone, which is no error of a scan.
  }
  return absl::OkStatus();
}

Result<ScanReport> LibraryFinder::scan_all(const std::function<void(const ScanReport&)>& on_root) {
  ASSIGN_OR_RETURN(std::vector<uint32_t> pids, list_pids(options_.proc.root()));
  std::erase(pids, options_.skip_pid);
  Scan scan;
  const auto others = std::stable_partition(pids.begin(), pids.end(), [this](uint32_t pid) {
    return users_.find(pid, 0) == ProcessUsers::kRoot;
  });
  RETURN_IF_ERROR(scan_processes({pids.begin(), others}, scan));
  scan.uid = ProcessUsers::kRoot;  // who wrote the configuration
  for (size_t id = 0; id < targets_.size(); ++id) {
    for (const std::string& glob : targets_[id].globs) {
      if (is_plain_path(glob)) add_named_file(glob, {id}, scan);
    }
  }
  if (on_root) on_root(scan.report);
  RETURN_IF_ERROR(scan_processes({others, pids.end()}, scan));
  matches_.clear();
  scan.report.stripped_runtimes.assign(scan.stripped.begin(), scan.stripped.end());
  return std::move(scan.report);
}

Result<ScanReport> LibraryFinder::scan_process(uint32_t pid) {
  Scan scan;
  const Status status = scan_one(pid, scan);
  matches_.clear();
  if (!status.ok()) return status;
  return std::move(scan.report);
}

Result<OpenedFile> LibraryFinder::open_found(const FoundFile& file) const {
  if (file.users.empty()) {
    return file.was_mapped ? open_once_mapped_file(file.path) : open_named_file(file.path);
  }
  Status first_error;
  for (const FileUser& user : file.users) {
    Result<OpenedFile> opened = open_mapped_file(options_.proc, user.pid, user.mapping);
    if (opened.ok()) return opened;
    first_error.Update(opened.status());
  }
  return first_error;
}

}  // namespace gpuperf
