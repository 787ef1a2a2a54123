#include "daemon/session/line_program.h"

#include <algorithm>
#include <utility>

#include "daemon/session/session_bytes.h"

namespace gpuperf {
namespace {

// DWARF 4, 7.21.
enum : uint8_t {
  kExtended = 0,
  kCopy = 1,
  kAdvancePc = 2,
  kAdvanceLine = 3,
  kSetFile = 4,
  kConstAddPc = 8,
  kFixedAdvancePc = 9,
  kEndSequence = 1,
  kSetAddress = 2,
  kDefineFile = 3,
  kInlinedCall = 0x90,  // NVIDIA's: ULEB128 row inlined into, ULEB128 function in .debug_str
};
// Of a section: paths of files, each with its folder. More is no table of a compiler.
constexpr size_t kPathBytesMax = size_t{4} << 20;
constexpr size_t kFoldersMax = 65'536;

struct Room {
  size_t rows = 0;
  size_t path_bytes = kPathBytesMax;
};

// Every read says whether there was something to read.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t at() const { return at_; }
  bool is_at_end() const { return at_ == bytes_.size(); }
  bool skip(uint64_t count) {
    if (count > bytes_.size() - at_) return false;
    at_ += count;
    return true;
  }
  template <class Number>
  bool read(Number& to) {
    if (sizeof to > bytes_.size() - at_) return false;
    to = copy_as<Number>(bytes_.subspan(at_));
    at_ += sizeof to;
    return true;
  }
  bool read_unsigned(uint64_t& to) {
    to = 0;
    uint8_t byte = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (!read(byte)) return false;
      to |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }
  bool read_signed(int64_t& to) {
    uint64_t bits = 0;
    uint8_t byte = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (!read(byte)) return false;
      bits |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) != 0) continue;
      if ((byte & 0x40) != 0 && shift + 7 < 64) bits |= ~uint64_t{0} << (shift + 7);
      to = static_cast<int64_t>(bits);
      return true;
    }
    return false;
  }
  bool read_text(std::string& to) {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::ranges::find(rest, std::byte{0});
    if (end == rest.end()) return false;
    to.assign(reinterpret_cast<const char*>(rest.data()), static_cast<size_t>(end - rest.begin()));
    at_ += to.size() + 1;
    return true;
  }

 private:
  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

class UnitReader {
 public:
  // `at`: where in the section `bytes` begin, the unit after its length.
  UnitReader(std::span<const std::byte> bytes, size_t at, Room& room)
      : reader_(bytes), at_(at), room_(room) {}

  bool read(LineUnit& unit) {
    return read_head() && read_files(unit) && reader_.at() <= program_at_ &&
           reader_.skip(program_at_ - reader_.at()) && run(unit);
  }

 private:
  bool read_head() {
    uint16_t version = 0;
    uint32_t head_bytes = 0;
    uint8_t is_statement = 0, operations = 0;
    if (!reader_.read(version) || version < 2 || version > 4 || !reader_.read(head_bytes)) {
      return false;
    }
    program_at_ = reader_.at() + head_bytes;
    if (!reader_.read(instruction_bytes_) || (version == 4 && !reader_.read(operations)) ||
        !reader_.read(is_statement) || !reader_.read(line_base_) || !reader_.read(line_range_) ||
        !reader_.read(opcode_base_) || line_range_ == 0 || opcode_base_ == 0) {
      return false;
    }
    operand_counts_.assign(opcode_base_, 0);
    for (size_t i = 1; i < opcode_base_; ++i) {
      if (!reader_.read(operand_counts_[i])) return false;
    }
    return true;
  }

  bool read_files(LineUnit& unit) {
    std::string text;
    folders_.assign(1, "");
    for (;;) {
      if (!reader_.read_text(text)) return false;
      if (text.empty()) break;
      if (folders_.size() >= kFoldersMax) return false;
      folders_.push_back(text);
    }
    unit.files.assign(1, "");
    for (;;) {
      if (!reader_.read_text(text)) return false;
      if (text.empty()) return true;
      if (!add_file(unit, text)) return false;
    }
  }

  bool add_file(LineUnit& unit, const std::string& name) {
    uint64_t folder = 0, unused = 0;
    if (!reader_.read_unsigned(folder) || !reader_.read_unsigned(unused) ||
        !reader_.read_unsigned(unused)) {
      return false;
    }
    const bool is_whole = name.starts_with('/') || folder == 0 || folder >= folders_.size();
    const size_t bytes = kFileBytes + name.size() + (is_whole ? 0 : folders_[folder].size());
    if (bytes > room_.path_bytes) return false;
    room_.path_bytes -= bytes;
    unit.files.push_back(is_whole ? name : folders_[folder] + "/" + name);
    return true;
  }

