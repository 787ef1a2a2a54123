#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "daemon/app/part.h"
#include "daemon/base/lock_file.h"
#include "daemon/export/slow_call_log.h"
#include "daemon/slow/pipeline.h"
#include "daemon/state/kernel_names.h"
#include "daemon/store/slow_call_store.h"

namespace gpuperf {

class OtlpPart;
class SessionRegistry;
class Tracing;

// The store of slow calls, those who get them, and the pipeline between. Without a store the daemon
// serves what it has in memory, and says so.
class SlowCallsPart final : public Part {
 public:
  SlowCallsPart(Core& core, const OtlpPart& otlp);
  Status start() override;
  void stop() override;
  void apply_settings(const Settings& settings) override;
  void fill(Snapshot& snapshot) const override;

  void add_exporter(Exporter& exporter) { exporters_.push_back(&exporter); }
  // The recorder has what the GPU did during slow calls. Not used once `tracing` has stopped.
  void start_pipeline(Tracing& tracing, SessionRegistry& sessions);
  SlowCallPipeline& pipeline() { return *pipeline_; }
  // Null = slow calls go on without names of code.
  void set_symbolizer(Symbolizer* symbolizer) { symbolizer_ = symbolizer; }
  SlowCallStore* store() const { return store_.get(); }  // null = calls are kept in memory only

  void apply(const HandleNamed& named) { kernel_names_.apply(named); }
  void apply(const ProcessExited& exited);

 private:
  void open_store();

  const OtlpPart& otlp_;
  KernelNames kernel_names_;
  Symbolizer* symbolizer_ = nullptr;
  std::optional<LockFile> store_lock_;
  std::unique_ptr<SlowCallStore> store_;
  std::unique_ptr<SlowCallPipeline> pipeline_;  // made once it is known which ids are taken
  SlowCallLog log_;
  std::vector<Exporter*> exporters_;
};

}  // namespace gpuperf
