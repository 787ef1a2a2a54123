#include "daemon/gpu/gpu_source.h"

#include <pthread.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/mutex.h"
#include "daemon/gpu/gpu_error_log.h"
#include "daemon/gpu/gpu_events.h"
#include "daemon/gpu/gpu_reader.h"
#include "daemon/model/xids.h"

namespace gpuperf {
namespace {

// Notices that are told at once; a storm of them waits for the next reading.
constexpr std::chrono::nanoseconds kBetweenNotices = std::chrono::milliseconds(100);
constexpr uint32_t kLoggedXidsPerSecond = 5;

constexpr const char* kDriverHint =
    "install NVIDIA's driver, or load it: modprobe nvidia; in a container the library must be "
    "mounted; if you do not need GPU state, set stats.gpu_interval_ms = 0";

}  // namespace

// What the threads use: a thread that was left behind may still need it.
struct GpuSource::Shared {
  Shared(Options from, Listener told)
      : options(std::move(from)), listener(std::move(told)), limiter(kLoggedXidsPerSecond) {}

  // Set once in the constructor.
  const Options options;
  const SystemClock clock;
  const std::shared_ptr<CallWatch> watch = std::make_shared<CallWatch>();

  Mutex mutex;
  Listener listener ABSL_GUARDED_BY(mutex);  // null after stop
  GpuErrorLog errors ABSL_GUARDED_BY(mutex);
  GpuHealthReport newest ABSL_GUARDED_BY(mutex);  // without errors
  int64_t last_notice_mono_ns ABSL_GUARDED_BY(mutex) = 0;
  LogLimiter limiter ABSL_GUARDED_BY(mutex);

  void publish(GpuHealthReport report) {
    const MutexLock lock(mutex);
    newest = std::move(report);
    tell();
  }

  void take(const GpuEvents::Event& event) {
    const MutexLock lock(mutex);
    if (!listener) return;
    errors.add(event);
    log(event);
    if (event.mono_ns - last_notice_mono_ns < kBetweenNotices.count()) return;
    last_notice_mono_ns = event.mono_ns;
    tell();
  }

  void tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!listener) return;
    auto report = std::make_shared<GpuHealthReport>(newest);
    errors.fill(*report);
    listener(std::move(report));
  }

  void log(const GpuEvents::Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const LogLimiter::Decision decision = limiter.admit(event.mono_ns);
    if (!event.is_xid || !decision.allowed) return;
    const XidRow row = get_xid(static_cast<uint32_t>(event.xid));
    const auto gpu = std::ranges::find(newest.gpus, event.uuid, &GpuHealth::uuid);
    log_warn("GPU error", {{"gpu", gpu == newest.gpus.end() ? "" : std::to_string(gpu->index)},
                           {"uuid", gpu == newest.gpus.end() ? "" : gpu->uuid_text},
                           {"xid", std::to_string(event.xid)},
                           {"meaning", std::string(row.meaning)},
                           {"suppressed_count", std::to_string(decision.suppressed_count)}});
  }
};

// The work of the GPU thread.
class GpuSource::Worker {
 public:
  Worker(std::shared_ptr<Shared> shared, std::shared_ptr<LeavableThread::Signal> signal)
      : shared_(std::move(shared)),
        signal_(std::move(signal)),
        reader_(shared_->options.interval, shared_->watch, shared_->options.counters),
        retry_(shared_->options.first_retry) {}

