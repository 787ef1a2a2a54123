#include "daemon/probe/code/frame_search.h"

#include <algorithm>
#include <cstddef>

#include "bpf/frame_entry.h"
#include "daemon/probe/code/frame_memory.h"

namespace gpuperf {
namespace {

// A scan by bad luck reads a CIE for every FDE; the most that any of 1,617 files of Debian and CUDA
// 13 has are 86 CIEs.
constexpr size_t kMaxCommonReads = 10'000;
constexpr const char* kTable = "its search table";

// By the program headers, as the program's own unwinder finds it; they are there in files without
// section headers too.
std::optional<AddressRange> find_table(const CodeFile& file) {
  if (file.elf().unwind_table()) return file.elf().unwind_table();
  const NamedSection* section = file.find_section(".eh_frame_hdr");
  if (section == nullptr) return std::nullopt;
  return AddressRange{.vaddr = section->vaddr, .size_bytes = section->size_bytes};
}

// Where .eh_frame lies; its size may be beyond what the file has.
Result<std::optional<AddressRange>> find_entries(const CodeFile& file) {
  if (const NamedSection* section = file.find_section(".eh_frame"); section != nullptr) {
    return AddressRange{.vaddr = section->vaddr, .size_bytes = section->size_bytes};
  }
  const std::optional<AddressRange> table = find_table(file);
  if (!table) return std::nullopt;
  FrameMemory memory(file);
  frame_table_header header{};
  const frame_result result = frame_read_table(&memory, table->vaddr, &header);
  if (result != FRAME_OK) return make_frame_status(result, memory, kTable);
  if (header.entries_encoding != (FRAME_POINTER_TO_HERE | FRAME_POINTER_SIGNED_4)) {
    return make_frame_status(FRAME_UNKNOWN_FORM, memory, kTable);
  }
  const uint64_t here = table->vaddr + offsetof(frame_table_header, entries);
  // To the entry of length 0 that ends it.
  return AddressRange{.vaddr = here + static_cast<uint64_t>(int64_t{header.entries}),
                      .size_bytes = UINT64_MAX};
}

// Passes over entries, reading them by the block.
class EntryScan {
 public:
  explicit EntryScan(const CodeFile& file) : memory_(file, kBlockBytes) {
    frame_begin(&cursor_, &memory_);
  }
  Result<std::optional<uint64_t>> find(const AddressRange& entries, uint64_t vaddr);

 private:
  static constexpr uint64_t kBlockBytes = uint64_t{64} << 10;
  // Of an FDE behind its length: all up to the length of its code, whatever their encoding.
  static constexpr uint32_t kHeadBytes = 4 + 10 + 10;

  Status make_status(frame_result result) const {
    return make_frame_status(result, memory_, "an entry");
  }
  Status make_too_large() const {
    return make_frame_status(FRAME_TOO_LARGE, memory_, "too much to pass over");
  }
  Result<uint8_t> read_pointer_encoding(uint64_t common_vaddr);

  FrameMemory memory_;
  frame_cursor cursor_;
  // Of the CIE read last: neighbours share theirs.
  uint64_t common_vaddr_ = 0;
  uint8_t pointer_encoding_ = FRAME_POINTER_ABSOLUTE;
  size_t common_reads_ = 0;
};

Result<std::optional<uint64_t>> EntryScan::find(const AddressRange& entries, uint64_t vaddr) {
  uint64_t offset = 0;
  while (offset < entries.size_bytes) {
    if (offset >= kMaxScannedBytes) return make_too_large();
    const uint64_t entry_vaddr = entries.vaddr + offset;
    uint32_t length = 0;
    if (frame_read(&memory_, entry_vaddr, &length, sizeof length) != 0) return memory_.failure();
    if (length == UINT32_MAX) return make_status(FRAME_DAMAGED);
    if (length == 0) break;
    offset += sizeof length + uint64_t{length};
    const uint64_t begin_vaddr = entry_vaddr + sizeof length;
    cursor_.at = begin_vaddr;
    cursor_.end = begin_vaddr + std::min(length, kHeadBytes);
    const uint64_t distance = frame_take(&cursor_, 4);
    if (cursor_.result != FRAME_OK) return make_status(cursor_.result);
    if (distance == 0) continue;  // a CIE
    ASSIGN_OR_RETURN(const uint8_t encoding, read_pointer_encoding(begin_vaddr - distance));
    cursor_.at = begin_vaddr + 4;
    cursor_.end = begin_vaddr + std::min(length, kHeadBytes);
    const uint64_t begin = frame_take_encoded(&cursor_, encoding);
    const uint64_t size_bytes = frame_take_encoded(&cursor_, encoding & FRAME_POINTER_FORM);
    if (cursor_.result != FRAME_OK) return make_status(cursor_.result);
    if (vaddr - begin < size_bytes) return entry_vaddr;
  }
  return std::nullopt;
}

Result<uint8_t> EntryScan::read_pointer_encoding(uint64_t common_vaddr) {
  if (common_reads_ > 0 && common_vaddr == common_vaddr_) return pointer_encoding_;
  if (++common_reads_ > kMaxCommonReads) return make_too_large();
  frame_common common{};
  const frame_result result = frame_read_common(&cursor_, common_vaddr, &common);
  if (result != FRAME_OK) return make_status(result);
  common_vaddr_ = common_vaddr;
  pointer_encoding_ = common.pointers;
  return pointer_encoding_;
}

}  // namespace

Result<std::optional<uint64_t>> find_entry_by_table(const CodeFile& file, uint64_t vaddr) {
  const std::optional<AddressRange> table = find_table(file);
  if (!table) return absl::NotFoundError("no search table of unwind information");
  FrameMemory memory(file);
  __u64 entry = 0;
  const frame_result result =
      frame_find_entry(&memory, table->vaddr, table->size_bytes, vaddr, &entry);
  if (result == FRAME_NONE) return std::nullopt;
  if (result != FRAME_OK) return make_frame_status(result, memory, kTable);
  return uint64_t{entry};
}

Result<std::optional<uint64_t>> find_entry_by_scan(const CodeFile& file, uint64_t vaddr) {
  ASSIGN_OR_RETURN(const std::optional<AddressRange> entries, find_entries(file));
  if (!entries) return std::nullopt;
  return EntryScan(file).find(*entries, vaddr);
}

}  // namespace gpuperf
