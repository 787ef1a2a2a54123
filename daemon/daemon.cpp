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
#include "daemon/collect/decode_calls.h"
#include "daemon/probe/in_flight.h"
#include "daemon/probe/probe_report.h"
#include "daemon/probe/proc_text.h"
#include "daemon/probe/self_test.h"
#include "daemon/resolve/container.h"
#include "daemon/resolve/cri.h"
#include "daemon/service_status.h"
#include "daemon/walk_tables.h"

namespace gpuperf {
namespace {

// Fresh enough for a person, rare enough to cost nothing.
constexpr std::chrono::milliseconds kPublishPeriod{250};
// A capture that hosts make together begins that much later at most.
constexpr std::chrono::milliseconds kTracePeriod{20};
// The budget must see a hot function within two seconds: totals are read at least this often.
constexpr std::chrono::milliseconds kBudgetWindow{1000};
// NVIDIA's driver makes new values about ten times a second at most.
constexpr std::chrono::milliseconds kFastestGpuInterval{100};

// Events that somebody may wait for.
constexpr LogEvent kReady{"gpuperfd ready", "eef2e8cdbbf1473bb4a7a3eeb81d1491"};
constexpr LogEvent kNothingProbed{"nothing is probed", "ba9fd991826c491ab3ba4e875f0f08a3"};

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

// Where a browser on this host finds the page, which answers this host only. Nowhere where it
// listens on an address that is only for others.
std::optional<HostPort> find_page_address(HostPort address) {
  if (address.host == "0.0.0.0" || address.host == "::") address.host = "127.0.0.1";
  if (!is_loopback(address)) return std::nullopt;
  return address;
}

std::vector<ConfigError> check_config(std::string_view text) {
  auto parsed = parse_config(text);
  auto* errors = std::get_if<std::vector<ConfigError>>(&parsed);
  return errors ? std::move(*errors) : std::vector<ConfigError>();
}

AdaptiveThresholds::Options make_adaptive_options(const Settings& settings) {
  return {.factor = settings.slow.adaptive_factor,
          .floor_ns = static_cast<uint64_t>(settings.slow.adaptive_floor_ms * 1e6)};
}

Result<SlowInFlightCalls> read_slow_in_flight(SlowInFlightReader& reader) {
  ASSIGN_OR_RETURN(const auto records, reader.read());
  SlowInFlightCalls found;
  for (const gpuperf_slow_in_flight& record : records) {
    found.calls.push_back(decode_slow_in_flight(record));
  }
  return found;
}

std::string read_kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

}  // namespace

const Daemon::Part Daemon::kParts[] = {
    {&Daemon::start_lock, &Daemon::stop_lock},
    {&Daemon::start_loop, &Daemon::stop_loop},
    // Before whatever tells of slow calls, so that it hears the last of them.
    {&Daemon::start_otlp, &Daemon::stop_otlp},
    {&Daemon::start_store, &Daemon::stop_store},
    {&Daemon::start_tracing, &Daemon::stop_tracing},
    // Before whatever takes long: a process that starts CUDA meanwhile asks only once while its
    // graphs can be covered.
    {&Daemon::start_sessions, &Daemon::stop_sessions},
    {&Daemon::start_injection, &Daemon::stop_injection},
    {&Daemon::start_metrics, &Daemon::stop_metrics},
    {&Daemon::start_api, &Daemon::stop_api},
    {&Daemon::start_programs, &Daemon::stop_programs},
    {&Daemon::start_symbolizer, &Daemon::stop_symbolizer},
    {&Daemon::start_drain, &Daemon::stop_drain},
    {&Daemon::start_prober, &Daemon::stop_prober},
    {&Daemon::start_gpu_health, &Daemon::stop_gpu_health},
    {&Daemon::start_timers, nullptr},  // they end with the loop
};

Daemon::Daemon(DaemonOptions options, Config config)
    : options_(std::move(options)),
      start_settings_(config.settings),
      registry_(static_cast<uint32_t>(start_settings_.stats.max_functions)),
      metrics_(board_, drops_, start_settings_.metrics.max_series,
               start_settings_.metrics.max_kernels),
      config_(std::move(config)),
      stats_({.keep_exited = std::chrono::seconds(start_settings_.stats.keep_exited_seconds),
              .max_exited_processes = start_settings_.stats.max_exited_processes},
             drops_),
      adaptive_(make_adaptive_options(start_settings_)),
      slow_call_log_(static_cast<uint32_t>(start_settings_.slow.log_per_second), clock_, drops_),
      shapes_(drops_),
      kernel_names_(drops_),
      budget_({.percent = start_settings_.overhead.budget_percent}, clock_.mono_ns()),
      session_intake_(clock_),
      gpu_sessions_({.keep_exited = std::chrono::seconds(start_settings_.stats.keep_exited_seconds),
                     .max_exited_processes = start_settings_.stats.max_exited_processes},
                    drops_) {
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
    log_info(kReady, {{"version", GPUPERF_VERSION},
                      {"mechanism", report_->mechanism},
                      {"functions", std::to_string(config_.make_plan().config.probes.size())},
                      {"config", options_.config_path},
                      {"metrics", facts_->metrics_address},
                      {"api", start_settings_.grpc.listen}});
    service_.tell_ready();
    loop_->run();
    service_.tell_stopping();
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
             .config_json = config_.text(),
             .effective_json = render_settings_json(start_settings_)};
  // Before any thread starts, so that all inherit the blocked signals.
  RETURN_IF_ERROR(loop_->add_signals({SIGTERM, SIGINT, SIGHUP}, [this](int signal) {
    if (signal != SIGHUP) return loop_->stop();
    on_reload_signal();
  }));
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) return errno_status(errno, "ignore SIGPIPE");
  return absl::OkStatus();
}
void Daemon::stop_loop() { loop_.reset(); }

