#include "daemon/app/slow_calls_part.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "daemon/app/otlp_part.h"
#include "daemon/capture/tracing.h"
#include "daemon/otlp/spans.h"
#include "daemon/rpc/slow_call_list.h"
#include "daemon/store/folders.h"

namespace gpuperf {

SlowCallsPart::SlowCallsPart(Core& core, const OtlpPart& otlp)
    : Part(core),
      otlp_(otlp),
      kernel_names_(core.drops),
      log_(static_cast<uint32_t>(core.settings.slow.log_per_second), core.clock, core.drops) {}

Status SlowCallsPart::start() {
  if (!core_.settings.storage.path.empty()) open_store();
  exporters_.push_back(&log_);
  if (otlp_.exporter()) exporters_.push_back(otlp_.exporter());
  return absl::OkStatus();
}

void SlowCallsPart::stop() {
  store_.reset();            // writes what waits
  core_.loop->run_posted();  // and exports it
  store_lock_.reset();
}

void SlowCallsPart::open_store() {
  const auto& storage = core_.settings.storage;
  (void)make_folders(storage.path);  // without them the lock file says what is wrong
  auto lock = LockFile::acquire(storage.path + "/gpuperfd.lock", "storage.path");
  if (!lock.ok()) {
    return add_problem({"storage", std::string(lock.status().message()),
                        "slow calls are kept in memory only until you fix this and restart "
                        "gpuperfd; if you do not need a store, set storage.path = \"\""},
                       "slow calls are not stored");
  }
  store_lock_.emplace(*std::move(lock));
  store_ = SlowCallStore::start(
      {.database = {.path = storage.path + "/slow_calls.db",
                    .max_bytes = storage.max_mib << 20,
                    .worst_per_window =
                        static_cast<uint32_t>(core_.settings.slow.worst_per_function),
                    .history = std::chrono::hours(storage.history_hours),
                    .retention = std::chrono::days(storage.retention_days)}},
      core_.clock);
}

void SlowCallsPart::apply_settings(const Settings& settings) {
  log_.set_rate(static_cast<uint32_t>(settings.slow.log_per_second));
}

void SlowCallsPart::fill(Snapshot& snapshot) const {
  pipeline_->fill(snapshot);
  snapshot.self.add(Bound::kHandleNames, kernel_names_.count(), kernel_names_.max_names());
  if (store_ == nullptr) return;
  store_->fill(snapshot.self);
  snapshot.store = {.path = core_.settings.storage.path, .used_bytes = store_->used_bytes()};
  if (const std::string problem = store_->problem(); !problem.empty()) {
    snapshot.problems.push_back(
        {"storage", problem, "fix this; until then, slow calls are kept in memory only"});
  }
}

void SlowCallsPart::start_pipeline(Tracing& tracing, SessionRegistry& sessions) {
  SlowCallPipeline::Parts parts{
      .sources = tracing.sources(),
      .functions = core_.registry,
      .kernel_names = kernel_names_,
      .max_gpu_work =
          otlp::are_spans_wanted(core_.settings, std::getenv) ? otlp::kMaxChildSpans : 0,
      .post_resolve =
          [this](const ProcessKey& process, std::vector<StackRequest> requests,
                 Symbolizer::OnResolved on_resolved) {
            return symbolizer_ != nullptr &&
                   symbolizer_->post_resolve(process, std::move(requests), std::move(on_resolved));
          },
      .on_named = [&tracing](const SlowCall& call) { tracing.note_slow_call(call); },
      .on_call =
          [this](const SlowCallPipeline::CallPtr& call) {
            for (Exporter* exporter : exporters_) exporter->on_slow_call(call);
          },
      .on_change = [this] { core_.changed = true; }};
  if (store_ != nullptr) {
    parts.post_write = [this](SlowCallPipeline::CallPtr call,
                              std::function<void(bool)> on_written) {
      const ProcessKey process = call->event.process;
      return store_->post_write(
          process, [call = std::move(call)] { return make_stored_call(*call); },
          std::move(on_written));
    };
  }
  pipeline_ = std::make_unique<SlowCallPipeline>(
      SlowCalls::Limits{.worst_per_function = core_.settings.slow.worst_per_function,
                        .recent = core_.settings.slow.recent,
                        .last_id = store_ ? store_->last_id() : 0},
      std::move(parts));
  pipeline_->follow(sessions);
}

void SlowCallsPart::apply(const ProcessExited& exited) {
  pipeline_->apply(exited);
  kernel_names_.apply(exited);
}

}  // namespace gpuperf
