#include "daemon/collect/drain.h"

#include <bpf/bpf.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/work_watch.h"
#include "daemon/collect/decode_calls.h"
#include "daemon/model/bounds.h"

namespace gpuperf {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How long a record that did not wake us may wait (emit.bpf.h wakes at most every 20 ms).
constexpr std::chrono::milliseconds kRingPeriod{200};
// Exits whose notice was lost are found within this time.
constexpr std::chrono::seconds kSweepPeriod{30};
// A hung call shows within two seconds; on a host with 20,000 threads a look takes 10 ms, and the
// share keeps that at half a per cent of one CPU.
constexpr std::chrono::seconds kLookPeriod{1};
constexpr int kLookShare = 200;

// A record's time is taken before its place in the ring; in between its thread may lose the CPU.
constexpr int64_t kCommitNs = 20'000'000;

// In the order of the rings in make().
constexpr Bound kRingBounds[] = {Bound::kSlowRing,  Bound::kProcessRing,   Bound::kNameRing,
                                 Bound::kStackRing, Bound::kStackCopyRing, Bound::kTraceRing,
                                 Bound::kReportRing};

// CLOCK_MONOTONIC.
int64_t now_ns() { return std::chrono::nanoseconds(SteadyClock::now().time_since_epoch()).count(); }

}  // namespace

Result<std::unique_ptr<Drain>> Drain::make(Setup setup, MapSource totals, DropCounters& drops) {
  auto drain = std::unique_ptr<Drain>(new Drain(std::move(setup), std::move(totals), drops));
  if (!drain->epoll_.valid()) return errno_status(errno, "drain: epoll_create1");
  if (!drain->wake_.valid()) return errno_status(errno, "drain: eventfd");
  for (const auto& [name, fd] : {std::pair{"slow_ring", drain->setup_.slow_ring_fd},
                                 {"process_ring", drain->setup_.process_ring_fd},
                                 {"name_ring", drain->setup_.name_ring_fd},
                                 {"stack_ring", drain->setup_.stack_ring_fd},
                                 {"stack_copy_ring", drain->setup_.stack_copy_ring_fd},
                                 {"trace_ring", drain->setup_.trace_ring_fd},
                                 {"report_ring", drain->setup_.report_ring_fd}}) {
    RETURN_IF_ERROR(drain->add_ring(fd, name));
  }
  RETURN_IF_ERROR(drain->watch(drain->wake_.get()));
  return drain;
}

Drain::Drain(Setup setup, MapSource totals, DropCounters& drops)
    : setup_(std::move(setup)),
      drops_(drops),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      totals_(std::move(totals)) {}

Drain::~Drain() { stop(); }

Status Drain::add_ring(int ring_fd, const char* name) {
  bpf_map_info info{};
  uint32_t info_bytes = sizeof info;
  if (bpf_obj_get_info_by_fd(ring_fd, &info, &info_bytes) != 0) {
    return errno_status(errno, std::string(name) + ": size");
  }
  RETURN_IF_ERROR(rings_.add(ring_fd, name, info.max_entries));
  return watch(ring_fd);
}

Status Drain::watch(int fd) {
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return errno_status(errno, "drain: epoll_ctl");
}

void Drain::start() {
  thread_ = std::thread([this] { run(); });
}

void Drain::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
  thread_.join();
}

void Drain::on_record(std::span<const std::byte> record) {
  auto decoded = decode_record(record);
  if (!decoded.ok()) {
    drops_.add(absl::IsUnimplemented(decoded.status()) ? DropCause::kRingUnknownKind
                                                       : DropCause::kRingMalformed);
    return;
  }
  std::visit([this](auto& known) { take_record(known); }, *decoded);
}

void Drain::take_record(SlowCallEvent& call) {
  // The kernel counts those it thins out itself under the same cause.
  const uint32_t uid = users_.find(call.process.pid, call.process.start_boot_ns);
  if (!slow_shares_.admit(uid, call.process, call.is_worst, now_ns())) {
    drops_.add(DropCause::kSlowThinned);
    return;
  }
  call.owner = totals_.get_owner(call.process, "");
  batch_.emplace_back(std::move(call));
}

void Drain::take_record(ResponsePart& part) {
  // It may have no probed call.
  if (part.begins) part.owner = totals_.get_owner(part.process, "");
  reported_.responses.push_back(std::move(part));
}

