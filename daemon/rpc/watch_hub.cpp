#include "daemon/rpc/watch_hub.h"

#include <spdlog/fmt/fmt.h>

#include <utility>
#include <vector>

namespace gpuperf {

Result<WatchHub::ReaderId> WatchHub::add_reader(std::function<bool(const SlowCall&)> wants,
                                                std::function<void()> wake) {
  const MutexLock lock(mutex_);
  if (closed_) return absl::UnavailableError("the daemon is stopping");
  if (readers_.size() >= kMaxReaders) {
    return absl::ResourceExhaustedError(
        fmt::format("already {} readers watch slow calls; end one of them", kMaxReaders));
  }
  readers_.emplace(next_id_, Reader{.wants = std::move(wants), .wake = std::move(wake)});
  return next_id_++;
}

void WatchHub::remove_reader(ReaderId id) {
  Reader removed;  // destroyed after the lock: `wake` may own what calls us
  const MutexLock lock(mutex_);
  const auto reader = readers_.find(id);
  if (reader == readers_.end()) return;
  removed = std::move(reader->second);
  readers_.erase(reader);
}

std::optional<WatchHub::Message> WatchHub::take(ReaderId id) {
  const MutexLock lock(mutex_);
  const auto found = readers_.find(id);
  if (found == readers_.end() || found->second.waiting.empty()) return std::nullopt;
  Reader& reader = found->second;
  Message message{.call = std::move(reader.waiting.front()),
                  .missed_count = std::exchange(reader.missed_count, 0)};
  reader.waiting.pop_front();
  return message;
}

void WatchHub::on_slow_call(const std::shared_ptr<const SlowCall>& call) {
  std::vector<std::function<void()>> wakes;
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    for (auto& [id, reader] : readers_) {
      if (!reader.wants(*call)) continue;
      if (reader.waiting.empty()) wakes.push_back(reader.wake);
      if (reader.waiting.size() == kQueue) {
        reader.waiting.pop_front();
        ++reader.missed_count;
        drops_.add(DropCause::kWatchReaderSlow);
      }
      reader.waiting.push_back(call);
    }
  }
  for (const auto& wake : wakes) wake();
}

void WatchHub::close() {
  std::vector<std::function<void()>> wakes;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [id, reader] : readers_) wakes.push_back(reader.wake);
  }
  for (const auto& wake : wakes) wake();
}

bool WatchHub::is_closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

}  // namespace gpuperf
