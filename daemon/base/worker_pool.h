#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/base/worker_message.h"

namespace gpuperf {

// Expendable processes that do what may crash, or wait in the kernel for ever: each answers one
// request at a time, and one that is late is left behind.
//
// A worker is this very program, executed anew (/proc/self/exe) with one socket: no memory, no
// other descriptor and of the environment only LD_LIBRARY_PATH of the daemon. Its main() hands it
// to run_if_worker() (resolve/), which gives up its rights (confinement.h). Thread: any; asking
// blocks. Owns its workers: they die with the thread that started them. Bounds: one worker for each
// thread that asks at the same time, and `max_dying` that were killed and do not end (the kernel
// lets nobody kill a process within some waits): with so many, nothing is asked.
class WorkerPool {
 public:
  struct Options {
    std::string role;
    std::vector<std::string> arguments;  // of the worker's command line, behind its role
    size_t max_reply_bytes = size_t{1} << 20;
    size_t max_dying = 8;
  };

  explicit WorkerPool(Options options);
  // Kills the workers; waits a moment for them to end, not for ever.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // The answer to a request, which must fit a socket's buffer. Unavailable = no worker could be
  // asked. DeadlineExceeded = it was not answered within `timeout`, DataLoss = its worker died of
  // it: the worker is killed, the next request gets another.
  Result<WorkerMessage> ask(std::string_view request, std::span<const int> fds,
                            std::chrono::milliseconds timeout);
  // Has one wait for a request, so that the next one takes no longer than its answer.
  Status prepare();
  // Kills those that wait for a request: after an answer that cannot be right.
  void end_idle();
  // Lets go of those that have ended: to be called now and then, so that none stays a zombie.
  void reap();

  size_t count_dying() const;            // killed and not gone as of the last reap()
  std::vector<pid_t> list_idle() const;  // for tests

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Worker {
    pid_t pid = 0;
    Fd socket;
  };

  Result<Worker> take();
  Result<Worker> start();
  Result<Worker> execute() const;
  void keep(Worker worker);
  void abandon(Worker worker);
  void reap_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Set once in the constructor.
  const Options options_;
  mutable Mutex mutex_;
  std::vector<Worker> idle_ ABSL_GUARDED_BY(mutex_);
  std::vector<pid_t> dying_ ABSL_GUARDED_BY(mutex_);
  TimePoint restart_at_ ABSL_GUARDED_BY(mutex_);  // not before
};

}  // namespace gpuperf
