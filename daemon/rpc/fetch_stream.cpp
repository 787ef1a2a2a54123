#include "daemon/rpc/fetch_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/rpc/grpc_status.h"

namespace gpuperf {
namespace {

// A place is one of few; a person's pager does not take so long.
constexpr std::chrono::seconds kPatience{60};

}  // namespace

FetchStream* FetchStream::start(grpc::CallbackServerContext* context, RenderQueue& queue,
                                bool is_root, const Status& allowed, Make make) {
  const std::shared_ptr<FetchStream> stream(new FetchStream(context));
  stream->self_ = stream;
  Result<RenderQueue::Place> place =
      allowed.ok() ? queue.take_place(is_root) : Result<RenderQueue::Place>(allowed);
  if (!place.ok()) {
    const MutexLock lock(stream->mutex_);
    stream->finish(place.status());
    return stream.get();
  }
  stream->place_ = *std::move(place);
  queue.post([stream, make = std::move(make)] { stream->make(make); });
  return stream.get();
}

void FetchStream::make(const Make& make) {
  {
    const MutexLock lock(mutex_);
    if (finished_) return;  // given up while it waited
  }
  Result<RenderedCapture> rendered = make();
  const MutexLock lock(mutex_);
  if (finished_) return;
  if (!rendered.ok()) return finish(rendered.status());
  rendered_ = *std::move(rendered);
  response_.set_total_bytes(rendered_.bytes.size());
  response_.set_suffix(rendered_.suffix);
  response_.set_media_type(rendered_.media_type);
  send_piece();
}

void FetchStream::send_piece() {
  const size_t count = std::min(kPieceBytes, rendered_.bytes.size() - sent_bytes_);
  response_.set_data(rendered_.bytes.data() + sent_bytes_, count);
  sent_bytes_ += count;
  writing_ = true;
  watch_reader();
  StartWrite(&response_);
}

void FetchStream::watch_reader() {
  // A new alarm each time: the callback of the last one may still be returning.
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(std::chrono::system_clock::now() + kPatience, [weak = weak_from_this()](bool rang) {
    const std::shared_ptr<FetchStream> stream = weak.lock();
    if (!rang || stream == nullptr) return;
    const MutexLock lock(stream->mutex_);
    if (!stream->finished_) stream->context_->TryCancel();
  });
}

void FetchStream::finish(const Status& status) {
  finished_ = true;
  Finish(to_grpc_status(status));
}

void FetchStream::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  alarm_.reset();
  if (finished_) return;
  if (!ok || cancelled_) return finish(absl::CancelledError("the client has gone"));
  if (sent_bytes_ == rendered_.bytes.size()) return finish(absl::OkStatus());
  response_.Clear();
  send_piece();
}

void FetchStream::OnCancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  if (!writing_ && !finished_) finish(absl::CancelledError("the client has gone"));
}

void FetchStream::OnDone() {
  const std::shared_ptr<FetchStream> last = std::move(self_);  // may destroy this on return
  const MutexLock lock(mutex_);
  rendered_ = {};  // a job that still holds the stream holds nothing large
  place_.reset();
}

}  // namespace gpuperf
