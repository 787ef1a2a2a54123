#include "daemon/collect/drain.h"

#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <semaphore>
#include <vector>

namespace gpuperf {
namespace {

// A drain of rings to which nothing is written, and of one cell.
class DrainTest : public testing::Test {
 protected:
  void SetUp() override {
    for (Fd& ring : rings_) {
      ring = Fd(bpf_map_create(BPF_MAP_TYPE_RINGBUF, nullptr, 0, 0, 4096, nullptr));
      if (!ring.valid()) GTEST_SKIP() << "no BPF map can be made: " << std::strerror(errno);
    }
    losses_[GPUPERF_LOSS_CELLS_FULL] = 1;
    MapSource totals({.cells = cells_,
                      .map_cell = [](uint32_t) { return absl::OkStatus(); },
                      .overflow_cells = 1,
                      .losses = losses_,
                      .read_index = [] { return CellIndex(); },
                      .count_users = [](const CellsByUser&) {},
                      .read_shapes = [] { return ShapeTotals(); }},
                     {}, drops_);
    auto drain = Drain::make({.slow_ring_fd = rings_[0].get(),
                              .process_ring_fd = rings_[1].get(),
                              .name_ring_fd = rings_[2].get(),
                              .stack_ring_fd = rings_[3].get(),
                              .stack_copy_ring_fd = rings_[4].get(),
                              .trace_ring_fd = rings_[5].get(),
                              .report_ring_fd = rings_[6].get(),
                              .interval = std::chrono::milliseconds(1),
                              .read_in_flight = [] { return InFlightCalls{.truncated_count = 7}; },
                              .read_slow_in_flight = [] { return SlowInFlightCalls(); },
                              .read_thread_costs = [] { return ThreadCosts(); },
                              .on_batch = [this] { queued_.release(); }},
                             std::move(totals), drops_);
    ASSERT_TRUE(drain.ok()) << drain.status();
    drain_ = *std::move(drain);
    drain_->start();
  }

  std::array<Fd, 7> rings_;
  std::vector<gpuperf_cell> cells_ = std::vector<gpuperf_cell>(1);
  std::vector<uint64_t> losses_ = std::vector<uint64_t>(GPUPERF_LOSS_COUNT);
  DropCounters drops_;
  std::counting_semaphore<> queued_{0};  // batches
  std::unique_ptr<Drain> drain_;
};

TEST_F(DrainTest, HandsOutItsLastBatchThoughTheQueueIsFull) {
  for (size_t i = 0; i < Drain::kQueueBatches; ++i) queued_.acquire();

  std::atomic_ref(cells_[0].calls) = 5;
  drain_->stop();

  uint64_t calls = 0;
  while (const auto batch = drain_->try_pop()) {
    for (const Event& event : *batch) {
      if (const auto* delta = std::get_if<CellDelta>(&event)) calls += delta->calls;
    }
  }
  EXPECT_EQ(calls, 5u);
}

TEST_F(DrainTest, CountsTheCallsInFlightThatALookLeftOut) {
  queued_.acquire();

  EXPECT_EQ(drops_.get(DropCause::kInFlightFull), 7u);
}

}  // namespace
}  // namespace gpuperf
