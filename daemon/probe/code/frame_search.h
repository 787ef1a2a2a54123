#pragma once

// Which entry of .eh_frame describes the code at an address: an answer is the vaddr of an FDE, for
// frame_read_description. Errors: DataLoss = damaged; those said here; else what CodeFile says.

#include <cstdint>
#include <optional>

#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"

namespace gpuperf {

// The only FDE that can cover `vaddr`, by the search table of .eh_frame_hdr: 20 reads for 100,000
// functions. Nothing when all code described begins later.
// NotFound = the file has no .eh_frame_hdr; Unimplemented = one without a table, or in an encoding
// that no linker on x86-64 writes.
Result<std::optional<uint64_t>> find_entry_by_table(const CodeFile& file, uint64_t vaddr);

// The first FDE that covers `vaddr`, by passing over .eh_frame: for files without a search table.
// Nothing also when the file has no .eh_frame, or none that can be found without section headers.
// Takes 15 ms for the 9.9 MB of Debian's libtorch_cpu, 0.2 s up to the bound, beyond which
// ResourceExhausted.
inline constexpr uint64_t kMaxScannedBytes = uint64_t{64} << 20;
Result<std::optional<uint64_t>> find_entry_by_scan(const CodeFile& file, uint64_t vaddr);

}  // namespace gpuperf
