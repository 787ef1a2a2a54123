#include "daemon/model/bounds.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "daemon/model/self_report.h"
#include "tests/unit/golden_file.h"

namespace gpuperf {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// The highest level of the cells after `used` of them at that time.
uint64_t apply(BoundHighs& highs, uint64_t used, int64_t second) {
  std::vector<BoundLevel> levels = {{.bound = Bound::kCells, .used = used, .limit = 100}};
  highs.apply(levels, second * kSecondNs);
  return levels[0].highest;
}

TEST(BoundsTest, NamesEachOnce) {
  std::set<std::string_view> names;
  for (const BoundRow& row : bound_rows()) names.insert(row.name);
  std::set<std::string_view> parts;
  for (const MemoryRow& row : memory_rows()) parts.insert(row.name);

  EXPECT_EQ(names.size(), bound_rows().size());
  EXPECT_EQ(parts.size(), memory_rows().size());
}

TEST(BoundsTest, AreAllInTheDocumentation) {
  const std::string text = read_file(source_path("docs/reliability.md"));

  for (const BoundRow& row : bound_rows()) {
    EXPECT_NE(text.find("| `" + std::string(row.name) + "` |"), std::string::npos) << row.name;
  }
}

TEST(BoundHighsTest, RemembersTheHighestForOneToTwoMinutes) {
  BoundHighs highs;
  EXPECT_EQ(apply(highs, 7, 100), 7u);
  EXPECT_EQ(apply(highs, 90, 110), 90u);
  EXPECT_EQ(apply(highs, 5, 150), 90u);
  EXPECT_EQ(apply(highs, 5, 165), 90u);  // of the window before
  EXPECT_EQ(apply(highs, 5, 224), 90u);
  EXPECT_EQ(apply(highs, 6, 226), 6u);
}

TEST(BoundHighsTest, ForgetsWhatWasLongAgoWhereNobodyLooked) {
  BoundHighs highs;
  EXPECT_EQ(apply(highs, 90, 100), 90u);
  EXPECT_EQ(apply(highs, 5, 1'000), 5u);
}

TEST(SelfReportTest, IsInOrderAndHasEachPartOfMemoryOnce) {
  SelfReport report;
  report.add(Bound::kMemory, 3, 10);
  report.add(Bound::kCells, 1, 10);
  report.add(MemoryPart::kRest, 5);
  report.add(MemoryPart::kAnswers, 1);
  report.add(MemoryPart::kAnswers, 2);
  report.steps = {{"store", {}}, {"loop", {}}};

  finish(report);

  ASSERT_EQ(report.bounds.size(), 2u);
  EXPECT_EQ(report.bounds[0].bound, Bound::kCells);
  const std::vector<std::pair<MemoryPart, uint64_t>> memory = {{MemoryPart::kAnswers, 3},
                                                               {MemoryPart::kRest, 5}};
  EXPECT_EQ(report.memory, memory);
  EXPECT_EQ(report.steps[0].step, "loop");
}

}  // namespace
}  // namespace gpuperf
