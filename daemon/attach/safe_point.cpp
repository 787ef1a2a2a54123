#include "daemon/attach/safe_point.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "daemon/base/file_name.h"
#include "daemon/model/stack.h"
#include "daemon/probe/elf/elf_exports.h"
#include "daemon/probe/elf/elf_symbols.h"
#include "daemon/unwind/frame_rules.h"
#include "daemon/unwind/stack_walk.h"

namespace gpuperf {
namespace {

constexpr std::array<std::string_view, 3> kLoaders{"ld-linux", "ld-2.", "ld.so"};
constexpr std::array<std::string_view, 4> kCuda{"libcuda.so", "libcupti.so", "libcudadebugger",
                                                "libnvidia-"};
// Functions that hold locks of the C library while they wait, or in whose middle a thread is not
// itself.
constexpr std::array<std::string_view, 52> kLibcFunctions{"malloc",
                                                          "calloc",
                                                          "realloc",
                                                          "reallocarray",
                                                          "free",
                                                          "memalign",
                                                          "aligned_alloc",
                                                          "posix_memalign",
                                                          "valloc",
                                                          "pvalloc",
                                                          "malloc_trim",
                                                          "malloc_info",
                                                          "mallinfo",
                                                          "mallinfo2",
                                                          "malloc_stats",
                                                          "mallopt",
                                                          "cfree",
                                                          "fork",
                                                          "_Fork",
                                                          "vfork",
                                                          "__libc_fork",
                                                          "clone",
                                                          "posix_spawn",
                                                          "posix_spawnp",
                                                          "system",
                                                          "popen",
                                                          "pclose",
                                                          "wordexp",
                                                          "daemon",
                                                          "forkpty",
                                                          "dlopen",
                                                          "dlclose",
                                                          "dlsym",
                                                          "dlvsym",
                                                          "dlmopen",
                                                          "dlerror",
                                                          "dl_iterate_phdr",
                                                          "dladdr",
                                                          "dladdr1",
                                                          "dlinfo",
                                                          "pthread_create",
                                                          "pthread_exit",
                                                          "exit",
                                                          "_exit",
                                                          "quick_exit",
                                                          "abort",
                                                          "__cxa_finalize",
                                                          "__cxa_thread_atexit_impl",
                                                          "setuid",
                                                          "setgid",
                                                          "setresuid",
                                                          "setresgid"};

bool begins_with_any(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::ranges::any_of(prefixes,
                             [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_libc(std::string_view name) {
  return name.starts_with("libc.so.6") || name.starts_with("libc-2.");
}

// Whatever its name: a library that defines malloc is an allocator.
bool is_allocator(const CodeFiles::Code& code) {
  const auto sections = code.file.elf().read_sections();
  if (!sections.ok()) return false;
  const auto exports = ElfExports::open(code.file.elf(), *sections);
  if (!exports.ok()) return false;
  const auto found = exports->find("malloc");
  return found.ok() && found->has_value();
}

ReadMemory make_image_reader(const StackImage& image) {
  return [&image](uint64_t address, std::span<std::byte> to) {
    const uint64_t offset = address - image.registers.rsp;  // wraps below it: beyond, too
    if (offset > image.bytes.size() || to.size() > image.bytes.size() - offset) return false;
    std::memcpy(to.data(), image.bytes.data() + offset, to.size());
    return true;
  };
}

}  // namespace

SafePoint::Library SafePoint::open(const MemoryMap& map) {
  Library library;
  const std::string_view name = get_file_name(map.path);
  if (begins_with_any(name, kLoaders)) library.objection = "in the dynamic loader";
  if (begins_with_any(name, kCuda)) library.objection = "in " + std::string(name);
  if (name.starts_with("libgpuperf_injector")) library.objection = "in the injected library";
  library.is_libc = is_libc(name);
  Result<LoadedLibrary> loaded = open_library(files_, code_files_, target_, map);
  if (!loaded.ok()) {
    if (library.objection.empty()) library.objection = "in code whose file cannot be read";
    return library;
  }
  library.loaded = *std::move(loaded);
  if (library.is_libc) {
    list_libc_ranges(library);
  } else if (library.objection.empty() && map.path != "[vdso]" &&
             is_allocator(*library.loaded.code)) {
    library.objection = "in an allocator (" + std::string(name) + ")";
  }
  return library;
}

void SafePoint::list_libc_ranges(const Library& libc) {
  const auto symbols = ElfSymbols::load(libc.loaded.code->fd.get(), ElfSymbols::Tables::kDynamic);
  if (!symbols.ok()) return;
  symbols->visit_functions([this, &libc](const NamedFunction& function) {
    if (std::ranges::find(kLibcFunctions, function.name) == kLibcFunctions.end()) return true;
    const auto vaddr = libc.loaded.code->file.find_vaddr(function.where.file_offset_bytes);
    if (!vaddr) return true;
    const uint64_t begin = libc.loaded.bias + *vaddr;
    libc_ranges_.push_back({begin, begin + function.where.size_bytes, std::string(function.name)});
    return true;
  });
}

SafePoint::Library* SafePoint::find_library(uint64_t pc) {
  const MemoryMap* const map = find_map(target_.maps, pc);
  if (map == nullptr || !map->can_execute) return nullptr;
  if (map->file.inode == 0 && map->path != "[vdso]") return nullptr;
  const auto known = libraries_.find(map->start_address);
  if (known != libraries_.end()) return &known->second;
  return &libraries_.emplace(map->start_address, open(*map)).first->second;
}

gpuperf_unwind_rule SafePoint::find_rule(uint64_t pc, bool is_exact) {
  const auto key = std::pair(pc, is_exact);
  if (const auto known = rules_.find(key); known != rules_.end()) return known->second;
  gpuperf_unwind_rule rule{};
  const Library* const library = find_library(pc);
  if (library != nullptr && library->loaded.code != nullptr) {
    const uint64_t vaddr = pc - library->loaded.bias - (is_exact ? 0 : 1);
    const auto found = find_unwind_rule(library->loaded.code->file, vaddr);
    // A guess proves nothing.
    if (found.ok() && found->kind != GPUPERF_UNWIND_GUESS) rule = *found;
  }
  rules_.emplace(key, rule);
  return rule;
}

std::string SafePoint::find_objection(uint64_t pc, bool is_exact) {
  const Library* const library = find_library(pc);
  if (library == nullptr) return "in code of no file";
  if (!library->objection.empty()) return library->objection;
  if (!library->is_libc) return "";
  const uint64_t at = is_exact ? pc : pc - 1;
  for (const Range& range : libc_ranges_) {
    if (at >= range.begin && at < range.end) return "in " + range.name;
  }
  return "";
}

// A stack of the thread's own: that of the first thread, or one that its control block lies on, as
// the C library puts it there. A coroutine's may be next to another's.
std::string SafePoint::find_stack_objection(const user_regs_struct& registers) const {
  const MemoryMap* const stack = find_map(target_.maps, registers.rsp);
  if (stack == nullptr || !stack->can_write || stack->is_shared) return "on an unknown stack";
  if (registers.rsp - stack->start_address < kFreeStackBytes)
    return "with less than 64 KiB of stack left";
  if (stack->path != "[stack]" &&
      !(stack->contains(registers.fs_base) && registers.fs_base > registers.rsp)) {
    return "on a stack that is not the thread's own";
  }
  return "";
}

std::string SafePoint::find_objection(const StackImage& image) {
  std::string objection = find_stack_objection(image.registers);
  if (!objection.empty()) return objection;
  std::vector<NativeFrame> frames{
      {.pc = image.registers.rip, .sp = image.registers.rsp, .is_exact = true}};
  const StackEnd end =
      walk_stack(frames, image.registers.rbp,
                 [this](uint64_t pc, bool is_exact) { return find_rule(pc, is_exact); },
                 make_image_reader(image), {});
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i > 0 && frames[i].is_exact) return "in a signal handler";
    objection = find_objection(frames[i].pc, frames[i].is_exact);
    if (!objection.empty()) return objection;
  }
  if (end != StackEnd::kComplete) {
    return "with a stack that cannot be walked to its end";
  }
  return "";
}

}  // namespace gpuperf
