#include "daemon/rpc/memory_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "daemon/model/memory.h"

namespace gpuperf {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

MemoryProcess make_process(uint32_t pid, uint64_t live_bytes) {
  MemoryProcess process;
  process.process = {.pid = pid, .start_boot_ns = 5};
  process.owner = {.comm = "train", .container = "abc", .slurm_job = "77"};
  process.first_mono_ns = 100;
  MemoryTotals& device = process.kinds[static_cast<size_t>(MemoryKind::kDevice)];
  device = {.live_bytes = live_bytes,
            .live_count = 2,
            .peak_bytes = live_bytes + 1,
            .allocated_bytes = live_bytes + 3,
            .allocations = 4,
            .released_bytes = 3,
            .releases = 2};
  process.on_gpu_peak_bytes = live_bytes + 1;
  process.sites = {{.kind = MemoryKind::kDevice,
                    .function_id = 0,
                    .stack = std::make_shared<const Stack>(
                        Stack{.id = 10, .frames = {{.symbol = "keep", .module = "/bin/train"}}}),
                    .totals = device,
                    .oldest_mono_ns = 400}};
  return process;
}

class MemoryListTest : public ::testing::Test {
 protected:
  MemoryListTest() {
    snapshot_.taken_mono_ns = 1'000;
    snapshot_.functions = std::make_shared<const FunctionList>(
        FunctionList{{.category = "cuda", .name = "cudaMalloc"}});
  }
  void add(MemoryProcess process) {
    report_.processes.push_back(std::make_shared<const MemoryProcess>(std::move(process)));
  }
  std::vector<v1::ProcessMemory> list(const v1::Filter& filter = {}, bool with_sites = false,
                                      bool only_leaks = false) {
    snapshot_.memory = std::make_shared<const MemoryReport>(report_);
    return list_memory(snapshot_, RowFilter(filter), with_sites, only_leaks);
  }

