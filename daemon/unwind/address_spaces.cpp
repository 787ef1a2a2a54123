#include "daemon/unwind/address_spaces.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <utility>

#include "daemon/base/clock_tick.h"
#include "daemon/base/file_name.h"
#include "daemon/base/log.h"
#include "daemon/base/proc_text.h"
#include "daemon/base/process_status.h"
#include "daemon/probe/elf/elf_exports.h"
#include "daemon/unwind/frame_rules.h"

namespace gpuperf {
namespace {

// A pc in no mapping may come of a mapping just made, or of a broken stack, again and again.
constexpr std::chrono::nanoseconds kMinAge = std::chrono::milliseconds{20};
// Stacks are named some seconds after they were taken, at worst.
constexpr std::chrono::nanoseconds kPastAge = std::chrono::seconds{10};
// Of one process.
constexpr size_t kMaxHeld = 64;
constexpr uint64_t kPageBytes = 4096;
// Executables and libraries with "python" in their name are some ten on a host.
constexpr size_t kMaxPythonFiles = 1024;
// As long as a user whose file was late has to wait at first.
constexpr std::chrono::nanoseconds kPythonRetry = std::chrono::seconds{2};
constexpr gpuperf_unwind_rule kNoRule{.kind = GPUPERF_UNWIND_UNKNOWN};

// mm_struct.exec_vm: the kernel shows it as the sum of two (fs/proc/task_mmu.c, task_mem).
std::optional<uint64_t> read_code_pages(const std::string& proc_root, uint32_t pid) {
  const Result<std::string> status = read_status_text(proc_root + "/" + std::to_string(pid));
  if (!status.ok()) return std::nullopt;
  const std::vector<uint32_t> program_kib = list_status_numbers(*status, "VmExe");
  const std::vector<uint32_t> library_kib = list_status_numbers(*status, "VmLib");
  if (program_kib.empty() || library_kib.empty()) return std::nullopt;  // a kernel thread, a zombie
  return (uint64_t{program_kib[0]} + library_kib[0]) * 1024 / kPageBytes;
}

uint64_t make_place(uint64_t pc, bool is_exact) { return pc << 1 | (is_exact ? 1 : 0); }

gpuperf_unwind_key make_key(uint32_t space, uint64_t place) {
  return {.pc = place >> 1, .space = space, .is_exact = static_cast<__u32>(place & 1)};
}

// The call before a return address: that address may be where the next function begins.
uint64_t get_code_address(uint64_t pc, bool is_exact) { return is_exact ? pc : pc - 1; }

bool is_vdso(const MapEntry& mapping) {
  return mapping.path == "[vdso]" && mapping.file.inode == 0;
}

bool is_anonymous(const MapEntry& mapping) {
  return mapping.file.inode == 0 && (mapping.path.empty() || mapping.path.starts_with("[anon"));
}

// Whether rules made for `before` still hold. Memory without a file has the same rule everywhere,
// until a file comes anywhere in its place. `now`: by address.
bool is_same_code(const MapEntry& before, const std::vector<MapEntry>& now) {
  auto there = std::ranges::upper_bound(now, before.start_address, {}, &MapEntry::end_address);
  if (!is_anonymous(before)) return there != now.end() && *there == before;
  for (; there != now.end() && there->start_address < before.end_address; ++there) {
    if (!is_anonymous(*there)) return false;
  }
  return true;
}

// Nothing in a static program.
std::optional<MapEntry> find_loader(const std::vector<MapEntry>& mappings) {
  const auto loader = std::ranges::find_if(mappings, [](const MapEntry& mapping) {
    const std::string_view name = get_file_name(mapping.path);
    return name.starts_with("ld-") && name.find(".so") != std::string_view::npos;
  });
  return loader == mappings.end() ? std::nullopt : std::optional(*loader);
}

}  // namespace

AddressSpaces::AddressSpaces(Options options, CodeFiles& files, const Clock& clock)
    : options_(std::move(options)),
      files_(files),
      clock_(clock),
      pythons_(kMaxPythonFiles),
      told_pythons_(kMaxPythonFiles) {}

const MapEntry* AddressSpaces::find_mapping(const Space& space, uint64_t pc) {
  if (space.mappings == nullptr) return nullptr;
  const auto after = std::ranges::upper_bound(*space.mappings, pc, {}, &MapEntry::start_address);
  if (after == space.mappings->begin()) return nullptr;
  const MapEntry& mapping = *std::prev(after);
  return pc < mapping.end_address ? &mapping : nullptr;
}

std::optional<AddressSpaces::Image> AddressSpaces::read_image(uint32_t pid) const {
  const auto start_ticks = read_start_ticks(options_.proc.root(), pid);
  const auto start_stack = read_start_stack(options_.proc.root(), pid);
  const auto code_pages = read_code_pages(options_.proc.root(), pid);
  if (!start_ticks.ok() || !start_stack.ok() || !code_pages) return std::nullopt;
  return Image{.start_ticks = *start_ticks,
               .start_stack = *start_stack,
               .code_pages = *code_pages,
               .code_changes = options_.tables.read_code_changes(pid)};
}

// Between two looks that agree, so that all is of one moment.
bool AddressSpaces::read_mappings(uint32_t pid, Space& space) const {
  constexpr int kAttempts = 3;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto before = read_image(pid);
    auto maps = read_executable_maps(options_.proc, pid);
    const auto after = read_image(pid);
    if (!maps.ok() || maps->entries.empty() || !before || !after) return false;
    space.read_mono_ns = clock_.mono_ns();
    space.image = *after;
    std::ranges::sort(maps->entries, {}, &MapEntry::start_address);
    space.mappings = std::make_shared<const std::vector<MapEntry>>(std::move(maps->entries));
    if (before == after) return true;
  }
  space.image.code_pages = 0;  // never equal: walked here until it has come to rest
  return true;
}

