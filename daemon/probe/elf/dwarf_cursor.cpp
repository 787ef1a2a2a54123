#include "daemon/probe/elf/dwarf_cursor.h"

namespace gpuperf {

uint64_t DwarfCursor::take_leb(unsigned& bits, bool& is_negative) {
  uint64_t value = 0;
  for (bits = 0; bits < 64;) {
    const uint8_t byte = take<uint8_t>();
    value |= uint64_t{byte & 0x7fu} << bits;
    bits += 7;
    is_negative = (byte & 0x40) != 0;
    if ((byte & 0x80) == 0) return value;
  }
  fail();  // longer than 64 bits
  return 0;
}

uint64_t DwarfCursor::take_uleb() {
  unsigned bits = 0;
  bool is_negative = false;
  return take_leb(bits, is_negative);
}

int64_t DwarfCursor::take_sleb() {
  unsigned bits = 0;
  bool is_negative = false;
  uint64_t value = take_leb(bits, is_negative);
  if (ok_ && is_negative && bits < 64) value |= ~uint64_t{0} << bits;
  return static_cast<int64_t>(value);
}

std::span<const std::byte> DwarfCursor::take_bytes(uint64_t count) {
  if (count > bytes_.size() - at_) {
    fail();
    return {};
  }
  at_ += count;
  return bytes_.subspan(at_ - count, count);
}

uint64_t DwarfCursor::take_encoded(uint8_t encoding) {
  using namespace pointer_encoding;
  const uint64_t here = vaddr_ + at_;
  uint64_t value = 0;
  switch (encoding & kFormMask) {
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

}  // namespace gpuperf
