#include "daemon/model/drops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace gpuperf {
namespace {

TEST(DropsTest, HaveOneRowPerCauseInItsPlace) {
  ASSERT_EQ(drop_rows().size(), static_cast<size_t>(DropCause::kCount));
  for (size_t i = 0; i < drop_rows().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(drop_rows()[i].cause), i) << drop_rows()[i].reason;
  }
}

TEST(DropsTest, HaveNamesThatAreDistinctLabelsAndSayWhatWasLost) {
  const auto is_label = [](std::string_view text) {
    return !text.empty() &&
           std::ranges::all_of(text, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  };
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const DropRow& row : drop_rows()) {
    EXPECT_TRUE(is_label(row.stage)) << row.stage;
    EXPECT_TRUE(is_label(row.reason)) << row.reason;
    EXPECT_FALSE(row.meaning.empty()) << row.stage << " " << row.reason;
    EXPECT_TRUE(names.insert({row.stage, row.reason}).second) << row.stage << " " << row.reason;
  }
}

TEST(DropsTest, LoseNoCountBetweenThreads) {
  constexpr uint64_t kAdds = 100'000;
  DropCounters counters;

  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counters] {
      for (uint64_t n = 0; n < kAdds; ++n) counters.add(DropCause::kRingMalformed);
    });
  }
  threads.clear();
  counters.add(DropCause::kRingUnknownKind, 7);

  EXPECT_EQ(counters.get(DropCause::kRingMalformed), 4 * kAdds);
  EXPECT_EQ(counters.get(DropCause::kRingUnknownKind), 7u);
  EXPECT_EQ(counters.get(DropCause::kBpfCellsFull), 0u);
}

}  // namespace
}  // namespace gpuperf
