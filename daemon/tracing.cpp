#include "daemon/tracing.h"

#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/probe/proc_text.h"
#include "daemon/process_cpu.h"
#include "daemon/resolve/container.h"
#include "daemon/trace_build.h"
#include "daemon/walk_tables.h"

namespace gpuperf {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
// A burst of slow calls is one incident.
constexpr uint64_t kFreezePauseNs = 60 * kNsPerSecond;
constexpr uint64_t kExpirePeriodNs = 3'600 * kNsPerSecond;
constexpr size_t kMaxJobs = 64;

std::string read_host_name() {
  utsname name{};
  return uname(&name) == 0 ? name.nodename : "unknown";
}

TraceRecorder::Options make_recorder_options(const Settings& settings) {
  return {.max_bytes = settings.trace.recorder ? settings.trace.recorder_mib << 20 : 0,
          .span_ns = settings.trace.recorder_seconds * kNsPerSecond};
}

std::string read_comm(uint32_t pid, uint32_t tid) {
  const auto text =
      read_bounded_text(get_proc_path("/proc", pid, "task/" + std::to_string(tid) + "/comm"), 64);
  if (!text.ok()) return {};
  return text->text.substr(0, text->text.find('\n'));
}

Status check_owner(uint32_t pid, uint32_t uid) {
  struct stat facts {};
  if (stat(get_proc_path("/proc", pid, "").c_str(), &facts) != 0) {
    return absl::NotFoundError("there is no process " + std::to_string(pid));
  }
  if (facts.st_uid == uid) return absl::OkStatus();
  return absl::PermissionDeniedError("process " + std::to_string(pid) +
                                     " belongs to another user; root may capture it");
}

bool matches(const Owner& owner, const CaptureTarget& target) {
  return (target.container.empty() ||
          (!owner.container.empty() && (owner.container.starts_with(target.container) ||
                                        target.container.starts_with(owner.container)))) &&
         (target.pod.empty() || owner.pod == target.pod);
}

}  // namespace

Captures::Options make_capture_options(const Settings& settings) {
  // Records wait in their process for the flush interval, and for the buffer they are in.
  const uint64_t flush_ns = settings.ingest.flush_interval_ms * 1'000'000;
  return {.max_bytes = settings.trace.max_capture_mib << 20,
          .max_duration_ns = settings.trace.max_capture_seconds * kNsPerSecond,
          .settle_ns = kNsPerSecond + 4 * flush_ns};
}

Tracing::Tracing(const Settings& settings, Parts parts)
    : parts_(std::move(parts)),
      host_(read_host_name()),
      store_folder_(settings.storage.path.empty() ? "" : settings.storage.path + "/captures"),
      store_options_({.folder = store_folder_,
                      .max_bytes = settings.trace.store_mib << 20,
                      .retention = std::chrono::days(settings.trace.retention_days)}),
      settings_(settings),
      recorder_(make_recorder_options(settings), parts_.drops),
      held_(recorder_, parts_.drops),
      jobs_(kMaxJobs) {}

Tracing::~Tracing() { stop(); }

std::optional<Problem> Tracing::start(TaskLoop& loop) {
  loop_ = &loop;
  std::optional<Problem> problem;
  if (!store_folder_.empty()) {
    auto store = CaptureStore::open(store_options_, parts_.clock);
    if (store.ok()) {
      store_ = *std::move(store);
    } else {
      problem = Problem{"captures", std::string(store.status().message()),
                        "captures cannot be kept until this is mended and gpuperfd restarted"};
    }
  }
  captures_ = std::make_unique<Captures>(make_capture_options(settings_), recorder_,
                                         store_ ? store_->list() : std::vector<CaptureRow>(),
                                         store_ ? store_->last_id() : 0);
  thread_ = std::thread([this] {
    while (auto job = jobs_.pop()) (*job)();
  });
  return problem;
}

void Tracing::stop() {
  jobs_.close();
  if (thread_.joinable()) thread_.join();
}

void Tracing::set_programs(Programs* programs) {
  programs_ = programs;
  ordered_.clear();
  if (programs_ != nullptr) order_traces();
}

void Tracing::set_symbolizer(Symbolizer* symbolizer) {
  const std::lock_guard lock(symbolizer_mutex_);
  symbolizer_ = symbolizer;
}

void Tracing::set_settings(const Settings& settings) {
  settings_ = settings;
  captures_->set_options(make_capture_options(settings));
  order_traces();
}

Captures::Now Tracing::now() const {
  return {.mono_ns = static_cast<uint64_t>(parts_.clock.mono_ns()),
          .unix_ns = static_cast<uint64_t>(parts_.clock.unix_ns())};
}

