#include "daemon/collect/map_source.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/model/histogram.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

constexpr uint32_t kFunctions = 2;

// The kernel's side, as plain memory.
struct FakeKernel {
  std::vector<gpuperf_cell> cells = std::vector<gpuperf_cell>(8);
  std::map<std::tuple<uint32_t, uint64_t, uint32_t>, gpuperf_cell_owner> index;
  std::vector<uint64_t> losses = std::vector<uint64_t>(GPUPERF_LOSS_COUNT);
  std::vector<uint32_t> released;
  std::vector<ProcessKey> forgotten;
  std::vector<std::pair<gpuperf_shape_key, gpuperf_shape_totals>> shapes;
  std::map<ProcessKey, gpuperf_process_info> infos;
  std::vector<std::string> releases;  // of cells and shapes, in order
  int shape_reads = 0;
  bool shapes_unreadable = false;
  CellsByUser users;

  gpuperf_cell& own(uint32_t cell, uint32_t function_id, ProcessKey process, const char* comm) {
    gpuperf_cell_owner owner{.cell = cell};
    std::strncpy(owner.comm, comm, sizeof owner.comm - 1);
    index[{process.pid, process.start_boot_ns, function_id}] = owner;
    return cells[cell];
  }

  CellStore store() {
    return {
        .cells = cells,
        .map_cell = [](uint32_t) { return absl::OkStatus(); },
        .overflow_cells = kFunctions,
        .losses = losses,
        .read_index =
            [this] {
              std::vector<std::pair<gpuperf_cell_key, gpuperf_cell_owner>> rows;
              for (const auto& [key, owner] : index) {
                const auto& [pid, start, function_id] = key;
                rows.push_back({{start, pid, function_id}, owner});
              }
              return rows;
            },
        .count_users = [this](const CellsByUser& counted) { users = counted; },
        .release =
            [this](const gpuperf_cell_key& key, uint32_t cell) {
              index.erase({key.pid, key.process_start_boot_ns, key.function_id});
              released.push_back(cell);
              releases.push_back("cell " + std::to_string(cell));
            },
        .read_shapes = [this]() -> Result<ShapeTotals> {
          ++shape_reads;
          if (shapes_unreadable) return absl::InternalError("shapes: read");
          return shapes;
        },
        .release_shape =
            [this](const gpuperf_shape_key& key) {
              const auto removed = std::erase_if(shapes, [&key](const auto& shape) {
                return std::memcmp(&shape.first, &key, sizeof key) == 0;
              });
              releases.push_back("shape of " + std::to_string(key.cell) + ": " +
                                 std::to_string(removed));
            },
        .read_process_info =
            [this](const ProcessKey& process) {
              const auto found = infos.find(process);
              return found == infos.end() ? std::nullopt : std::optional(found->second);
            },
        .forget_process = [this](const ProcessKey& process) { forgotten.push_back(process); },
    };
  }
};

// One completed call, in the order the kernel writes it.
void complete_call(gpuperf_cell& cell, uint64_t duration_ns) {
  cell.calls += 1;
  cell.max_ns = std::max<uint64_t>(cell.max_ns, duration_ns);
  cell.inverted_min_ns = std::max<uint64_t>(cell.inverted_min_ns, ~duration_ns);
  cell.buckets[bucket_of(duration_ns)] += 1;
  cell.self_ns += duration_ns;
  cell.total_ns += duration_ns;
}

// A successful GEMM, likewise.
void complete_gemm(FakeKernel& kernel, uint32_t cell_index, uint64_t m, uint64_t duration_ns) {
  gpuperf_cell& cell = kernel.cells[cell_index];
  cell.flops += 2 * m * 10 * 100;
  const gpuperf_shape_key key{
      .cell = cell_index, .pad = 0, .dimensions = {m, 10, 100, 1}, .types = {14, 14, 14, 68}};
  const auto known = std::ranges::find_if(kernel.shapes, [&key](const auto& shape) {
    return std::memcmp(&shape.first, &key, sizeof key) == 0;
  });
  if (known == kernel.shapes.end()) {
    kernel.shapes.push_back({key, {.calls = 1, .total_ns = duration_ns}});
  } else {
    ++known->second.calls;
    known->second.total_ns += duration_ns;
  }
  complete_call(cell, duration_ns);
}

