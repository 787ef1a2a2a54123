#include "daemon/otlp/sender.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <utility>

#include "daemon/base/log.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace gpuperf::otlp {
namespace {

using std::chrono::steady_clock;
// The answers of all signals are laid out alike: in field 1 how many were rejected, and why.
using Answer = ::opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, Answer>;

std::string describe(const grpc::Status& status) {
  const std::string message = status.error_message();
  return "code " + std::to_string(status.error_code()) + (message.empty() ? "" : ": ") + message;
}

}  // namespace

Sender::Sender(Options options, DropCounters& drops)
    : options_(std::move(options)), drops_(drops), thread_([this] { run(); }) {}

Sender::~Sender() {
  stop_by(steady_clock::now());
  thread_.join();
}

void Sender::fill(Bound bound, SelfReport& report) {
  const uint64_t used_bytes = mark_.take();
  report.add(bound, used_bytes, options_.max_queued_bytes);
  report.add(MemoryPart::kOtlp, used_bytes);
}

void Sender::post(Request request) {
  size_t dropped = 0;
  {
    const MutexLock lock(mutex_);
    queued_bytes_ += request.bytes.size();
    queue_.push_back(std::move(request));
    while (queue_.size() > 1 &&
           (queued_bytes_ > options_.max_queued_bytes || queue_.size() > kMaxQueued)) {
      dropped += queue_.front().items;
      queued_bytes_ -= queue_.front().bytes.size();
      queue_.pop_front();
    }
    mark_.note(queued_bytes_);
  }
  changed_.notify_all();
  if (dropped > 0) drops_.add(DropCause::kOtlpQueueFull, dropped);
}

void Sender::stop_by(steady_clock::time_point deadline) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    stop_at_ = deadline;
  }
  changed_.notify_all();
}

std::string Sender::find_fault() const {
  const MutexLock lock(mutex_);
  return fault_;
}

uint64_t Sender::delivered_count() const {
  const MutexLock lock(mutex_);
  return delivered_;
}

void Sender::run() {
  Request request;
  while (take(request)) deliver(request);
}

bool Sender::take(Request& request) {
  MutexLock lock(mutex_);
  while (!stopping_ && queue_.empty()) changed_.wait(lock);
  if (stopping_ && steady_clock::now() >= stop_at_) {
    for (const Request& left : queue_) drops_.add(DropCause::kOtlpStopped, left.items);
    queue_.clear();
  }
  if (queue_.empty()) return false;
  request = std::move(queue_.front());
  queued_bytes_ -= request.bytes.size();
  mark_.note(queued_bytes_);
  queue_.pop_front();
  return true;
}

void Sender::deliver(const Request& request) {
  for (uint32_t failures = 1;; ++failures) {
    const grpc::Status status = call(request);
    if (status.ok()) return;
    bool is_first = false;
    {
      const MutexLock lock(mutex_);
      is_first = fault_.empty();
      fault_ = describe(status);
    }
    const double spread = std::uniform_real_distribution<>(0, 1)(random_);
    const auto delay = find_retry_delay(status, failures, spread, options_.retry);
    if (is_first) {
      log_warn("OTLP receiver does not accept data", {{"method", options_.method},
                                                      {"error", describe(status)},
                                                      {"again", delay ? "true" : "false"}});
    }
    if (!delay) return drops_.add(DropCause::kOtlpRefused, request.items);
    if (!pause(*delay)) return drops_.add(DropCause::kOtlpStopped, request.items);
  }
}

// What a call needs for as long as gRPC works on it.
struct Sender::Call {
  grpc::ClientContext context;
  grpc::ByteBuffer bytes;
  Answer answer;
  grpc::Status status;
  bool is_done = false;  // guarded by mutex_
};

grpc::Status Sender::call(const Request& request) {
  Call call;
  const grpc::Slice slice(request.bytes);
  call.bytes = grpc::ByteBuffer(&slice, 1);
  for (const auto& [name, value] : options_.headers) call.context.AddMetadata(name, value);
  call.context.set_deadline(std::chrono::system_clock::now() + options_.timeout);
  Stub stub(options_.channel);
  stub.UnaryCall(&call.context, options_.method, grpc::StubOptions(), &call.bytes, &call.answer,
                 [this, &call](grpc::Status status) {
                   const MutexLock lock(mutex_);
                   call.status = std::move(status);
                   call.is_done = true;
                   changed_.notify_all();  // under the lock: `call` ends when it is seen
                 });
  MutexLock lock(mutex_);
  while (!call.is_done) {
    if (!stopping_) {
      changed_.wait(lock);
    } else if (!changed_.wait_until(lock, stop_at_)) {
      call.context.TryCancel();
      while (!call.is_done) changed_.wait(lock);
    }
  }
  lock.unlock();
  if (call.status.ok()) note_success(request, call);
  return call.status;
}

void Sender::note_success(const Request& request, const Call& call) {
  const auto& partial = call.answer.partial_success();
  const auto rejected = static_cast<size_t>(std::max<int64_t>(partial.rejected_spans(), 0));
  if (rejected > 0) drops_.add(DropCause::kOtlpRejected, rejected);
  bool was_failing = false;
  {
    const MutexLock lock(mutex_);
    delivered_ += request.items - std::min(rejected, request.items);
    was_failing = !fault_.empty();
    // A receiver may warn without rejecting anything.
    fault_ = rejected == 0
                 ? ""
                 : "rejected " + std::to_string(rejected) + ": " + partial.error_message();
  }
  if (was_failing && rejected == 0) {
    log_info("OTLP receiver accepts data", {{"method", options_.method}});
  }
}

// False = the stop is over. The stop wakes it for one more try.
bool Sender::pause(std::chrono::milliseconds delay) {
  const auto until = steady_clock::now() + delay;
  MutexLock lock(mutex_);
  while (!stopping_ && changed_.wait_until(lock, until)) continue;
  if (stopping_) {
    const bool may_try = steady_clock::now() < stop_at_;
    if (may_try && !was_woken_) {
      was_woken_ = true;
      return true;
    }
    while (changed_.wait_until(lock, std::min(until, stop_at_))) continue;
  }
  return !stopping_ || steady_clock::now() < stop_at_;
}

}  // namespace gpuperf::otlp
