#include "daemon/probe/code/frame_search.h"

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "daemon/probe/code/frame_entries.h"
#include "daemon/probe/elf/dwarf_cursor.h"

namespace gpuperf {
namespace {

using namespace pointer_encoding;

// A scan by bad luck reads a CIE for every FDE; the most that any of 1,617 files of Debian and CUDA
// 13 has are 86 CIEs.
constexpr size_t kMaxCommonReads = 10'000;

Status make_unknown_encoding() {
  return absl::UnimplementedError("unwind information in an unknown encoding");
}

Status make_too_large() {
  return absl::ResourceExhaustedError("unwind information too large to pass over");
}

// .eh_frame_hdr: this, then `count` rows of { begin of the code, its FDE }, both relative to the
// section's address, by rising begin.
struct TableHeader {
  uint8_t version, pointer_encoding, count_encoding, table_encoding;
  int32_t entries;  // .eh_frame, relative to this field
  uint32_t count;
};
using TableRow = std::array<int32_t, 2>;

// By the program headers, as the program's own unwinder finds it; they are there in files without
// section headers too.
std::optional<AddressRange> find_table(const CodeFile& file) {
  if (file.elf().unwind_table()) return file.elf().unwind_table();
  const NamedSection* section = file.find_section(".eh_frame_hdr");
  if (section == nullptr) return std::nullopt;
  return AddressRange{.vaddr = section->vaddr, .size_bytes = section->size_bytes};
}

Result<TableHeader> read_table_header(const CodeFile& file, const AddressRange& table) {
  TableHeader header{};
  RETURN_IF_ERROR(file.read(table.vaddr, std::as_writable_bytes(std::span(&header, 1))));
  if (header.version != 1 || (header.pointer_encoding & kFormMask) != kSigned4) {
    return make_unknown_encoding();
  }
  return header;
}

// Where .eh_frame lies; its size may be beyond what the file has.
Result<std::optional<AddressRange>> find_entries(const CodeFile& file) {
  if (const NamedSection* section = file.find_section(".eh_frame"); section != nullptr) {
    return AddressRange{.vaddr = section->vaddr, .size_bytes = section->size_bytes};
  }
  const std::optional<AddressRange> table = find_table(file);
  if (!table) return std::nullopt;
  ASSIGN_OR_RETURN(const TableHeader header, read_table_header(file, *table));
  if (header.pointer_encoding != (kRelativeToHere | kSigned4)) {
    return make_unknown_encoding();
  }
  const uint64_t here = table->vaddr + offsetof(TableHeader, entries);
  // To the entry of length 0 that ends it.
  return AddressRange{.vaddr = here + static_cast<uint64_t>(int64_t{header.entries}),
                      .size_bytes = UINT64_MAX};
}

// Passes over entries, reading them by the block.
class EntryScan {
 public:
  explicit EntryScan(const CodeFile& file) : file_(file) {}
  Result<std::optional<uint64_t>> find(const AddressRange& entries, uint64_t vaddr);

 private:
  static constexpr uint64_t kBlockBytes = uint64_t{64} << 10;
  // Of an FDE: all up to the length of its code, whatever their encoding.
  static constexpr uint64_t kHeadBytes = 4 + 4 + 10 + 10;

  Result<DwarfCursor> read_head(uint64_t entry_vaddr);
  Result<uint8_t> read_pointer_encoding(uint64_t common_vaddr);

