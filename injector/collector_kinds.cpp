#include <cstdio>

#include "injector/clocks.h"
#include "injector/collector.h"
#include "injector/launch_hooks.h"

// What is on in CUPTI, and from when to when the hooks record calls instead of it.

namespace gpuperf::injector {
namespace {

// A daemon that begins has hooks count when its probes are attached, seconds later. One that never
// does cannot.
constexpr uint64_t kUncountedMs = 15'000;
// So often the hooks may lose track of whose work is whose before CUPTI records the calls.
constexpr uint32_t kLostTracksMax = 3;
// While the process calls CUDA, its calls are to be hooked or recorded by CUPTI within so long.
constexpr uint64_t kFreshMs = 5'000;

}  // namespace

// Whether the hooks are to record calls: from a process's first launch on, or from one on before
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

// It may still make the CUDA graphs that a process makes when it begins.
bool Collector::is_young(uint64_t now_ms) const { return now_ms - first_order_ms_ < young_ms_; }

// What the hooks need to begin with is not there yet: a daemon that has them count, and a CUPTI
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
    // Calls that had no record may look like later ones that have: begins anew, at the next look.
    return end_hooked_calls(active_.all(), now_ms);
  } else {
    switch_off(off, now_ms);
  }
  if (active_.all() == 0 && want.kinds != 0 && !register_buffers()) return;
  if (want.hooked_calls && !are_hooked) return begin_hooked_calls(want, now_ms);
  switch_on(want);
}

// Kinds and log go on together, so that each record is of a call that was logged; in cuInit, before
// any launch.
void Collector::begin_hooked_calls(const Want& want, uint64_t now_ms) {
  hooked_kinds_ = want.kinds;
  if (in_initialisation_) {
    switch_on(want);
    return records_.hook_calls(false);
  }
  const uint64_t start_unix_ns = read_unix_ns();
  if (!hold_launches()) return;  // at the next look
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

// Exactly the calls that were logged have records then, or would have: CUPTI drops that of work
// that goes on, now and later (H100).
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
  // What one selection has recorded is handed over before the next begins.
  (void)api_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  count_dropped();
  drain(true, now_ms);
}

// The count outlives cuptiFinalize: what is dropped at an end must not be found in what begins.
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
