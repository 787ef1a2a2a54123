#include "daemon/probe/code_unwind.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace gpuperf {
namespace {

// DW_EH_PE_*: how a pointer is written. Low half the form, high half what it is relative to.
constexpr uint8_t kAbsolute = 0x00;
constexpr uint8_t kUnsignedLeb = 0x01;
constexpr uint8_t kUnsigned4 = 0x03;
constexpr uint8_t kSigned4 = 0x0b;
constexpr uint8_t kSigned8 = 0x0c;
constexpr uint8_t kRelativeToHere = 0x10;
constexpr uint8_t kRelativeToTable = 0x30;
constexpr uint8_t kOmitted = 0xff;

// Enough of a CIE or FDE for all that comes before its instructions: with every field compilers
// write and the widest pointers that is 30 bytes.
constexpr uint64_t kFrameHeaderBytes = 96;
// Of one function; all of Debian's libtorch_cpu has 3.9 MB of exception tables.
constexpr uint64_t kMaxCallSiteBytes = 1 << 20;

Status make_damaged(const char* what) {
  return absl::DataLossError(std::string("damaged unwind information: ") + what);
}

// Reads numbers off bytes that begin at address `vaddr`. Past the end all are 0 and ok() is false.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, uint64_t vaddr) : bytes_(bytes), vaddr_(vaddr) {}

  bool ok() const { return ok_; }
  bool at_end() const { return at_ >= bytes_.size(); }
  size_t position() const { return at_; }
  void skip(uint64_t count) {
    if (count > bytes_.size() - at_) fail();
    at_ += ok_ ? count : 0;
  }

  template <typename T>
  T take() {
    T value{};
    if (sizeof(T) > bytes_.size() - at_) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  uint64_t take_uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = take<uint8_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail();  // longer than 64 bits
    return 0;
  }

  // A pointer, or with `encoding` & 0x0f a plain number.
  uint64_t take_encoded(uint8_t encoding) {
    const uint64_t here = vaddr_ + at_;
    uint64_t value = 0;
    switch (encoding & 0x0f) {
      case kAbsolute:
      case kSigned8:
      case 0x04:  // unsigned, 8 bytes
        value = take<uint64_t>();
        break;
      case kUnsignedLeb:
        value = take_uleb();
        break;
      case 0x02:  // unsigned, 2 bytes
        value = take<uint16_t>();
        break;
      case kUnsigned4:
        value = take<uint32_t>();
        break;
      case kSigned4:
        value = static_cast<uint64_t>(int64_t{take<int32_t>()});
        break;
      default:
        fail();
    }
    if (value == 0) return 0;  // null, whatever it would be relative to
    switch (encoding & 0xf0) {
      case 0:
        return value;
      case kRelativeToHere:
        return here + value;
      default:
        fail();
        return 0;
    }
  }

 private:
  void fail() {
    ok_ = false;
    at_ = bytes_.size();
  }

  std::span<const std::byte> bytes_;
  uint64_t vaddr_;
  size_t at_ = 0;
  bool ok_ = true;
};

// How the FDEs of one CIE are written.
struct FrameFormat {
  uint8_t pointers = kAbsolute;
  uint8_t exception_tables = kOmitted;
  bool augmented = false;
};

// A CIE or FDE: its bytes behind the length, no more than kFrameHeaderBytes of them.
struct FrameEntry {
  std::vector<std::byte> bytes;
  uint64_t vaddr = 0;  // of `bytes`
};

Result<FrameEntry> read_entry(const CodeFile& file, uint64_t vaddr) {
  uint32_t length = 0;
  RETURN_IF_ERROR(file.read(vaddr, std::as_writable_bytes(std::span(&length, 1))));
  if (length == 0 || length == UINT32_MAX) return make_damaged("length of an entry");
  FrameEntry entry{.vaddr = vaddr + sizeof length};
  ASSIGN_OR_RETURN(entry.bytes,
                   file.read_up_to(entry.vaddr, std::min<uint64_t>(length, kFrameHeaderBytes)));
  return entry;
}

Result<FrameFormat> read_format(const CodeFile& file, uint64_t cie_vaddr) {
  ASSIGN_OR_RETURN(const FrameEntry entry, read_entry(file, cie_vaddr));
  Cursor cursor(entry.bytes, entry.vaddr);
  if (cursor.take<uint32_t>() != 0) return make_damaged("an entry without its common one");
  const uint8_t version = cursor.take<uint8_t>();
  std::string augmentation;
  for (char c = cursor.take<char>(); c != '\0'; c = cursor.take<char>()) augmentation += c;
  (void)cursor.take_uleb();  // code alignment
  (void)cursor.take_uleb();  // data alignment, signed: of the same length
  (void)(version == 1 ? cursor.take<uint8_t>() : cursor.take_uleb());  // return address register
  FrameFormat format{.augmented = augmentation.starts_with('z')};
  if (!augmentation.empty() && !format.augmented) return make_damaged("its augmentation");
  if (format.augmented) (void)cursor.take_uleb();  // length of what follows
  for (const char c : std::string_view(augmentation).substr(format.augmented ? 1 : 0)) {
    if (c == 'R') format.pointers = cursor.take<uint8_t>();
    if (c == 'L') format.exception_tables = cursor.take<uint8_t>();
    if (c == 'P') {
      const uint8_t encoding = cursor.take<uint8_t>();
      // Reached through a pointer or not makes no difference to its length.
      (void)cursor.take_encoded(encoding & 0x0f);
    }
  }
  if (!cursor.ok() || (version != 1 && version != 3)) return make_damaged("a common entry");
  return format;
}