void AddressSpaces::forget_rules(Space& space) {
  for (const auto& [place, rule] : space.rules) {
    options_.tables.erase_rule(make_key(space.number, place));
  }
  rule_count_ -= space.rules.size();
  space.rules.clear();
}

// Whether all that was mapped still is, wherever more came.
bool AddressSpaces::still_holds(const Space& before, const Space& now) {
  return before.image.start_ticks == now.image.start_ticks &&
         before.image.start_stack == now.image.start_stack &&
         std::ranges::all_of(*before.mappings, [&now](const MapEntry& mapping) {
           return is_same_code(mapping, *now.mappings);
         });
}

// Whether other code may have come and gone where a library is again: the loader tells before and
// after it closes the library, opens the other, closes that, opens the library. Of these eight the
// looks may leave out the first and the last. Each library that came in between took two at most.
bool AddressSpaces::may_hide_others(const Space& before, const Space& now) {
  constexpr uint32_t kHiding = 6;
  const auto came = std::ranges::count_if(*now.mappings, [&before](const MapEntry& mapping) {
    return mapping.file.inode != 0 && is_new(before, mapping);
  });
  const uint32_t changes = now.image.code_changes - before.image.code_changes;
  return changes >= kHiding + 2 * static_cast<uint64_t>(came);
}

void AddressSpaces::note_seen(Space& space, bool goes_on) {
  const uint32_t now = space.image.code_changes;
  if (goes_on) {
    space.seen.back().last = now;
    return;
  }
  if (space.seen.size() == kMaxSeen) space.seen.erase(space.seen.begin());
  space.seen.push_back({.first = now, .last = now});
}

void AddressSpaces::retire(uint32_t pid, Space space) {
  if (space.number == 0) return;
  forget_rules(space);
  owners_.erase(space.number);
  const uint32_t number = space.number;
  past_[number] = {.pid = pid, .end_mono_ns = clock_.mono_ns(), .space = std::move(space)};
  if (past_.size() > kMaxPast) past_.erase(past_.begin());
}

