#include "daemon/probe/code/code_unwind.h"

#include <cstddef>

#include "daemon/probe/code/frame_entries.h"
#include "daemon/probe/code/frame_search.h"
#include "daemon/probe/elf/dwarf_cursor.h"

namespace gpuperf {
namespace {

using namespace pointer_encoding;

// Of one function; all of Debian's libtorch_cpu has 3.9 MB of exception tables.
constexpr uint64_t kMaxCallSiteBytes = 1 << 20;

}  // namespace

Result<std::optional<CodeFrame>> find_frame(const CodeFile& file, uint64_t vaddr) {
  const Result<std::optional<uint64_t>> entry = find_entry_by_table(file, vaddr);
  if (absl::IsNotFound(entry.status())) return std::nullopt;
  if (!entry.ok()) return entry.status();
  if (!*entry) return std::nullopt;
  ASSIGN_OR_RETURN(const FrameDescription frame, read_description(file, **entry));
  if (!frame.covers(vaddr)) return std::nullopt;
  return CodeFrame{
      .begin = frame.begin, .end = frame.end, .exception_table = frame.exception_table};
}

// LSDA: encoding and value of the landing pads' base, encoding and offset of the types, then the
// encoding, length and rows of the call sites: { begin, length, landing pad, action }.
Result<std::vector<uint64_t>> read_landing_pads(const CodeFile& file, const CodeFrame& frame) {
  std::vector<uint64_t> pads;
  if (!frame.exception_table) return pads;
  ASSIGN_OR_RETURN(const std::vector<std::byte> head, file.read_up_to(*frame.exception_table, 64));
  DwarfCursor header(head, *frame.exception_table);
  uint64_t base = frame.begin;
  const uint8_t base_encoding = header.take<uint8_t>();
  if (base_encoding != kOmitted) base = header.take_encoded(base_encoding);
  if (header.take<uint8_t>() != kOmitted) (void)header.take_uleb();
  const uint8_t encoding = header.take<uint8_t>();
  const uint64_t length = header.take_uleb();
  if (!header.ok()) return make_damaged_frame("an exception table");
  if (length > kMaxCallSiteBytes) {
    return absl::ResourceExhaustedError("unwind information too large: an exception table");
  }
  if (length == 0) return pads;  // nothing in it throws; the file may end here
  std::vector<std::byte> table(length);
  const uint64_t vaddr = *frame.exception_table + header.position();
  RETURN_IF_ERROR(file.read(vaddr, table));
  DwarfCursor cursor(table, vaddr);
  while (cursor.ok() && !cursor.at_end()) {
    (void)cursor.take_encoded(encoding & kFormMask);
    (void)cursor.take_encoded(encoding & kFormMask);
    const uint64_t pad = cursor.take_encoded(encoding & kFormMask);
    (void)cursor.take_uleb();
    if (pad != 0) pads.push_back(base + pad);
  }
  if (!cursor.ok()) return make_damaged_frame("an exception table");
  return pads;
}

}  // namespace gpuperf