uint64_t Tracing::count_lost_hits() const { return parts_.drops.get(DropCause::kBpfTraceRingFull); }

// What a new capture is of; without a place to keep it, none is begun.
Result<std::vector<ProcessKey>> Tracing::find_processes(const CaptureTarget& target,
                                                        uint32_t requester_uid) const {
  if (store_ == nullptr) {
    return absl::UnavailableError(
        "captures cannot be kept: no storage.path, or it does not work; gpuperfctl status says "
        "more");
  }
  if (target.pid == 0 && requester_uid != 0) {
    return absl::PermissionDeniedError(
        "only root may capture other users' processes; name one of your own by its pid");
  }
  const bool names_owner = !target.container.empty() || !target.pod.empty();
  std::vector<ProcessKey> found;
  if (target.pid != 0) {
    if (requester_uid != 0) RETURN_IF_ERROR(check_owner(target.pid, requester_uid));
    const auto ticks = read_start_ticks("/proc", target.pid);
    if (!ticks.ok()) return found;
    const ProcessKey process{target.pid, *ticks * kTickNs};
    if (!names_owner || matches(read_owner(process, nullptr), target)) found.push_back(process);
    return found;
  }
  if (!names_owner) return found;
  const auto snapshot = parts_.board.get();
  for (const ProcessRow& row : snapshot->processes) {
    if (!row.exited && matches(row.owner, target)) found.push_back(row.process);
  }
  for (const auto& session : snapshot->gpu.sessions) {
    if (session->open && matches(session->facts.owner, target)) {
      found.push_back(session->facts.process);
    }
  }
  return found;
}

Result<CaptureRow> Tracing::start_capture(const CaptureOrder& order) {
  ASSIGN_OR_RETURN(auto processes, find_processes(order.target, order.requester_uid));
  auto row = captures_->start(order, std::move(processes), now());
  order_traces();
  return row;
}

Result<CaptureRow> Tracing::freeze(const FreezeOrder& order) {
  ASSIGN_OR_RETURN(auto processes, find_processes(order.target, order.requester_uid));
  return captures_->freeze(order, std::move(processes), now());
}

Result<CaptureRow> Tracing::stop_capture(uint64_t id) {
  auto row = captures_->stop(id, now());
  order_traces();
  return row;
}

Result<CaptureRow> Tracing::remove(uint64_t id) {
  const CaptureRow* row = captures_->find(id);
  const std::optional<CaptureRow> copy = row ? std::optional(*row) : std::nullopt;
  RETURN_IF_ERROR(captures_->remove(id));
  if (copy->state == CaptureState::kStored && store_) RETURN_IF_ERROR(store_->remove(id));
  return *copy;
}

void Tracing::note_slow_call(const SlowCall& call) {
  const uint64_t from_ns = settings_.trace.freeze_on_slow_ms * 1'000'000;
  const uint64_t now_ns = now().mono_ns;
  if (from_ns == 0 || call.event.duration_ns < from_ns || store_ == nullptr) return;
  if (frozen_mono_ns_ != 0 && now_ns < frozen_mono_ns_ + kFreezePauseNs) return;
  frozen_mono_ns_ = now_ns;
  const auto row =
      captures_->freeze({.name = call.function + " took " +
                                 std::to_string(call.event.duration_ns / 1'000'000) + " ms",
                         .trigger = "slow_call"},
                        {}, now());
  if (!row.ok()) log_warn("recorder not frozen", {{"error", std::string(row.status().message())}});
}

bool Tracing::post_alert(const std::string& name) {
  const uint64_t now_ns = now().mono_ns;
  uint64_t last_ns = alert_mono_ns_;
  if (last_ns != 0 && now_ns < last_ns + kFreezePauseNs) return false;
  if (!alert_mono_ns_.compare_exchange_strong(last_ns, now_ns)) return false;
  loop_->post([this, name] {
    const auto row = freeze({.name = name, .trigger = "alert"});
    if (!row.ok())
      log_warn("recorder not frozen", {{"error", std::string(row.status().message())}});
  });
  return true;
}

// What is too old leaves.
void Tracing::expire_stored() {
  const uint64_t now_ns = now().mono_ns;
  if (store_ == nullptr || now_ns < next_expire_mono_ns_) return;
  next_expire_mono_ns_ = now_ns + kExpirePeriodNs;
  const auto expire = [this] {
    store_->expire();
    loop_->post([this] { captures_->keep_stored(store_->list()); });
  };
  (void)jobs_.try_push(expire);  // with too much to do, the next hour is early enough
}

