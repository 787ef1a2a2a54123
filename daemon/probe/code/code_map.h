#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"

namespace gpuperf {

// The code of one file: its bytes, where its functions begin, where its jumps through tables lead.
//
// Thread: any one at a time. The descriptor stays the caller's and must outlive it. Function starts
// and relocations are read when first asked for and kept, 8 and 24 bytes each, until destruction:
// ask all functions of a file, then let it go. The file is hostile input: bounds and errors are
// those of ElfFile and ElfSymbols.
class CodeMap {
 public:
  // Bytes of relocations looked through; cublasLt has 9 MB of them.
  static constexpr uint64_t kMaxRelocationBytes = uint64_t{256} << 20;
  // 24 MB; libtorch_cpu has 19,629.
  static constexpr size_t kMaxSlots = 1'000'000;

  static Result<CodeMap> open(int fd);

  const CodeFile& file() const { return file_; }

  // Whether a function begins there that has a symbol, and is not a part which the compiler split
  // off another (NAME.cold, NAME.part.0). False where the file has no symbols.
  Result<bool> begins_function(uint64_t vaddr);
  // Whether it lies in a procedure linkage table: a jump there goes to whatever function of the
  // process has the name.
  bool is_plt(uint64_t vaddr) const;
  // The function of this file that an entry of such a table leads to; nothing when it is another's.
  Result<std::optional<uint64_t>> find_plt_target(uint64_t vaddr);
  // The same of a slot of the global offset table.
  Result<std::optional<uint64_t>> find_slot_target(uint64_t slot_vaddr);

 private:
  // A slot that the dynamic linker fills with an address of this file or of a symbol.
  struct Slot {
    uint64_t vaddr = 0;
    uint64_t symbol_offset_bytes = 0;  // of its Elf64_Sym in the file; 0 = `target` it is
    uint64_t target = 0;
  };

  CodeMap(int fd, CodeFile file);
  Status load_function_starts();
  Status load_slots();
  Status take_relocations(const NamedSection& section, std::vector<Slot>& slots);

  int fd_;
  CodeFile file_;
  std::vector<NamedSection> plts_;
  std::optional<std::vector<uint64_t>> function_starts_;  // sorted
  std::optional<std::vector<Slot>> slots_;                // sorted by vaddr
};

}  // namespace gpuperf
