// libFuzzer target: any bytes as a file of which unwind rules are asked. Bytes that do not begin
// like an ELF file are taken for an .eh_frame and put into one.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/probe/code/code_file.h"
#include "daemon/unwind/frame_rules.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/unwind/frame_file.h"

namespace {

using gpuperf::frame_file::FrameFile;

void ask(const std::string& bytes, uint64_t function) {
  const gpuperf::Fd fd = gpuperf::elf_builder::make_file(bytes);
  const auto file = gpuperf::CodeFile::open(fd.get());
  if (!file.ok()) return;
  // Whatever the answer is, only that there is one.
  for (const uint64_t distance : {0, 1, 4, 32, 255}) {
    (void)gpuperf::find_unwind_rule(*file, function + distance);
  }
  for (const gpuperf::LoadSegment& segment : file->elf().segments()) {
    (void)gpuperf::find_unwind_rule(*file, segment.vaddr + segment.file_bytes / 2);
    (void)gpuperf::find_unwind_rule(*file, segment.vaddr + segment.file_bytes - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string bytes(reinterpret_cast<const char*>(data), size_bytes);
  if (bytes.starts_with(ELFMAG)) {
    ask(bytes, 0x1100);  // code of small libraries begins about there
    return 0;
  }
  // By the table, as instructions of a right FDE, and without, as the entries themselves.
  const FrameFile right{.program = bytes};
  ask(right.build(), right.function());
  const FrameFile wrong{.has_table = false, .entries_before = bytes};
  ask(wrong.build(), wrong.function());
  return 0;
}
