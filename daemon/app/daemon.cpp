#include "daemon/app/daemon.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "daemon/app/attach_part.h"
#include "daemon/app/control.h"
#include "daemon/app/gpu_memory_part.h"
#include "daemon/app/kernel_events_part.h"
#include "daemon/app/kernel_part.h"
#include "daemon/app/leaf_parts.h"
#include "daemon/app/nccl_part.h"
#include "daemon/app/otlp_part.h"
#include "daemon/app/overhead_part.h"
#include "daemon/app/probing_part.h"
#include "daemon/app/rights.h"
#include "daemon/app/service_status.h"
#include "daemon/app/sessions_part.h"
#include "daemon/app/slow_calls_part.h"
#include "daemon/app/start_guard.h"
#include "daemon/app/tracing_part.h"
#include "daemon/base/lock_file.h"
#include "daemon/base/stop_guard.h"

namespace gpuperf {
namespace {

// Fresh enough for a person, rare enough to cost nothing.
constexpr std::chrono::milliseconds kPublishPeriod{250};

constexpr int64_t kIdlePublishPeriodNs = 5'000'000'000;

// The share of the ceiling, one in so many, left free for growth until the next check.
constexpr uint64_t kMemoryMargin = 8;

constexpr const char* kApiGroup = "gpuperf";  // may use the API's socket, where that group exists

// An event that somebody may wait for.
constexpr LogEvent kReady{"gpuperfd ready", "eef2e8cdbbf1473bb4a7a3eeb81d1491"};
constexpr LogEvent kReadyWithoutProbes{
    "gpuperfd ready without probes: no calls are seen; see: gpuperfctl status", kReady.id};

uint64_t read_cpu_ns() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);  // cannot fail for our own process
  const auto to_ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return to_ns(usage.ru_utime) + to_ns(usage.ru_stime);
}

std::string read_kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

Result<LockFile> lock_runtime_dir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return absl::UnavailableError("runtime directory " + path + ": " + error.message() +
                                  "; choose another with --runtime-dir");
  }
  return LockFile::acquire(path + "/gpuperfd.lock", "--runtime-dir");
}

void drop_own_rights(std::optional<Mechanism> mechanism) {
  const Status dropped = drop_rights(kApiGroup, mechanism == Mechanism::kPerf);
  if (dropped.ok()) return;
  log_warn("privileges not dropped", {{"error", std::string(dropped.message())}});
}

void describe_config(const Config& config, const ConfigPlace& place, DaemonFacts& facts) {
  facts.config_path = "(built-in)";
  facts.config_json = default_config_text();
  facts.config_drop_ins.clear();
  for (const ConfigFile& file : config.files) {
    if (file.path != place.path) {
      facts.config_drop_ins.push_back(file.path);
      continue;
    }
    facts.config_path = file.path;
    facts.config_json = file.text;
  }
  facts.effective_json = render_settings_json(config.settings);
}

}  // namespace

// Each is given the others it works with, later ones too: none uses them before it is started.
struct Daemon::Parts {
  Core& core;
  Config config;
  OtlpPart otlp{core};
  SlowCallsPart slow_calls{core, otlp};
  TracingPart tracing{core, otlp, slow_calls, sessions, probing};
  SessionsPart sessions{core};
  NcclPart nccl{core, kernel, sessions};
  AttachPart attach{core, sessions};
  const std::unique_ptr<Part> injection = make_injection_part(core, sessions);
  OverheadPart overhead{core, probing, sessions};
  Control control{core, probing, sessions, attach, tracing, overhead};
  const std::unique_ptr<Part> serving = make_serving_part(core, slow_calls, tracing, control);
  KernelPart kernel{core, slow_calls, tracing};
  GpuMemoryPart gpu_memory{core, kernel};
  KernelEventsPart kernel_events{
      core, {kernel, sessions, tracing, slow_calls, probing, gpu_memory, nccl}};
  ProbingPart probing{core, kernel, tracing, std::move(config)};
  const std::unique_ptr<Part> qos = make_qos_part(core, probing, tracing, overhead);
  const std::unique_ptr<Part> gpu_health = make_gpu_health_part(core, tracing, gpu_memory);
  const std::unique_ptr<Part> watch = make_watch_part(core);

  const std::vector<Part*> in_order{
      // Before whatever exports slow calls, so that it gets the last of them.
      &otlp,
      &slow_calls,
      &tracing,
      // Before whatever takes long: a process that starts CUDA meanwhile asks only once while its
      // graphs can be covered.
      &sessions,
      &nccl,
      &attach,
      injection.get(),
      serving.get(),
      &kernel,
      &gpu_memory,
      &kernel_events,
      &probing,
      &overhead,
      qos.get(),
      gpu_health.get(),
      watch.get(),
  };
};

Daemon::Daemon(DaemonOptions options, Config config)
    : core_{.options = std::move(options), .settings = config.settings},
      parts_(new Parts{core_, std::move(config)}) {
  core_.publish = [this] { publish(); };
  core_.apply_settings = [this] { apply_settings(); };
}

Daemon::~Daemon() = default;