// Without a store the daemon serves what it has in memory, and says so.
Status Daemon::start_store() {
  const auto& storage = start_settings_.storage;
  const auto go_without = [this](const std::string& why) {
    problems_.push_back({"storage", why,
                         "slow calls are kept in memory only, until this is mended and gpuperfd "
                         "restarted; storage.path = \"\" says that no store is wanted"});
    log_warn("no store of slow calls", {{"error", why}});
  };
  if (!storage.path.empty()) {
    std::error_code error;
    std::filesystem::create_directories(storage.path, error);
    auto lock = LockFile::acquire(storage.path + "/gpuperfd.lock");
    if (lock.ok()) {
      store_lock_.emplace(*std::move(lock));
      store_ = SlowCallStore::start(
          {.database = {.path = storage.path + "/slow_calls.db",
                        .max_bytes = storage.max_mib << 20,
                        .worst_per_window =
                            static_cast<uint32_t>(start_settings_.slow.worst_per_function),
                        .history = std::chrono::hours(storage.history_hours),
                        .retention = std::chrono::days(storage.retention_days)}},
          clock_);
    } else {
      go_without(std::string(lock.status().message()));
    }
  }
  slow_calls_ = std::make_unique<SlowCalls>(
      SlowCalls::Limits{.worst_per_function = start_settings_.slow.worst_per_function,
                        .recent = start_settings_.slow.recent,
                        .last_id = store_ ? store_->last_id() : 0},
      drops_);
  return absl::OkStatus();
}
void Daemon::stop_store() {
  store_.reset();       // writes what waits
  loop_->run_posted();  // and tells of it
  store_lock_.reset();
}

Status Daemon::start_metrics() {
  if (start_settings_.metrics.listen.empty()) return absl::OkStatus();
  HttpServer::OnAlert on_alert;
  if (start_settings_.trace.freeze_on_alert) {
    on_alert = [this](const std::string& name) { return tracing_->post_alert(name); };
  }
  HttpServer::AddPage add_page;
  if (start_settings_.metrics.page) make_page();
  if (page_) add_page = [this](httplib::Server& server) { page_->add_routes(server); };
  ASSIGN_OR_RETURN(http_, HttpServer::start(start_settings_.metrics.listen, metrics_, board_,
                                            on_alert, add_page));
  facts_->metrics_address = format_host_port(http_->address());
  const std::optional<HostPort> address = find_page_address(http_->address());
  if (page_ && address) {
    log_info("page", {{"address", "http://" + format_host_port(*address) + "/"},
                      {"token_file", page_->tokens().read.path()}});
  }
  return absl::OkStatus();
}
void Daemon::stop_metrics() {
  http_.reset();
  page_.reset();
}