  Snapshot snapshot_;
  MemoryReport report_;
};

TEST_F(MemoryListTest, ShowsNothingBeforeTheFirstReport) {
  EXPECT_THAT(list_memory(snapshot_, RowFilter({}), true, false), IsEmpty());
  EXPECT_THAT(list_out_of_memory(snapshot_, RowFilter({})), IsEmpty());
}

TEST_F(MemoryListTest, ShowsAProcess) {
  MemoryProcess process = make_process(42, 100);
  process.gpus = {{.index = 1, .used_bytes = 250}, {.index = 2, .used_bytes = 50}};
  process.least_rest_bytes = 150;
  process.gaps = kMemoryLateStart | kMemorySuspended;
  process.unknown_releases = 7;
  process.missed_releases = 8;
  add(process);

  const auto rows = list({}, /*with_sites=*/true);
  ASSERT_THAT(rows, SizeIs(1));
  const v1::ProcessMemory& row = rows[0];
  EXPECT_EQ(row.pid(), 42u);
  EXPECT_EQ(row.start_boot_ns(), 5u);
  EXPECT_EQ(row.comm(), "train");
  EXPECT_EQ(row.container(), "abc");
  EXPECT_EQ(row.slurm_job(), "77");
  EXPECT_FALSE(row.exited());
  EXPECT_EQ(row.live_bytes(), 100u);
  EXPECT_EQ(row.peak_bytes(), 101u);
  EXPECT_EQ(row.used_bytes(), 300u);
  EXPECT_EQ(row.rest_bytes(), 200u);
  EXPECT_EQ(row.least_rest_bytes(), 150u);
  EXPECT_EQ(row.gpus(1).gpu(), 2u);
  EXPECT_EQ(row.gpus(1).used_bytes(), 50u);
  EXPECT_EQ(row.seen_ns(), 900u);
  ASSERT_EQ(row.gaps_size(), 2);
  EXPECT_EQ(row.gaps(1), "the overhead budget suspended probes of allocation functions");
  EXPECT_EQ(row.unknown_releases(), 7u);
  EXPECT_EQ(row.missed_releases(), 8u);
  ASSERT_EQ(row.kinds_size(), 1);
  EXPECT_EQ(row.kinds(0).kind(), "device");
  EXPECT_EQ(row.kinds(0).live_count(), 2u);
  EXPECT_EQ(row.kinds(0).allocated_bytes(), 103u);
  EXPECT_EQ(row.kinds(0).releases(), 2u);
  ASSERT_EQ(row.sites_size(), 1);
  const v1::MemorySite& site = row.sites(0);
  EXPECT_EQ(site.function(), "cudaMalloc");
  EXPECT_EQ(site.stack(0).symbol(), "keep");
  EXPECT_EQ(site.stack_id(), "000000000000000a");
  EXPECT_EQ(site.oldest_age_ns(), 600u);
  EXPECT_EQ(site.unreleased_ratio(), 0.5);
  EXPECT_FALSE(site.has_growth());
}

TEST_F(MemoryListTest, LeavesOutWhatIsNotKnown) {
  add(make_process(42, 100));

  const auto rows = list();
  EXPECT_FALSE(rows[0].has_used_bytes());
  EXPECT_FALSE(rows[0].has_rest_bytes());
  EXPECT_EQ(rows[0].sites_size(), 0);
}

TEST_F(MemoryListTest, SortsRunningProcessesByMemory) {
  add(make_process(1, 10));
  add(make_process(2, 30));
  MemoryProcess exited = make_process(3, 90);
  exited.exited = true;
  add(exited);

  std::vector<uint32_t> pids;
  for (const auto& row : list()) pids.push_back(row.pid());
  EXPECT_THAT(pids, ElementsAre(2u, 1u, 3u));
}

TEST_F(MemoryListTest, ShowsLeaksAlone) {
  add(make_process(1, 10));
  MemoryProcess leaking = make_process(2, 30);
  leaking.sites.push_back(leaking.sites[0]);
  leaking.sites[0].growth = {
      .window_ns = 40'000'000'000, .grown_bytes = 20, .grown_count = 8, .is_leak = true};
  leaking.sites[1].growth = {
      .window_ns = 40'000'000'000, .grown_bytes = 20, .grown_count = 8, .is_leak = false};
  add(leaking);

  const auto rows = list({}, false, /*only_leaks=*/true);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].pid(), 2u);
  EXPECT_EQ(rows[0].leaks(), 1u);
  ASSERT_EQ(rows[0].sites_size(), 1);
  EXPECT_TRUE(rows[0].sites(0).growth().leak());
  EXPECT_EQ(rows[0].sites(0).growth().bytes_per_minute(), 30);
}

TEST_F(MemoryListTest, Filters) {
  add(make_process(1, 10));
  add(make_process(2, 30));
  v1::Filter filter;
  filter.set_pid(1);
  EXPECT_THAT(list(filter), SizeIs(1));
  filter.set_container("x");
  EXPECT_THAT(list(filter), IsEmpty());
}

TEST_F(MemoryListTest, ShowsAnIncident) {
  OutOfMemory incident;
  incident.id = 3;
  incident.unix_ns = 1'000;
  incident.last_unix_ns = 2'000;
  incident.times = 4;
  incident.process = {.pid = 42};
  incident.tid = 43;
  incident.owner.comm = "train";
  incident.kind = MemoryKind::kAsync;
  incident.asked_bytes = 1 << 30;
  incident.gpus = {1};
  incident.holders = {{.process = {.pid = 44},
                       .owner = {.comm = "serve"},
                       .live_bytes = 5,
                       .used_bytes = 6,
                       .sites = make_process(44, 5).sites}};
  report_.out_of_memory.push_back(std::make_shared<const OutOfMemory>(incident));
  snapshot_.memory = std::make_shared<const MemoryReport>(report_);

  const auto rows = list_out_of_memory(snapshot_, RowFilter({}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].id(), 3u);
  EXPECT_EQ(rows[0].last_unix_ns(), 2'000u);
  EXPECT_EQ(rows[0].times(), 4u);
  EXPECT_EQ(rows[0].pid(), 42u);
  EXPECT_EQ(rows[0].tid(), 43u);
  EXPECT_EQ(rows[0].comm(), "train");
  EXPECT_EQ(rows[0].kind(), "async");
  EXPECT_EQ(rows[0].function(), "cudaMalloc");
  EXPECT_EQ(rows[0].asked_bytes(), 1u << 30);
  EXPECT_EQ(rows[0].gpus(0), 1u);
  ASSERT_EQ(rows[0].holders_size(), 1);
  EXPECT_EQ(rows[0].holders(0).comm(), "serve");
  EXPECT_EQ(rows[0].holders(0).used_bytes(), 6u);
  EXPECT_EQ(rows[0].holders(0).sites_size(), 1);
}

}  // namespace
}  // namespace gpuperf
