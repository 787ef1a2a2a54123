// Any bytes as a file whose DWARF is read (daemon/resolve/dwarf_reader.h), and what the worker that
// reads it answers. libdw is the system's, without sanitizers.

#include "daemon/base/fd.h"
#include "daemon/probe/elf/elf_file.h"
#include "daemon/resolve/dwarf_message.h"
#include "daemon/resolve/dwarf_reader.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  const Fd fd = elf_builder::make_file(std::string(bytes));
  const Result<ElfFile> file = ElfFile::open(fd.get());
  if (!file.ok()) return "";
  const auto reader = DwarfReader::open(fd.get(), -1);
  if (!reader.ok()) return "";
  ReplyWriter reply;
  size_t answered = 0;
  for (const LoadSegment& segment : file->segments()) {
    if (!segment.executable) continue;
    for (uint64_t i = 0; i < 0x1000 && answered < kMaxRequestAddresses; i += 16) {
      const auto frames = (*reader)->find_frames(segment.vaddr + i);
      if (frames.size() > DwarfReader::kMaxDepth) return "frames beyond their bound";
      if (!reply.add(frames)) return "";
      ++answered;
    }
  }
  const auto decoded = decode_reply(reply.bytes());
  return decoded && decoded->size() == answered ? "" : "a reply that is not read as written";
}

}  // namespace gpuperf::fuzz