// Named at once: graphs are captured when a program starts, and launched for days.
void Tracing::name_graphs() {
  for (const CapturedGraphPtr& graph : recorder_.graphs().take_ended()) {
    std::vector<StackRequest> requests;
    for (const CapturedGraph::Site& site : graph->sites) {
      requests.emplace_back(TakenStack{site.site.stack_id});
    }
    const std::lock_guard lock(symbolizer_mutex_);
    if (symbolizer_ == nullptr) return;
    // Without room their names are asked for with the capture they are in, if they can be had then.
    (void)symbolizer_->post_resolve(std::move(requests), [this, graph](Symbolizer::Stacks stacks) {
      loop_->post([this, graph, stacks = std::move(stacks)] {
        recorder_.graphs().set_stacks(graph, stacks);
      });
    });
  }
}

void Tracing::advance() {
  expire_stored();
  name_graphs();
  recorder_.expire(parts_.clock.mono_ns());
  for (FinishedCapture& finished : captures_->advance(now(), count_lost_hits())) {
    build(std::move(finished));
  }
  advance_slow_calls();
  advance_profiles();
  order_traces();
  if (!ordered_.empty()) parts_.on_change();
}

bool Tracing::needs_every_probe() const {
  const auto wanted = captures_->wanted();
  return std::ranges::any_of(wanted, &Captures::Wanted::cpu);
}

// The kernel side traces what the recorder and the captures want together.
void Tracing::order_traces() {
  const auto wanted = captures_->wanted();
  const bool is_changed = wanted != ordered_;
  if (is_changed) order_bursts();
  ordered_ = wanted;
  if (programs_ == nullptr) return;
  constexpr uint32_t kAll = GPUPERF_TRACE_LAUNCHES | GPUPERF_TRACE_STACKS | GPUPERF_TRACE_CALLS;
  const uint64_t long_call_ns = settings_.trace.long_call_us * 1'000;
  gpuperf_trace_order everyone{.min_call_ns = settings_.trace.min_call_us * 1'000,
                               .long_call_ns = long_call_ns};
  const uint64_t stacks = settings_.trace.stacks_per_second;
  if (settings_.trace.recorder) {
    everyone.flags = GPUPERF_TRACE_LAUNCHES | GPUPERF_TRACE_CALLS;
    if (stacks > 0) {
      everyone.flags |= GPUPERF_TRACE_STACKS;
      everyone.stack_interval_ns = kNsPerSecond / stacks;
    }
  }
  const auto takes_all = [](const Captures::Wanted& one) { return one.cpu && one.all_processes; };
  if (std::ranges::any_of(wanted, takes_all)) {
    everyone.flags = kAll;
    everyone.stack_interval_ns = 0;
    everyone.min_call_ns = 0;
  }
  programs_->set_trace(everyone);
  if (!is_changed) return;
  programs_->clear_trace_of_all();
  for (const Captures::Wanted& one : wanted) {
    if (!one.cpu || one.all_processes) continue;
    std::vector<uint32_t> pids;
    for (const ProcessKey& process : one.processes) pids.push_back(process.pid);
    const gpuperf_trace_order own{.flags = kAll | (one.with_children ? GPUPERF_TRACE_INHERIT : 0),
                                  .long_call_ns = long_call_ns};
    if (!programs_->set_trace_of(pids, own)) {
      log_warn("not every process of a capture is traced", {{"reason", "too many"}});
    }
  }
}

// Sessions of new captures that want the kernels inside graphs.
void Tracing::order_bursts() {
  for (const Captures::Wanted& one : captures_->wanted()) {
    if (!one.nodes || std::ranges::find(ordered_, one) != ordered_.end()) continue;
    const SessionOrder burst{.burst_flags = GPUPERF_SESSION_BURST_NODES,
                             .burst_ms = GPUPERF_SESSION_BURST_MS_MAX};
    if (one.all_processes) parts_.post_session_order({}, burst);
    for (const ProcessKey& process : one.processes) {
      parts_.post_session_order({.pid = process.pid}, burst);
    }
  }
}

