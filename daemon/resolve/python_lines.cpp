#include "daemon/resolve/python_lines.h"

namespace gpuperf {
namespace {

using Table = std::span<const std::byte>;

constexpr uint16_t kFirstWithRanges = 0x030a;     // Objects/lnotab_notes.txt of 3.10
constexpr uint16_t kFirstWithLocations = 0x030b;  // Objects/locations.md

std::optional<uint32_t> make_line(int64_t line) {
  if (line < 0 || line > INT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(line);
}

// Up to 3.9: pairs of steps, unsigned in bytes of instructions, signed in lines. A line begins at
// the address its pair leads to.
std::optional<uint32_t> find_by_steps(Table table, int64_t line, int64_t address) {
  int64_t at = 0;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    at += static_cast<uint8_t>(table[i]);
    if (at > address) break;
    line += static_cast<int8_t>(table[i + 1]);
  }
  return make_line(line);
}

// 3.10: the same pairs, but the line is that of the instructions that the pair steps over; -128 =
// those have none.
std::optional<uint32_t> find_by_ranges(Table table, int64_t line, int64_t address) {
  constexpr int8_t kNoLine = -128;
  int64_t end = 0;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    end += static_cast<uint8_t>(table[i]);
    const auto step = static_cast<int8_t>(table[i + 1]);
    if (step != kNoLine) line += step;
    if (address < end) return step == kNoLine ? std::nullopt : make_line(line);
  }
  return std::nullopt;
}

// A number of 6 bits a byte, lowest first; 0x40 = another byte follows. The lowest bit of the
// number is its sign. `at` is left behind it. Python's lines have 31 bits: 36 are enough, and no
// table of less than 2^27 entries makes their sum overflow.
int64_t read_signed_number(Table table, size_t& at) {
  constexpr unsigned kMaxBits = 36;
  uint64_t number = 0;
  unsigned shift = 0;
  bool more = true;
  while (more && at < table.size() && shift < kMaxBits) {
    const auto byte = static_cast<uint8_t>(table[at++]);
    number |= static_cast<uint64_t>(byte & 0x3f) << shift;
    shift += 6;
    more = (byte & 0x40) != 0;
  }
  const auto size = static_cast<int64_t>(number >> 1);
  return (number & 1) != 0 ? -size : size;
}

// From 3.11 on: entries that begin with a byte 1kkkknnn: kind, and instruction units covered less
// one; what belongs to the kind follows in bytes below 0x80.
std::optional<uint32_t> find_by_locations(Table table, int64_t line, int64_t address) {
  constexpr uint8_t kFirstByte = 0x80;
  constexpr int64_t kUnitBytes = 2;
  enum Kind : uint8_t { kOneLine0 = 10, kOneLine2 = 12, kNoColumns = 13, kLong = 14, kNone = 15 };
  int64_t end = 0;
  size_t at = 0;
  while (at < table.size()) {
    const auto head = static_cast<uint8_t>(table[at++]);
    if ((head & kFirstByte) == 0) return std::nullopt;  // damaged
    const uint8_t kind = (head >> 3) & 0xf;
    end += ((head & 7) + 1) * kUnitBytes;
    if (kind == kNoColumns || kind == kLong) line += read_signed_number(table, at);
    if (kind >= kOneLine0 && kind <= kOneLine2) line += kind - kOneLine0;
    if (address < end) return kind == kNone ? std::nullopt : make_line(line);
    while (at < table.size() && (static_cast<uint8_t>(table[at]) & kFirstByte) == 0) ++at;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint32_t> find_python_line(uint16_t version, std::span<const std::byte> table,
                                         uint32_t first_line, int32_t instruction_bytes) {
  if (version >= kFirstWithRanges && instruction_bytes < 0) return make_line(first_line);
  if (version < kFirstWithRanges) return find_by_steps(table, first_line, instruction_bytes);
  if (version < kFirstWithLocations) return find_by_ranges(table, first_line, instruction_bytes);
  return find_by_locations(table, first_line, instruction_bytes);
}

}  // namespace gpuperf