template <typename Kind>
std::vector<Kind> pick(const std::vector<Event>& events) {
  std::vector<Kind> picked;
  for (const Event& event : events) {
    if (const auto* found = std::get_if<Kind>(&event)) picked.push_back(*found);
  }
  return picked;
}

class MapSourceTest : public testing::Test {
 protected:
  std::vector<Event> read() {
    std::vector<Event> events;
    EXPECT_TRUE(source_.read(events).ok());
    return events;
  }

  FakeKernel kernel_;
  DropCounters drops_;
  std::vector<uint32_t> looked_up_;
  bool alive_ = true;
  std::optional<std::string> pod_name_ = "";  // none = not answered yet
  MapSource source_{kernel_.store(),
                    {.find_owner =
                         [this](const ProcessKey& process, const gpuperf_process_info* info) {
                           looked_up_.push_back(process.pid);
                           if (info != nullptr) return Owner{.container = info->cgroup[0]};
                           return Owner{.comm = "from-proc", .container = "abc"};
                         },
                     .is_alive = [this](const ProcessKey&) { return alive_; },
                     .name_pod =
                         [this](Owner& owner) {
                           if (pod_name_) owner.pod = *pod_name_;
                           return pod_name_.has_value();
                         }},
                    drops_};
};

TEST_F(MapSourceTest, TellsHowFullTheKernelsMapsAre) {
  kernel_.own(3, 0, {.pid = 7, .start_boot_ns = 1}, "train");
  (void)read();

  const std::vector<BoundLevel> levels = source_.list_levels();

  ASSERT_EQ(levels.size(), 3u);
  EXPECT_EQ(levels[0], (BoundLevel{.bound = Bound::kCells, .used = 1, .limit = 6}));
  EXPECT_EQ(levels[1].bound, Bound::kCellUsers);
  EXPECT_EQ(levels[2].bound, Bound::kKernelShapes);
}

TEST_F(MapSourceTest, SaysNothingWhileNothingHappened) {
  kernel_.own(2, 0, {10, 1}, "app");

  EXPECT_THAT(read(), IsEmpty());
}

TEST_F(MapSourceTest, GivesEachDifferenceOnce) {
  gpuperf_cell& cell = kernel_.own(2, 1, {10, 1}, "app");
  complete_call(cell, 1000);
  cell.hooked = 1;
  cell.errors[0] = {(1ull << 32) | 2, 1};
  const Owner owner{.comm = "app", .container = "abc"};

  const auto first = read();
  complete_call(cell, 500);
  cell.slow_calls = 1;
  const auto second = read();
  const auto third = read();

  EXPECT_THAT(
      first,
      ElementsAre(Event(CellDelta{.function_id = 1,
                                  .process = {10, 1},
                                  .owner = owner,
                                  .calls = 1,
                                  .hooked = 1,
                                  .total_ns = 1000,
                                  .self_ns = 1000,
                                  .min_ns = 1000,
                                  .max_ns = 1000,
                                  .errors = {{2, 1}},
                                  .buckets = {{static_cast<uint16_t>(bucket_of(1000)), 1}}})));
  EXPECT_THAT(
      second,
      ElementsAre(Event(CellDelta{.function_id = 1,
                                  .process = {10, 1},
                                  .owner = owner,
                                  .calls = 1,
                                  .total_ns = 500,
                                  .self_ns = 500,
                                  .min_ns = 500,
                                  .max_ns = 1000,
                                  .slow_calls = 1,
                                  .buckets = {{static_cast<uint16_t>(bucket_of(500)), 1}}})));
  EXPECT_THAT(third, IsEmpty());
}

TEST_F(MapSourceTest, KeepsCountingWhenABucketWraps) {
  gpuperf_cell& cell = kernel_.own(2, 0, {10, 1}, "app");
  const auto bucket = static_cast<uint16_t>(bucket_of(1000));
  complete_call(cell, 1000);
  cell.buckets[bucket] = 0xffffffff;
  (void)read();

  complete_call(cell, 1000);
  complete_call(cell, 1000);
  const auto events = read();

  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(std::get<CellDelta>(events[0]).buckets, ElementsAre(std::pair(bucket, 2u)));
}