std::shared_ptr<Tracing::Build> Tracing::make_build(CaptureScope scope, TraceWindow window) {
  auto build = std::make_shared<Build>();
  build->scope = std::move(scope);
  build->window = std::move(window);
  build->snapshot = parts_.board.get();
  build->functions = parts_.functions.get();
  build->names = {.get_owner =
                      [snapshot = build->snapshot](const ProcessKey& process) {
                        for (const ProcessRow& row : snapshot->processes) {
                          if (is_same_process(row.process, process)) return row.owner;
                        }
                        for (const auto& session : snapshot->gpu.sessions) {
                          if (is_same_process(session->facts.process, process)) {
                            return session->facts.owner;
                          }
                        }
                        return read_owner(process, nullptr);
                      },
                  .read_thread_comm = read_comm,
                  .functions = build->functions.get(),
                  .host = host_,
                  .version = GPUPERF_VERSION};
  return build;
}

void Tracing::build(FinishedCapture finished) {
  auto build = make_build(std::move(finished.scope), std::move(finished.window));
  const uint64_t id = build->scope.id;
  CaptureRow known = *captures_->find(id);
  known.state = CaptureState::kStored;
  build->on_built = [this, known](const Build&, const Capture& capture) {
    post_result(known.id, store_->write(capture, known));
  };
  build->on_refused = [this, id] {
    post_result(id, absl::ResourceExhaustedError("too many captures wait to be built"));
  };
  if (jobs_.try_push([this, build] { join(build); })) return;
  captures_->set_failed(id, "too many captures wait to be built; fewer at once can be");
}

// Tracing thread.
void Tracing::join(const std::shared_ptr<Build>& build) {
  const uint64_t begun_ns = read_thread_cpu_ns();
  build->builder = std::make_unique<CaptureBuilder>(build->window, build->scope, build->names);
  std::vector<StackRequest> requests;
  for (const CaptureBuilder::StackKey& key : build->builder->stacks()) {
    if (key.known != nullptr) {
      requests.emplace_back(std::monostate());
    } else {
      requests.emplace_back(TakenStack{key.stack_id});
    }
  }
  build->cpu_ns += read_thread_cpu_ns() - begun_ns;
  const size_t count = requests.size();
  if (count == 0 || !post_resolve(build, std::move(requests))) {
    finish(build, std::vector<StackPtr>(count));
  }
}

// Tracing thread. The symbolizer may go meanwhile: it answers what it took.
bool Tracing::post_resolve(const std::shared_ptr<Build>& build,
                           std::vector<StackRequest> requests) {
  const std::lock_guard lock(symbolizer_mutex_);
  if (symbolizer_ == nullptr) return false;
  return symbolizer_->post_resolve(std::move(requests), [this, build](Symbolizer::Stacks stacks) {
    const auto go_on = [this, build, stacks = std::move(stacks)] { finish(build, stacks); };
    if (!jobs_.try_push(go_on)) build->on_refused();
  });
}

// Tracing thread.
void Tracing::finish(const std::shared_ptr<Build>& build, const std::vector<StackPtr>& stacks) {
  std::vector<uint64_t> missing;
  for (size_t i = 0; i < stacks.size(); ++i) {
    const CaptureBuilder::StackKey& key = build->builder->stacks()[i];
    if (stacks[i] == nullptr && key.known == nullptr) missing.push_back(key.stack_id);
  }
  // So that the next capture has them: the kernel side sends them again.
  if (!missing.empty()) {
    loop_->post([this, missing = std::move(missing)] {
      for (const uint64_t id : missing) {
        if (programs_ != nullptr) forget_sent_stack(*programs_, id);
      }
    });
  }
  const uint64_t begun_ns = read_thread_cpu_ns();
  const Capture capture = build->builder->finish(stacks);
  build->builder.reset();
  build->cpu_ns += read_thread_cpu_ns() - begun_ns;
  build->on_built(*build, capture);
  build->window = {};
}

void Tracing::post_result(uint64_t id, Result<CaptureRow> row) {
  loop_->post([this, id, row = std::move(row)] {
    if (row.ok()) {
      captures_->set_stored(*row);
      captures_->keep_stored(store_->list());  // it made room by the oldest
      log_info("capture stored", {{"capture", std::to_string(id)},
                                  {"trigger", row->trigger},
                                  {"launches", std::to_string(row->launches)},
                                  {"work", std::to_string(row->work)},
                                  {"matched", std::to_string(row->work_matched)},
                                  {"bytes", std::to_string(row->stored_bytes)}});
    } else {
      captures_->set_failed(id, std::string(row.status().message()));
      log_warn("capture not stored",
               {{"capture", std::to_string(id)}, {"error", std::string(row.status().message())}});
    }
    parts_.on_change();
  });
}

void Tracing::fill(Snapshot& snapshot) const {
  if (captures_ == nullptr) return;
  snapshot.captures = captures_->rows();
  snapshot.recorder = recorder_.row(parts_.clock.mono_ns());
}

}  // namespace gpuperf