// Without it everything else works.
void Daemon::make_page() {
  auto page = WebPage::make({.folder = options_.runtime_dir}, clock_);
  if (page.ok()) {
    page_ = *std::move(page);
    return;
  }
  const std::string cause(page.status().message());
  problems_.push_back({"page", cause, "mend it and restart gpuperfd, or set metrics.page = false"});
  log_warn("no page", {{"error", cause}});
}

void Daemon::open_page_channels() {
  const auto read = api_->open_channel(Caller::kOther);
  const auto change = api_->open_channel(Caller::kRoot);
  if (!read || !change) return log_warn("the page cannot reach the API", {});
  page_->set_api(std::make_shared<ApiStubs>(read), std::make_shared<ApiStubs>(change));
}

Status Daemon::start_api() {
  if (start_settings_.grpc.listen.empty()) return absl::OkStatus();
  publish();  // whoever asks before all parts have started is told of those that have
  watch_hub_ = std::make_unique<WatchHub>(drops_);
  ASSIGN_OR_RETURN(api_, RpcServer::start({.listen = start_settings_.grpc.listen},
                                          {.board = board_,
                                           .drops = drops_,
                                           .clock = clock_,
                                           .watch = *watch_hub_,
                                           .check_config = check_config,
                                           .store = store_.get(),
                                           .captures = tracing_->store()},
                                          this));
  exporters_.push_back(watch_hub_.get());
  if (page_) open_page_channels();
  return absl::OkStatus();
}
void Daemon::stop_api() {
  if (page_) page_->set_api(nullptr, nullptr);
  api_.reset();
}

// Where nothing can be probed the daemon serves all the same: whoever asks is told why there is no
// data.
Status Daemon::start_programs() {
  auto report = std::make_shared<ProbeReport>();
  const Status status = choose_mechanism();
  if (status.ok()) {
    tracing_->set_programs(programs_.get());
    report->mechanism = get_mechanism_name(programs_->mechanism());
  } else {
    *report = explain_no_probes(config_.make_plan().config, std::string(status.message()));
    report->problems.push_back({"probes", std::string(status.message()),
                                "nothing is probed until this is mended and gpuperfd restarted"});
    log_warn(kNothingProbed, {{"error", std::string(status.message())}});
  }
  report_ = std::move(report);
  return absl::OkStatus();
}
void Daemon::stop_programs() {
  tracing_->set_programs(nullptr);
  programs_.reset();
}

Status Daemon::choose_mechanism() {
  Programs::Sizes sizes{.functions = registry_.capacity(),
                        .cells = static_cast<uint32_t>(start_settings_.stats.max_cells),
                        .follow_threads = start_settings_.slow.time_split};
  Status first_error;
  for (const Mechanism mechanism : kMechanisms) {
    if (options_.mechanism && *options_.mechanism != mechanism) continue;
    const Status works = try_mechanism(mechanism);
    if (works.ok()) {
      auto programs = Programs::load(mechanism, sizes);
      if (!programs.ok() && sizes.follow_threads) {
        problems_.push_back(
            {"time split", std::string(programs.status().message()),
             "slow calls come without where their time went; kernel 5.18 and later have what that "
             "needs, and slow.time_split = false says that it is not wanted"});
        sizes.follow_threads = false;
        programs = Programs::load(mechanism, sizes);
      }
      RETURN_IF_ERROR(programs.status());
      programs_ = *std::move(programs);
      return absl::OkStatus();
    }
    if (absl::IsPermissionDenied(works)) return works;  // nor is any other permitted
    log_info("mechanism unusable", {{"mechanism", std::string(get_mechanism_name(mechanism))},
                                    {"error", std::string(works.message())}});
    first_error.Update(works);
  }
  return first_error;
}

