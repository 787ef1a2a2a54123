#pragma once

#include <prometheus/collectable.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/high_mark.h"
#include "daemon/base/mutex.h"
#include "daemon/export/exporter.h"
#include "daemon/model/capture.h"
#include "daemon/model/drops.h"
#include "daemon/model/self_report.h"
#include "daemon/model/snapshot.h"
#include "daemon/otlp/attributes.h"
#include "daemon/otlp/options.h"
#include "daemon/otlp/sender.h"

namespace gpuperf::otlp {

// Sends metrics, slow calls and profiles to a receiver of OpenTelemetry data (docs/otlp.md).
//
// Thread: its own makes requests of metrics and slow calls, a Sender of each signal brings them;
// `on_slow_call` is the loop's, the rest any. What it is given must outlive it.
// Bounds: kMaxCalls slow calls wait to become spans, the oldest leave first (kOtlpQueueFull); then
// the senders' bounds. Never waits but in its destructor: 2 s at most.
class OtlpExporter final : public Exporter {
 public:
  struct Parts {
    const prometheus::Collectable& metrics;
    const Clock& clock;
    DropCounters& drops;
    uint64_t start_unix_ns = 0;  // of the daemon: since when its counters count
    std::string version;
    std::string host_name;
    std::string host_id;  // /etc/machine-id; empty = none
  };

  OtlpExporter(ExportOptions options, Parts parts);
  // Sends what there is a last time.
  ~OtlpExporter() override;
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  void on_slow_call(const std::shared_ptr<const SlowCall>& call) override;
  // What happened in one period: requests are made at once, on the caller's thread.
  void on_profile(const Capture& capture);
  // Of each signal that does not get through, why; empty = all is well.
  std::vector<Problem> list_problems() const;
  // How full the queues are.
  void fill(SelfReport& report);

 private:
  using CallPtr = std::shared_ptr<const SlowCall>;
  static constexpr size_t kMaxCalls = 4'096;

  void run();
  void send_metrics();
  void send_calls(const std::vector<CallPtr>& calls);

  // Set once in the constructor.
  const ExportOptions options_;
  const Parts parts_;
  const Origin origin_;
  const Origin profile_origin_;  // without the daemon's own name: profiles are of other programs
  std::unique_ptr<Sender> metrics_sender_;  // null = metrics are not wanted
  std::unique_ptr<Sender> spans_sender_;    // likewise
  std::unique_ptr<Sender> profiles_sender_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<CallPtr> calls_ ABSL_GUARDED_BY(mutex_);
  HighMark waiting_calls_;  // of calls_
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace gpuperf::otlp
