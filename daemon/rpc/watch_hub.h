#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/export/exporter.h"
#include "daemon/model/drops.h"

namespace gpuperf {

// Hands each slow call to every reader that watches for it.
//
// Thread: any; on_slow_call on the loop. The counters must outlive it.
// Bounds: at most kMaxReaders; further ones are refused. Per reader at most kQueue calls wait; then
// the oldest is dropped, counts DropCause::kWatchReaderSlow, and the reader's next message says how
// many it missed.
// Not here: sending (WatchStream).
class WatchHub final : public Exporter {
 public:
  static constexpr size_t kMaxReaders = 64;  // each holds a stream and up to kQueue calls
  static constexpr size_t kQueue = 1024;     // as the proto says

  using ReaderId = uint64_t;
  struct Message {
    std::shared_ptr<const SlowCall> call;
    uint64_t missed_count = 0;  // dropped since the message before
  };

  explicit WatchHub(DropCounters& drops) : drops_(drops) {}
  WatchHub(const WatchHub&) = delete;
  WatchHub& operator=(const WatchHub&) = delete;

  // `wants` says which calls the reader gets; it is called with the hub locked. `wake` is called on
  // any thread, without the lock, when a call begins to wait for a reader that had none, and when
  // the hub closes. RESOURCE_EXHAUSTED: too many readers. UNAVAILABLE: closed.
  Result<ReaderId> add_reader(std::function<bool(const SlowCall&)> wants,
                              std::function<void()> wake);
  // `wake` may still be running on another thread when this returns.
  void remove_reader(ReaderId id);
  // The oldest call waiting; nullopt when none does.
  std::optional<Message> take(ReaderId id);

  void on_slow_call(const std::shared_ptr<const SlowCall>& call) override;

  // No reader and no call after this; what waits can still be taken.
  void close();
  bool is_closed() const;

 private:
  struct Reader {
    std::function<bool(const SlowCall&)> wants;
    std::function<void()> wake;
    std::deque<std::shared_ptr<const SlowCall>> waiting;
    uint64_t missed_count = 0;
  };

  DropCounters& drops_;
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  ReaderId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<ReaderId, Reader> readers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuperf
