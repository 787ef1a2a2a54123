#pragma once

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "client/status.h"

namespace grpc {
class ClientContext;
}

namespace gpuperf::client {

// Ends a watch at once and cleanly: on SIGINT and SIGTERM, and when the reader of our output
// leaves, which without this would only be seen at the next write, perhaps hours later.
//
// Thread: made and used by the main thread; a thread of its own waits for the events and cancels
// the call in progress.
// Must be made before the channel: the threads of gRPC have to inherit the blocked signals.
// Not here: commands that answer once; there the signals keep their usual effect.
class Interrupt {
 public:
  // `output_fd` is watched for its reader leaving.
  static Result<std::unique_ptr<Interrupt>> make(int output_fd);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool happened() const;
  // False when interrupted meanwhile.
  bool wait_for(std::chrono::nanoseconds duration);
  // The same, and true at once when there is something to read.
  bool wait_for_input(int input_fd, std::chrono::nanoseconds duration);

  // Cancels `context` when the interrupt comes, or at once if it has. nullptr = nothing to cancel.
  void set_call(grpc::ClientContext* context);

 private:
  Interrupt(int signal_fd, int stop_fd, int happened_fd, int output_fd,
            const sigset_t& mask_before);
  void wait_for_event(int output_fd);

  // Set once in the constructor.
  int signal_fd_;
  int stop_fd_;
  int happened_fd_;  // readable from the interrupt on
  sigset_t mask_before_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;                // guarded by mutex_
  grpc::ClientContext* call_ = nullptr;  // guarded by mutex_

  std::thread thread_;  // last: it uses all of the above
};

// Holds a call where the interrupt finds it, for as long as it runs. `interrupt` may be null.
class InterruptibleCall {
 public:
  InterruptibleCall(Interrupt* interrupt, grpc::ClientContext& context) : interrupt_(interrupt) {
    if (interrupt_ != nullptr) interrupt_->set_call(&context);
  }
  ~InterruptibleCall() {
    if (interrupt_ != nullptr) interrupt_->set_call(nullptr);
  }
  InterruptibleCall(const InterruptibleCall&) = delete;
  InterruptibleCall& operator=(const InterruptibleCall&) = delete;

 private:
  Interrupt* interrupt_;
};

}  // namespace gpuperf::client
