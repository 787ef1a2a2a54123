#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/attach/attach_message.h"
#include "daemon/base/bounded_queue.h"
#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/base/worker_pool.h"
#include "daemon/model/attach.h"

namespace gpuperf {

// Attaches to processes and detaches from them, each when asked to and never otherwise; takes the
// connections that attached processes offer to a new daemon.
//
// A worker does it (attach_process.h). Its thread only starts that worker and asks it: it is the
// only one of the daemon that keeps the system calls that the worker needs, which no other thread
// could hand on. Owns the thread, from start() to stop(). Answers come on that thread, one request
// after another; a worker that is late is killed, and what it held goes on by itself. Bounds: as
// many requests wait as kMaxWaiting.
class ProcessAttacher {
 public:
  static constexpr size_t kMaxWaiting = 1'024;
  struct Setup {
    std::string proc_root = "/proc";
    // Called on the new thread, first.
    std::function<Status()> drop_rights;
    // Where the library is now.
    std::function<std::string()> find_library;
    // Of the process; called on the thread.
    std::function<Owner(const ProcessKey&)> find_owner;
    std::function<void(uint32_t pid, std::shared_ptr<Fd> connection, const AttachFacts&)>
        on_connection;
  };
  using Done = std::function<void(Result<AttachRow>)>;
  using ListDone = std::function<void(Result<std::vector<AttachRow>>)>;

  explicit ProcessAttacher(Setup setup)
      : setup_(std::move(setup)), workers_({.role = "attach", .arguments = {setup_.proc_root}}) {}
  ~ProcessAttacher() { stop(); }

  void start();
  void stop();
  // Any thread, as are all below. Lets go of workers that have ended.
  void reap() { workers_.reap(); }
  // An answer with state "cannot" says why.
  void post_attach(const AttachOrder& order, Done done);
  void post_detach(uint32_t pid, Done done);
  // Every process that has loaded CUDA's driver.
  void post_list(ListDone done);
  // Takes the connection that the process offers, if it does.
  void post_adopt(uint32_t pid);
  size_t take_highest_queued() { return tasks_.take_highest(); }  // any thread
  void post_adopt_all(std::function<void(std::vector<uint32_t> attached)> done);

 private:
  void run();
  void post(std::function<void()> task, const std::function<void(const Status&)>& refuse);
  struct Answer {
    AttachReply reply;
    Fd connection;  // where the request asks for one
  };

  Result<Answer> ask(const AttachRequest& request, const Fd* library);
  void hand_on(uint32_t pid, Answer& answer) const;
  Result<AttachRow> attach(const AttachOrder& order);
  Result<AttachRow> detach(uint32_t pid);
  std::vector<AttachRow> list();
  bool adopt(uint32_t pid);
  AttachRow make_row(uint32_t pid, const AttachReply& reply) const;

  const Setup setup_;
  WorkerPool workers_;  // asked by the thread
  BoundedQueue<std::function<void()>> tasks_{kMaxWaiting};
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace gpuperf