Status Daemon::start_symbolizer() {
  Symbolizer::Options options;
  if (programs_) {
    options.tables = make_walk_tables(*programs_);
    options.forget_sent = [this](uint64_t raw_id) { forget_sent_stack(*programs_, raw_id); };
  }
  symbolizer_ = std::make_unique<Symbolizer>(std::move(options), drops_);
  namer_ =
      std::make_unique<SlowCallNamer>(SlowCallNamer::Sources{.functions = registry_,
                                                             .kernel_names = kernel_names_,
                                                             .clock = clock_,
                                                             .drops = drops_,
                                                             .symbolizer = *symbolizer_,
                                                             .loop = *loop_},
                                      [this](SlowCall call) { take_slow_call(std::move(call)); });
  tracing_->set_symbolizer(symbolizer_.get());
  return absl::OkStatus();
}
void Daemon::stop_symbolizer() {
  tracing_->set_symbolizer(nullptr);
  symbolizer_.reset();  // answers what waits
  loop_->run_posted();
  tracing_->stop_holding();
}

Status Daemon::start_drain() {
  if (!programs_) return absl::OkStatus();
  const auto find_owner = [this](const ProcessKey& process, const gpuperf_process_info* info) {
    // So that a short program's stacks can be named after it.
    symbolizer_->post_prepare(process);
    return read_owner(process, info);
  };
  const auto is_alive = [](const ProcessKey& process) {
    return is_running_since("/proc", process.pid, process.start_boot_ns);
  };
  const auto name_pod = [this](Owner& owner) {
    return pod_names_->name(owner) != PodNames::State::kAsked;
  };
  ASSIGN_OR_RETURN(
      drain_,
      Drain::make(
          {.slow_ring_fd = programs_->map_fd("slow_ring"),
           .process_ring_fd = programs_->map_fd("process_ring"),
           .name_ring_fd = programs_->map_fd("name_ring"),
           .stack_ring_fd = programs_->map_fd("stack_ring"),
           .stack_copy_ring_fd = programs_->map_fd("stack_copy_ring"),
           .trace_ring_fd = programs_->map_fd("trace_ring"),
           .interval = std::min(std::chrono::milliseconds(start_settings_.stats.interval_ms),
                                kBudgetWindow),
           .read_in_flight = [reader = std::make_shared<InFlightReader>(
                                  *programs_, "list_in_flight")]() -> Result<InFlightCalls> {
             ASSIGN_OR_RETURN(const auto records, reader->read());
             return decode_in_flight(records);
           },
           .read_slow_in_flight =
               [reader = std::make_shared<SlowInFlightReader>(*programs_, "list_slow_in_flight")] {
                 return read_slow_in_flight(*reader);
               },
           .on_batch = [this] { loop_->post([this] { take_batches(); }); }},
          MapSource(make_cell_store(*programs_), {find_owner, is_alive, name_pod}, drops_),
          drops_));
  drain_->start();
  return absl::OkStatus();
}
void Daemon::stop_drain() {
  if (drain_) {
    drain_->stop();
    take_batches();
    log_summary();
    drain_.reset();
  }
}

Status Daemon::start_prober() {
  if (!programs_) return absl::OkStatus();
  prober_ = std::make_unique<Prober>(
      config_.make_plan(), registry_, *programs_, drops_,
      Prober::Listeners{
          .on_report =
              [this](auto report) {
                loop_->post([this, report = std::move(report)] { take_report(report); });
              },
          .on_watched = [this](uint32_t pid) { symbolizer_->post_prepare({.pid = pid}); },
          .on_mapping = [this](uint32_t pid,
                               const std::string& path) { symbolizer_->note_mapping(pid, path); },
      });
  return prober_->start();
}
void Daemon::stop_prober() { prober_.reset(); }

Status Daemon::start_gpu_health() {
  const std::chrono::milliseconds interval(start_settings_.stats.gpu_interval_ms);
  if (interval.count() == 0) return absl::OkStatus();
  gpu_source_ = std::make_unique<GpuSource>(
      GpuSource::Options{.interval = std::max(interval, kFastestGpuInterval)}, [this](auto report) {
        loop_->post([this, report = std::move(report)] { take_gpus(report); });
      });
  return absl::OkStatus();
}
void Daemon::stop_gpu_health() { gpu_source_.reset(); }

