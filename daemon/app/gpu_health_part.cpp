#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/app/gpu_memory_part.h"
#include "daemon/app/leaf_parts.h"
#include "daemon/app/tracing_part.h"
#include "daemon/gpu/gpu_source.h"

namespace gpuperf {
namespace {

// NVIDIA's driver makes new values about ten times a second at most.
constexpr std::chrono::milliseconds kFastestInterval{100};

// How the GPUs are, by NVIDIA's driver.
class GpuHealthPart final : public Part {
 public:
  GpuHealthPart(Core& core, TracingPart& tracing, GpuMemoryPart& memory)
      : Part(core), tracing_(tracing), memory_(memory) {}

  Status start() override {
    const std::chrono::milliseconds interval(core_.settings.stats.gpu_interval_ms);
    if (interval.count() == 0) return absl::OkStatus();
    source_ = std::make_unique<GpuSource>(
        GpuSource::Options{.interval = std::max(interval, kFastestInterval),
                           .counters = core_.settings.stats.gpu_counters},
        [this](auto report) {
          core_.loop->post([this, report = std::move(report)] {
            gpus_ = report;
            tracing_->apply(*report);
            memory_.apply(*report);
            core_.changed = true;
          });
        });
    return absl::OkStatus();
  }

  void stop() override {
    // A driver that hangs gets two seconds, while probes are still attached.
    if (source_) stop_beside_loop([this] { (void)source_->stop(); });
    source_.reset();
  }

  void advance(int64_t /*now_mono_ns*/) override {
    if (!source_) return;
    const bool was_stalled = stall_.has_value();
    stall_ = source_->find_stall();
    if (stall_.has_value() != was_stalled) core_.changed = true;
  }

  void fill(Snapshot& snapshot) const override {
    if (stall_) snapshot.problems.push_back(*stall_);
    snapshot.gpus = gpus_;
    if (!gpus_) return;
    for (Problem& problem : list_gpu_problems(*gpus_, snapshot.taken_mono_ns)) {
      snapshot.problems.push_back(std::move(problem));
    }
  }

 private:
  TracingPart& tracing_;
  GpuMemoryPart& memory_;
  std::unique_ptr<GpuSource> source_;            // null = switched off
  std::shared_ptr<const GpuHealthReport> gpus_;  // null = none yet
  std::optional<Problem> stall_;                 // as of the last advance()
};

}  // namespace

std::unique_ptr<Part> make_gpu_health_part(Core& core, TracingPart& tracing,
                                           GpuMemoryPart& memory) {
  return std::make_unique<GpuHealthPart>(core, tracing, memory);
}

}  // namespace gpuperf
