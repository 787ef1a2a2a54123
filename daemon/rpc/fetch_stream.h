#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/rpc/render_queue.h"
#include "gpuperf/v1/observe.grpc.pb.h"

namespace gpuperf {

// A capture in one of its forms.
struct RenderedCapture {
  std::string bytes;
  std::string suffix;
  std::string media_type;
};

// One FetchCapture stream: has the form made, then sends it in pieces, one at a time.
//
// Thread: gRPC's, and the queue's where the form is made. The queue must outlive the server.
// Lifetime: owns itself until gRPC says OnDone. Owns the bytes, and its place in the queue, until
// then. Bounds: a piece of 256 KiB is on its way; a client that takes none for a minute is cut off.
class FetchStream final : public grpc::ServerWriteReactor<v1::FetchCaptureResponse>,
                          public std::enable_shared_from_this<FetchStream> {
 public:
  static constexpr size_t kPieceBytes = size_t{256} << 10;
  // Called on the queue's thread, perhaps after the stream has ended.
  using Make = std::function<Result<RenderedCapture>()>;

  // The stream, already running; it ends at once where it is not allowed.
  static FetchStream* start(grpc::CallbackServerContext* context, RenderQueue& queue, bool is_root,
                            const Status& allowed, Make make);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit FetchStream(grpc::CallbackServerContext* context) : context_(context) {}
  void make(const Make& make);
  void send_piece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void watch_reader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void finish(const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Set once in start.
  grpc::CallbackServerContext* const context_;
  RenderQueue::Place place_;
  std::shared_ptr<FetchStream> self_;  // reset in OnDone
  Mutex mutex_;
  RenderedCapture rendered_ ABSL_GUARDED_BY(mutex_);
  size_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  v1::FetchCaptureResponse response_ ABSL_GUARDED_BY(mutex_);  // what is being written
};

}  // namespace gpuperf