void Daemon::take_gpus(std::shared_ptr<const GpuHealthReport> report) {
  gpus_ = std::move(report);
  changed_ = true;
}

Status Daemon::start_timers() {
  publish();
  RETURN_IF_ERROR(loop_->add_timer(kPublishPeriod, [this] { publish_if_changed(); }));
  RETURN_IF_ERROR(loop_->add_timer(kTracePeriod, [this] { tracing_->advance(); }));
  if (const auto alive = ServiceNotifier::find_alive_period()) {
    // By the loop itself: one that hangs says nothing, and the daemon is killed and started anew.
    RETURN_IF_ERROR(loop_->add_timer(*alive, [this] { service_.tell_alive(); }));
  }
  const auto summary = std::chrono::seconds(start_settings_.stats.summary_interval_seconds);
  if (summary.count() == 0) return absl::OkStatus();
  return loop_->add_timer(summary, [this] { log_summary(); });
}

// Those that need no restart; list_restart_settings() names the others.
void Daemon::apply_settings() {
  const Settings& settings = config_.settings();
  set_up_log(settings.log.level);
  slow_call_log_.set_rate(static_cast<uint32_t>(settings.slow.log_per_second));
  stats_.set_keep_exited(std::chrono::seconds(settings.stats.keep_exited_seconds));
  gpu_sessions_.set_keep_exited(std::chrono::seconds(settings.stats.keep_exited_seconds));
  tracing_->set_settings(settings);
  adaptive_.set_options(make_adaptive_options(settings));
  facts_ = std::make_shared<DaemonFacts>(*facts_);
  facts_->config_json = config_.text();
  facts_->effective_json = render_settings_json(settings);
}

void Daemon::publish_if_changed() {
  stats_.expire(clock_.mono_ns());
  gpu_sessions_.expire(clock_.mono_ns());
  if (gpu_source_ && gpu_source_->find_stall().has_value() != gpus_stalled_) changed_ = true;
  if (otlp_ && otlp_->list_problems() != otlp_problems_) changed_ = true;
  if (std::exchange(changed_, false)) publish();
}

void Daemon::publish() {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->taken_mono_ns = clock_.mono_ns();
  snapshot->totals_mono_ns = totals_mono_ns_;
  snapshot->daemon = facts_;
  snapshot->probes = report_;
  stats_.fill(*snapshot);
  slow_calls_->fill(*snapshot);
  shapes_.fill(*snapshot);
  budget_.fill(*snapshot);
  adaptive_.fill(*snapshot);
  gpu_sessions_.fill(snapshot->gpu);
  tracing_->fill(*snapshot);
  snapshot->in_flight = in_flight_;
  snapshot->problems = problems_;
  if (injection_ways_) {
    InjectionWays::Report report = injection_ways_->report();
    snapshot->injection_ways = std::move(report.ways);
    for (Problem& problem : report.problems) snapshot->problems.push_back(std::move(problem));
  }
  add_gpus(*snapshot);
  add_otlp(*snapshot);
  if (store_ != nullptr) {
    snapshot->store = {.path = start_settings_.storage.path, .used_bytes = store_->used_bytes()};
    if (const std::string problem = store_->problem(); !problem.empty()) {
      snapshot->problems.push_back(
          {"storage", problem, "until then slow calls are kept in memory only"});
    }
  }
  snapshot->functions = registry_.get();  // last: it has every function the rows above name
  snapshot->cpu_ns = read_cpu_ns();
  snapshot->resident_bytes = read_resident_bytes();
  service_.tell_status(describe_service(*snapshot));
  board_.publish(std::move(snapshot));
}

void Daemon::add_gpus(Snapshot& snapshot) {
  const auto stall = gpu_source_ ? gpu_source_->find_stall() : std::nullopt;
  gpus_stalled_ = stall.has_value();
  if (stall) snapshot.problems.push_back(*stall);
  snapshot.gpus = gpus_;
  if (!gpus_) return;
  for (Problem& problem : list_gpu_problems(*gpus_, snapshot.taken_mono_ns)) {
    snapshot.problems.push_back(std::move(problem));
  }
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
            {"busiest", busiest ? (*registry_.get())[busiest->function_id].name : "none"}});
}

}  // namespace gpuperf
