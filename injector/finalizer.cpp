#include "injector/finalizer.h"

#include <unistd.h>

#include "injector/clocks.h"
#include "injector/launch_hooks.h"

namespace gpuperf::injector {
namespace {

// The finalizer that launching threads serve. Set before finalization is requested.
std::atomic<Finalizer*> g_finalizer = nullptr;
constexpr useconds_t kLookUs = 200;
constexpr uint64_t kOthersMs = 3;  // how long others may still be in the driver
// Launches were held for up to 52 ms (H100, 16 threads, a busy host). One that goes on before
// cuptiFinalize has returned may crash.
constexpr uint64_t kHeldMsMax = 2'000;

}  // namespace

bool Finalizer::leave(State from, State to) { return state_.compare_exchange_strong(from, to); }

void Finalizer::want(CUptiResult (*finalize)()) {
  if (state_.load(std::memory_order_relaxed) != State::kIdle) return;
  finalize_ = finalize;
  g_finalizer.store(this, std::memory_order_relaxed);
  set_attention(on_launch);  // first: the thread that wins resets it
  state_.store(State::kWanted, std::memory_order_release);
}

void Finalizer::on_launch(bool launches_graph) {
  Finalizer& self = *g_finalizer.load(std::memory_order_relaxed);
  if (!self.leave(State::kWanted, State::kRunning)) return;
  set_attention(nullptr);
  self.started_unix_ns_ = read_unix_ns();
  self.outcome_ = self.finalize(launches_graph);
  self.ended_unix_ns_ = read_unix_ns();
  self.state_.store(State::kDone, std::memory_order_release);
}

Finalizer::Outcome Finalizer::finalize(bool launches_graph) const {
  if (launches_graph) return Outcome::kMetGraph;  // it was created unseen: CUPTI must stay
  if (!hold_launches(kOthersMs, kHeldMsMax)) return Outcome::kBusy;
  const bool is_ended = finalize_() == CUPTI_SUCCESS;
  (void)release_launches();
  return is_ended ? Outcome::kEnded : Outcome::kFailed;
}

bool Finalizer::hold(uint64_t patience_ms) {
  if (leave(State::kWanted, State::kIdle)) {
    set_attention(nullptr);
    return true;
  }
  for (uint64_t us = 0; state_.load(std::memory_order_acquire) == State::kRunning; us += kLookUs) {
    if (us >= patience_ms * 1'000) return false;
    (void)usleep(kLookUs);
  }
  return true;
}

Finalizer::Outcome Finalizer::take_outcome() {
  state_.store(State::kIdle, std::memory_order_relaxed);
  return outcome_;
}

void Finalizer::abandon() {
  if (leave(State::kWanted, State::kIdle)) set_attention(nullptr);
}

}  // namespace gpuperf::injector
