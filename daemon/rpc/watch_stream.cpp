#include "daemon/rpc/watch_stream.h"

#include <chrono>

#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/row_filter.h"
#include "daemon/rpc/to_proto.h"

namespace gpuperf {

WatchStream* WatchStream::start(WatchHub& hub, const v1::Filter& filter) {
  const std::shared_ptr<WatchStream> stream(new WatchStream(hub));
  stream->self_ = stream;
  // The stream cannot run before reader_ is set: wake() and the reactions wait for the lock.
  const MutexLock lock(stream->mutex_);
  const Result<WatchHub::ReaderId> reader = hub.add_reader(
      [filter = RowFilter(filter)](const SlowCall& call) { return filter.matches(call); },
      [stream] { stream->wake(); });
  if (!reader.ok()) {
    stream->finish(reader.status());
    return stream.get();
  }
  stream->reader_ = *reader;
  // At once, so that the client knows from when on it misses nothing.
  stream->StartSendInitialMetadata();
  return stream.get();
}

void WatchStream::wake() {
  const MutexLock lock(mutex_);
  if (waking_ || finished_) return;
  waking_ = true;
  // A new alarm each time: the callback of the last one may still be returning. It must not own the
  // stream: gRPC keeps the callback as long as the alarm, which the stream owns.
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(std::chrono::system_clock::now(), [weak = weak_from_this()](bool) {
    const std::shared_ptr<WatchStream> stream = weak.lock();
    if (stream == nullptr) return;
    const MutexLock lock(stream->mutex_);
    stream->waking_ = false;
    stream->go_on();
  });
}

void WatchStream::go_on() {
  if (writing_ || finished_) return;
  if (cancelled_) {
    finish(absl::CancelledError("the client has gone"));
    return;
  }
  const bool closed = hub_.is_closed();  // before take: nothing comes after it
  std::optional<WatchHub::Message> message = hub_.take(*reader_);
  if (message.has_value()) {
    *response_.mutable_slow_call() = to_proto(*message->call);
    response_.set_missed_count(message->missed_count);
    writing_ = true;
    StartWrite(&response_);
  } else if (closed) {
    finish(absl::UnavailableError("the daemon is stopping"));
  }
}

void WatchStream::finish(const Status& status) {
  finished_ = true;
  Finish(to_grpc_status(status));
}

void WatchStream::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) cancelled_ = true;
  go_on();
}

void WatchStream::OnCancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  go_on();
}

void WatchStream::OnDone() {
  if (reader_.has_value()) hub_.remove_reader(*reader_);
  const std::shared_ptr<WatchStream> last = std::move(self_);  // may destroy this on return
}

}  // namespace gpuperf