TEST_F(MapSourceTest, ReadsNegativeErrorCodesAndCallsGivenUpTooEarly) {
  gpuperf_cell& cell = kernel_.own(2, 0, {10, 1}, "app");
  cell.calls = 1;
  cell.abandoned = 1;
  (void)read();

  cell.abandoned = 0;
  cell.errors[0] = {(1ull << 32) | static_cast<uint32_t>(-5), 1};
  complete_call(cell, 100);
  const auto events = read();

  const auto& delta = std::get<CellDelta>(events.at(0));
  EXPECT_EQ(delta.abandoned, -1);
  EXPECT_THAT(delta.errors, ElementsAre(std::pair(-5, 1ul)));
}

TEST_F(MapSourceTest, AttributesOverflowCellsToOther) {
  complete_call(kernel_.cells[1], 300);
  kernel_.losses[GPUPERF_LOSS_CELLS_USER_FULL] = 1;

  const auto events = read();

  ASSERT_EQ(events.size(), 1u);
  const auto& delta = std::get<CellDelta>(events[0]);
  EXPECT_EQ(delta.function_id, 1u);
  EXPECT_EQ(delta.process, ProcessKey{});
  EXPECT_EQ(delta.owner, Owner{.comm = "other"});
}

TEST_F(MapSourceTest, LooksAtOverflowCellsOnceTheyAreUsed) {
  complete_call(kernel_.cells[1], 300);
  EXPECT_THAT(read(), IsEmpty());

  kernel_.losses[GPUPERF_LOSS_INDEX_FULL] = 1;

  EXPECT_EQ(read().size(), 1u);
}

TEST_F(MapSourceTest, LooksAProcessUpOnce) {
  complete_call(kernel_.own(2, 0, {10, 1}, "app"), 100);
  complete_call(kernel_.own(3, 1, {10, 1}, "app"), 100);
  (void)read();
  complete_call(kernel_.cells[2], 100);
  (void)read();

  EXPECT_THAT(looked_up_, ElementsAre(10));
}

TEST_F(MapSourceTest, HoldsTotalsUntilThePodIsNamed) {
  pod_name_.reset();
  complete_gemm(kernel_, 2, 128, 1000);
  kernel_.own(2, 1, {10, 1}, "app");
  const auto before = read();
  complete_gemm(kernel_, 2, 128, 500);

  pod_name_ = "train-0";
  const auto after = read();

  EXPECT_THAT(before, IsEmpty());
  const auto deltas = pick<CellDelta>(after);
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].owner.pod, "train-0");
  EXPECT_EQ(deltas[0].calls, 2u);
  const auto shapes = pick<ShapeDelta>(after);
  ASSERT_EQ(shapes.size(), 1u);
  EXPECT_EQ(shapes[0].owner.pod, "train-0");
  EXPECT_EQ(shapes[0].calls, 2u);
}

TEST_F(MapSourceTest, WaitsForAPodsNameForThreeReadsOnly) {
  pod_name_.reset();
  complete_call(kernel_.own(2, 1, {10, 1}, "app"), 1000);

  for (uint64_t i = 0; i < MapSource::kReadsHeld; ++i) EXPECT_THAT(read(), IsEmpty());
  const auto deltas = pick<CellDelta>(read());
  pod_name_ = "train-0";
  complete_call(kernel_.cells[2], 1000);
  const auto later = pick<CellDelta>(read());

  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].owner.pod, "");
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].owner.pod, "");  // one process, one name
}

TEST_F(MapSourceTest, HoldsNothingOfAProcessThatHasGone) {
  pod_name_.reset();
  complete_call(kernel_.own(2, 1, {10, 1}, "app"), 1000);
  source_.note_exit({10, 1});
  EXPECT_THAT(read(), IsEmpty());

  const auto last = read();

  EXPECT_EQ(pick<CellDelta>(last).size(), 1u);
  EXPECT_EQ(pick<ProcessExited>(last).size(), 1u);
}

