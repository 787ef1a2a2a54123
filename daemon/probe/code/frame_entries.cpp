#include "daemon/probe/code/frame_entries.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace gpuperf {
namespace {

using namespace pointer_encoding;

Result<FrameEntry> read_entry(const CodeFile& file, uint64_t vaddr) {
  uint32_t length = 0;
  RETURN_IF_ERROR(file.read(vaddr, std::as_writable_bytes(std::span(&length, 1))));
  if (length == 0 || length == UINT32_MAX) return make_damaged_frame("length of an entry");
  FrameEntry entry{.vaddr = vaddr + sizeof length, .is_cut = length > FrameEntry::kMaxBytes};
  ASSIGN_OR_RETURN(entry.bytes,
                   file.read_up_to(entry.vaddr, std::min<uint64_t>(length, FrameEntry::kMaxBytes)));
  return entry;
}

}  // namespace

Status make_damaged_frame(const char* what) {
  return absl::DataLossError(std::string("damaged unwind information: ") + what);
}

// CIE: 0, version, augmentation, code and data alignment, return address register, then with 'z'
// the length of what the other letters of the augmentation announce, and that; instructions.
Result<CommonEntry> read_common_entry(const CodeFile& file, uint64_t vaddr) {
  CommonEntry common;
  ASSIGN_OR_RETURN(common.entry, read_entry(file, vaddr));
  DwarfCursor cursor(common.entry.bytes, common.entry.vaddr);
  if (cursor.take<uint32_t>() != 0) return make_damaged_frame("an entry without its common one");
  const uint8_t version = cursor.take<uint8_t>();
  std::string augmentation;
  for (char c = cursor.take<char>(); c != '\0'; c = cursor.take<char>()) augmentation += c;
  common.is_augmented = augmentation.starts_with('z');
  if (!augmentation.empty() && !common.is_augmented) return make_damaged_frame("its augmentation");
  common.code_alignment = cursor.take_uleb();
  common.data_alignment = cursor.take_sleb();
  common.return_address_register = version == 1 ? cursor.take<uint8_t>() : cursor.take_uleb();
  const uint64_t augmentation_bytes = common.is_augmented ? cursor.take_uleb() : 0;
  DwarfCursor announced = cursor;
  (void)cursor.take_bytes(augmentation_bytes);
  common.entry.program_at = cursor.position();
  for (const char c : std::string_view(augmentation).substr(common.is_augmented ? 1 : 0)) {
    if (c == 'R') common.pointers = announced.take<uint8_t>();
    if (c == 'L') common.exception_tables = announced.take<uint8_t>();
    if (c == 'S') common.is_signal_frame = true;
    if (c == 'P') {
      const uint8_t encoding = announced.take<uint8_t>();
      // Reached through a pointer or not makes no difference to its length.
      (void)announced.take_encoded(encoding & kFormMask);
    }
  }
  if (!cursor.ok() || !announced.ok() || (version != 1 && version != 3)) {
    return make_damaged_frame("a common entry");
  }
  return common;
}

// FDE: distance back to its CIE, begin and length of the code, with 'z' the length of what belongs
// to the augmentation and that: the address of its exception table; instructions.
Result<FrameDescription> read_description(const CodeFile& file, uint64_t vaddr) {
  FrameDescription frame;
  ASSIGN_OR_RETURN(frame.entry, read_entry(file, vaddr));
  DwarfCursor cursor(frame.entry.bytes, frame.entry.vaddr);
  const uint32_t distance = cursor.take<uint32_t>();
  if (distance == 0) return make_damaged_frame("a common entry in its table");
  ASSIGN_OR_RETURN(frame.common, read_common_entry(file, frame.entry.vaddr - distance));
  frame.begin = cursor.take_encoded(frame.common.pointers);
  const uint64_t size_bytes = cursor.take_encoded(frame.common.pointers & kFormMask);
  if (__builtin_add_overflow(frame.begin, size_bytes, &frame.end)) {
    return make_damaged_frame("a range");
  }
  const uint64_t augmentation_bytes = frame.common.is_augmented ? cursor.take_uleb() : 0;
  DwarfCursor announced = cursor;
  (void)cursor.take_bytes(augmentation_bytes);
  frame.entry.program_at = cursor.position();
  if (frame.common.is_augmented && frame.common.exception_tables != kOmitted) {
    const uint64_t table = announced.take_encoded(frame.common.exception_tables);
    if (table != 0) frame.exception_table = table;
  }
  if (!cursor.ok() || !announced.ok()) return make_damaged_frame("an entry");
  return frame;
}

}  // namespace gpuperf
