#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/lock_file.h"
#include "daemon/base/result.h"
#include "daemon/base/task_loop.h"
#include "daemon/collect/drain.h"
#include "daemon/config.h"
#include "daemon/export/http.h"
#include "daemon/export/prometheus.h"
#include "daemon/export/slow_call_log.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/prober.h"
#include "daemon/probe/programs.h"
#include "daemon/resolve/symbolizer.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/watch_hub.h"
#include "daemon/state/function_stats.h"
#include "daemon/state/slow_calls.h"

namespace gpuperf {

struct DaemonOptions {
  std::string config_path;  // where `config` was read, for status
  std::string runtime_dir = "/run/gpuperf";
  std::optional<Mechanism> mechanism;  // empty = the best that works
};

// The whole daemon: starts the parts in order, runs the loop until SIGTERM or SIGINT, stops them in
// reverse.
//
// Thread: the one that calls run() is the loop, which owns all changing state. Without what probes
// need (privilege, BTF, kernel) it runs all the same, serves, and says what is missing; a lock held
// or an address taken by somebody else ends the start.
class Daemon {
 public:
  Daemon(DaemonOptions options, Config config);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Returns when stopped; an error says which part did not start and why.
  Status run();

 private:
  struct Part {
    Status (Daemon::*start)();
    void (Daemon::*stop)();  // null = nothing to stop
  };
  static const Part kParts[];  // start order

  Status start_lock();
  Status start_loop();
  Status start_programs();
  Status start_symbolizer();
  Status start_drain();
  Status start_prober();
  Status start_metrics();
  Status start_api();
  Status start_timers();
  void stop_lock();
  void stop_loop();
  void stop_programs();
  void stop_symbolizer();
  void stop_drain();
  void stop_prober();
  void stop_metrics();
  void stop_api();

  Status choose_mechanism();
  ProbeReport explain_unusable(const Status& status) const;
  void take_report(std::shared_ptr<const ProbeReport> report);
  void take_batches();
  void on_slow_call(SlowCallEvent event);
  void finish_slow_call(SlowCall call);
  void publish_if_changed();
  void publish();
  void log_summary();

  // Set once in the constructor.
  const DaemonOptions options_;
  const Config config_;
  const std::shared_ptr<const std::vector<Function>> functions_;
  SystemClock clock_;
  DropCounters drops_;
  SnapshotBoard board_;
  PrometheusMetrics metrics_;
  // Loop thread only, in start order.
  std::optional<LockFile> lock_;
  std::unique_ptr<TaskLoop> loop_;
  std::unique_ptr<Programs> programs_;  // null where probes cannot be used
  std::unique_ptr<Symbolizer> symbolizer_;
  std::unique_ptr<Drain> drain_;
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WatchHub> watch_hub_;
  std::unique_ptr<RpcServer> api_;
  // Loop thread only: the state.
  // Filled while the parts start, never changed after the first snapshot.
  const std::shared_ptr<DaemonFacts> facts_ = std::make_shared<DaemonFacts>();
  std::shared_ptr<const ProbeReport> report_ = std::make_shared<const ProbeReport>();
  FunctionStats stats_;
  SlowCalls slow_calls_;
  SlowCallLog slow_call_log_;
  std::vector<Exporter*> exporters_;
  bool changed_ = true;
  uint64_t summarised_calls_ = 0;
  uint64_t summarised_slow_calls_ = 0;
};

}  // namespace gpuperf
