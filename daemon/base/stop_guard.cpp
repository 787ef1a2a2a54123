#include "daemon/base/stop_guard.h"

#include <unistd.h>

#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/work_watch.h"

namespace gpuperf {

void StopGuard::end_process(const std::string& why) {
  log_warn("stopped without waiting any longer", {{"for", why}});
  ::_exit(0);
}

StopGuard::StopGuard(Options options) : options_(std::move(options)), thread_([this] { run(); }) {}

StopGuard::~StopGuard() {
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool StopGuard::wait_until(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!is_over_ && changed_.wait_until(lock, deadline)) continue;
  return !is_over_;
}

// The threads that are still at what they were at when the stop began.
std::string StopGuard::find_hanging() const {
  const auto stopping_for = std::chrono::steady_clock::now() - begin_;
  std::string threads;
  for (const WorkAtHand& work : list_work()) {
    if (work.age <= stopping_for || work.limit > options_.max_limit) continue;
    threads += (threads.empty() ? "" : ", ") + work.thread;
  }
  return threads;
}

void StopGuard::run() {
  constexpr std::chrono::milliseconds kPeriod{100};
  for (TimePoint look = begin_ + options_.patience; wait_until(look); look += kPeriod) {
    if (const std::string hanging = find_hanging(); !hanging.empty()) {
      return options_.end_process(hanging);
    }
    if (look - begin_ >= options_.last) return options_.end_process("parts that do not stop");
  }
}

}  // namespace gpuperf
