#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "daemon/app/part.h"
#include "daemon/capture/tracing.h"

namespace gpuperf {

class OtlpPart;
class ProbingPart;
class SessionsPart;
class SlowCallsPart;

// The flight recorder, captures and profiles. What it starts stays to the end: slow calls read the
// recorder.
class TracingPart final : public Part {
 public:
  TracingPart(Core& core, const OtlpPart& otlp, SlowCallsPart& slow_calls, SessionsPart& sessions,
              ProbingPart& probing)
      : Part(core), otlp_(otlp), slow_calls_(slow_calls), sessions_(sessions), probing_(probing) {}
  Status start() override;
  void stop() override;
  void apply_settings(const Settings& settings) override { tracing_->set_settings(settings); }
  void fill(Snapshot& snapshot) const override { tracing_->fill(snapshot); }

  Tracing* operator->() const { return tracing_.get(); }

 private:
  void set_period();

  const OtlpPart& otlp_;
  SlowCallsPart& slow_calls_;
  SessionsPart& sessions_;
  ProbingPart& probing_;
  std::unique_ptr<Tracing> tracing_;
  std::optional<size_t> timer_;  // of the loop, once started
};

}  // namespace gpuperf
