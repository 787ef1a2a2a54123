#include "daemon/session/line_program.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuperf {
namespace {

class LineProgramTest : public ::testing::Test {
 protected:
  using Units = std::optional<std::vector<LineUnit>>;

  static std::string number(uint64_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  }
  static std::string text(const std::string& value) { return value + '\0'; }
  static std::string extended(const std::string& body) {
    return std::string("\0", 1) + number(body.size(), 1) + body;
  }
  inline static const std::string kEnd = extended("\x01");
  static std::string inlined(char context, char function) {
    return extended(std::string("\x90") + context + function);
  }

  // A unit with one folder, two files and this program: lines from -5, 14 of them, opcodes from 10.
  static std::string make_unit(const std::string& program, uint16_t version = 2) {
    std::string rest = number(1, 1);
    if (version >= 4) rest += number(1, 1);
    rest += number(1, 1) + number(static_cast<uint8_t>(-5), 1) + number(14, 1) + number(10, 1) +
            std::string("\0\1\1\1\1\0\0\0\1", 9) + text("/src") + text("") + text("a.cu") +
            std::string("\1\0\0", 3) + text("/b/c.h") + std::string("\0\0\0", 3) + text("");
    const std::string unit = number(version, 2) + number(rest.size(), 4) + rest + program;
    return number(unit.size(), 4) + unit;
  }

  static Units read(const std::string& section, size_t rows_max = 1'000) {
    return read_line_units(std::as_bytes(std::span(section)), rows_max);
  }

  inline static const std::string kStart = extended("\x02" + number(0x40, 8));
};

TEST_F(LineProgramTest, RunsEveryOperation) {
  const std::string program = kStart + "\x03\x05\x01" +                     // line 6
                              std::string(1, char(10 + 5 + 2 + 14 * 16)) +  // +16, line 8
                              std::string("\x02\x20\x04\x02\x01", 5) +      // +32, the second file
                              std::string("\x09\x00\x01\x01", 4) +          // +256
                              "\x08\x01" +                                  // +17
                              std::string("\x03\x7f\x01", 3) + "\x02\x10" + kEnd;
  for (const uint16_t version : {2, 3, 4}) {
    const Units units = read(make_unit(program, version));
    ASSERT_TRUE(units);
    ASSERT_EQ(units->size(), 1u);
    EXPECT_EQ((*units)[0].files, (std::vector<std::string>{"", "/src/a.cu", "/b/c.h"}));
    ASSERT_EQ((*units)[0].sequences.size(), 1u);
    const LineSequence& sequence = (*units)[0].sequences[0];
    EXPECT_EQ(sequence.rows, (std::vector<LineRow>{{.address = 0x40, .file = 1, .line = 6},
                                                   {.address = 0x50, .file = 1, .line = 8},
                                                   {.address = 0x70, .file = 2, .line = 8},
                                                   {.address = 0x170, .file = 2, .line = 8},
                                                   {.address = 0x181, .file = 2, .line = 8},
                                                   {.address = 0x181, .file = 2, .line = 7}}));
    EXPECT_EQ(sequence.end_address, 0x191u);
  }
}

TEST_F(LineProgramTest, TellsWhatWasInlinedWhere) {
  const Units units = read(make_unit(kStart + "\x01" + inlined(1, 9) + "\x01" + inlined(7, 9) +
                                     "\x01" + inlined(0, 0) + "\x01" + kEnd));
  ASSERT_TRUE(units);
  const std::vector<LineRow>& rows = (*units)[0].sequences[0].rows;
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1], (LineRow{0x40, 1, 1, 1, 9}));
  EXPECT_EQ(rows[2].context, 0u) << "a row that was still to come";
  EXPECT_EQ(rows[3].context, 0u);
}

TEST_F(LineProgramTest, SaysWhereEachSequenceHasItsAddress) {
  const std::string section = make_unit(kStart + "\x01" + kEnd + kStart + "\x01" + kEnd) +
                              make_unit(kStart + "\x01" + kEnd);
  const Units units = read(section);
  ASSERT_TRUE(units);
  ASSERT_EQ(units->size(), 2u);
  for (const LineUnit& unit : *units) {
    for (const LineSequence& sequence : unit.sequences) {
      EXPECT_EQ(section.substr(sequence.address_at, 8), number(0x40, 8));
    }
  }
  EXPECT_EQ((*units)[0].sequences.size(), 2u);
}

TEST_F(LineProgramTest, StopsAtItsBound) {
  const std::string rows(50, '\x01');
  const std::string section =
      make_unit(kStart + rows + kEnd + kStart + rows + kEnd) + make_unit(kStart + rows + kEnd);
  EXPECT_EQ(read(section, 150)->size(), 2u);
  const Units units = read(section, 60);
  ASSERT_TRUE(units);
  ASSERT_EQ(units->size(), 1u);
  EXPECT_EQ((*units)[0].sequences.size(), 1u);
}

TEST_F(LineProgramTest, RefusesWhatIsCutShort) {
  const std::string whole = make_unit(kStart + "\x01" + inlined(1, 9) + "\x01" + kEnd);
  for (size_t bytes = 4; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(read(whole.substr(0, bytes))) << bytes;
    // Also where the unit's length says no more than there is.
    std::string shorter = number(bytes - 4, 4) + whole.substr(4, bytes - 4);
    const Units units = read(shorter);
    EXPECT_TRUE(!units || (*units)[0].sequences.empty()) << bytes;
  }
  EXPECT_FALSE(read(make_unit(kStart, 5)));
  EXPECT_FALSE(read(make_unit(kStart, 1)));
}

// One folder of 64 KiB, and so many files in it.
TEST_F(LineProgramTest, RefusesPathsBeyondItsBound) {
  const auto make = [](size_t files) {
    std::string rest = number(1, 1) + number(1, 1) + number(0, 1) + number(14, 1) + number(1, 1) +
                       text(std::string(64 << 10, 'd')) + text("");
    for (size_t i = 0; i < files; ++i) rest += text("a.cu") + std::string("\1\0\0", 3);
    rest += text("");
    const std::string unit = number(2, 2) + number(rest.size(), 4) + rest;
    return number(unit.size(), 4) + unit;
  };
  EXPECT_TRUE(read(make(60)));
  EXPECT_FALSE(read(make(70)));
}

}  // namespace
}  // namespace gpuperf
