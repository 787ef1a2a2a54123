#pragma once

// Ends CUPTI in this process by cuptiFinalize, on a thread that is about to launch.
//
// That is the only kind of thread on which it is safe while others are in CUDA (102 of 102 on an
// H200; from a thread of our own it corrupted the heap). So it is asked for, and done within a
// launch hook before the launch enters the driver; the other threads go on launching meanwhile.
//
//   from      to        by
//   idle      wanted    want(): nothing of ours is on, all buffers are home
//   wanted    idle      hold(): CUPTI is needed again
//   wanted    running   the first thread that launches, by compare-exchange
//   running   done      that thread, when cuptiFinalize has returned: 2 to 3 ms; at once, with an
//                       error, when what it launches is a graph
//   done      idle      take_result(): whoever asked knows
//
// From `wanted` on nobody else may call CUPTI: hold() first. Thread: under the collector's lock,
// which the launching thread never takes. One in a process.

#include <cupti.h>

#include <atomic>
#include <cstdint>

namespace gpuperf::injector {

class Finalizer {
 public:
  // Asks for it. No launch comes: it stays asked for. Does nothing while it is.
  void want(CUptiResult (*finalize)());
  // Not now. False: a thread is at it and was not done within `patience_ms`; ask again.
  bool hold(uint64_t patience_ms);
  bool is_done() const { return state_.load(std::memory_order_acquire) == State::kDone; }
  // What cuptiFinalize answered, once it is done; it was not called where a graph was launched.
  static constexpr CUptiResult kMetGraph = CUPTI_ERROR_INVALID_OPERATION;
  CUptiResult take_result();
  // While it was done the launching thread was held.
  uint64_t started_unix_ns() const { return started_unix_ns_; }
  uint64_t ended_unix_ns() const { return ended_unix_ns_; }
  // In a forked child, or when the process ends: no thread is to begin it. Any thread.
  void abandon();

 private:
  enum class State : uint32_t { kIdle, kWanted, kRunning, kDone };
  static void on_launch(bool launches_graph);
  bool leave(State from, State to);

  std::atomic<State> state_ = State::kIdle;
  CUptiResult (*finalize_)() = nullptr;  // written while idle
  // Written while running.
  CUptiResult result_ = CUPTI_SUCCESS;
  uint64_t started_unix_ns_ = 0;
  uint64_t ended_unix_ns_ = 0;
};

}  // namespace gpuperf::injector