Status Daemon::run() {
  // First: it may take a dying predecessor's ports, which the rights kept do not allow.
  ASSIGN_OR_RETURN(const LockFile lock, lock_runtime_dir(core_.options.runtime_dir));
  parts_->attach.prepare();  // the thread that keeps the rights to attach
  drop_own_rights(core_.options.mechanism);
  RETURN_IF_ERROR(start_loop());
  Status status = run_parts();
  core_.loop.reset();
  return status;
}

Status Daemon::start_loop() {
  ASSIGN_OR_RETURN(core_.loop, TaskLoop::make());
  const LiveConfig& config = parts_->probing.config();
  *core_.facts = {.version = GPUPERF_VERSION,
                  .pid = static_cast<uint32_t>(getpid()),
                  .start_unix_ns = static_cast<uint64_t>(core_.clock.unix_ns()),
                  .kernel = read_kernel_release()};
  describe_config(config.file(), core_.options.config, *core_.facts);
  for (const ConfigError& warning : config.file().warnings)
    log_warn("configuration", {{"warning", render_config_error("configuration", warning)}});
  // Before any thread starts, so that all inherit the blocked signals.
  RETURN_IF_ERROR(core_.loop->add_signals({SIGTERM, SIGINT, SIGHUP}, [this](int signal) {
    if (signal != SIGHUP) return core_.loop->stop();
    parts_->control.on_reload_signal();
  }));
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) return errno_status(errno, "ignore SIGPIPE");
  return absl::OkStatus();
}

Status Daemon::run_parts() {
  Status status;
  size_t started = 0;
  {
    const StartGuard guard;
    while (status.ok() && !guard.is_stopping() && started < parts_->in_order.size()) {
      status = parts_->in_order[started++]->start();
    }
  }
  if (status.ok() && started == parts_->in_order.size()) status = run_loop();
  const StopGuard guard({.end_process = StopGuard::end_process});
  while (started > 0) parts_->in_order[--started]->stop();
  return status;
}

Status Daemon::run_loop() {
  publish();
  RETURN_IF_ERROR(core_.loop->add_timer(kPublishPeriod, [this] { publish_if_changed(); }));
  if (const auto alive = ServiceNotifier::find_alive_period()) {
    // By the loop itself: one that hangs says nothing, and the daemon is killed and started anew.
    RETURN_IF_ERROR(core_.loop->add_timer(*alive, [this] { core_.service.tell_alive(); }));
  }
  const size_t functions = parts_->probing.config().make_plan().config.probes.size();
  const std::string& mechanism = core_.board.get()->probes->mechanism;
  const bool probes_work = mechanism != "none";
  const auto log_ready = probes_work ? log_info : log_warn;
  log_ready(probes_work ? kReady : kReadyWithoutProbes, {{"version", GPUPERF_VERSION},
                                                         {"mechanism", mechanism},
                                                         {"functions", std::to_string(functions)},
                                                         {"config", core_.facts->config_path},
                                                         {"metrics", core_.facts->metrics_address},
                                                         {"api", core_.settings.grpc.listen}});
  core_.service.tell_ready();
  core_.loop->run();
  core_.service.tell_stopping();
  log_info("gpuperfd stopping");
  return absl::OkStatus();
}

void Daemon::apply_settings() {
  assert(core_.loop->on_loop());
  const LiveConfig& config = parts_->probing.config();
  set_up_log(config.settings().log.level);
  for (Part* part : parts_->in_order) part->apply_settings(config.settings());
  core_.facts = std::make_shared<DaemonFacts>(*core_.facts);
  describe_config(config.file(), core_.options.config, *core_.facts);
}

// Close to the ceiling, sessions may store nothing more, whatever used the memory.
void Daemon::look_at_memory() {
  (void)heap_.look(core_.clock.mono_ns());
  const uint64_t ceiling_bytes = core_.settings.limits.memory_mib << 20;
  parts_->sessions.memory().set_pressed(read_resident_memory().bytes >=
                                        ceiling_bytes - ceiling_bytes / kMemoryMargin);
}

void Daemon::publish_if_changed() {
  look_at_memory();
  for (Part* part : parts_->in_order) part->advance(core_.clock.mono_ns());
  // What the daemon says of itself changes although nothing else does.
  const bool is_due = core_.clock.mono_ns() >= next_publish_ns_;
  if (std::exchange(core_.changed, false) || is_due) publish();
}

void Daemon::publish() {
  assert(core_.loop->on_loop());
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->taken_mono_ns = core_.clock.mono_ns();
  next_publish_ns_ = snapshot->taken_mono_ns + kIdlePublishPeriodNs;
  snapshot->daemon = core_.facts;
  for (const Part* part : parts_->in_order) {
    snapshot->problems.insert(snapshot->problems.end(), part->problems().begin(),
                              part->problems().end());
    part->fill(*snapshot);
  }
  snapshot->functions = core_.registry.get();  // last: it has every function the rows above name
  snapshot->self.add(Bound::kFunctions, snapshot->functions->size(), core_.registry.capacity());
  snapshot->cpu_ns = read_cpu_ns();
  self_.finish(*snapshot, core_.settings, core_.loop->timer_delays(), heap_.used_bytes());
  core_.service.tell_status(describe_service(*snapshot));
  core_.board.publish(std::move(snapshot));
}

}  // namespace gpuperf