bool AddressSpaces::is_new(const Space& before, const MapEntry& mapping) {
  const MapEntry* const known = find_mapping(before, mapping.start_address);
  return known == nullptr || *known != mapping;
}

// What a running program loads it may unload again, before a stack that leads through it is looked
// at.
void AddressSpaces::hold_new_code(const Space& before, Space& now, const OpenedCode& opened) {
  for (const MapEntry& mapping : *now.mappings) {
    if (!is_new(before, mapping)) {
      const auto held = before.held.find(mapping.start_address);
      if (held != before.held.end()) now.held.insert(*held);
    } else if (now.held.size() < kMaxHeld) {
      const auto code = opened.find(mapping.start_address);
      if (code != opened.end() && code->second.ok()) now.held.insert({code->first, *code->second});
    }
  }
}

AddressSpaces::OpenedCode AddressSpaces::open_new_code(uint32_t pid, const Space& fresh) {
  const auto known = spaces_.find(pid);
  if (known == spaces_.end() || known->second.number == 0) return {};
  std::vector<MapEntry> added;
  for (const MapEntry& mapping : *fresh.mappings) {
    if (mapping.file.inode == 0 || !is_new(known->second, mapping)) continue;
    if (added.size() < kMaxHeld) added.push_back(mapping);
  }
  return open_code(pid, added);
}

bool AddressSpaces::prepare(uint32_t pid) {
  Space fresh;
  bool is_read = false;
  options_.wait_unlocked([&] { is_read = read_mappings(pid, fresh); });
  if (!is_read) return false;
  const OpenedCode opened = open_new_code(pid, fresh);
  const auto known = spaces_.find(pid);
  if (known == spaces_.end() && spaces_.size() >= kMaxProcesses) return false;
  Space& space = known == spaces_.end() ? spaces_[pid] : known->second;
  if (space.read_mono_ns > fresh.read_mono_ns) return true;  // somebody read later ones meanwhile
  if (space.number != 0) hold_new_code(space, fresh, opened);
  if (space.number != 0 && still_holds(space, fresh)) {
    fresh.number = space.number;
    fresh.seen = std::move(space.seen);
    note_seen(fresh, !may_hide_others(space, fresh));
    fresh.rules = std::move(space.rules);
    fresh.python = space.python;
    fresh.examined = std::move(space.examined);
  } else {
    retire(pid, std::move(space));
    fresh.number = ++last_number_;
    note_seen(fresh, false);
    owners_[fresh.number] = pid;
  }
  space = std::move(fresh);
  const uint32_t number = space.number;
  watch_loader(pid, number);
  look_for_python(pid, number);
  if (find_owner(number) == pid) tell(pid, spaces_.at(pid));
  return true;
}

// Where the kernel side has no room the process's stacks are walked here, until it has.
void AddressSpaces::tell(uint32_t pid, Space& space) {
  gpuperf_address_space told{.start_stack = space.image.start_stack,
                             .code_pages = space.image.code_pages,
                             .python_runtime = space.python ? space.python->address : 0,
                             .space = space.number,
                             .code_changes = space.image.code_changes};
  if (space.python) told.python = space.python->layout;
  space.is_told = options_.tables.set_space(pid, told);
}

uint32_t AddressSpaces::find_owner(uint32_t number) const {
  const auto owner = owners_.find(number);
  return owner == owners_.end() ? 0 : owner->second;
}

void AddressSpaces::note_walk(const RawStack& raw) {
  if (const uint32_t owner = find_owner(raw.space); owner != 0) return retry_python(owner);
  const auto known = spaces_.find(raw.process.pid);
  // What came before the mappings were read says nothing new.
  if (known != spaces_.end() && read_image(raw.process.pid) == known->second.image) {
    if (!known->second.is_told) tell(raw.process.pid, known->second);
    return;
  }
  (void)prepare(raw.process.pid);  // gone: nothing to prepare
}

