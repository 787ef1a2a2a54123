#include "daemon/collect/drain.h"

#include <bpf/libbpf.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/collect/decode_calls.h"

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
// What a burst of slow calls may bring to be named, stored and told in each second, beside the
// worst of every function and process. Naming one takes some 100 us.
constexpr uint32_t kSlowPerSecond = 1000;

// A record's time is taken before its place in the ring; in between its thread may lose the CPU.
constexpr int64_t kCommitNs = 20'000'000;

// CLOCK_MONOTONIC.
int64_t now_ns() { return std::chrono::nanoseconds(SteadyClock::now().time_since_epoch()).count(); }

}  // namespace

Result<std::unique_ptr<Drain>> Drain::make(Setup setup, MapSource totals, DropCounters& drops) {
  auto drain = std::unique_ptr<Drain>(new Drain(std::move(setup), std::move(totals), drops));
  drain->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!drain->wake_.valid()) return errno_status(errno, "drain: eventfd");
  drain->rings_ =
      ring_buffer__new(drain->setup_.slow_ring_fd, &Drain::on_record, drain.get(), nullptr);
  if (drain->rings_ == nullptr) return errno_status(errno, "slow_ring: open");
  for (const auto& [name, fd] : {std::pair{"process_ring", drain->setup_.process_ring_fd},
                                 {"name_ring", drain->setup_.name_ring_fd},
                                 {"stack_ring", drain->setup_.stack_ring_fd},
                                 {"stack_copy_ring", drain->setup_.stack_copy_ring_fd},
                                 {"trace_ring", drain->setup_.trace_ring_fd}}) {
    const int error = ring_buffer__add(drain->rings_, fd, &Drain::on_record, drain.get());
    if (error != 0) return errno_status(-error, std::string(name) + ": open");
  }
  epoll_event event{.events = EPOLLIN, .data = {.u64 = UINT64_MAX}};
  if (epoll_ctl(ring_buffer__epoll_fd(drain->rings_), EPOLL_CTL_ADD, drain->wake_.get(), &event) !=
      0) {
    return errno_status(errno, "drain: epoll_ctl");
  }
  return drain;
}

Drain::Drain(Setup setup, MapSource totals, DropCounters& drops)
    : setup_(std::move(setup)),
      drops_(drops),
      totals_(std::move(totals)),
      slow_limiter_(kSlowPerSecond) {}

Drain::~Drain() {
  stop();
  ring_buffer__free(rings_);
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

// Called by libbpf, whose C frames no exception may pass: without memory the daemon ends here.
int Drain::on_record(void* context, void* data, size_t length_bytes) noexcept {
  auto& drain = *static_cast<Drain*>(context);
  auto decoded = decode_record({static_cast<const std::byte*>(data), length_bytes});
  if (!decoded.ok()) {
    drain.drops_.add(absl::IsUnimplemented(decoded.status()) ? DropCause::kRingUnknownKind
                                                             : DropCause::kRingMalformed);
    return 0;
  }
  std::visit([&drain](auto& record) { drain.take_record(record); }, *decoded);
  return 0;
}

void Drain::take_record(SlowCallEvent& call) {
  // The kernel counts those it thins out itself under the same cause.
  if (!call.is_worst && !slow_limiter_.admit(now_ns()).allowed) {
    drops_.add(DropCause::kSlowThinned);
    return;
  }
  call.owner = totals_.get_owner(call.process, "");
  batch_.emplace_back(std::move(call));
}

void Drain::consume_rings() {
  const int64_t before_ns = now_ns() - kCommitNs;
  (void)ring_buffer__consume(rings_);  // our callback never fails
  if (trace_.launches.empty() && trace_.calls.empty() && trace_.sites.empty() &&
      trace_.graph_calls.empty()) {
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

void Drain::read_totals() {
  const Status status = totals_.read(batch_);
  if (!status.ok()) {
    log_error("totals not read", {{"error", std::string(status.message())}});
    return;
  }
  batch_.emplace_back(TotalsRead{now_ns()});
}

void Drain::look_at_in_flight() {
  const auto start = SteadyClock::now();
  auto calls = setup_.read_in_flight();
  auto slow = setup_.read_slow_in_flight();
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
  Status failed = calls.status();
  failed.Update(slow.status());
  if (!failed.ok() && !std::exchange(look_failed_, true)) {
    log_error("calls in flight not read", {{"error", std::string(failed.message())}});
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
    const auto until_read =
        std::chrono::duration_cast<std::chrono::milliseconds>(next_read - SteadyClock::now());
    const auto wait = std::clamp(until_read, std::chrono::milliseconds{0}, kRingPeriod);
    epoll_event events[4];
    (void)epoll_wait(ring_buffer__epoll_fd(rings_), events, 4, static_cast<int>(wait.count()));
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
    if (now >= next_read) {
      read_totals();
      next_read = now + setup_.interval;
      if (now >= next_look_) look_at_in_flight();
    }
    flush();
  }
  consume_rings();
  read_totals();
  queue_.close_with(std::move(batch_));
  setup_.on_batch();
}

}  // namespace gpuperf
