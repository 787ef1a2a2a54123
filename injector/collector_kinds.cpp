#include <cstdio>

#include "injector/clocks.h"
#include "injector/collector.h"
#include "injector/launch_hooks.h"

// Switches CUPTI kinds, and decides when hooks record calls instead of CUPTI.

namespace gpuperf::injector {
namespace {

// A starting daemon has the hooks count once its probes are attached, seconds later. One that has
// not by then cannot.
constexpr uint64_t kUncountedMs = 15'000;
// How often the hooks may lose track of whose work is whose before CUPTI records the calls.
constexpr uint32_t kLostTracksMax = 3;
// While the process calls CUDA, its calls must be hooked or recorded by CUPTI within this time.
constexpr uint64_t kFreshMs = 5'000;

}  // namespace

// Whether the hooks are to record calls: from a process's first launch on, or from a launch before
// which CUPTI recorded nothing.
bool Collector::can_hook_calls(uint64_t now_ms) const {
  if ((control_.enabled_kinds & GPUPERF_SESSION_HOOKED_CALLS) == 0 || !can_log_calls() ||
      (is_prepared_ && api_.cuptiGetStreamIdEx == nullptr) ||
      (uncounted_since_ms_ != 0 && now_ms - uncounted_since_ms_ >= kUncountedMs)) {
    return false;
  }
  if (in_initialisation_ || records_.are_calls_hooked()) return true;
  if (lost_tracks_ >= kLostTracksMax) return false;
  return is_clean_ || (can_end() && !is_young(now_ms));
}

// The process may still create the CUDA graphs that a process creates at startup.
bool Collector::is_young(uint64_t now_ms) const { return now_ms - first_order_ms_ < young_ms_; }

// Whether the hooks still lack what they need to begin: a daemon that has them count, and a CUPTI
// that has recorded nothing.
bool Collector::must_wait_for_hooks(uint64_t now_ms) {
  if (in_initialisation_ || has_yielded_ || !wants_any() || records_.are_calls_hooked() ||
      !can_hook_calls(now_ms)) {
    fresh_until_ms_ = 0;
    return false;
  }
  if (fresh_until_ms_ == 0 || calls_when_asked_ == get_noted_calls()) {
    calls_when_asked_ = get_noted_calls();
    fresh_until_ms_ = now_ms + kFreshMs;
  }
  if (now_ms >= fresh_until_ms_) {
    why_lost_ = "launches could not be held back";  // or there were only copies
    lost_tracks_ = kLostTracksMax;
    return false;
  }
  if (!is_clean_) {
    if (state_ == GPUPERF_SESSION_STATE_COLLECTING) begin_gap(GPUPERF_SESSION_CAUSE_NONE);
    switch_off(active_.all(), now_ms);
    (void)dismiss_cupti(now_ms);
    set_state(GPUPERF_SESSION_STATE_WAITING, GPUPERF_SESSION_CAUSE_NONE,
              "recording begins anew once CUPTI is finalised");
  }
  return !is_clean_ || !hooks_count();
}

void Collector::switch_kinds(const Want& want, uint64_t now_ms) {
  uint32_t off = active_.all() & ~want.kinds;
  if (active_.all_apis() != want.all_apis) off |= active_.all() & (kKindRuntime | kKindDriver);
  const bool are_hooked = records_.are_calls_hooked();
  if (are_hooked && !want.hooked_calls) {
    end_hooked_calls(off, now_ms);
  } else if (are_hooked && (want.kinds & ~hooked_kinds_ & ~active_.all()) != 0) {
    // Calls without a record may look like later ones with one: begins again at the next check.
    return end_hooked_calls(active_.all(), now_ms);
  } else {
    switch_off(off, now_ms);
  }
  if (active_.all() == 0 && want.kinds != 0 && !register_buffers()) return;
  if (want.hooked_calls && !are_hooked) return begin_hooked_calls(want, now_ms);
  switch_on(want);
}

// Kinds and log go on together, so that each record belongs to a logged call; in cuInit, before any
// launch.
void Collector::begin_hooked_calls(const Want& want, uint64_t now_ms) {
  hooked_kinds_ = want.kinds;
  if (in_initialisation_) {
    switch_on(want);
    return records_.hook_calls(false);
  }
  const uint64_t start_unix_ns = read_unix_ns();
  if (!hold_launches()) return;  // retried at the next check
  switch_on(want);
  count_dropped();
  records_.hook_calls(true);
  if (!release_launches()) {
    // So much work is queued that launches would wait each time.
    records_.lose_track("launches could not be held back");
    lost_tracks_ = kLostTracksMax;
  }
  records_.add_hold(start_unix_ns, read_unix_ns(), now_ms);
}

// Afterwards exactly the logged calls have records, or would have: CUPTI drops the record of work
// that is still running, now and later (H100).
void Collector::end_hooked_calls(uint32_t off, uint64_t now_ms) {
  const uint64_t start_unix_ns = read_unix_ns();
  bool is_clean = hold_launches();
  set_call_log(nullptr);
  active_.switch_off(off);
  if (is_clean) {
    is_clean = release_launches();
    records_.add_hold(start_unix_ns, read_unix_ns(), now_ms);
  }
  switch_off(off, now_ms);
  records_.finish_hooked_calls(now_ms);
  is_clean_ = is_clean && active_.all() == 0;
}

void Collector::switch_off(uint32_t kinds, uint64_t now_ms) {
  if (kinds == 0) return;
  active_.switch_off(kinds);
  if ((kinds & kKindGraphs) != 0) graphs_covered_ = false;  // for good
  // Hands over what one set of kinds has recorded before the next begins.
  (void)api_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  count_dropped();
  drain(true, now_ms);
}

// The count survives cuptiFinalize: drops at the end of one collection must not show up in the
// next.
void Collector::count_dropped() {
  size_t dropped = 0;
  if (api_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS) {
    records_.count(GPUPERF_SESSION_LOSS_CUPTI_BUFFER, dropped);
  }
}

void Collector::switch_on(const Want& want) {
  const uint32_t kinds = want.kinds & ~active_.all();
  if (kinds == 0) return;
  is_clean_ = false;
  if ((kinds & (kKindRuntime | kKindDriver)) != 0) {
    calls_before_ = records_.call_count();
    kernels_before_ = records_.kernel_count();
    had_calls_ = true;
  }
  const auto refusal = active_.switch_on(want.kinds, want.all_apis, in_initialisation_);
  if (refusal.result != CUPTI_SUCCESS) {
    char what[40];
    std::snprintf(what, sizeof(what), "cuptiActivityEnable(%d)", static_cast<int>(refusal.kind));
    fail(GPUPERF_SESSION_CAUSE_CUPTI_ERROR, what, refusal.result);
  }
}

}  // namespace gpuperf::injector