void Drain::consume_rings() {
  const int64_t before_ns = now_ns() - kCommitNs;
  const Status consumed =
      rings_.consume([this](std::span<const std::byte> record) { on_record(record); });
  if (!consumed.ok() && !std::exchange(rings_failed_, true)) {
    log_error("rings not read", {{"error", std::string(consumed.message())}});
  }
  if (!reported_.calls.empty() || !reported_.responses.empty())
    batch_.emplace_back(std::exchange(reported_, {}));
  if (trace_.launches.empty() && trace_.calls.empty() && trace_.sites.empty() &&
      trace_.graph_calls.empty() && trace_.thread_times.empty()) {
    return;
  }
  trace_.complete_mono_ns = static_cast<uint64_t>(before_ns);
  batch_.emplace_back(std::exchange(trace_, {}));
}

// The parts of one copy come one behind the other, the first one first.
void Drain::take_record(RawStack& stack) {
  if (!stack.copy || stack.copy->part == 0) {
    batch_.emplace_back(std::move(stack));
    return;
  }
  for (auto event = batch_.rbegin(); event != batch_.rend(); ++event) {
    auto* const first = std::get_if<RawStack>(&*event);
    if (first == nullptr || first->id != stack.id || !first->copy) continue;
    std::ranges::move(stack.copy->memory, std::back_inserter(first->copy->memory));
    return;
  }
  drops_.add(DropCause::kBpfStackCopy);  // the first part is lost, or with the loop already
}

void Drain::read_totals(bool is_early) {
  has_alarm_ = false;
  const Status status = totals_.read(batch_);
  if (!status.ok()) {
    log_error("totals not read", {{"error", std::string(status.message())}});
    return;
  }
  batch_.emplace_back(TotalsRead{now_ns(), is_early, list_levels()});
}

std::vector<BoundLevel> Drain::list_levels() {
  std::vector<BoundLevel> levels = totals_.list_levels();
  size_t ring = 0;
  for (const RingReader::Level& level : rings_.take_levels()) {
    levels.push_back(
        {.bound = kRingBounds[ring++], .used = level.used_bytes, .limit = level.size_bytes});
  }
  return levels;
}

void Drain::look_at_threads() {
  const auto start = SteadyClock::now();
  auto calls = setup_.read_in_flight();
  auto slow = setup_.read_slow_in_flight();
  auto costs = setup_.read_thread_costs();
  const auto end = SteadyClock::now();
  next_look_ = end + std::max<SteadyClock::duration>(kLookPeriod, kLookShare * (end - start));
  if (calls.ok()) {
    calls->look_mono_ns = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(end.time_since_epoch()).count());
    drops_.add(DropCause::kInFlightFull, calls->truncated_count);
    batch_.emplace_back(std::move(*calls));
  }
  if (slow.ok()) {
    for (SlowCallEvent& call : slow->calls) call.owner = totals_.get_owner(call.process, "");
    batch_.emplace_back(*std::move(slow));
  }
  if (costs.ok()) {
    costs->mono_ns = now_ns();
    batch_.emplace_back(*std::move(costs));
  }
  Status failed = calls.status();
  failed.Update(slow.status());
  failed.Update(costs.status());
  if (!failed.ok() && !std::exchange(look_failed_, true)) {
    log_error("threads not examined", {{"error", std::string(failed.message())}});
  }
}

// False while the loop is behind.
bool Drain::flush() {
  if (batch_.empty()) return true;
  if (!queue_.try_push(std::move(batch_))) return false;
  batch_ = {};
  setup_.on_batch();
  return true;
}

void Drain::run() {
  auto next_read = SteadyClock::now() + setup_.interval;
  auto next_sweep = SteadyClock::now() + kSweepPeriod;
  while (!stopping_) {
    // Rounded up: else it would spin for the last millisecond.
    const auto until_read =
        std::chrono::ceil<std::chrono::milliseconds>(next_read - SteadyClock::now());
    const auto wait = std::clamp(until_read, std::chrono::milliseconds{0}, kRingPeriod);
    epoll_event events[4];
    (void)epoll_wait(epoll_.get(), events, 4, static_cast<int>(wait.count()));
    const Work work("drain");
    if (!flush()) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds{10});  // the loop is behind: leave it time
      continue;
    }
    consume_rings();
    const auto now = SteadyClock::now();
    if (now >= next_sweep) {
      totals_.sweep();
      next_sweep = now + kSweepPeriod;
    }
    if (now < next_read && has_alarm_) read_totals(true);
    if (now >= next_read) {
      read_totals(false);
      next_read = now + setup_.interval;
      if (now >= next_look_) look_at_threads();
    }
    flush();
  }
  consume_rings();
  read_totals(false);
  queue_.close_with(std::move(batch_));
  setup_.on_batch();
}

}  // namespace gpuperf
