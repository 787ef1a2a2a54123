#include "daemon/attach/libc_functions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {
namespace {

struct Wanted {
  const char* name;
  uint64_t LibcFunctions::*where;
};
constexpr std::array<Wanted, 8> kWanted{{{"mmap", &LibcFunctions::mmap},
                                         {"syscall", &LibcFunctions::syscall},
                                         {"pthread_create", &LibcFunctions::pthread_create},
                                         {"pthread_detach", &LibcFunctions::pthread_detach},
                                         {"pthread_self", &LibcFunctions::pthread_self},
                                         {"dlopen", &LibcFunctions::dlopen},
                                         {"dlsym", &LibcFunctions::dlsym},
                                         {"dlerror", &LibcFunctions::dlerror}}};
constexpr std::array<std::string_view, 6> kLibraries{
    "libc.so.6", "libc-2.", "libpthread.so.0", "libpthread-2.", "libdl.so.2", "libdl-2."};

// mov $15, %rax; syscall
constexpr std::array<unsigned char, 9> kRestorer{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
constexpr std::array<unsigned char, 4> kEndbr{0xf3, 0x0f, 0x1e, 0xfa};
// mov offset(%rip), %rax; add %fs:0, %rax
constexpr std::array<unsigned char, 3> kLoad{0x48, 0x8b, 0x05};
constexpr std::array<unsigned char, 9> kAddBase{0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0};

template <size_t kCount>
bool begins_with(std::span<const std::byte> bytes, const std::array<unsigned char, kCount>& what) {
  return bytes.size() >= kCount && std::memcmp(bytes.data(), what.data(), kCount) == 0;
}

uint64_t find_restorer(const LoadedLibrary& libc) {
  for (const LoadSegment& segment : libc.code->file.elf().segments()) {
    if (!segment.executable) continue;
    const auto bytes = libc.code->file.read_up_to(segment.vaddr, segment.file_bytes);
    if (!bytes.ok()) continue;
    const auto found = std::search(
        bytes->begin(), bytes->end(), kRestorer.begin(), kRestorer.end(),
        [](std::byte a, unsigned char b) { return std::to_integer<unsigned char>(a) == b; });
    if (found == bytes->end()) continue;
    return libc.bias + segment.vaddr + static_cast<uint64_t>(found - bytes->begin());
  }
  return 0;
}

// What __errno_location adds to the thread's base.
uint64_t find_errno_offset(const LoadedLibrary& libc, uint64_t vaddr) {
  const auto read = libc.code->file.read_up_to(vaddr, 32);
  if (!read.ok()) return 0;
  std::span<const std::byte> bytes(*read);
  if (begins_with(bytes, kEndbr)) {
    bytes = bytes.subspan(kEndbr.size());
    vaddr += kEndbr.size();
  }
  constexpr size_t kLoadBytes = 7;
  if (!begins_with(bytes, kLoad) || !begins_with(bytes.subspan(kLoadBytes), kAddBase)) return 0;
  int32_t distance = 0;
  std::memcpy(&distance, bytes.data() + kLoad.size(), sizeof distance);
  return libc.bias + vaddr + kLoadBytes + static_cast<uint64_t>(int64_t{distance});
}

// Not one that is chosen at load time: its address is not that of the function.
std::optional<uint64_t> find_function(const LoadedLibrary& library, const ElfSymbols& symbols,
                                      const std::string& name) {
  const auto found = symbols.find_function(name);
  if (!found || found->is_ifunc) return std::nullopt;
  return library.code->file.find_vaddr(found->file_offset_bytes);
}

}  // namespace

Result<LibcFunctions> find_libc_functions(const ProcFiles& files, CodeFiles& code_files,
                                          const AttachTarget& target) {
  LibcFunctions functions;
  for (const std::string_view name : kLibraries) {
    const MemoryMap* const map = target.find_library(name);
    if (map == nullptr) continue;
    ASSIGN_OR_RETURN(const LoadedLibrary library, open_library(files, code_files, target, *map));
    ASSIGN_OR_RETURN(const ElfSymbols symbols,
                     ElfSymbols::load(library.code->fd.get(), ElfSymbols::Tables::kDynamic));
    for (const Wanted& wanted : kWanted) {
      if (functions.*wanted.where != 0) continue;
      const auto vaddr = find_function(library, symbols, wanted.name);
      if (vaddr) functions.*wanted.where = library.bias + *vaddr;
    }
    if (functions.restorer == 0) functions.restorer = find_restorer(library);
    const auto errno_location = find_function(library, symbols, "__errno_location");
    if (errno_location && functions.errno_offset_at == 0) {
      functions.errno_offset_at = find_errno_offset(library, *errno_location);
    }
  }
  for (const Wanted& wanted : kWanted) {
    if (functions.*wanted.where == 0) {
      return absl::NotFoundError("its C library has no " + std::string(wanted.name));
    }
  }
  if (functions.restorer == 0) {
    return absl::NotFoundError("its C library has no code that returns from a signal");
  }
  return functions;
}

}  // namespace gpuperf
