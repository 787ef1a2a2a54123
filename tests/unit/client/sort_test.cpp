#include "client/sort.h"

#include "gpuperf/v1/model.pb.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

std::vector<v1::Process> make_processes() {
  std::vector<v1::Process> rows(3);
  rows[0].set_pid(1);
  rows[0].set_comm("b");
  rows[1].set_pid(3);
  rows[1].set_comm("a");
  rows[1].set_exited(true);
  rows[2].set_pid(2);
  rows[2].set_comm("b");
  return rows;
}

std::vector<uint32_t> list_pids(const std::vector<v1::Process>& rows) {
  std::vector<uint32_t> pids;
  pids.reserve(rows.size());
  for (const auto& row : rows) pids.push_back(row.pid());
  return pids;
}

TEST(SortTest, PutsLargeNumbersFirst) {
  auto rows = make_processes();
  ASSERT_TRUE(sort_rows(rows, "pid", 0).ok());
  EXPECT_THAT(list_pids(rows), ElementsAre(3, 2, 1));
}

TEST(SortTest, PutsTextInAlphabeticalOrderAndKeepsTies) {
  auto rows = make_processes();
  ASSERT_TRUE(sort_rows(rows, "comm", 0).ok());
  EXPECT_THAT(list_pids(rows), ElementsAre(3, 1, 2));
}

TEST(SortTest, PutsTrueFirst) {
  auto rows = make_processes();
  ASSERT_TRUE(sort_rows(rows, "exited", 0).ok());
  EXPECT_THAT(list_pids(rows), ElementsAre(3, 1, 2));
}

TEST(SortTest, CutsAfterSorting) {
  auto rows = make_processes();
  ASSERT_TRUE(sort_rows(rows, "pid", 2).ok());
  EXPECT_THAT(list_pids(rows), ElementsAre(3, 2));
}

TEST(SortTest, KeepsTheGivenOrderWithoutAName) {
  auto rows = make_processes();
  ASSERT_TRUE(sort_rows(rows, "", 2).ok());
  EXPECT_THAT(list_pids(rows), ElementsAre(1, 3));
}

TEST(SortTest, NamesTheFieldsWhenThereIsNoSuchOne) {
  const Status status = check_sort_field(*v1::ErrorCount::descriptor(), "colour");

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "cannot sort by \"colour\": no such field; there are error, code, count");
}

TEST(SortTest, OffersNoLists) {
  EXPECT_FALSE(check_sort_field(*v1::FunctionStats::descriptor(), "error_counts").ok());
}

}  // namespace
}  // namespace gpuperf::client
