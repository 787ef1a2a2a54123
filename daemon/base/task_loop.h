#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/base/duration_counts.h"
#include "daemon/base/fd.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"

namespace gpuperf {

// One thread that runs tasks, periodic timers and descriptor callbacks, one at a time.
//
// Thread: everything but `post` and `stop` is called on the thread that calls `run`, or before it.
// Tasks posted before `stop`, and those that they post in turn, a few deep, are run before `run`
// returns. Tasks that post the next one hold up neither timers nor signals.
// Bounds: posted tasks are not bounded here; posters that can flood use a BoundedQueue and post one
// drain task. Timers that fall behind run once, not once per missed period.
class TaskLoop {
 public:
  static Result<std::unique_ptr<TaskLoop>> make();
  ~TaskLoop();
  TaskLoop(const TaskLoop&) = delete;
  TaskLoop& operator=(const TaskLoop&) = delete;

  void post(std::function<void()> task);  // any thread
  void stop();                            // any thread; async-signal-safe it is not

  Status add_timer(std::chrono::milliseconds period, std::function<void()> on_tick);
  Status add_reader(int fd, std::function<void()> on_readable);  // fd stays the caller's
  // Blocks `signals` in this thread (threads made later inherit that) and calls back on the loop.
  Status add_signals(std::initializer_list<int> signals, std::function<void(int)> on_signal);

  void run();
  // What was posted so far. For after `run`: what other threads still had to say.
  void run_posted();
  // How late timers ran: from when one was due first until its turn. Any thread.
  DurationCounts::Totals timer_delays() const { return timer_delays_.get(); }
  // Any thread: whether it is the one that runs the loop; before that, the one that made it.
  bool on_loop() const { return std::this_thread::get_id() == loop_thread_; }

 private:
  struct Watch;
  TaskLoop(Fd epoll, Fd wake);
  bool is_stopping();
  bool has_posted();

  // Set once in the constructor.
  Fd epoll_;
  Fd wake_;
  std::atomic<std::thread::id> loop_thread_ = std::this_thread::get_id();
  DurationCounts timer_delays_;
  // Loop thread only.
  std::vector<std::unique_ptr<Watch>> watches_;
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuperf
