#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpf/records.h"
#include "daemon/base/byte_lru.h"
#include "daemon/base/clock.h"
#include "daemon/base/proc_files.h"
#include "daemon/model/function.h"
#include "daemon/model/stack.h"
#include "daemon/probe/discovery/process_maps.h"
#include "daemon/unwind/code_files.h"
#include "daemon/unwind/python_runtime.h"

namespace gpuperf {

// Files held open, by the address they are mapped at: what was unmapped and removed from the disk
// since can be read no other way.
using HeldCode = std::map<uint64_t, CodeFiles::CodePtr>;

// Whether a file of that name is looked into for a Python.
bool is_python_name(std::string_view path);

// Where the kernel side keeps what walks go by; without one, nothing is kept. A rule or space that
// it has no room for is refused: false.
struct WalkTables {
  std::function<bool(uint32_t pid, const gpuperf_address_space&)> set_space =
      [](uint32_t, const gpuperf_address_space&) { return false; };
  std::function<void(uint32_t pid)> erase_space = [](uint32_t) {};
  std::function<bool(const gpuperf_unwind_key&, const gpuperf_unwind_rule&)> set_rule =
      [](const gpuperf_unwind_key&, const gpuperf_unwind_rule&) { return false; };
  std::function<void(const gpuperf_unwind_key&)> erase_rule = [](const gpuperf_unwind_key&) {};
  // How often the process's loader has changed what is mapped.
  std::function<uint32_t(uint32_t pid)> read_code_changes = [](uint32_t) { return 0; };
  // To count that, for the loader in that file.
  std::function<Status(int fd, const FileIdentity&, uint64_t offset_bytes)> watch_loader =
      [](int, const FileIdentity&, uint64_t) { return absl::OkStatus(); };
};

// What processes have mapped to run, and how frames in it are walked; the kernel side learns of it
// what it needs, as walks meet it.
//
// Thread: one at a time; reads /proc and mapped files. What may wait for a process lets go of the
// caller's lock meanwhile, as waiting for a condition does: others may have called by then, and
// nothing found before is used afterwards. `files` and `clock` must outlive it. Rules are kept
// until code is unmapped or the process is gone, at most kMaxRules: beyond those stacks are walked
// here every time, from copies. Not here: names (resolve/).
class AddressSpaces {
 public:
  struct Options {
    ProcFiles proc;
    WalkTables tables;
    // Calls `wait` without the lock by which callers take turns.
    std::function<void(const std::function<void()>& wait)> wait_unlocked =
        [](const std::function<void()>& wait) { wait(); };
  };
  static constexpr size_t kMaxRules = GPUPERF_UNWIND_RULES;
  static constexpr size_t kMaxProcesses = 8'192;  // of the kernel side's map
  static constexpr uint32_t kNoSpace = UINT32_MAX;
  static constexpr size_t kMaxPast = 64;  // some 100 KB each for PyTorch
  static constexpr size_t kMaxFoundPythons = 1'024;
  static constexpr size_t kMaxSeen = 64;  // CodeChanges of a space

  AddressSpaces(Options options, CodeFiles& files, const Clock& clock);
  AddressSpaces(const AddressSpaces&) = delete;
  AddressSpaces& operator=(const AddressSpaces&) = delete;

  // Reads what a process has mapped, so that its next stack is walked in the kernel. False: it is
  // gone, or there are too many.
  bool prepare(uint32_t pid);
  // A stack came: prepares again where what is known did not hold for it.
  void note_walk(const RawStack& raw);
  // The space that a stack is to be named, and walked further, by; kNoSpace = what was mapped then
  // is not known.
  uint32_t find_number(const RawStack& raw) const;

  // What follows takes the number of a space; 0 = the process's own now.
  // A forked process is walked by its parent's as long as both are alike.

  // The rule at a place, learned for the kernel side. Mappings are read anew when `pc` is in none.
  gpuperf_unwind_rule find_rule(const ProcessKey& process, uint32_t space, uint64_t pc,
                                bool is_exact);

  // What was mapped then, sorted by address; null = not known, or gone for some seconds.
  struct Mapped {
    uint32_t space = 0;
    std::shared_ptr<const std::vector<MapEntry>> mappings;
    HeldCode held;
  };
  Mapped find_mapped(const ProcessKey& process, uint32_t space) const;

  // The Python in it; null = none, none that can be read, or not read yet.
  const PythonRuntime* find_python(const ProcessKey& process, uint32_t space) const;

