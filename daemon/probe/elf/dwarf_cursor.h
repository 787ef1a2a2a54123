#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace gpuperf {

// DW_EH_PE_*: how a pointer is written. Low half the form, high half what it is relative to. Linux
// Standard Base, "DWARF Extensions".
namespace pointer_encoding {
inline constexpr uint8_t kAbsolute = 0x00;
inline constexpr uint8_t kUnsignedLeb = 0x01;
inline constexpr uint8_t kUnsigned4 = 0x03;
inline constexpr uint8_t kSigned4 = 0x0b;
inline constexpr uint8_t kSigned8 = 0x0c;
inline constexpr uint8_t kFormMask = 0x0f;
inline constexpr uint8_t kRelativeToHere = 0x10;
inline constexpr uint8_t kRelativeToTable = 0x30;
inline constexpr uint8_t kOmitted = 0xff;
}  // namespace pointer_encoding

// Reads numbers as DWARF and exception tables write them, off bytes that begin at address `vaddr`
// and outlive it. Past the end all are 0 and ok() is false.
class DwarfCursor {
 public:
  DwarfCursor(std::span<const std::byte> bytes, uint64_t vaddr) : bytes_(bytes), vaddr_(vaddr) {}

  bool ok() const { return ok_; }
  bool at_end() const { return at_ >= bytes_.size(); }
  size_t position() const { return at_; }

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

  uint64_t take_uleb();
  int64_t take_sleb();
  std::span<const std::byte> take_bytes(uint64_t count);
  // A pointer, or with `encoding` & kFormMask a plain number.
  uint64_t take_encoded(uint8_t encoding);

 private:
  void fail() {
    ok_ = false;
    at_ = bytes_.size();
  }
  // The bits of a LEB128 number, and how many it had.
  uint64_t take_leb(unsigned& bits, bool& is_negative);

  std::span<const std::byte> bytes_;
  uint64_t vaddr_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace gpuperf
