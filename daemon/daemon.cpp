#include "daemon/daemon.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/cell_store.h"
#include "daemon/config/probe_config.h"
#include "daemon/model/status_names.h"
#include "daemon/probe/proc_text.h"
#include "daemon/probe/self_test.h"
#include "daemon/resolve/container.h"

namespace gpuperf {
namespace {

// Fresh enough for a person, rare enough to cost nothing.
constexpr std::chrono::milliseconds kPublishPeriod{250};

// The categories whose functions return a status; a user's own "cudaFoo" may return anything.
bool has_statuses(const std::string& category) {
  constexpr std::string_view kCategories[] = {"cuda", "cublas", "cudnn", "nccl"};
  return std::ranges::find(kCategories, category) != std::end(kCategories);
}

// Itanium C++ and Rust names. A C entry point lets no exception through.
bool may_throw(const std::string& symbol) {
  return symbol.starts_with("_Z") || symbol.starts_with("_R");
}

std::shared_ptr<const std::vector<Function>> make_functions(const Config& config) {
  const uint64_t default_ns = threshold_ns_from_ms(config.settings.slow.default_threshold_ms);
  auto functions = std::make_shared<std::vector<Function>>();
  for (const ProbeSpec& spec : config.probes.probes) {
    functions->push_back(
        {.id = static_cast<uint32_t>(functions->size()),
         .category = spec.category,
         .name = spec.function,
         .symbol = spec.symbol,
         .status = has_statuses(spec.category) ? find_status_kind(spec.symbol) : StatusKind::kNone,
         .slow_threshold_ns = spec.slow_threshold_ns.value_or(default_ns),
         .entry_only = may_throw(spec.symbol)});
  }
  return functions;
}

uint64_t read_cpu_ns() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);  // cannot fail for our own process
  const auto to_ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return to_ns(usage.ru_utime) + to_ns(usage.ru_stime);
}

uint64_t read_resident_bytes() {
  uint64_t total_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::vector<ConfigError> check_config(std::string_view text) {
  auto parsed = parse_config(text);
  auto* errors = std::get_if<std::vector<ConfigError>>(&parsed);
  return errors ? std::move(*errors) : std::vector<ConfigError>();
}

std::string read_kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

}  // namespace

const Daemon::Part Daemon::kParts[] = {
    {&Daemon::start_lock, &Daemon::stop_lock},
    {&Daemon::start_loop, &Daemon::stop_loop},
    {&Daemon::start_metrics, &Daemon::stop_metrics},
    {&Daemon::start_api, &Daemon::stop_api},
    {&Daemon::start_programs, &Daemon::stop_programs},
    {&Daemon::start_symbolizer, &Daemon::stop_symbolizer},
    {&Daemon::start_drain, &Daemon::stop_drain},
    {&Daemon::start_prober, &Daemon::stop_prober},
    {&Daemon::start_timers, nullptr},  // they end with the loop
};

Daemon::Daemon(DaemonOptions options, Config config)
    : options_(std::move(options)),
      config_(std::move(config)),
      functions_(make_functions(config_)),
      metrics_(board_, drops_, config_.settings.metrics.max_series),
      stats_({.keep_exited = std::chrono::seconds(config_.settings.stats.keep_exited_seconds),
              .max_exited_processes = config_.settings.stats.max_exited_processes},
             drops_),
      slow_calls_({.worst_per_function = config_.settings.slow.worst_per_function,
                   .recent = config_.settings.slow.recent},
                  drops_),
      slow_call_log_(static_cast<uint32_t>(config_.settings.slow.log_per_second), clock_, drops_) {
  exporters_.push_back(&slow_call_log_);
}

Daemon::~Daemon() = default;

Status Daemon::run() {
  Status status;
  size_t started = 0;
  while (status.ok() && started < std::size(kParts)) {
    status = (this->*kParts[started].start)();
    if (status.ok()) ++started;
  }
  if (status.ok()) {
    log_info("gpuperfd ready", {{"version", GPUPERF_VERSION},
                                {"mechanism", report_->mechanism},
                                {"functions", std::to_string(functions_->size())},
                                {"config", options_.config_path},
                                {"metrics", facts_->metrics_address},
                                {"api", config_.settings.grpc.listen}});
    loop_->run();
    log_info("gpuperfd stopping");
  }
  while (started > 0) {
    if (const auto stop = kParts[--started].stop) (this->*stop)();
  }
  return status;
}

Status Daemon::start_lock() {
  std::error_code error;
  std::filesystem::create_directories(options_.runtime_dir, error);
  if (error) {
    return absl::UnavailableError("runtime directory " + options_.runtime_dir + ": " +
                                  error.message() + "; choose another with --runtime-dir");
  }
  ASSIGN_OR_RETURN(LockFile lock, LockFile::acquire(options_.runtime_dir + "/gpuperfd.lock"));
  lock_.emplace(std::move(lock));
  return absl::OkStatus();
}
void Daemon::stop_lock() { lock_.reset(); }

