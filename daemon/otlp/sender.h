#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "daemon/base/high_mark.h"
#include "daemon/base/mutex.h"
#include "daemon/model/drops.h"
#include "daemon/model/self_report.h"
#include "daemon/otlp/request.h"
#include "daemon/otlp/retry.h"

namespace gpuperf::otlp {

// Brings the requests of one signal to the receiver, one at a time and in order, each until it is
// taken or refused for good.
//
// Thread: its own sends; `post` and the questions are for any. The counters must outlive it.
// Bounds: `max_queued_bytes` and kMaxQueued requests wait beside the one on its way; the oldest
// leave first (kOtlpQueueFull). What the receiver refuses or rejects is counted (kOtlpRefused,
// kOtlpRejected), and so is what is left at the stop (kOtlpStopped). `post` never waits.
class Sender {
 public:
  static constexpr size_t kMaxQueued = 10'000;
  struct Options {
    std::string method;  // "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    std::shared_ptr<grpc::Channel> channel;
    std::map<std::string, std::string> headers;
    std::chrono::milliseconds timeout{10'000};
    size_t max_queued_bytes = 8 << 20;
    RetryTimes retry;
  };

  Sender(Options options, DropCounters& drops);
  ~Sender();  // waits for the deadline; without one gives up at once
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  void post(Request request);
  // Sends what waits, without pauses that go past `deadline`, and gives up then. Does not wait
  // itself; the first deadline holds.
  void stop_by(std::chrono::steady_clock::time_point deadline);
  // How full the queue is.
  void fill(Bound bound, SelfReport& report);
  // Why the last try failed; empty = it did not.
  std::string find_fault() const;
  uint64_t delivered_count() const;  // spans, data points or profiles

 private:
  struct Call;

  void run();
  bool take(Request& request);
  void deliver(const Request& request);
  grpc::Status call(const Request& request);
  bool pause(std::chrono::milliseconds delay);
  void note_success(const Request& request, const Call& call);

  // Set once in the constructor.
  const Options options_;
  DropCounters& drops_;
  // Its own thread only.
  std::minstd_rand random_{std::random_device{}()};
  bool was_woken_ = false;  // out of a pause, by the stop
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Request> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  HighMark mark_;  // of queued_bytes_
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point stop_at_ ABSL_GUARDED_BY(mutex_);
  std::string fault_ ABSL_GUARDED_BY(mutex_);
  uint64_t delivered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace gpuperf::otlp
