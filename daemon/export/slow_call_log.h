#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/thread_checker.h"
#include "daemon/export/exporter.h"
#include "daemon/model/drops.h"

namespace gpuperf {

// Writes one log line per slow call, at most `lines_per_second`; 0 writes none.
//
// Thread: loop. Clock, counters and sink must outlive it.
// Bounds: a call beyond the rate gets no line and counts DropCause::kLogRateLimited; the next line
// says in `suppressed_count` how many there were. With 0 nothing is counted: it was switched off.
class SlowCallLog final : public Exporter {
 public:
  using Sink = std::function<void(LogEvent event, std::initializer_list<LogField> fields)>;

  // The default sink is the daemon's log, level info.
  SlowCallLog(uint32_t lines_per_second, const Clock& clock, DropCounters& drops,
              Sink sink = log_info);

  void set_rate(uint32_t lines_per_second);
  void on_slow_call(const std::shared_ptr<const SlowCall>& call) override;

 private:
  // Set once in the constructor.
  const Clock& clock_;
  DropCounters& drops_;
  const Sink sink_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  uint32_t lines_per_second_;
  LogLimiter limiter_;
};

}  // namespace gpuperf
