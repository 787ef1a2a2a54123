#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/result.h"
#include "daemon/base/service_notifier.h"
#include "daemon/base/task_loop.h"
#include "daemon/config/config.h"
#include "daemon/export/prometheus.h"
#include "daemon/model/drops.h"
#include "daemon/model/function.h"
#include "daemon/model/overhead.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/tensor_layout.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/unwind/process_reader.h"

namespace gpuperf {

struct DaemonOptions {
  ConfigPlace config;  // where a reload reads it anew
  std::string runtime_dir = "/run/gpuperf";
  std::optional<Mechanism> mechanism;  // empty = the best that works
};

// What all parts of the daemon share. Outlives them.
struct Core {
  // Set once when made. Any thread.
  const DaemonOptions options;
  const Settings settings;  // as at start; Part::apply_settings gets later ones
  SystemClock clock;
  FunctionRegistry registry{static_cast<uint32_t>(settings.stats.max_functions)};
  TensorLayouts tensor_layouts;
  DropCounters drops;
  // Of others' processes; for whatever these can hold back.
  ProcessReader reader{{.on_late = [this](ProcessReader::Kind kind) {
    drops.add(kind == ProcessReader::Kind::kMemory ? DropCause::kNamesMemoryLate
                                                   : DropCause::kDiscoveryProcessLate);
  }}};
  SnapshotBoard board;
  PrometheusMetrics metrics{board, drops, settings.metrics.max_series,
                            settings.metrics.max_kernels};
  // Loop thread only, but for posting.
  std::unique_ptr<TaskLoop> loop;
  ServiceNotifier service;
  // Filled while the parts start; after the first snapshot only replaced.
  std::shared_ptr<DaemonFacts> facts = std::make_shared<DaemonFacts>();
  OverheadDemand demand;                 // of now
  bool changed = true;                   // there is something to publish
  std::function<void()> publish;         // a snapshot, now
  std::function<void()> apply_settings;  // of the configuration in force, in all parts
};

// A part of the daemon, with the state that belongs to it.
//
// Thread: loop. Parts start in the order of the daemon's list and stop in reverse.
class Part {
 public:
  explicit Part(Core& core) : core_(core) {}
  virtual ~Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  // An error ends the daemon. What the daemon can do without is a problem instead.
  virtual Status start() = 0;
  // Undoes start(), also one that failed halfway.
  virtual void stop() {}
  // Takes the settings that need no restart; list_restart_settings() names the others.
  virtual void apply_settings(const Settings& /*settings*/) {}
  // Called several times a second, for what changes with time.
  virtual void advance(int64_t /*now_mono_ns*/) {}
  virtual void fill(Snapshot& /*snapshot*/) const {}
  // Problems found at start. fill() adds those that come and go.
  const std::vector<Problem>& problems() const { return problems_; }

 protected:
  void add_problem(Problem problem, LogEvent event);  // and logs it
  // For a stop that may take seconds: runs it on a thread of its own, and posted tasks on this one.
  void stop_beside_loop(const std::function<void()>& stop);

  Core& core_;
  std::vector<Problem> problems_;
};

}  // namespace gpuperf