bool AddressSpaces::held_at(const Space& space, uint32_t code_changes) {
  return std::ranges::any_of(space.seen, [code_changes](const CodeChanges& seen) {
    return code_changes >= seen.first && code_changes <= seen.last;
  });
}

// Where the kernel side knew no rules, the loader's count tells which mappings were meant.
uint32_t AddressSpaces::find_number(const RawStack& raw) const {
  if (raw.space != 0) return raw.space;
  const auto known = spaces_.find(raw.process.pid);
  if (known != spaces_.end() && held_at(known->second, raw.code_changes)) {
    return known->second.number;
  }
  for (const auto& [number, past] : past_) {
    if (past.pid == raw.process.pid && held_at(past.space, raw.code_changes)) return number;
  }
  return kNoSpace;
}

AddressSpaces::Space* AddressSpaces::find_present(const ProcessKey& process) {
  auto known = spaces_.find(process.pid);
  if (known == spaces_.end()) {
    if (!prepare(process.pid)) return nullptr;
    known = spaces_.find(process.pid);
    if (known == spaces_.end()) return nullptr;  // forgotten meanwhile
  }
  const bool is_its = known->second.image.start_ticks == process.start_boot_ns / kTickNs;
  return is_its ? &known->second : nullptr;  // else the pid has a new owner
}

AddressSpaces::Space* AddressSpaces::find_space(const ProcessKey& process, uint32_t number) {
  return number == 0 ? find_present(process) : find_numbered(number);
}

AddressSpaces::Space* AddressSpaces::find_numbered(uint32_t number) {
  if (const uint32_t owner = find_owner(number)) return &spaces_.at(owner);
  const auto past = past_.find(number);
  return past == past_.end() ? nullptr : &past->second.space;
}

gpuperf_unwind_rule AddressSpaces::find_rule(const ProcessKey& process, uint32_t number,
                                             uint64_t pc, bool is_exact) {
  Space* space = find_space(process, number);
  if (space == nullptr) return kNoRule;
  const uint64_t code_address = get_code_address(pc, is_exact);
  const uint32_t owner = find_owner(space->number);
  if (owner != 0 && find_mapping(*space, code_address) == nullptr &&
      std::chrono::nanoseconds(clock_.mono_ns() - space->read_mono_ns) >= kMinAge) {
    (void)prepare(owner);
    space = find_space(process, number);
    if (space == nullptr) return kNoRule;
  }
  const uint64_t place = make_place(pc, is_exact);
  if (const auto known = space->rules.find(place); known != space->rules.end()) {
    return known->second;
  }
  const MapEntry* const found = find_mapping(*space, code_address);
  if (found == nullptr) return kNoRule;
  const uint32_t here = space->number;
  const auto rule = make_rule(process.pid, here, MapEntry(*found), code_address);
  if (!rule) return kNoRule;
  const bool is_present = find_owner(here) != 0;
  if (is_present) space = find_numbered(here);
  if (is_present && !space->rules.contains(place) && rule_count_ < kMaxRules &&
      options_.tables.set_rule(make_key(space->number, place), *rule)) {
    space->rules.emplace(place, *rule);
    ++rule_count_;
  }
  return *rule;
}

AddressSpaces::OpenedCode AddressSpaces::open_code(uint32_t pid,
                                                   const std::vector<MapEntry>& mappings) {
  std::map<uint64_t, Result<OpenedFile>> files;
  options_.wait_unlocked([&] {
    for (const MapEntry& mapping : mappings) {
      files.emplace(mapping.start_address, open_mapped_file(options_.proc, pid, mapping));
    }
  });
  OpenedCode opened;
  for (auto& [address, file] : files) {
    opened.emplace(address, file.ok() ? files_.keep(*std::move(file)) : file.status());
  }
  return opened;
}

