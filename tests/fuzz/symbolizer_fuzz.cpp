// Any bytes as a mapped library: every reader of the symboliser, libdw in this process included.
//
// Built where the compiler is clang (-DGPUPERF_FUZZ=ON). Usage: symbolizer_fuzz [corpus folder];
// libraries of the host make a good corpus. What libdw does here harms its worker alone (see
// docs/decisions/0009-symbols.md); everything else must stand.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/base/demangle.h"
#include "daemon/base/fd.h"
#include "daemon/resolve/address_table.h"
#include "daemon/resolve/debug_facts.h"
#include "daemon/resolve/dwarf_message.h"
#include "daemon/resolve/dwarf_reader.h"
#include "daemon/resolve/mini_debug.h"
#include "daemon/resolve/perf_map.h"

namespace gpuperf {
namespace {

constexpr size_t kTableBytes = size_t{4} << 20;

void read_symbols(const ElfFile& file, int fd) {
  const Result<DebugFacts> facts = read_debug_facts(file);
  Fd mini;
  if (facts.ok() && facts->mini_debug.size_bytes > 0) {
    if (Result<Fd> expanded = expand_mini_debug(file, facts->mini_debug); expanded.ok()) {
      mini = *std::move(expanded);
    }
  }
  // As its own debug file, too.
  const int debug_fds[] = {mini.get(), fd};
  const AddressTable table = AddressTable::load(fd, debug_fds, kTableBytes);
  for (uint64_t offset = 0; offset < file.size_bytes(); offset += 61) {
    const auto vaddr = table.find_vaddr(offset);
    const auto function = vaddr ? table.find_function(*vaddr) : std::nullopt;
    if (function) (void)demangle(function->name);
  }
}

void read_dwarf(const ElfFile& file, int fd) {
  const auto reader = DwarfReader::open(fd, -1);
  if (!reader.ok()) return;
  for (const LoadSegment& segment : file.segments()) {
    for (uint64_t i = 0; i < 4'096; i += 61) (void)(*reader)->find_frames(segment.vaddr + i);
  }
}

void read_all(std::string_view bytes) {
  const Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return;
  if (const Result<ElfFile> file = ElfFile::open(fd.get()); file.ok()) {
    read_symbols(*file, fd.get());
    read_dwarf(*file, fd.get());
  }
  PerfMap map(kTableBytes);
  (void)map.append(bytes);
  (void)map.find(0x1000);
  (void)decode_reply(bytes);
  (void)decode_request(bytes);
  (void)demangle(bytes);
}

}  // namespace
}  // namespace gpuperf

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size_bytes) {
  gpuperf::read_all({reinterpret_cast<const char*>(bytes), size_bytes});
  return 0;
}
