#pragma once

// Finalizes CUPTI in this process with cuptiFinalize, on a thread that is about to launch.
//
// No other kind of thread is safe while others are in CUDA: from a thread of our own it corrupted
// the heap. So it is requested, then done in a launch hook before the launch enters the driver. No
// other thread may be in a launch then: CUPTI wrote into buffers that it had given back, once in
// some 3,000 times on an H100 with 16 threads launching (docs/decisions/0012-cupti.md). So the
// thread closes the gate for launches first (launch_gate.h); if others stay in the driver, it is
// tried again later. Who requests it has seen to it that launches are followed for some time.
//
//   from      to        by
//   idle      wanted    want(): nothing of ours is on, all buffers are back
//   wanted    idle      hold(): CUPTI is needed again
//   wanted    running   the first thread that launches, by compare-exchange
//   running   done      that thread: when cuptiFinalize has returned, after 2 to 3 ms; at once when
//                       it launches a graph; after 3 ms if others are still in launches
//   done      idle      take_result(): the requester has the result
//
// From `wanted` on, nobody else may call CUPTI without hold() first. Thread: under the collector's
// lock, which the launching thread never takes. One per process.

#include <cupti.h>

#include <atomic>
#include <cstdint>

namespace gpuperf::injector {

class Finalizer {
 public:
  // Requests finalization. The request stands until a launch comes. Does nothing while one is
  // pending.
  void want(CUptiResult (*finalize)());
  // Cancels the request. False: a thread is finalizing and did not finish within `patience_ms`; try
  // again.
  bool hold(uint64_t patience_ms);
  bool is_done() const { return state_.load(std::memory_order_acquire) == State::kDone; }
  // What came of the request, once done. All but kEnded: cuptiFinalize was not called, or failed.
  enum class Outcome { kEnded, kFailed, kMetGraph, kBusy };
  Outcome take_outcome();
  // The launching thread was held between these times.
  uint64_t started_unix_ns() const { return started_unix_ns_; }
  uint64_t ended_unix_ns() const { return ended_unix_ns_; }
  // In a forked child or at process exit: no thread may start it. Any thread.
  void abandon();

 private:
  enum class State : uint32_t { kIdle, kWanted, kRunning, kDone };
  static void on_launch(bool launches_graph);
  Outcome finalize(bool launches_graph) const;
  bool leave(State from, State to);

  std::atomic<State> state_ = State::kIdle;
  CUptiResult (*finalize_)() = nullptr;  // written in state idle
  // Written in state running.
  Outcome outcome_ = Outcome::kEnded;
  uint64_t started_unix_ns_ = 0;
  uint64_t ended_unix_ns_ = 0;
};

}  // namespace gpuperf::injector
