#include "daemon/resolve/python_lines.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace gpuperf {
namespace {

constexpr uint16_t k39 = 0x0309;
constexpr uint16_t k310 = 0x030a;
constexpr uint16_t k311 = 0x030b;

std::vector<std::byte> make_table(std::initializer_list<int> values) {
  std::vector<std::byte> table;
  for (const int value : values) table.push_back(static_cast<std::byte>(value));
  return table;
}

TEST(PythonLinesTest, FollowsStepsUpTo39) {
  const auto table = make_table({6, 1, 8, 2, 4, -1});
  const auto find = [&](int32_t at) { return find_python_line(k39, table, 10, at); };

  EXPECT_EQ(find(-1), 10u);
  EXPECT_EQ(find(0), 10u);
  EXPECT_EQ(find(4), 10u);
  EXPECT_EQ(find(6), 11u);
  EXPECT_EQ(find(12), 11u);
  EXPECT_EQ(find(14), 13u);
  EXPECT_EQ(find(18), 12u);
  EXPECT_EQ(find(1000), 12u);
  EXPECT_EQ(find_python_line(k39, {}, 10, 4), 10u);
}

TEST(PythonLinesTest, AddsStepsThatAreTooLargeForOneByte) {
  const auto table = make_table({255, 0, 45, 127, 0, 73, 2, -128, 0, -72});

  EXPECT_EQ(find_python_line(k39, table, 1, 299), 1u);
  EXPECT_EQ(find_python_line(k39, table, 1, 300), 201u);
  EXPECT_EQ(find_python_line(k39, table, 1, 302), 1u);
}

TEST(PythonLinesTest, FollowsRangesIn310) {
  const auto table = make_table({4, 0, 6, 1, 2, -128, 8, 0, 0, 5, 4, -2});
  const auto find = [&](int32_t at) { return find_python_line(k310, table, 10, at); };

  EXPECT_EQ(find(-2), 10u);
  EXPECT_EQ(find(0), 10u);
  EXPECT_EQ(find(4), 11u);
  EXPECT_EQ(find(8), 11u);
  EXPECT_EQ(find(10), std::nullopt);  // has no line
  EXPECT_EQ(find(12), 11u);
  EXPECT_EQ(find(20), 14u);
  EXPECT_EQ(find(24), std::nullopt);  // behind the end
}

TEST(PythonLinesTest, FollowsLocationsFrom311On) {
  const auto table = make_table({0x82, 0x12,                    // 3 units on the line there
                                 0xd8, 0x01, 0x02,              // 1 unit on the next line
                                 0xe9, 0x50, 0x06,              // 2 units 200 lines on, no columns
                                 0xf0, 0x07, 0x01, 0x05, 0x06,  // 1 unit 3 lines back, columns
                                 0xf8,                          // 1 unit without a line
                                 0x80, 0x00,                    // 1 unit on the line there
                                 0xe0, 0x01, 0x02});            // 1 unit two lines on
  const auto find = [&](int32_t at) { return find_python_line(k311, table, 10, at); };

  EXPECT_EQ(find(-2), 10u);
  EXPECT_EQ(find(0), 10u);
  EXPECT_EQ(find(4), 10u);
  EXPECT_EQ(find(6), 11u);
  EXPECT_EQ(find(8), 211u);
  EXPECT_EQ(find(10), 211u);
  EXPECT_EQ(find(12), 208u);
  EXPECT_EQ(find(14), std::nullopt);
  EXPECT_EQ(find(16), 208u);
  EXPECT_EQ(find(18), 210u);
  EXPECT_EQ(find(20), std::nullopt);
}

TEST(PythonLinesTest, GivesNoLineForDamagedTables) {
  EXPECT_EQ(find_python_line(k311, make_table({0x12}), 10, 0), std::nullopt);
  EXPECT_EQ(find_python_line(k311, make_table({0x80, 0x00}), 10, 2), std::nullopt);
  EXPECT_EQ(find_python_line(k311, make_table({0xe8, 0x07}), 1, 0), std::nullopt);  // below 0
  EXPECT_EQ(find_python_line(k310, make_table({4}), 10, 0), std::nullopt);
  EXPECT_EQ(find_python_line(k39, make_table({0, -1}), 0, 0), std::nullopt);
}

}  // namespace
}  // namespace gpuperf
