#include "daemon/state/memory_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "daemon/model/snapshot.h"
#include "daemon/probe/arguments/argument_decoders.h"

namespace gpuperf {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr ProcessKey kHolder{.pid = 42, .start_boot_ns = 5};
constexpr ProcessKey kOtherHolder{.pid = 43, .start_boot_ns = 6};

class MemoryTableTest : public testing::Test {
 protected:
  explicit MemoryTableTest(const MemoryTable::Limits& limits = {})
      : table_(limits,
               {.find_facts = [this](const ProcessKey&) { return facts_; },
                .find_owner = [this](const ProcessKey& process) { return owners_[process]; },
                .to_unix_ns = [](uint64_t mono_ns) { return 1'000 + mono_ns; }},
               drops_) {
    owners_[kHolder].comm = "train";
    owners_[kOtherHolder].comm = "serve";
  }

  // `place`: of an allocation its result.
  void call(const ProcessKey& process, const char* symbol, uint64_t place, uint64_t bytes = 0,
            uint64_t stack = 1, int32_t status = 0) {
    const Function function{.symbol = symbol, .arguments = find_argument_decoder(symbol)};
    ReportedCall call;
    call.start_mono_ns = now_ns_;
    call.duration_ns = 1;
    call.process = process;
    call.tid = 7;
    call.outermost_id = 3;
    call.stack_id = stack;
    call.return_value = static_cast<uint64_t>(status);
    call.values.emplace();
    call.values->values[0] = bytes != 0 ? bytes : place;
    call.result = place;
    table_.apply(function, call);
    now_ns_ += 10;
  }
  void allocate(const ProcessKey& process, uint64_t place, uint64_t bytes, uint64_t stack = 1) {
    call(process, "cuMemAlloc_v2", place, bytes, stack);
  }
  void fail(const ProcessKey& process, uint64_t bytes, uint64_t stack = 1) {
    call(process, "cuMemAlloc_v2", 0, bytes, stack, kCudaOutOfMemory);
  }
  void report_gpu(const std::vector<std::pair<uint32_t, uint64_t>>& used) {
    GpuHealthReport report;
    report.gpus.resize(1);
    report.gpus[0].index = 3;
    for (const auto& [pid, bytes] : used) {
      report.gpus[0].processes.push_back({.pid = pid, .memory_bytes = bytes});
    }
    table_.apply(report);
  }
  const MemoryProcess& only() {
    report_ = table_.make_report();
    EXPECT_THAT(report_->processes, SizeIs(1));
    return *report_->processes.at(0);
  }
  const OutOfMemory& incident(size_t at = 0) {
    report_ = table_.make_report();
    return *report_->out_of_memory.at(at);
  }

  DropCounters drops_;
  MemoryTable::Facts facts_;
  std::map<ProcessKey, Owner> owners_;
  uint64_t now_ns_ = 100;
  std::shared_ptr<const MemoryReport> report_;
  MemoryTable table_;
};

TEST_F(MemoryTableTest, AddsUpByProcess) {
  allocate(kHolder, 0x1000, 100);
  allocate(kOtherHolder, 0x1000, 7);
  call(kHolder, "cuMemFree_v2", 0x1000);
  allocate(kHolder, 0x2000, 30);

  report_ = table_.make_report();
  ASSERT_THAT(report_->processes, SizeIs(2));
  EXPECT_EQ(get_on_gpu_bytes(*report_->processes[0]), 30u);
  EXPECT_EQ(report_->processes[0]->first_mono_ns, 100u);
  EXPECT_EQ(report_->processes[0]->owner.comm, "train");
  EXPECT_EQ(get_on_gpu_bytes(*report_->processes[1]), 7u);
}

TEST_F(MemoryTableTest, SaysThatAProcessWasThereBefore) {
  facts_.is_late = true;
  allocate(kHolder, 0x1000, 100);

  EXPECT_EQ(only().gaps, uint32_t{kMemoryLateStart});
}

TEST_F(MemoryTableTest, AddsGapsToProcessesSeenSince) {
  allocate(kHolder, 0x1000, 100);
  table_.add_gaps(kMemoryLateStart, 101);
  EXPECT_EQ(only().gaps, 0u);
  table_.add_gaps(kMemoryLateStart, 100);
  EXPECT_EQ(only().gaps, uint32_t{kMemoryLateStart});
}

TEST_F(MemoryTableTest, AsksForTheNameOfEachStackOnce) {
  allocate(kHolder, 0x1000, 100, 8);
  allocate(kHolder, 0x2000, 100, 8);
  allocate(kHolder, 0x3000, 100, 0);  // none was taken

  const auto unnamed = table_.take_unnamed();
  ASSERT_THAT(unnamed, SizeIs(1));
  EXPECT_EQ(unnamed[0].stack_id, 8u);
  EXPECT_THAT(table_.take_unnamed(), IsEmpty());
  table_.set_stack(unnamed[0], std::make_shared<const Stack>(Stack{.id = 9, .frames = {}}));

  ASSERT_NE(only().sites[0].stack, nullptr);
  EXPECT_EQ(only().sites[0].stack->id, 9u);
}

TEST_F(MemoryTableTest, KeepsWhatAProcessHeldAtItsEnd) {
  allocate(kHolder, 0x1000, 100);
  table_.apply(ProcessExited{kHolder}, 10 * kSecondNs);
  allocate(kHolder, 0x2000, 11);  // reported behind the exit
  table_.advance(12 * kSecondNs);

  EXPECT_TRUE(only().exited);
  EXPECT_EQ(get_on_gpu_bytes(only()), 111u);
  for (uint32_t pid = 100; pid < 100 + MemoryTable::kExited; ++pid) {
    allocate({.pid = pid}, 0x1000, 1);
    table_.apply(ProcessExited{{.pid = pid}}, 20 * kSecondNs);
  }
  table_.advance(30 * kSecondNs);
  report_ = table_.make_report();
  ASSERT_THAT(report_->processes, SizeIs(MemoryTable::kExited));
  EXPECT_NE(report_->processes.back()->process, kHolder);
}

TEST_F(MemoryTableTest, TellsWhatTheDriverReports) {
  allocate(kHolder, 0x1000, 100);
  report_gpu({{42, 300}, {999, 5}});

  EXPECT_THAT(only().gpus, ElementsAre(MemoryOnGpu{.index = 3, .used_bytes = 300}));
  EXPECT_EQ(only().least_rest_bytes, 200u);
}

TEST_F(MemoryTableTest, MakesAnIncidentOfAFailedAllocation) {
  allocate(kHolder, 0x1000, 100);
  allocate(kOtherHolder, 0x1000, 900, 4);
  allocate({.pid = 44}, 0x1000, 5'000);  // on another GPU
  report_gpu({{42, 300}, {43, 1'000}});
  fail(kHolder, 1 << 20, 8);

  const OutOfMemory& found = incident();
  EXPECT_EQ(found.id, 1u);
  EXPECT_EQ(found.unix_ns, 1'131u);
  EXPECT_EQ(found.process, kHolder);
  EXPECT_EQ(found.tid, 7u);
  EXPECT_EQ(found.owner.comm, "train");
  EXPECT_EQ(found.asked_bytes, 1u << 20);
  EXPECT_EQ(found.function_id, 3u);
  EXPECT_THAT(found.gpus, ElementsAre(3u));
  ASSERT_THAT(found.holders, SizeIs(2));
  EXPECT_EQ(found.holders[0].process, kOtherHolder);
  EXPECT_EQ(found.holders[0].used_bytes, 1'000u);
  EXPECT_EQ(found.holders[0].live_bytes, 900u);
  ASSERT_THAT(found.holders[0].sites, SizeIs(1));
  EXPECT_EQ(found.holders[1].process, kHolder);
  EXPECT_THAT(table_.take_incidents(), IsEmpty());  // once its stack has names
}

TEST_F(MemoryTableTest, TellsOfAnIncidentOnceItsStackHasNames) {
  fail(kHolder, 10, 8);
  const auto unnamed = table_.take_unnamed();
  ASSERT_THAT(unnamed, SizeIs(1));
  table_.set_stack(unnamed[0], std::make_shared<const Stack>(Stack{.id = 9, .frames = {}}));

  const auto told = table_.take_incidents();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0]->stack->id, 9u);
  EXPECT_EQ(incident().stack->id, 9u);
}

TEST_F(MemoryTableTest, TakesTriesOfStacksWithOneNameForOneIncident) {
  const auto stack = std::make_shared<const Stack>(Stack{.id = 9, .frames = {}});
  fail(kHolder, 10, 7);
  fail(kHolder, 10, 8);
  for (const auto& unnamed : table_.take_unnamed()) table_.set_stack(unnamed, stack);

  EXPECT_THAT(table_.make_report()->out_of_memory, SizeIs(1));
  EXPECT_EQ(incident().times, 2u);
  EXPECT_THAT(table_.take_incidents(), SizeIs(1));
}

TEST_F(MemoryTableTest, TellsOfAnIncidentOnceItsOwnerIsKnown) {
  owners_[kHolder] = {};
  fail(kHolder, 10, 0);
  EXPECT_THAT(table_.take_incidents(), IsEmpty());
  owners_[kHolder].comm = "train";
  table_.advance(kSecondNs);

  const auto told = table_.take_incidents();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0]->owner.comm, "train");
  EXPECT_THAT(table_.take_incidents(), IsEmpty());
}

TEST_F(MemoryTableTest, TakesTriesOfOneStackForOneIncident) {
  fail(kHolder, 10, 0);
  fail(kHolder, 10, 0);
  now_ns_ += MemoryTable::kSameIncidentNs + 1;
  fail(kHolder, 10, 0);

  report_ = table_.make_report();
  ASSERT_THAT(report_->out_of_memory, SizeIs(2));
  EXPECT_EQ(incident(0).times, 1u);
  EXPECT_EQ(incident(1).times, 2u);
  EXPECT_THAT(report_->out_of_memory_counts, ElementsAre(Pair(owners_[kHolder], 3u)));
}

TEST_F(MemoryTableTest, KeepsTheNewestIncidents) {
  for (uint64_t stack = 1; stack <= MemoryTable::kIncidents + 1; ++stack) fail(kHolder, 10, stack);

  report_ = table_.make_report();
  ASSERT_THAT(report_->out_of_memory, SizeIs(MemoryTable::kIncidents));
  EXPECT_EQ(report_->out_of_memory.back()->id, 2u);
}

TEST_F(MemoryTableTest, CountsFailuresOnceTheOwnerIsKnown) {
  owners_[kHolder] = {};
  fail(kHolder, 10);
  EXPECT_THAT(table_.make_report()->out_of_memory_counts, IsEmpty());
  owners_[kHolder].comm = "train";
  table_.advance(kSecondNs);

  EXPECT_THAT(table_.make_report()->out_of_memory_counts, ElementsAre(Pair(owners_[kHolder], 1u)));
  EXPECT_EQ(incident().owner.comm, "train");
}

TEST_F(MemoryTableTest, CountsFailuresOfTooManyOwnersTogether) {
  for (uint32_t pid = 1; pid <= MemoryTable::kOwners + 2; ++pid) {
    owners_[{.pid = pid}].comm = "program" + std::to_string(pid);
    fail({.pid = pid}, 10);
  }
  const auto counts = table_.make_report()->out_of_memory_counts;
  ASSERT_THAT(counts, SizeIs(MemoryTable::kOwners + 1));
  EXPECT_THAT(counts, testing::Contains(Pair(other_owner(), 2u)));
}

class FullMemoryTableTest : public MemoryTableTest {
 protected:
  FullMemoryTableTest()
      : MemoryTableTest({.max_pieces = 16, .max_sites = 16, .max_processes = 2}) {}
};

TEST_F(FullMemoryTableTest, CountsWhatFindsNoPlace) {
  for (uint64_t i = 1; i <= 10; ++i) allocate(kHolder, i << 12, 1, i);

  EXPECT_EQ(drops_.get(DropCause::kMemoryFull), 2u);  // half is for one process
  EXPECT_EQ(drops_.get(DropCause::kMemorySitesFull), 2u);
  EXPECT_EQ(only().gaps, uint32_t{kMemoryTableFull});
  SelfReport self;
  table_.fill(self);
  EXPECT_THAT(
      self.bounds,
      ElementsAre(BoundLevel{.bound = Bound::kMemoryPieces, .used = 8, .limit = 16, .highest = 8},
                  BoundLevel{.bound = Bound::kMemorySites, .used = 8, .limit = 16, .highest = 8}));
}

TEST_F(FullMemoryTableTest, CountsProcessesBeyondTheLimit) {
  for (uint32_t pid = 1; pid <= 3; ++pid) allocate({.pid = pid}, 0x1000, 1);

  EXPECT_EQ(drops_.get(DropCause::kMemoryFull), 1u);
  EXPECT_THAT(table_.make_report()->processes, SizeIs(2));
}

}  // namespace
}  // namespace gpuperf
