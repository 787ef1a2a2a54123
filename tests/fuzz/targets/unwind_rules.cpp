// Any bytes as a file of which unwind rules are asked (daemon/unwind/frame_rules.h). Bytes that do
// not begin like an ELF file are taken for an .eh_frame and put into one.

#include "daemon/base/fd.h"
#include "daemon/probe/code/code_file.h"
#include "daemon/unwind/frame_rules.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/unwind/frame_file.h"

namespace gpuperf::fuzz {
namespace {

using frame_file::FrameFile;

std::string ask_at(const CodeFile& file, uint64_t vaddr) {
  const auto rule = find_unwind_rule(file, vaddr);
  return rule.ok() && rule->kind >= GPUPERF_UNWIND_KINDS ? "a rule of no kind" : "";
}

std::string ask(const std::string& bytes, uint64_t function) {
  const Fd fd = elf_builder::make_file(bytes);
  const auto file = CodeFile::open(fd.get());
  if (!file.ok()) return "";
  std::string fault;
  for (const uint64_t distance : {0, 1, 4, 32, 255}) fault += ask_at(*file, function + distance);
  for (const LoadSegment& segment : file->elf().segments()) {
    fault += ask_at(*file, segment.vaddr + segment.file_bytes / 2);
    fault += ask_at(*file, segment.vaddr + segment.file_bytes - 1);
  }
  return fault;
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  if (bytes.starts_with(ELFMAG)) {
    return ask(std::string(bytes), 0x1100);  // code of small libraries begins about there
  }
  // By the table, as instructions of a right FDE, and without, as the entries themselves.
  const FrameFile right{.program = std::string(bytes)};
  const FrameFile wrong{.has_table = false, .entries_before = std::string(bytes)};
  return ask(right.build(), right.function()) + ask(wrong.build(), wrong.function());
}

std::vector<std::string> make_seeds() {
  using namespace frame_file;
  const Bytes common = entry(as_bytes(uint32_t{0}) + bytes_of({1, 0, 1, 0x78, 16}));
  return {FrameFile{}.build(),
          FrameFile{.has_sections = true}.build(),
          FrameFile{.has_table = false, .has_sections = true}.build(),
          def_cfa(7, 16) + offset(6, 2) + advance(4) + def_cfa_register(6) + remember_state() +
              advance(8) + def_cfa_offset(24) + restore_state() + restore(6),
          def_cfa_expression(register_plus(6, -40) + kDereference) + undefined(16) + same_value(3) +
              in_register(6, 3) + expression(6, register_plus(7, 8)),
          common + entry(as_bytes(static_cast<uint32_t>(common.size() + 4)) + Bytes(16, '\0'))};
}

}  // namespace gpuperf::fuzz
