#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/lock_file.h"
#include "daemon/base/result.h"
#include "daemon/base/service_notifier.h"
#include "daemon/base/task_loop.h"
#include "daemon/collect/drain.h"
#include "daemon/collect/session_source.h"
#include "daemon/config.h"
#include "daemon/export/http.h"
#include "daemon/export/prometheus.h"
#include "daemon/export/slow_call_log.h"
#include "daemon/gpu/gpu_source.h"
#include "daemon/inject/injection_ways.h"
#include "daemon/inject/socket_folder.h"
#include "daemon/live_config.h"
#include "daemon/model/control_port.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/otlp/otlp_exporter.h"
#include "daemon/probe/prober.h"
#include "daemon/probe/programs.h"
#include "daemon/resolve/pod_names.h"
#include "daemon/resolve/symbolizer.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/watch_hub.h"
#include "daemon/session_intake.h"
#include "daemon/slow_call_namer.h"
#include "daemon/state/adaptive_thresholds.h"
#include "daemon/state/budget.h"
#include "daemon/state/function_stats.h"
#include "daemon/state/gpu_sessions.h"
#include "daemon/state/kernel_names.h"
#include "daemon/state/shape_table.h"
#include "daemon/state/slow_calls.h"
#include "daemon/store/slow_call_store.h"
#include "daemon/tracing.h"
#include "daemon/web/web_page.h"

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
class Daemon final : private ControlPort {
 public:
  Daemon(DaemonOptions options, Config config);
  ~Daemon() override;
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
  Status start_otlp();
  Status start_store();
  Status start_tracing();
  Status start_programs();
  Status start_symbolizer();
  Status start_drain();
  Status start_sessions();
  Status start_injection();
  Status start_prober();
  Status start_metrics();
  void make_page();
  void open_page_channels();
  Status start_api();
  Status start_gpu_health();
  Status start_timers();
  void stop_lock();
  void stop_loop();
  void stop_otlp();
  void stop_store();
  void stop_tracing();
  void stop_programs();
  void stop_symbolizer();
  void stop_drain();
  void stop_sessions();
  void stop_injection();
  void stop_prober();
  void stop_metrics();
  void stop_api();
  void stop_gpu_health();

  void post_reload(Done done) override;
  void post_add_probe(std::string section, std::string name, std::string value_json,
                      Done done) override;
  void post_set_enabled(std::string category, std::string name, bool enabled, Done done) override;
  void post_set_threshold(std::string category, std::string name,
                          std::optional<uint64_t> threshold_ns, Done done) override;
  void post_session_order(const SessionTarget& target, const SessionOrder& order,
                          SessionsDone done) override;
  void post_start_capture(const CaptureOrder& order, CaptureDone done) override;
  void post_stop_capture(uint64_t id, CaptureDone done) override;
  void post_freeze_recorder(const FreezeOrder& order, CaptureDone done) override;
  void post_delete_capture(uint64_t id, CaptureDone done) override;

  Status choose_mechanism();
  void take_report(std::shared_ptr<const ProbeReport> report);
  void take_gpus(std::shared_ptr<const GpuHealthReport> report);
  void take_batches();
  void take_event(CellDelta& delta);
  void take_event(ProcessExited& exited);
  void take_event(SlowCallEvent& event) { namer_->take(std::move(event)); }
  void take_event(ShapeDelta& delta) { shapes_.apply(delta); }
  void take_event(HandleNamed&) {}  // taken before all others
  void take_event(RawStack&) {}     // likewise
  void take_event(InFlightCalls& calls);
  void take_event(SlowInFlightCalls& calls);
  void take_event(TotalsRead& read);
  void take_event(TraceBatch& batch) { tracing_->apply(batch); }
  void take_event(ChildStarted& child) { tracing_->apply(child); }
  void judge_budget(int64_t now_mono_ns);
  void take_session_events();
  void take_slow_call(SlowCall call);
  void keep_slow_call(SlowCall call);
  void store_slow_call(const SlowCalls::Kept& kept);
  void tell_slow_call(const SlowCalls::Kept& kept, bool is_stored);
  void on_reload_signal();
  void reload(Done done);
  Result<ProbeChange> reload_file();
  void apply_settings();
  void put_in_force(Result<ProbeChange> change, Done done);
  void publish_if_changed();
  void publish();
  void add_gpus(Snapshot& snapshot);
  void add_otlp(Snapshot& snapshot);
  void log_summary();

  // Set once in the constructor.
  const DaemonOptions options_;
  const Settings start_settings_;  // those that take effect at start only
  SystemClock clock_;
  FunctionRegistry registry_;
  DropCounters drops_;
  SnapshotBoard board_;
  PrometheusMetrics metrics_;
  // Loop thread only, in start order.
  std::optional<LockFile> lock_;
  std::unique_ptr<TaskLoop> loop_;
  std::unique_ptr<otlp::OtlpExporter> otlp_;  // null = nobody wants the data
  std::optional<LockFile> store_lock_;
  std::unique_ptr<SlowCallStore> store_;  // null = slow calls are kept in memory only
  std::unique_ptr<Tracing> tracing_;
  std::unique_ptr<Programs> programs_;  // null where probes cannot be used
  std::unique_ptr<Symbolizer> symbolizer_;
  std::unique_ptr<SlowCallNamer> namer_;
  std::unique_ptr<PodNames> pod_names_;
  std::unique_ptr<Drain> drain_;
  std::unique_ptr<SessionSource> session_source_;  // null = sessions are not wanted
  std::optional<SocketFolder> socket_folder_;      // empty likewise
  std::unique_ptr<InjectionWays> injection_ways_;  // null = no way is switched on
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<GpuSource> gpu_source_;  // null = switched off
  std::unique_ptr<WebPage> page_;          // null = not wanted, or it has no tokens
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WatchHub> watch_hub_;
  std::unique_ptr<RpcServer> api_;
  // Loop thread only: the state.
  LiveConfig config_;
  // Filled while the parts start; after the first snapshot only replaced.
  std::shared_ptr<DaemonFacts> facts_ = std::make_shared<DaemonFacts>();
  std::shared_ptr<const ProbeReport> report_ = std::make_shared<const ProbeReport>();
  FunctionStats stats_;
  std::unique_ptr<SlowCalls> slow_calls_;  // made once it is known which ids are taken
  AdaptiveThresholds adaptive_;
  SlowCallLog slow_call_log_;
  ShapeTable shapes_;
  KernelNames kernel_names_;
  Budget budget_;
  SessionIntake session_intake_;
  GpuSessions gpu_sessions_;
  std::set<uint32_t> suspended_;
  std::shared_ptr<const InFlightCalls> in_flight_;
  std::shared_ptr<const GpuHealthReport> gpus_;  // null = none yet
  bool gpus_stalled_ = false;                    // as last published
  std::vector<Problem> problems_;                // beside those of the probes
  std::vector<Problem> otlp_problems_;           // as last published
  std::vector<Exporter*> exporters_;
  ServiceNotifier service_;
  bool changed_ = true;
  int64_t totals_mono_ns_ = 0;  // when the kernel's totals last came in
  uint64_t summarised_calls_ = 0;
  uint64_t summarised_slow_calls_ = 0;
};

}  // namespace gpuperf
