#include "daemon/probe/code/code_unwind.h"

#include "bpf/frame_entry.h"
#include "daemon/probe/code/frame_memory.h"
#include "daemon/probe/code/frame_search.h"

namespace gpuperf {
namespace {

// Of one function; all of Debian's libtorch_cpu has 3.9 MB of exception tables.
constexpr uint64_t kMaxCallSiteBytes = 1 << 20;
// Of an LSDA, up to its call sites.
constexpr uint64_t kMaxHeadBytes = 64;

}  // namespace

Result<std::optional<CodeFrame>> find_frame(const CodeFile& file, uint64_t vaddr) {
  const Result<std::optional<uint64_t>> entry = find_entry_by_table(file, vaddr);
  if (absl::IsNotFound(entry.status())) return std::nullopt;
  if (!entry.ok()) return entry.status();
  if (!*entry) return std::nullopt;
  FrameMemory memory(file);
  frame_cursor cursor;
  frame_begin(&cursor, &memory);
  frame_description frame{};
  const frame_result result = frame_read_description(&cursor, **entry, &frame);
  if (result != FRAME_OK) return make_frame_status(result, memory, "an entry");
  if (vaddr < frame.begin || vaddr >= frame.end) return std::nullopt;
  CodeFrame found{.begin = frame.begin, .end = frame.end};
  if (frame.exception_table != 0) found.exception_table = frame.exception_table;
  return found;
}

// LSDA: encoding and value of the landing pads' base, encoding and offset of the types, then the
// encoding, length and rows of the call sites: { begin, length, landing pad, action }.
Result<std::vector<uint64_t>> read_landing_pads(const CodeFile& file, const CodeFrame& frame) {
  std::vector<uint64_t> pads;
  if (!frame.exception_table) return pads;
  FrameMemory memory(file);
  frame_cursor cursor;
  frame_begin(&cursor, &memory);
  cursor.at = *frame.exception_table;
  cursor.end = cursor.at + kMaxHeadBytes;
  uint64_t base = frame.begin;
  const auto base_encoding = static_cast<uint8_t>(frame_take(&cursor, 1));
  if (base_encoding != FRAME_POINTER_OMITTED) base = frame_take_encoded(&cursor, base_encoding);
  if (frame_take(&cursor, 1) != FRAME_POINTER_OMITTED) (void)frame_take_uleb(&cursor);
  const uint8_t form = frame_take(&cursor, 1) & FRAME_POINTER_FORM;
  const uint64_t length = frame_take_uleb(&cursor);
  if (cursor.result == FRAME_OK && length > kMaxCallSiteBytes) cursor.result = FRAME_TOO_LARGE;
  cursor.end = cursor.at + length;
  while (cursor.result == FRAME_OK && cursor.at != cursor.end) {
    (void)frame_take_encoded(&cursor, form);
    (void)frame_take_encoded(&cursor, form);
    const uint64_t pad = frame_take_encoded(&cursor, form);
    (void)frame_take_uleb(&cursor);
    if (pad != 0) pads.push_back(base + pad);
  }
  if (cursor.result != FRAME_OK) {
    return make_frame_status(cursor.result, memory, "an exception table");
  }
  return pads;
}

}  // namespace gpuperf
