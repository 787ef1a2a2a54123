#include "daemon/unwind/frame_rules.h"

#include <optional>

#include "bpf/frame_rules.h"
#include "daemon/probe/code/frame_memory.h"
#include "daemon/probe/code/frame_search.h"

namespace gpuperf {
namespace {

Result<std::optional<uint64_t>> find_entry(const CodeFile& file, uint64_t vaddr) {
  Result<std::optional<uint64_t>> entry = find_entry_by_table(file, vaddr);
  if (absl::IsNotFound(entry.status()) || absl::IsUnimplemented(entry.status())) {
    return find_entry_by_scan(file, vaddr);
  }
  return entry;
}

}  // namespace

const gpuperf_unwind_rule kGuessRule = frame_guess_rule();

Result<gpuperf_unwind_rule> find_unwind_rule(const CodeFile& file, uint64_t vaddr) {
  ASSIGN_OR_RETURN(const std::optional<uint64_t> entry, find_entry(file, vaddr));
  if (!entry) return kGuessRule;
  FrameMemory memory(file);
  gpuperf_unwind_rule rule{};
  const frame_result result = frame_read_rule(&memory, *entry, vaddr, &rule);
  if (result == FRAME_NONE) return kGuessRule;
  if (result != FRAME_OK) return make_frame_status(result, memory, "an entry");
  return rule;
}

}  // namespace gpuperf
