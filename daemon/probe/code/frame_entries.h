#pragma once

// The entries of .eh_frame: those of stretches of code (FDE) and those that say how such are
// written (CIE). Layout: Linux Standard Base, "Exception Frames". Read anew at each call.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"
#include "daemon/probe/elf/dwarf_cursor.h"

namespace gpuperf {

// A CIE or FDE: its bytes behind the length.
struct FrameEntry {
  // The longest in 1,617 files of Debian and CUDA 13 has 60,768 bytes, in libcufft.
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 10;

  std::vector<std::byte> bytes;
  uint64_t vaddr = 0;     // of `bytes`
  size_t program_at = 0;  // in `bytes`: from here on instructions
  bool is_cut = false;    // it goes on beyond kMaxBytes
};

// A CIE.
struct CommonEntry {
  FrameEntry entry;
  uint8_t pointers = pointer_encoding::kAbsolute;
  uint8_t exception_tables = pointer_encoding::kOmitted;
  bool is_augmented = false;
  bool is_signal_frame = false;  // its caller did not call, but was interrupted
  uint64_t code_alignment = 1;
  int64_t data_alignment = 1;
  uint64_t return_address_register = 0;
};

// An FDE with its CIE.
struct FrameDescription {
  CommonEntry common;
  FrameEntry entry;
  uint64_t begin = 0;  // vaddr of the code
  uint64_t end = 0;
  std::optional<uint64_t> exception_table;  // vaddr of its LSDA
  bool covers(uint64_t vaddr) const { return vaddr >= begin && vaddr < end; }
};

// Of an entry by its address. Errors: DataLoss = damaged; else what CodeFile says.
Result<CommonEntry> read_common_entry(const CodeFile& file, uint64_t vaddr);
Result<FrameDescription> read_description(const CodeFile& file, uint64_t vaddr);

// "damaged unwind information: what".
Status make_damaged_frame(const char* what);

}  // namespace gpuperf