Status Daemon::start_loop() {
  ASSIGN_OR_RETURN(loop_, TaskLoop::make());
  *facts_ = {.version = GPUPERF_VERSION,
             .pid = static_cast<uint32_t>(getpid()),
             .start_unix_ns = static_cast<uint64_t>(clock_.unix_ns()),
             .kernel = read_kernel_release(),
             .config_path = options_.config_path,
             .config_json = config_.text,
             .effective_json = render_settings_json(config_.settings)};
  // Before any thread starts, so that all inherit the blocked signals.
  RETURN_IF_ERROR(loop_->add_signals({SIGTERM, SIGINT, SIGHUP}, [this](int signal) {
    if (signal != SIGHUP) return loop_->stop();
    log_warn("SIGHUP ignored", {{"reason", "this version reads its configuration at start only"},
                                {"hint", "restart gpuperfd"}});
  }));
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) return errno_status(errno, "ignore SIGPIPE");
  return absl::OkStatus();
}
void Daemon::stop_loop() { loop_.reset(); }

Status Daemon::start_metrics() {
  if (config_.settings.metrics.listen.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(http_, HttpServer::start(config_.settings.metrics.listen, metrics_, board_));
  facts_->metrics_address = format_host_port(http_->address());
  return absl::OkStatus();
}
void Daemon::stop_metrics() { http_.reset(); }

Status Daemon::start_api() {
  if (config_.settings.grpc.listen.empty()) return absl::OkStatus();
  watch_hub_ = std::make_unique<WatchHub>(drops_);
  ASSIGN_OR_RETURN(api_, RpcServer::start({.listen = config_.settings.grpc.listen},
                                          {.board = board_,
                                           .drops = drops_,
                                           .clock = clock_,
                                           .watch = *watch_hub_,
                                           .check_config = check_config}));
  exporters_.push_back(watch_hub_.get());
  return absl::OkStatus();
}
void Daemon::stop_api() { api_.reset(); }

Status Daemon::start_programs() {
  auto report = std::make_shared<ProbeReport>();
  const Status status = choose_mechanism();
  if (status.ok()) {
    report->mechanism = get_mechanism_name(programs_->mechanism());
    for (const Function& function : *functions_) {
      programs_->set_function(function, config_.settings.slow.stacks);
    }
  } else {
    *report = explain_unusable(status);
    log_warn("nothing is probed", {{"error", std::string(status.message())}});
  }
  report_ = std::move(report);
  return absl::OkStatus();
}

// The daemon serves all the same: whoever asks is told why there is no data.
ProbeReport Daemon::explain_unusable(const Status& status) const {
  ProbeReport report;
  report.problems.push_back({"probes", std::string(status.message()),
                             "nothing is probed until this is mended and gpuperfd restarted"});
  for (const Function& function : *functions_) {
    const bool enabled = config_.probes.probes[function.id].enabled;
    report.probes.push_back({.category = function.category,
                             .function = function.name,
                             .symbol = function.symbol,
                             .state = enabled ? ProbeState::kFailed : ProbeState::kDisabled,
                             .reason = enabled ? std::string(status.message()) : kDisabledReason,
                             .slow_threshold_ns = function.slow_threshold_ns});
  }
  return report;
}
void Daemon::stop_programs() { programs_.reset(); }

Status Daemon::choose_mechanism() {
  const Programs::Sizes sizes{.functions = static_cast<uint32_t>(functions_->size()),
                              .cells = static_cast<uint32_t>(config_.settings.stats.max_cells)};
  Status first_error;
  for (const Mechanism mechanism : kMechanisms) {
    if (options_.mechanism && *options_.mechanism != mechanism) continue;
    const Status works = try_mechanism(mechanism);
    if (works.ok()) {
      ASSIGN_OR_RETURN(programs_, Programs::load(mechanism, sizes));
      return absl::OkStatus();
    }
    log_info("mechanism unusable", {{"mechanism", std::string(get_mechanism_name(mechanism))},
                                    {"error", std::string(works.message())}});
    first_error.Update(works);
  }
  return first_error;
}

Status Daemon::start_symbolizer() {
  symbolizer_ = std::make_unique<Symbolizer>(Symbolizer::Options{});
  return absl::OkStatus();
}
void Daemon::stop_symbolizer() { symbolizer_.reset(); }

Status Daemon::start_drain() {
  if (!programs_) return absl::OkStatus();
  const auto find_owner = [this](const ProcessKey& process) {
    // So that a short program's stacks can be named after it; a full queue only loses that.
    (void)symbolizer_->post_prefetch(process);
    return read_owner(process.pid);
  };
  const auto is_alive = [](const ProcessKey& process) {
    return is_running_since("/proc", process.pid, process.start_boot_ns);
  };
  ASSIGN_OR_RETURN(
      drain_,
      Drain::make({.slow_ring_fd = programs_->map_fd("slow_ring"),
                   .process_ring_fd = programs_->map_fd("process_ring"),
                   .interval = std::chrono::milliseconds(config_.settings.stats.interval_ms),
                   .on_batch = [this] { loop_->post([this] { take_batches(); }); }},
                  MapSource(make_cell_store(*programs_), find_owner, is_alive, drops_), drops_));
  drain_->start();
  return absl::OkStatus();
}
void Daemon::stop_drain() {
  if (!drain_) return;
  drain_->stop();
  take_batches();
  log_summary();
  drain_.reset();
}

Status Daemon::start_prober() {
  if (!programs_) return absl::OkStatus();
  prober_ =
      std::make_unique<Prober>(config_.probes, functions_, *programs_, drops_, [this](auto report) {
        loop_->post([this, report = std::move(report)] { take_report(report); });
      });
  return prober_->start();
}
void Daemon::stop_prober() { prober_.reset(); }

Status Daemon::start_timers() {
  publish();
  RETURN_IF_ERROR(loop_->add_timer(kPublishPeriod, [this] { publish_if_changed(); }));
  const auto summary = std::chrono::seconds(config_.settings.stats.summary_interval_seconds);
  if (summary.count() == 0) return absl::OkStatus();
  return loop_->add_timer(summary, [this] { log_summary(); });
}

void Daemon::take_report(std::shared_ptr<const ProbeReport> report) {
  report_ = std::move(report);
  changed_ = true;
}

void Daemon::take_batches() {
  while (auto batch = drain_->try_pop()) {
    for (Event& event : *batch) {
      if (auto* delta = std::get_if<CellDelta>(&event)) {
        stats_.apply(*delta);
      } else if (auto* exited = std::get_if<ProcessExited>(&event)) {
        stats_.apply(*exited, clock_.mono_ns());
        slow_calls_.apply(*exited);
      } else {
        on_slow_call(std::move(std::get<SlowCallEvent>(event)));
      }
    }
    changed_ = true;
  }
}

void Daemon::on_slow_call(SlowCallEvent event) {
  if (event.function_id >= functions_->size()) return;  // cannot be: cookies are our own ids
  const Function& function = (*functions_)[event.function_id];
  SlowCall call{.category = function.category,
                .function = function.name,
                .status = function.status,
                .start_unix_ns = static_cast<uint64_t>(
                    clock_.unix_from_mono_ns(static_cast<int64_t>(event.start_mono_ns)))};
  call.event = std::move(event);
  const ProcessKey process = call.event.process;
  std::vector<uint64_t> addresses = call.event.user_stack;
  auto shared = std::make_shared<SlowCall>(std::move(call));
  const bool queued =
      !addresses.empty() &&
      symbolizer_->post_resolve(process, std::move(addresses),
                                [this, shared](std::vector<StackFrame> frames) {
                                  loop_->post([this, shared, frames = std::move(frames)]() mutable {
                                    shared->user_stack = std::move(frames);
                                    finish_slow_call(std::move(*shared));
                                  });
                                });
  if (queued) return;
  if (!shared->event.user_stack.empty()) drops_.add(DropCause::kSymbolsQueueFull);
  for (const uint64_t address : shared->event.user_stack) {
    shared->user_stack.push_back({.address = address});
  }
  finish_slow_call(std::move(*shared));
}

void Daemon::finish_slow_call(SlowCall call) {
  const std::shared_ptr<const SlowCall> kept = slow_calls_.add(std::move(call));
  for (Exporter* exporter : exporters_) exporter->on_slow_call(kept);
  changed_ = true;
}

void Daemon::publish_if_changed() {
  stats_.expire(clock_.mono_ns());
  if (std::exchange(changed_, false)) publish();
}

void Daemon::publish() {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->taken_mono_ns = clock_.mono_ns();
  snapshot->daemon = facts_;
  snapshot->probes = report_;
  snapshot->functions = functions_;
  stats_.fill(*snapshot);
  slow_calls_.fill(*snapshot);
  snapshot->cpu_ns = read_cpu_ns();
  snapshot->resident_bytes = read_resident_bytes();
  board_.publish(std::move(snapshot));
}

void Daemon::log_summary() {
  Snapshot now;
  stats_.fill(now);
  uint64_t calls = 0, slow_calls = 0, total_ns = 0;
  const FunctionSeries* busiest = nullptr;
  for (const auto& series : now.series) {
    calls += series->totals.calls;
    slow_calls += series->totals.slow_calls;
    total_ns += series->totals.total_ns;
    if (!busiest || series->totals.total_ns > busiest->totals.total_ns) busiest = series.get();
  }
  log_info("summary",
           {{"calls", std::to_string(calls)},
            {"calls_since_last", std::to_string(calls - std::exchange(summarised_calls_, calls))},
            {"slow_calls", std::to_string(slow_calls)},
            {"slow_calls_since_last",
             std::to_string(slow_calls - std::exchange(summarised_slow_calls_, slow_calls))},
            {"total_ns", std::to_string(total_ns)},
            {"busiest", busiest ? (*functions_)[busiest->function_id].name : "none"}});
}

}  // namespace gpuperf