  const CodeFile& file_;
  std::vector<std::byte> block_;
  uint64_t block_vaddr_ = 0;
  // Of the CIE read last: neighbours share theirs.
  uint64_t common_vaddr_ = 0;
  uint8_t pointer_encoding_ = kAbsolute;
  size_t common_reads_ = 0;
};

Result<std::optional<uint64_t>> EntryScan::find(const AddressRange& entries, uint64_t vaddr) {
  uint64_t offset = 0;
  while (offset < entries.size_bytes) {
    if (offset >= kMaxScannedBytes) return make_too_large();
    const uint64_t entry_vaddr = entries.vaddr + offset;
    ASSIGN_OR_RETURN(DwarfCursor cursor, read_head(entry_vaddr));
    const uint32_t length = cursor.take<uint32_t>();
    if (!cursor.ok() || length == UINT32_MAX) return make_damaged_frame("length of an entry");
    if (length == 0) break;
    offset += sizeof length + uint64_t{length};
    const uint32_t distance = cursor.take<uint32_t>();
    if (distance == 0 && cursor.ok()) continue;  // a CIE
    ASSIGN_OR_RETURN(const uint8_t encoding,
                     read_pointer_encoding(entry_vaddr + sizeof length - distance));
    const uint64_t begin = cursor.take_encoded(encoding);
    const uint64_t size_bytes = cursor.take_encoded(encoding & kFormMask);
    if (!cursor.ok()) return make_damaged_frame("an entry");
    if (vaddr - begin < size_bytes) return entry_vaddr;
  }
  return std::nullopt;
}

Result<DwarfCursor> EntryScan::read_head(uint64_t entry_vaddr) {
  // Also when the entry lies before the block: the difference is huge then.
  if (entry_vaddr - block_vaddr_ > block_.size() ||
      block_.size() - (entry_vaddr - block_vaddr_) < kHeadBytes) {
    ASSIGN_OR_RETURN(block_, file_.read_up_to(entry_vaddr, kBlockBytes));
    block_vaddr_ = entry_vaddr;
  }
  return DwarfCursor(std::span(block_).subspan(entry_vaddr - block_vaddr_), entry_vaddr);
}

Result<uint8_t> EntryScan::read_pointer_encoding(uint64_t common_vaddr) {
  if (common_reads_ > 0 && common_vaddr == common_vaddr_) return pointer_encoding_;
  if (++common_reads_ > kMaxCommonReads) return make_too_large();
  ASSIGN_OR_RETURN(const CommonEntry common, read_common_entry(file_, common_vaddr));
  common_vaddr_ = common_vaddr;
  pointer_encoding_ = common.pointers;
  return pointer_encoding_;
}

// The last row that begins at or before the address.
Result<std::optional<TableRow>> find_row(const CodeFile& file, uint64_t rows_vaddr, uint32_t count,
                                         int64_t target) {
  uint64_t low = 0;
  uint64_t high = count;
  TableRow best{};
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    TableRow row{};
    RETURN_IF_ERROR(
        file.read(rows_vaddr + middle * sizeof row, std::as_writable_bytes(std::span(&row, 1))));
    if (row[0] <= target) {
      low = middle + 1;
      best = row;
    } else {
      high = middle;
    }
  }
  if (low == 0) return std::nullopt;
  return best;
}

}  // namespace

Result<std::optional<uint64_t>> find_entry_by_table(const CodeFile& file, uint64_t vaddr) {
  const std::optional<AddressRange> table = find_table(file);
  if (!table) return absl::NotFoundError("no search table of unwind information");
  ASSIGN_OR_RETURN(const TableHeader header, read_table_header(file, *table));
  if (header.count_encoding != kUnsigned4 ||
      header.table_encoding != (kRelativeToTable | kSigned4)) {
    return make_unknown_encoding();
  }
  if (header.count > table->size_bytes / sizeof(TableRow)) {
    return make_damaged_frame("length of its table");
  }
  ASSIGN_OR_RETURN(const std::optional<TableRow> row,
                   find_row(file, table->vaddr + sizeof header, header.count,
                            static_cast<int64_t>(vaddr - table->vaddr)));
  if (!row) return std::nullopt;
  return table->vaddr + static_cast<uint64_t>(int64_t{(*row)[1]});
}

Result<std::optional<uint64_t>> find_entry_by_scan(const CodeFile& file, uint64_t vaddr) {
  ASSIGN_OR_RETURN(const std::optional<AddressRange> entries, find_entries(file));
  if (!entries) return std::nullopt;
  return EntryScan(file).find(*entries, vaddr);
}

}  // namespace gpuperf