Result<CodeFiles::CodePtr> AddressSpaces::open_code(uint32_t pid, const MapEntry& mapping) {
  return open_code(pid, std::vector{mapping}).at(mapping.start_address);
}

Result<CodeFiles::CodePtr> AddressSpaces::find_code(uint32_t pid, uint32_t number,
                                                    const MapEntry& mapping) {
  const HeldCode& before = find_numbered(number)->held;
  if (const auto held = before.find(mapping.start_address); held != before.end()) {
    return held->second;
  }
  Result<CodeFiles::CodePtr> code =
      is_vdso(mapping) ? files_.open_vdso(mapping) : open_code(pid, mapping);
  Space* const space = find_numbered(number);
  if (code.ok() && space != nullptr && !is_new(*space, mapping)) {
    space->held.emplace(mapping.start_address, *code);
  }
  return code;
}

// Nothing for what is no code, or cannot be read now.
std::optional<gpuperf_unwind_rule> AddressSpaces::make_rule(uint32_t pid, uint32_t number,
                                                            const MapEntry& mapping, uint64_t pc) {
  if (is_anonymous(mapping)) return kGuessRule;
  if (mapping.file.inode == 0 && !is_vdso(mapping)) return std::nullopt;  // "[uprobes]"
  const Result<CodeFiles::CodePtr> code = find_code(pid, number, mapping);
  if (absl::IsInvalidArgument(code.status())) return kGuessRule;  // no ELF file, as JITs make them
  if (!code.ok()) return std::nullopt;
  const CodeFile& file = (*code)->file;
  const auto vaddr = file.find_vaddr(pc - mapping.start_address + mapping.offset_bytes);
  if (!vaddr) return std::nullopt;
  const auto rule = find_unwind_rule(file, *vaddr);
  return rule.ok() ? *rule : kNoRule;  // damaged: never walked through
}

AddressSpaces::Mapped AddressSpaces::find_mapped(const ProcessKey& process, uint32_t number) const {
  if (const auto past = past_.find(number); past != past_.end()) {
    const Space& space = past->second.space;
    return {.space = number, .mappings = space.mappings, .held = space.held};
  }
  const auto known = spaces_.find(number == 0 ? process.pid : find_owner(number));
  if (known == spaces_.end()) return {};
  const Space& space = known->second;
  return {.space = space.number, .mappings = space.mappings, .held = space.held};
}

const PythonRuntime* AddressSpaces::find_python(const ProcessKey& process, uint32_t number) const {
  const auto known = spaces_.find(number == 0 ? process.pid : find_owner(number));
  return known != spaces_.end() && known->second.python ? &*known->second.python : nullptr;
}

void AddressSpaces::watch_loader(uint32_t pid, uint32_t number) {
  const auto loader = find_loader(*find_numbered(number)->mappings);
  if (!loader) return;
  const Result<CodeFiles::CodePtr> opened = open_code(pid, *loader);
  if (!opened.ok() || !loaders_.insert((*opened)->identity).second) return;
  const CodeFiles::Code& code = **opened;
  const auto sections = code.file.elf().read_sections();
  if (!sections.ok()) return;
  const auto exports = ElfExports::open(code.file.elf(), *sections);
  if (!exports.ok()) return;
  const auto place = exports->find("_dl_debug_state");
  if (!place.ok() || !*place) return;
  const auto offset = code.file.find_offset((*place)->vaddr);
  if (!offset) return;
  const Status status = options_.tables.watch_loader(code.fd.get(), code.identity, *offset);
  if (!status.ok()) {
    log_warn("cannot watch a dynamic loader for changes",
             {{"file", loader->path}, {"error", std::string(status.message())}});
  }
}