  bool run(LineUnit& unit) {
    while (!reader_.is_at_end() && room_.rows > 0) {
      uint8_t opcode = 0;
      if (!reader_.read(opcode)) return false;
      if (opcode >= opcode_base_) {
        const unsigned adjusted = opcode - opcode_base_;
        row_.address += uint64_t{adjusted / line_range_} * instruction_bytes_;
        row_.line += static_cast<uint32_t>(line_base_ + static_cast<int>(adjusted % line_range_));
        add_row();
      } else if (opcode == kExtended ? !run_extended(unit) : !run_standard(opcode)) {
        return false;
      }
    }
    return true;
  }

  bool run_standard(uint8_t opcode) {
    uint64_t number = 0;
    int64_t difference = 0;
    uint16_t bytes = 0;
    switch (opcode) {
      case kCopy:
        add_row();
        return true;
      case kAdvancePc:
        if (!reader_.read_unsigned(number)) return false;
        row_.address += number * instruction_bytes_;
        return true;
      case kAdvanceLine:
        if (!reader_.read_signed(difference)) return false;
        row_.line += static_cast<uint32_t>(difference);
        return true;
      case kSetFile:
        if (!reader_.read_unsigned(number)) return false;
        row_.file = static_cast<uint32_t>(number);
        return true;
      case kConstAddPc:
        row_.address += uint64_t{(255u - opcode_base_) / line_range_} * instruction_bytes_;
        return true;
      case kFixedAdvancePc:
        if (!reader_.read(bytes)) return false;
        row_.address += bytes;
        return true;
      default:
        for (uint8_t i = 0; i < operand_counts_[opcode]; ++i) {
          if (!reader_.read_unsigned(number)) return false;
        }
        return true;
    }
  }

  bool run_extended(LineUnit& unit) {
    uint64_t length = 0, context = 0;
    if (!reader_.read_unsigned(length) || length == 0) return false;
    const size_t begin = reader_.at();
    uint8_t opcode = 0;
    std::string name;
    if (!reader_.read(opcode)) return false;
    switch (opcode) {
      case kEndSequence:
        sequence_.end_address = row_.address;
        if (!sequence_.rows.empty()) unit.sequences.push_back(std::move(sequence_));
        sequence_ = {};
        row_ = first_row();
        break;
      case kSetAddress:
        sequence_.address_at = at_ + reader_.at();
        if (!reader_.read(row_.address)) return false;
        break;
      case kDefineFile:
        if (!reader_.read_text(name) || !add_file(unit, name)) return false;
        break;
      case kInlinedCall:
        if (!reader_.read_unsigned(context) || !reader_.read_unsigned(row_.function_offset)) {
          return false;
        }
        // A row that is still to come cannot be what another was inlined into.
        row_.context = context <= sequence_.rows.size() ? static_cast<uint32_t>(context) : 0;
        break;
      default:
        break;
    }
    const size_t read = reader_.at() - begin;
    return read <= length && reader_.skip(length - read);
  }

  static constexpr size_t kFileBytes = sizeof(std::string) + 1;  // beside the text

  static LineRow first_row() { return {.file = 1, .line = 1}; }
  void add_row() {
    sequence_.rows.push_back(row_);
    --room_.rows;
  }

  Reader reader_;
  const size_t at_;
  Room& room_;
  size_t program_at_ = 0;
  uint8_t instruction_bytes_ = 1;
  int8_t line_base_ = 0;
  uint8_t line_range_ = 1;
  uint8_t opcode_base_ = 1;
  std::vector<uint8_t> operand_counts_;
  std::vector<std::string> folders_;
  LineRow row_ = first_row();
  LineSequence sequence_;
};

}  // namespace

std::optional<std::vector<LineUnit>> read_line_units(std::span<const std::byte> section,
                                                     size_t rows_max) {
  std::vector<LineUnit> units;
  Room room{.rows = rows_max};
  size_t at = 0;
  while (section.size() - at >= sizeof(uint32_t) && room.rows > 0) {
    const auto length = copy_as<uint32_t>(section.subspan(at));
    at += sizeof length;
    if (length > section.size() - at) return std::nullopt;
    LineUnit& unit = units.emplace_back();
    if (!UnitReader(section.subspan(at, length), at, room).read(unit)) return std::nullopt;
    at += length;
  }
  return units;
}

}  // namespace gpuperf