TEST_F(MapSourceTest, GivesTheCellsOfAGoneProcessBackAfterALastRead) {
  gpuperf_cell& cell = kernel_.own(2, 0, {10, 1}, "app");
  complete_call(cell, 100);
  (void)read();

  source_.note_exit({10, 1});
  (void)read();              // threads that ended with the notice may still have been counting
  complete_call(cell, 200);  // as this one
  const auto last = read();
  const auto after = read();

  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(std::get<CellDelta>(last[0]).total_ns, 200u);
  EXPECT_EQ(std::get<ProcessExited>(last[1]), (ProcessExited{{10, 1}}));
  EXPECT_THAT(kernel_.released, ElementsAre(2));
  EXPECT_THAT(kernel_.forgotten, ElementsAre(ProcessKey{10, 1}));
  EXPECT_EQ(kernel_.cells[2].calls, 0u);
  EXPECT_THAT(after, IsEmpty());
}

TEST_F(MapSourceTest, StartsAnewWithACellThatComesBack) {
  complete_call(kernel_.own(2, 0, {10, 1}, "app"), 100);
  source_.note_exit({10, 1});
  (void)read();
  (void)read();

  complete_call(kernel_.own(2, 0, {11, 5}, "next"), 700);
  const auto events = read();

  const auto& delta = std::get<CellDelta>(events.at(0));
  EXPECT_EQ(delta.process, (ProcessKey{11, 5}));
  EXPECT_EQ(delta.total_ns, 700u);
  EXPECT_EQ(delta.calls, 1u);
}

TEST_F(MapSourceTest, FindsExitsNobodyTold) {
  complete_call(kernel_.own(2, 0, {10, 1}, "app"), 100);
  (void)read();
  alive_ = false;

  source_.sweep();
  (void)read();
  const auto events = read();

  EXPECT_THAT(events, ElementsAre(Event(ProcessExited{{10, 1}})));
}

TEST_F(MapSourceTest, GivesBytesAndOperationsOnce) {
  gpuperf_cell& cell = kernel_.own(2, 0, {10, 1}, "app");
  cell.bytes[GPUPERF_BYTES_HOST_TO_DEVICE] = 4096;
  cell.flops = 600;
  complete_call(cell, 100);
  const auto first = pick<CellDelta>(read());

  cell.bytes[GPUPERF_BYTES_HOST_TO_DEVICE] += 1;
  cell.bytes[GPUPERF_BYTES_DEFAULT] = 7;
  complete_call(cell, 100);
  const auto second = pick<CellDelta>(read());

  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].flops, 600u);
  EXPECT_THAT(first[0].bytes, ElementsAre(0, 0, 4096, 0, 0, 0));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].flops, 0u);
  EXPECT_THAT(second[0].bytes, ElementsAre(0, 0, 1, 0, 0, 7));
}

TEST_F(MapSourceTest, GivesTheDifferenceOfEveryShape) {
  kernel_.own(2, 1, {10, 1}, "app");
  complete_gemm(kernel_, 2, 8, 100);
  (void)read();

  complete_gemm(kernel_, 2, 8, 300);
  complete_gemm(kernel_, 2, 16, 500);
  const auto shapes = pick<ShapeDelta>(read());

  const ShapeDelta expected{.function_id = 1,
                            .process = {10, 1},
                            .owner = {.comm = "app", .container = "abc"},
                            .dimensions = {8, 10, 100, 1},
                            .types = {14, 14, 14, 68},
                            .calls = 1,
                            .total_ns = 300};
  ShapeDelta larger = expected;
  larger.dimensions[0] = 16;
  larger.total_ns = 500;
  EXPECT_THAT(shapes, ElementsAre(expected, larger));
}

TEST_F(MapSourceTest, ReadsShapesOnlyWhereACellWithOperationsChanged) {
  kernel_.own(2, 0, {10, 1}, "app");
  kernel_.own(3, 1, {10, 1}, "app");
  complete_call(kernel_.cells[2], 100);
  (void)read();
  EXPECT_EQ(kernel_.shape_reads, 0);

  complete_gemm(kernel_, 3, 8, 100);
  (void)read();
  complete_call(kernel_.cells[2], 100);
  (void)read();
  (void)read();

  EXPECT_EQ(kernel_.shape_reads, 1);
}

