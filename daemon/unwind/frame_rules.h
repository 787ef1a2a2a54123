#pragma once

#include <cstdint>

#include "bpf/stack_records.h"
#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"

namespace gpuperf {

// Of code without a description, which may have a frame pointer.
extern const gpuperf_unwind_rule kGuessRule;

// The rule by which a frame stopped at `vaddr`, in the file's own numbering, finds its caller's:
// of the many that .eh_frame can express those that BPF can follow, GPUPERF_UNWIND_UNKNOWN for
// others. kGuessRule where no description covers the address. Of a return address ask for the byte
// before it: a call may be the last instruction of its function.
//
// Reads little and keeps nothing: some 25 small reads by the search table of .eh_frame_hdr; without
// one find_entry_by_scan passes over all of .eh_frame. Any thread.
// Errors: DataLoss = damaged; Unimplemented = in a way that no compiler writes; ResourceExhausted =
// beyond a bound; else what CodeFile says.
Result<gpuperf_unwind_rule> find_unwind_rule(const CodeFile& file, uint64_t vaddr);

}  // namespace gpuperf
