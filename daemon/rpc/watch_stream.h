#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "daemon/base/mutex.h"
#include "daemon/rpc/watch_hub.h"
#include "gpuperf/v1/observe.grpc.pb.h"

namespace gpuperf {

// One WatchSlowCalls stream: takes from the hub and sends, one message at a time.
//
// Thread: gRPC's; `wake` on any, the loop's among them: it only sets an alarm, so that converting
// and sending never happen there. The hub must outlive the server.
// Lifetime: owns itself until gRPC says OnDone.
// Bounds: one message is on its way, the rest waits in the hub. Ends with UNAVAILABLE once the hub
// is closed and nothing waits, with CANCELLED when the client has gone.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchSlowCallsResponse>,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  // The stream for `filter`, already running.
  static WatchStream* start(WatchHub& hub, const v1::Filter& filter);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit WatchStream(WatchHub& hub) : hub_(hub) {}
  void wake();
  // Sends the next message, or ends, or leaves it be.
  void go_on() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void finish(const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Set once in start.
  WatchHub& hub_;
  std::shared_ptr<WatchStream> self_;  // reset in OnDone
  std::optional<WatchHub::ReaderId> reader_;
  Mutex mutex_;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  bool waking_ ABSL_GUARDED_BY(mutex_) = false;  // the alarm is set and has not fired
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  v1::WatchSlowCallsResponse response_ ABSL_GUARDED_BY(mutex_);  // what is being written
};

}  // namespace gpuperf