Result<CodeFrame> read_frame(const CodeFile& file, uint64_t vaddr) {
  ASSIGN_OR_RETURN(const FrameEntry entry, read_entry(file, vaddr));
  Cursor cursor(entry.bytes, entry.vaddr);
  const uint32_t distance = cursor.take<uint32_t>();
  if (distance == 0) return make_damaged("a common entry in its table");
  ASSIGN_OR_RETURN(const FrameFormat format, read_format(file, entry.vaddr - distance));
  CodeFrame frame{.begin = cursor.take_encoded(format.pointers)};
  const uint64_t size_bytes = cursor.take_encoded(format.pointers & 0x0f);
  if (__builtin_add_overflow(frame.begin, size_bytes, &frame.end)) return make_damaged("a range");
  if (format.augmented) (void)cursor.take_uleb();
  if (format.augmented && format.exception_tables != kOmitted) {
    const uint64_t table = cursor.take_encoded(format.exception_tables);
    if (table != 0) frame.exception_table = table;
  }
  if (!cursor.ok()) return make_damaged("an entry");
  return frame;
}

}  // namespace

// .eh_frame_hdr: version, three encodings, address of .eh_frame, count, then `count` pairs of
// { begin of the code, its FDE }, both relative to the section's address, by rising begin.
Result<std::optional<CodeFrame>> find_frame(const CodeFile& file, uint64_t vaddr) {
  const NamedSection* section = file.find_section(".eh_frame_hdr");
  if (section == nullptr) return std::nullopt;
  struct Header {
    uint8_t version, pointer_encoding, count_encoding, table_encoding;
    int32_t frames;
    uint32_t count;
  } header{};
  RETURN_IF_ERROR(file.read(section->vaddr, std::as_writable_bytes(std::span(&header, 1))));
  if (header.version != 1 || (header.pointer_encoding & 0x0f) != kSigned4 ||
      header.count_encoding != kUnsigned4 ||
      header.table_encoding != (kRelativeToTable | kSigned4)) {
    return absl::UnimplementedError("unwind information in an unknown encoding");
  }
  using Row = std::array<int32_t, 2>;
  const uint64_t table = section->vaddr + sizeof header;
  if (header.count > section->size_bytes / sizeof(Row)) return make_damaged("length of its table");
  // The last row that begins at or before the address.
  const auto target = static_cast<int64_t>(vaddr - section->vaddr);
  uint64_t low = 0;
  uint64_t high = header.count;
  Row best{};
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    Row row{};
    RETURN_IF_ERROR(
        file.read(table + middle * sizeof row, std::as_writable_bytes(std::span(&row, 1))));
    if (row[0] <= target) {
      low = middle + 1;
      best = row;
    } else {
      high = middle;
    }
  }
  if (low == 0) return std::nullopt;
  ASSIGN_OR_RETURN(const CodeFrame frame,
                   read_frame(file, section->vaddr + static_cast<uint64_t>(int64_t{best[1]})));
  if (vaddr < frame.begin || vaddr >= frame.end) return std::nullopt;
  return frame;
}

// LSDA: encoding and value of the landing pads' base, encoding and offset of the types, then the
// encoding, length and rows of the call sites: { begin, length, landing pad, action }.
Result<std::vector<uint64_t>> read_landing_pads(const CodeFile& file, const CodeFrame& frame) {
  std::vector<uint64_t> pads;
  if (!frame.exception_table) return pads;
  ASSIGN_OR_RETURN(const std::vector<std::byte> head, file.read_up_to(*frame.exception_table, 64));
  Cursor header(head, *frame.exception_table);
  uint64_t base = frame.begin;
  const uint8_t base_encoding = header.take<uint8_t>();
  if (base_encoding != kOmitted) base = header.take_encoded(base_encoding);
  if (header.take<uint8_t>() != kOmitted) (void)header.take_uleb();
  const uint8_t encoding = header.take<uint8_t>();
  const uint64_t length = header.take_uleb();
  if (!header.ok()) return make_damaged("an exception table");
  if (length > kMaxCallSiteBytes) {
    return absl::ResourceExhaustedError("unwind information too large: an exception table");
  }
  if (length == 0) return pads;  // nothing in it throws; the file may end here
  std::vector<std::byte> table(length);
  const uint64_t vaddr = *frame.exception_table + header.position();
  RETURN_IF_ERROR(file.read(vaddr, table));
  Cursor cursor(table, vaddr);
  while (cursor.ok() && !cursor.at_end()) {
    (void)cursor.take_encoded(encoding & 0x0f);
    (void)cursor.take_encoded(encoding & 0x0f);
    const uint64_t pad = cursor.take_encoded(encoding & 0x0f);
    (void)cursor.take_uleb();
    if (pad != 0) pads.push_back(base + pad);
  }
  if (!cursor.ok()) return make_damaged("an exception table");
  return pads;
}

}  // namespace gpuperf