  void run() {
    (void)pthread_setname_np(pthread_self(), "gpu");  // nothing depends on it
    std::chrono::nanoseconds pause{0};
    do {
      pause = reader_.is_open() ? read() : open();
    } while (signal_->wait_for(pause));
    close();
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // Each returns the time until the next turn.
  std::chrono::nanoseconds open() {
    Result<std::shared_ptr<const NvmlApi>> api = shared_->options.load();
    const Status opened = api.ok() ? reader_.open(*std::move(api)) : api.status();
    if (!opened.ok()) return report_failure(opened);
    const size_t count = reader_.make_report().gpus.size();  // lost ones too
    if (count == 0) {
      close();
      return report_failure(absl::UnavailableError("the driver reports none"));
    }
    seen_gpus_ = true;
    has_asked_for_events_ = false;
    say(fmt::format("GPUs: {}", count), false);
    return std::chrono::nanoseconds(0);  // now read
  }

  std::chrono::nanoseconds read() {
    const Status status = reader_.read(shared_->clock.mono_ns());
    if (!status.ok()) {
      close();
      return report_failure(status);
    }
    GpuHealthReport report = reader_.make_report();
    report.read_mono_ns = shared_->clock.mono_ns();
    // After the first reading: whoever hears of an error can tell which GPU it is of.
    if (!std::exchange(has_asked_for_events_, true)) start_events(reader_.handles());
    publish(std::move(report));
    if (!reader_.is_any_lost()) {
      reopen_at_ = Time();
      retry_ = shared_->options.first_retry;
      return shared_->options.interval;
    }
    // A lost GPU comes back, after a reset, in a new session only.
    const Time now = std::chrono::steady_clock::now();
    if (reopen_at_ == Time()) reopen_at_ = now + back_off();
    if (now < reopen_at_) return shared_->options.interval;
    reopen_at_ = Time();
    close();
    return std::chrono::nanoseconds(0);
  }

  std::chrono::nanoseconds report_failure(const Status& status) {
    GpuHealthReport report = reader_.make_report();
    const std::string text(status.message());
    const bool expected = seen_gpus_ || has_nvidia_gpu(shared_->options.pci_devices);
    if (expected) {
      report.problem = "GPUs cannot be read: " + text;
      report.hint = kDriverHint;
      if (report.gpus.empty()) report.reason = report.problem;
    } else {
      report.reason = absl::IsNotFound(status) ? "there is no NVIDIA GPU on this host"
                                               : "no GPU was found: " + text;
    }
    for (GpuHealth& gpu : report.gpus) gpu.is_lost = true;
    say(expected ? report.problem : report.reason, expected);
    publish(std::move(report));
    return back_off();
  }

  void publish(GpuHealthReport report) {
    report.events_problem = events_problem_;
    shared_->publish(std::move(report));
  }

  void start_events(const std::vector<GpuHandle>& gpus) {
    auto events = GpuEvents::start(reader_.api(), gpus,
                                   [shared = shared_](const auto& event) { shared->take(event); });
    events_problem_ = events.ok() ? "" : std::string(events.status().message());
    if (events.ok()) events_ = *std::move(events);
  }

  void close() {
    const bool hangs = events_ && !events_->stop();
    events_.reset();
    if (hangs) {
      reader_.leave();
    } else {
      reader_.close();
    }
  }

  std::chrono::nanoseconds back_off() {
    return std::exchange(retry_, std::min(retry_ * 2, shared_->options.max_retry));
  }

  // Once, until something else is the case.
  void say(const std::string& text, bool is_problem) {
    if (signal_->is_stopping() || std::exchange(said_, text) == text) return;
    if (is_problem) {
      log_warn("GPU health", {{"problem", text}});
    } else {
      log_info("GPU health", {{"state", text}});
    }
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<LeavableThread::Signal> signal_;
  GpuReader reader_;
  std::unique_ptr<GpuEvents> events_;
  std::string events_problem_;
  std::chrono::milliseconds retry_;
  Time reopen_at_;
  bool seen_gpus_ = false;
  bool has_asked_for_events_ = false;  // in this session
  std::string said_;
};

GpuSource::GpuSource(Options options, Listener listener)
    : shared_(std::make_shared<Shared>(std::move(options), std::move(listener))),
      thread_([shared = shared_](const auto& signal) { Worker(shared, signal).run(); }) {}

GpuSource::~GpuSource() { (void)stop(); }

bool GpuSource::stop() {
  {
    const MutexLock lock(shared_->mutex);
    shared_->listener = nullptr;
  }
  const bool ended = thread_.stop(shared_->options.stop_patience);
  if (!ended) {
    const auto inside = shared_->watch->find();
    log_warn("GPU thread did not stop",
             {{"call", inside ? inside->call : "none"},
              {"cause", "NVIDIA's driver does not respond; check dmesg"}});
  }
  return ended;
}

std::optional<Problem> GpuSource::find_stall() const {
  const auto inside = shared_->watch->find();
  if (!inside) return std::nullopt;
  const auto age = std::chrono::steady_clock::now() - inside->since;
  if (age < shared_->options.stall_after) return std::nullopt;
  return Problem{
      "GPU health",
      fmt::format("{} has not returned for {} s: the GPU state shown is that old", inside->call,
                  std::chrono::duration_cast<std::chrono::seconds>(age).count()),
      "NVIDIA's driver hangs, usually because a GPU is lost; check: dmesg | grep -i xid"};
}

std::vector<Problem> list_gpu_problems(const GpuHealthReport& report, int64_t now_mono_ns) {
  std::vector<Problem> problems;
  if (!report.problem.empty()) problems.push_back({"GPU health", report.problem, report.hint});
  for (const GpuHealth& gpu : report.gpus) {
    GpuVerdict verdict = judge_gpu(gpu, now_mono_ns);
    if (verdict.state != GpuState::kFailing && verdict.state != GpuState::kLost) continue;
    // All are lost with the driver: that is one problem, said above.
    if (!report.problem.empty() && verdict.state == GpuState::kLost) continue;
    problems.push_back(
        {fmt::format("GPU {}", gpu.index), std::move(verdict.text), std::move(verdict.hint)});
  }
  return problems;
}

}  // namespace gpuperf