  // A Python in a process, of which its memory says the rest.
  struct FoundPython {
    uint32_t pid = 0;
    uint32_t space = 0;
    FileIdentity identity;
    std::string path;
    PythonFile file;
    uint64_t bias = 0;
  };
  // Those found since the last time, at most kMaxFoundPythons, for the caller to read: that may
  // take long, and nothing here waits for it.
  std::vector<FoundPython> take_found_pythons() { return std::exchange(found_pythons_, {}); }
  // What was read of one.
  void set_python(const FoundPython& found, Result<PythonRuntime> runtime);

  // Forgets processes that have gone.
  void sweep();
  bool is_known(uint32_t pid) const { return spaces_.contains(pid); }

  struct Counts {
    uint64_t processes = 0;
    uint64_t rules = 0;
    bool operator==(const Counts&) const = default;
  };
  Counts counts() const { return {spaces_.size(), rule_count_}; }

 private:
  // Another program run by the process (exec), or another process of the same pid, is another
  // image.
  struct Image {
    uint64_t start_ticks = 0;
    uint64_t start_stack = 0;
    uint64_t code_pages = 0;  // 0 = they changed while they were read
    uint32_t code_changes = 0;
    bool operator==(const Image&) const = default;
  };
  // The loader's count, from the first to the last of some changes.
  struct CodeChanges {
    uint32_t first = 0;
    uint32_t last = 0;
  };
  struct Space {
    uint32_t number = 0;
    std::vector<CodeChanges> seen;  // when the number held; the last until that of `image`
    Image image;
    int64_t read_mono_ns = 0;
    bool is_told = false;                                   // the kernel side had room for it
    std::shared_ptr<const std::vector<MapEntry>> mappings;  // by address
    std::set<uint64_t> examined;                            // mappings, for a Python
    HeldCode held;                                          // until the next sweep
    std::optional<PythonRuntime> python;
    int64_t python_retry_mono_ns = 0;  // a file was not read in time: again then; 0 = none
    std::unordered_map<uint64_t, gpuperf_unwind_rule> rules;  // by make_place
  };
  // What was mapped before: stacks taken then may still come.
  struct PastSpace {
    uint32_t pid = 0;
    int64_t end_mono_ns = 0;
    Space space;
  };

  std::optional<Image> read_image(uint32_t pid) const;
  bool read_mappings(uint32_t pid, Space& space) const;
  static bool may_hide_others(const Space& before, const Space& now);
  static void note_seen(Space& space, bool goes_on);
  static bool held_at(const Space& space, uint32_t code_changes);
  static bool still_holds(const Space& before, const Space& now);
  Space* find_present(const ProcessKey& process);
  Space* find_space(const ProcessKey& process, uint32_t number);
  // The process whose mappings a space is of; 0 = it has passed.
  uint32_t find_owner(uint32_t number) const;
  static const MapEntry* find_mapping(const Space& space, uint64_t pc);
  static bool is_new(const Space& before, const MapEntry& mapping);
  // Code of a process, by the address it is mapped at; of each mapping that was tried.
  using OpenedCode = std::map<uint64_t, Result<CodeFiles::CodePtr>>;
  // May wait.
  OpenedCode open_code(uint32_t pid, const std::vector<MapEntry>& mappings);
  Result<CodeFiles::CodePtr> open_code(uint32_t pid, const MapEntry& mapping);
  OpenedCode open_new_code(uint32_t pid, const Space& fresh);
  std::optional<gpuperf_unwind_rule> make_rule(uint32_t pid, uint32_t number,
                                               const MapEntry& mapping, uint64_t pc);
  Result<CodeFiles::CodePtr> find_code(uint32_t pid, uint32_t number, const MapEntry& mapping);
  void watch_loader(uint32_t pid, uint32_t number);
  void look_for_python(uint32_t pid, uint32_t number);
  void retry_python(uint32_t pid);
  // Do not.
  Space* find_numbered(uint32_t number);
  void tell(uint32_t pid, Space& space);
  // Whether there is one in that mapping.
  bool examine(uint32_t pid, const Space& space, const MapEntry& mapping,
               const CodeFiles::Code& code);
  void forget_rules(Space& space);
  void retire(uint32_t pid, Space space);
  static void hold_new_code(const Space& before, Space& now, const OpenedCode& opened);

  const Options options_;
  CodeFiles& files_;
  const Clock& clock_;
  std::map<uint32_t, Space> spaces_;               // by pid
  std::unordered_map<uint32_t, uint32_t> owners_;  // of spaces, by number
  std::map<uint32_t, PastSpace> past_;             // by number: the oldest first
  ByteLru<FileIdentity, std::optional<PythonFile>> pythons_;
  std::vector<FoundPython> found_pythons_;
  ByteLru<FileIdentity, bool> told_pythons_;  // of whom the log says already that one was not read
  std::set<FileIdentity> loaders_;            // looked at
  uint32_t last_number_ = 0;
  size_t rule_count_ = 0;
};

}  // namespace gpuperf
