#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/base/proc_files.h"
#include "daemon/base/process_users.h"
#include "daemon/base/result.h"
#include "daemon/probe/discovery/file_opener.h"
#include "daemon/probe/discovery/process_maps.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

// A process that maps a file, and where: the file can be opened through it.
struct FileUser {
  uint32_t pid = 0;
  MapEntry mapping;
  bool operator==(const FileUser&) const = default;
};

// A file that some probes are meant for.
struct FoundFile {
  std::string path;              // as the first process found mapping it sees it
  MappedInode mapped;            // tells files of one report apart; FileIdentity comes with opening
  std::vector<uint32_t> probes;  // positions in ProbeConfig::probes, ascending; enabled ones only
  std::vector<FileUser> users;   // at most kMaxFileUsers; empty = found by its path
  bool was_mapped = false;       // of a process that is gone; else a path of the configuration
  uint32_t uid = ProcessUsers::kGone;  // whose processes map it: root's, or the first one's
  bool operator==(const FoundFile&) const = default;
};
// Any one suffices to open the file; more are kept because processes vanish.
inline constexpr size_t kMaxFileUsers = 4;

struct ScanReport {
  std::vector<FoundFile> files;  // one per MappedInode, in order of first sight
  // Executables that seem to hold a CUDA runtime whose symbols are stripped: of their calls only
  // those to the driver can be probed. At most kMaxStripped.
  std::vector<std::string> stripped_runtimes;
  std::vector<uint32_t> watched_pids;  // that map a file any function may be in
  std::set<uint32_t> put_off_pids;     // not read, or not all of it: to be looked at again later
  uint64_t processes = 0;              // looked at
  uint64_t unreadable_processes = 0;   // refused: the daemon lacks CAP_SYS_PTRACE
  uint64_t truncated_processes = 0;    // more mappings than kMaxMapsBytes of text
  uint64_t files_left_out = 0;         // beyond kMaxFoundFiles
};
inline constexpr size_t kMaxStripped = 16;  // enough to see what they are
// A host with 500 containers, each with its own copy of 8 libraries, has 4,000.
inline constexpr size_t kMaxFoundFiles = 4'096;

// Finds the files that configured functions may be in: the mapped copies of the categories'
// libraries, the executables of watched processes for categories without libraries, and files the
// configuration names by an absolute path; and, for the probes of the category "cuda", the files
// that a CUDA runtime is linked into, looked for in processes that map the driver (libcuda), which
// every such runtime loads.
//
// Thread: one at a time. Owns nothing outside itself. Reads /proc, and the symbol tables of what
// else processes with the driver map, each file once (kMaxExamined are remembered).
// Users have shares of kMaxFoundFiles (Shares): one cannot keep another's files out.
// Patterns: without a slash, a glob on the file name ("libcudart.so*"); from a slash on, a glob on
// the whole path, in which * also matches slashes; otherwise on the end of the path
// ("torch/lib/*.so"). A process that vanishes, or whose maps are refused or not read in time, is
// skipped; the report counts the refused ones and names the late ones. Kernel threads map nothing.
// Not here: whether a file holds the symbol (match_symbols).
class LibraryFinder {
 public:
  struct Options {
    ProcFiles proc;
    uint32_t skip_pid = 0;                        // the daemon itself; 0 = none
    std::vector<std::string> further_globs = {};  // of files that are wanted without any probe
    std::function<bool()> is_interrupted = {};    // asked between processes; any thread
  };
  explicit LibraryFinder(const ProbeConfig& config);  // the real /proc, every process
  LibraryFinder(const ProbeConfig& config, Options options);

  // Every named file and every process; `on_root` hears of what there is once root's processes were
  // looked at. Fails only when /proc cannot be listed; Cancelled = interrupted.
  Result<ScanReport> scan_all(const std::function<void(const ScanReport&)>& on_root = {});
  // One process. NotFound when it is gone.
  Result<ScanReport> scan_process(uint32_t pid);

  // Whether a mapping of `path`, as its process sees it, is worth a scan of that process. Any
  // thread.
  bool concerns(const std::string& path) const;
  // Those of `paths` that are wanted, as this process sees them: for processes already gone.
  std::vector<FoundFile> find_named(const std::vector<std::string>& paths) const;

  // Opens the file through whichever of its users still lives, or by its path. The identity tells
  // whether two found files are one (overlays): compare it before probing.
  Result<OpenedFile> open_found(const FoundFile& file) const;

 private:
  // Probes that look in the same files.
  struct Target {
    std::vector<std::string> globs;  // none: see executable_targets_
    std::vector<uint32_t> probes;
  };
  using TargetIds = std::vector<size_t>;
  struct Scan;
  // What was found in a file that no pattern matches.
  struct Examined {
    std::vector<uint32_t> probes;  // whose functions a linked-in runtime has
    bool is_stripped = false;
  };
  // The files of 50 PyTorch environments, 300 each.
  static constexpr size_t kMaxExamined = 16'384;

  TargetIds match(const std::string& path) const;
  const TargetIds& match_once(const std::string& path);
  Status scan_one(uint32_t pid, Scan& scan);
  Status scan_processes(const std::vector<uint32_t>& pids, Scan& scan);
  void add_executable(uint32_t pid, const std::vector<MapEntry>& entries, Scan& scan) const;
  void add_named_file(const std::string& path, const TargetIds& targets, Scan& scan) const;
  void add_targets(const FileUser* user, const std::string& path, const MappedInode& mapped,
                   const TargetIds& targets, Scan& scan) const;
  static void add_file(const FileUser* user, const std::string& path, const MappedInode& mapped,
                       const std::vector<uint32_t>& probes, Scan& scan);
  void add_linked_runtimes(uint32_t pid, const std::vector<MapEntry>& entries, Scan& scan);
  const Examined& examine_once(uint32_t pid, const MapEntry& entry, Scan& scan);
  Examined examine(int fd) const;

  // Set once in the constructor.
  const Options options_;
  std::vector<Target> targets_;
  TargetIds executable_targets_;
  std::vector<uint32_t> runtime_probes_;  // of the category "cuda", and their symbols
  std::vector<std::string> runtime_symbols_;
  std::vector<bool> runtime_exact_;
  // Paths already matched in the running scan: a thousand processes map the same few hundred.
  std::unordered_map<std::string, TargetIds> matches_;
  std::map<FileIdentity, Examined> examined_;
  ProcessUsers users_;
};

}  // namespace gpuperf
