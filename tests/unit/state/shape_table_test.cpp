#include "daemon/state/shape_table.h"

#include <string>

#include "tests/unit/matchers.h"
#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

ShapeDelta make_delta(uint32_t pid, uint64_t m, uint64_t calls) {
  return {.function_id = 3,
          .process = pid == 0 ? ProcessKey{} : make_process(pid),
          .owner = {.comm = pid == 0 ? "other" : "python", .pod = "p"},
          .dimensions = {m, 20, 30, 1},
          .types = {14, 14, 14, 68},
          .calls = calls,
          .total_ns = calls * 100};
}

// "pid/m:calls" for each row.
std::vector<std::string> list(const ShapeTable& table) {
  Snapshot snapshot;
  table.fill(snapshot);
  std::vector<std::string> rows;
  for (const auto& row : snapshot.shapes) {
    rows.push_back(std::to_string(row->process.pid) + "/" + std::to_string(row->dimensions[0]) +
                   ":" + std::to_string(row->calls));
  }
  return rows;
}

class ShapeTableTest : public testing::Test {
 protected:
  DropCounters drops_;
  ShapeTable table_{drops_, 4};
};

TEST_F(ShapeTableTest, AddsUpTheDeltasOfAShape) {
  table_.apply(make_delta(7, 10, 2));
  table_.apply(make_delta(7, 10, 5));

  Snapshot snapshot;
  table_.fill(snapshot);
  ASSERT_EQ(snapshot.shapes.size(), 1u);
  EXPECT_EQ(*snapshot.shapes[0], (ShapeRow{.function_id = 3,
                                           .process = make_process(7),
                                           .owner = {.comm = "python", .pod = "p"},
                                           .dimensions = {10, 20, 30, 1},
                                           .types = {14, 14, 14, 68},
                                           .calls = 7,
                                           .total_ns = 700}));
}

TEST_F(ShapeTableTest, TellsApartWhateverDiffers) {
  ShapeDelta other_type = make_delta(7, 10, 2);
  other_type.types[3] = 64;
  ShapeDelta other_function = make_delta(7, 10, 3);
  other_function.function_id = 4;

  table_.apply(make_delta(7, 10, 1));
  table_.apply(other_type);
  table_.apply(other_function);
  table_.apply(make_delta(8, 10, 4));

  EXPECT_THAT(list(table_), ElementsAre("8/10:4", "7/10:3", "7/10:2", "7/10:1"));
}

TEST_F(ShapeTableTest, NeverChangesARowHandedOut) {
  table_.apply(make_delta(7, 10, 1));
  table_.apply(make_delta(7, 11, 1));
  Snapshot before, after;
  table_.fill(before);

  table_.apply(make_delta(7, 11, 4));
  table_.fill(after);

  EXPECT_EQ(before.shapes[1]->calls, 1u);
  EXPECT_EQ(after.shapes[0]->calls, 5u);
  EXPECT_EQ(before.shapes[0], after.shapes[1]);  // unchanged: not copied
}

TEST_F(ShapeTableTest, KeepsRowsOfExitedProcessesWhileThereIsRoom) {
  table_.apply(make_delta(7, 10, 1));
  table_.apply(ProcessExited{make_process(7)});
  table_.apply(make_delta(8, 10, 2));

  EXPECT_THAT(list(table_), ElementsAre("8/10:2", "7/10:1"));
}

TEST_F(ShapeTableTest, FoldsRowsOfExitedProcessesWhenFull) {
  table_.apply(make_delta(7, 10, 1));
  table_.apply(make_delta(8, 10, 2));
  table_.apply(make_delta(8, 11, 3));
  table_.apply(ProcessExited{make_process(7)});
  table_.apply(ProcessExited{make_process(8)});
  table_.apply(make_delta(9, 12, 4));

  table_.apply(make_delta(9, 13, 5));

  EXPECT_THAT(list(table_), ElementsAre("9/13:5", "9/12:4", "0/10:3", "0/11:3"));
  EXPECT_EQ(drops_.get(DropCause::kStatsShapesFull), 0u);
}

TEST_F(ShapeTableTest, GivesFoldedRowsNoOwner) {
  table_.apply(make_delta(7, 10, 50));
  table_.apply(make_delta(7, 11, 40));
  table_.apply(ProcessExited{make_process(7)});
  table_.apply(make_delta(8, 10, 2));
  table_.apply(make_delta(8, 11, 1));

  table_.apply(make_delta(8, 12, 3));

  Snapshot snapshot;
  table_.fill(snapshot);
  ASSERT_THAT(list(table_), ElementsAre("0/10:50", "8/12:3", "8/10:2", "8/11:1"));
  EXPECT_EQ(snapshot.shapes[0]->owner, Owner{.comm = "other"});
  EXPECT_EQ(drops_.get(DropCause::kStatsShapesFull), 1u);  // folding alone freed no room
}

TEST_F(ShapeTableTest, DropsFoldedRowsWithTheFewestCallsFirst) {
  for (uint64_t m = 1; m <= 4; ++m) table_.apply(make_delta(7, m, 10 * m));
  table_.apply(ProcessExited{make_process(7)});

  table_.apply(make_delta(8, 9, 1));

  EXPECT_THAT(list(table_), ElementsAre("0/4:40", "0/3:30", "0/2:20", "8/9:1"));
  EXPECT_EQ(drops_.get(DropCause::kStatsShapesFull), 1u);
}

TEST_F(ShapeTableTest, RefusesAShapeWhereEveryProcessRuns) {
  for (uint64_t m = 1; m <= 4; ++m) table_.apply(make_delta(7, m, 10));

  table_.apply(make_delta(8, 9, 1));
  table_.apply(make_delta(7, 4, 1));  // a known one still counts

  EXPECT_THAT(list(table_), ElementsAre("7/4:11", "7/1:10", "7/2:10", "7/3:10"));
  EXPECT_EQ(drops_.get(DropCause::kStatsShapesFull), 1u);
}

TEST_F(ShapeTableTest, TakesALateShapeForOneOfAnExitedProcess) {
  table_.apply(ProcessExited{make_process(7)});
  for (uint64_t m = 1; m <= 4; ++m) table_.apply(make_delta(7, m, 10 * m));

  table_.apply(make_delta(8, 9, 1));

  EXPECT_THAT(list(table_), ElementsAre("0/4:40", "0/3:30", "0/2:20", "8/9:1"));
}

TEST_F(ShapeTableTest, HasNoShapesAtFirst) { EXPECT_THAT(list(table_), IsEmpty()); }

}  // namespace
}  // namespace gpuperf