TEST_F(MapSourceTest, AttributesShapesOfOverflowCellsToOther) {
  complete_gemm(kernel_, 1, 8, 100);
  kernel_.losses[GPUPERF_LOSS_CELLS_FULL] = 1;

  const auto shapes = pick<ShapeDelta>(read());

  ASSERT_EQ(shapes.size(), 1u);
  EXPECT_EQ(shapes[0].function_id, 1u);
  EXPECT_EQ(shapes[0].process, ProcessKey{});
  EXPECT_EQ(shapes[0].owner, Owner{.comm = "other"});
}

TEST_F(MapSourceTest, ReadsTheLastShapesOfAGoneProcessAndDeletesThemBeforeItsCellIsFree) {
  kernel_.own(2, 0, {10, 1}, "app");
  kernel_.own(3, 1, {11, 1}, "stays");
  complete_gemm(kernel_, 2, 8, 100);
  complete_gemm(kernel_, 3, 8, 100);
  source_.note_exit({10, 1});
  (void)read();
  complete_gemm(kernel_, 2, 16, 200);

  const auto last = read();

  EXPECT_EQ(pick<ShapeDelta>(last).at(0).total_ns, 200u);
  EXPECT_EQ(last.back(), Event(ProcessExited{{10, 1}}));
  EXPECT_THAT(kernel_.releases, ElementsAre("shape of 2: 1", "shape of 2: 1", "cell 2"));
  EXPECT_EQ(kernel_.shapes.size(), 1u);
}

TEST_F(MapSourceTest, LeavesNoShapeWithoutOperationsToTheNextUserOfItsCell) {
  kernel_.own(2, 0, {10, 1}, "app");
  complete_gemm(kernel_, 2, 0, 100);
  source_.note_exit({10, 1});
  (void)read();
  (void)read();

  EXPECT_THAT(kernel_.shapes, IsEmpty());
}

TEST_F(MapSourceTest, KeepsTheCellsOfAGoneProcessUntilItsShapesCouldBeRead) {
  kernel_.own(2, 0, {10, 1}, "app");
  complete_gemm(kernel_, 2, 8, 100);
  source_.note_exit({10, 1});
  kernel_.shapes_unreadable = true;
  std::vector<Event> events;
  EXPECT_FALSE(source_.read(events).ok());
  EXPECT_FALSE(source_.read(events).ok());
  EXPECT_THAT(kernel_.releases, IsEmpty());

  kernel_.shapes_unreadable = false;
  EXPECT_TRUE(source_.read(events).ok());
  EXPECT_TRUE(source_.read(events).ok());

  EXPECT_EQ(pick<CellDelta>(events).size(), 1u);
  EXPECT_EQ(pick<ShapeDelta>(events).size(), 1u);
  EXPECT_THAT(kernel_.released, ElementsAre(2));
}

TEST_F(MapSourceTest, TellsWhoLooksUpAnOwnerWhatTheKernelNoted) {
  std::strcpy(kernel_.infos[{10, 1}].cgroup[0], "docker-0123.scope");
  complete_call(kernel_.own(2, 0, {10, 1}, "app"), 100);

  const auto deltas = pick<CellDelta>(read());

  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].owner, (Owner{.comm = "app", .container = "docker-0123.scope"}));
}

TEST_F(MapSourceTest, CountsTheCellsThatAreLeftOfEveryUserBesideRoot) {
  for (uint32_t pid = 10; pid < 13; ++pid) {
    complete_call(kernel_.own(pid - 8, 0, {pid, 1}, "app"), 100);
    kernel_.index[{pid, 1, 0}].uid = 1'000;
  }
  complete_call(kernel_.own(5, 0, {13, 1}, "app"), 100);
  (void)read();
  EXPECT_EQ(kernel_.users, (CellsByUser{{1'000, 3}}));

  source_.note_exit({11, 1});
  (void)read();
  (void)read();

  EXPECT_EQ(kernel_.users, (CellsByUser{{1'000, 2}}));
}

TEST_F(MapSourceTest, CountsTheKernelsLossesOnce) {
  kernel_.losses[GPUPERF_LOSS_SLOW_RING_FULL] = 5;
  (void)read();
  kernel_.losses[GPUPERF_LOSS_SLOW_RING_FULL] = 7;
  (void)read();

  EXPECT_EQ(drops_.get(DropCause::kBpfSlowRingFull), 7u);
  EXPECT_EQ(drops_.get(DropCause::kBpfCellsFull), 0u);
}

}  // namespace
}  // namespace gpuperf
