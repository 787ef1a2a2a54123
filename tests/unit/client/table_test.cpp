#include "client/table.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace gpuperf::client {
namespace {

constexpr auto kRight = Column::Align::kRight;

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(TableTest, AlignsTextLeftAndNumbersRight) {
  Table table({{"NAME"}, {"CALLS", kRight}, {"STATE"}});
  table.add_row({{"cudaMalloc"}, {"1,234,567"}, {"attached"}});
  table.add_row({{"f"}, {"2"}, {"failed"}});

  EXPECT_EQ(table.take_text({}),
            "NAME            CALLS  STATE\n"
            "cudaMalloc  1,234,567  attached\n"
            "f                   2  failed\n");
}

TEST(TableTest, StaysAlignedWithWideCharactersAndEscapes) {
  Table table({{"NAME"}, {"PID", kRight}});
  table.add_row({{"日本"}, {"1"}});
  table.add_row({{"größe"}, {"22"}});
  table.add_row({{"\x1b[31mred"}, {"333"}});

  EXPECT_EQ(table.take_text({}),
            "NAME         PID\n"
            "日本           1\n"
            "größe         22\n"
            "\\x1b[31mred  333\n");
}

TEST(TableTest, ShowsEmptyCellsAsADash) {
  Table table({{"A"}, {"B", kRight}});
  table.add_row({{""}, {""}});

  EXPECT_EQ(table.take_text({}), "A  B\n-  -\n");
}

TEST(TableTest, LeavesOutOptionalColumnsThatAreEmpty) {
  Table table({{"A"}, {.title = "POD", .optional = true}, {.title = "WHY", .optional = true}});
  table.add_row({{"1"}, {""}, {"x"}});
  table.add_row({{"2"}, {""}, {""}});

  EXPECT_EQ(table.take_text({}), "A  WHY\n1  x\n2  -\n");
}

TEST(TableTest, WritesNoBlanksAtTheEndOfALine) {
  Table table({{"A"}, {"LONG TITLE"}});
  table.add_row({{"1"}, {"x"}});

  EXPECT_EQ(table.take_text({}), "A  LONG TITLE\n1  x\n");
}

TEST(TableTest, CutsTheWidestColumnsToFitATerminal) {
  Table table({{.title = "FUNCTION", .shrink_to = 8},
               {.title = "LIBRARY", .shrink_to = 8, .cut = Cut::kStart},
               {"N", kRight}});
  table.add_row({{"a_function_with_a_long_name"}, {"/usr/lib/libcudart.so.12"}, {"1"}});

  const std::string text = table.take_text({.columns = 30});

  EXPECT_EQ(text,
            "FUNCTION      LIBRARY        N\n"
            "a_function_…  …cudart.so.12  1\n");
}

TEST(TableTest, KeepsWholeNamesWhereNobodyLimitsTheWidth) {
  const std::string name(100, 'x');
  Table table({{.title = "FUNCTION", .shrink_to = 8}});
  table.add_row({{name}});

  EXPECT_EQ(table.take_text({}), "FUNCTION\n" + name + "\n");
}

TEST(TableTest, CutsAbsurdlyLongCells) {
  Table table({{"A"}, {"B"}});
  table.add_row({{std::string(5000, 'x')}, {"y"}});

  const auto lines = split_lines(table.take_text({}));

  EXPECT_EQ(measure_width(lines[1]), Table::kWidestCell + 3);
}

TEST(TableTest, KeepsLongTextInTheLastColumn) {
  const std::string reason(500, 'x');
  Table table({{"A"}, {"REASON"}});
  table.add_row({{"1"}, {reason}});

  EXPECT_EQ(table.take_text({}), "A  REASON\n1  " + reason + "\n");
}

TEST(TableTest, ColoursWithoutMovingColumns) {
  Table table({{"A", kRight}, {"B"}});
  table.add_row({{"1", Tone::kBad}, {"x"}});
  table.add_row({{"22"}, {"y"}});

  EXPECT_EQ(table.take_text({.terminal = true, .colour = true}),
            " \x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n"
            " \x1b[31m1\x1b[0m  x\n"
            "22  y\n");
}

TEST(TableTest, PrintsRowByRowUnderOneHeader) {
  Table table({{.title = "ID", .align = kRight, .min_width = 4}, {"NAME"}});

  EXPECT_EQ(table.take_text({}), "  ID  NAME\n");
  table.add_row({{"1"}, {"a"}});
  EXPECT_EQ(table.take_text({}), "   1  a\n");
  table.add_row({{"12345"}, {"b"}});
  EXPECT_EQ(table.take_text({}), "12345  b\n");
  table.add_row({{"2"}, {"c"}});
  EXPECT_EQ(table.take_text({}), "    2  c\n");
}

}  // namespace
}  // namespace gpuperf::client