// In the program itself and in libraries named after it: an embedded one is linked as libpython, or
// into the program.
void AddressSpaces::look_for_python(uint32_t pid, uint32_t number) {
  const Space* const prepared = find_numbered(number);
  if (prepared == nullptr || prepared->python) return;
  std::error_code error;  // empty then: no program is named so
  const std::string program =
      std::filesystem::read_symlink(get_proc_path(options_.proc.root(), pid, "exe"), error)
          .string();
  const auto mappings = prepared->mappings;
  for (const MapEntry& mapping : *mappings) {
    if (mapping.file.inode == 0) continue;
    if (mapping.path != program && !is_python_name(mapping.path)) continue;
    Space* space = find_numbered(number);
    if (space == nullptr) return;
    if (space->examined.contains(mapping.start_address)) continue;
    const Result<CodeFiles::CodePtr> code = open_code(pid, mapping);
    space = find_numbered(number);
    if (space == nullptr) return;
    if (is_put_off(code.status())) {
      space->python_retry_mono_ns = clock_.mono_ns() + kPythonRetry.count();
      return;
    }
    space->examined.insert(mapping.start_address);
    if (code.ok() && examine(pid, *space, mapping, **code)) return;
  }
}

void AddressSpaces::retry_python(uint32_t pid) {
  Space& space = spaces_.at(pid);
  if (space.python_retry_mono_ns == 0 || clock_.mono_ns() < space.python_retry_mono_ns) return;
  space.python_retry_mono_ns = 0;
  look_for_python(pid, space.number);
}

bool AddressSpaces::examine(uint32_t pid, const Space& space, const MapEntry& mapping,
                            const CodeFiles::Code& code) {
  const FileIdentity& identity = code.identity;
  const std::optional<PythonFile>* file = pythons_.find(identity);
  if (file == nullptr) {
    auto found = gpuperf::find_python(code.fd.get());
    if (!found.ok()) {
      log_warn("Python frames not readable",
               {{"file", mapping.path}, {"error", std::string(found.status().message())}});
    }
    (void)pythons_.put(identity, found.ok() ? *found : std::nullopt, 1);
    file = pythons_.find(identity);
  }
  const auto vaddr = code.file.find_vaddr(mapping.offset_bytes);
  if (!*file || !vaddr || found_pythons_.size() >= kMaxFoundPythons) return false;
  found_pythons_.push_back({.pid = pid,
                            .space = space.number,
                            .identity = identity,
                            .path = mapping.path,
                            .file = **file,
                            .bias = mapping.start_address - *vaddr});
  return true;
}

void AddressSpaces::set_python(const FoundPython& found, Result<PythonRuntime> runtime) {
  if (runtime.ok()) {
    const auto known = spaces_.find(found.pid);
    if (known == spaces_.end() || known->second.number != found.space) return;  // gone, or anew
    known->second.python = *std::move(runtime);
    tell(found.pid, known->second);
    return;
  }
  // Processes that have ended meanwhile fail, too: many a minute on some hosts.
  if (told_pythons_.find(found.identity) != nullptr) return;
  (void)told_pythons_.put(found.identity, true, 1);
  log_warn("Python frames not readable", {{"file", found.path},
                                          {"pid", std::to_string(found.pid)},
                                          {"error", std::string(runtime.status().message())}});
}

void AddressSpaces::sweep() {
  files_.close_all();
  const int64_t now_ns = clock_.mono_ns();
  std::erase_if(past_, [now_ns](const auto& entry) {
    return std::chrono::nanoseconds(now_ns - entry.second.end_mono_ns) >= kPastAge;
  });
  for (auto entry = spaces_.begin(); entry != spaces_.end();) {
    entry->second.held.clear();
    const auto ticks = read_start_ticks(options_.proc.root(), entry->first);
    if (ticks.ok() && *ticks == entry->second.image.start_ticks) {
      ++entry;
      continue;
    }
    options_.tables.erase_space(entry->first);
    retire(entry->first, std::move(entry->second));
    entry = spaces_.erase(entry);
  }
}

bool is_python_name(std::string_view path) {
  return get_file_name(path).find("python") != std::string_view::npos;
}

}  // namespace gpuperf
