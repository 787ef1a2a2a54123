#include <cstdio>

#include "injector/clocks.h"
#include "injector/collector.h"
#include "injector/launch_hooks.h"
#include "injector/mapping_hooks.h"

// Switches CUPTI kinds, and decides when hooks record calls instead of CUPTI.

namespace gpuperf::injector {
namespace {

// A starting daemon has the hooks count once its probes are attached, seconds later. One that has
// not by then cannot.
constexpr uint64_t kUncountedMs = 15'000;
// How often the hooks may lose track of whose work is whose, or launches go on before kinds do,
// before CUPTI records the calls.
constexpr uint32_t kLostTracksMax = 3;
// From an attempt that held launches for long to the next.
constexpr uint64_t kHookAgainMs = 300;
// While the process calls CUDA, its calls must be hooked or recorded by CUPTI within this time.
constexpr uint64_t kFreshMs = 5'000;
// Each holds others for 3 ms at most.
constexpr int kHoldTries = 3;
// How long launches are followed before kinds are switched. Shorter than before CUPTI is finalized:
// records are waited for.
constexpr uint64_t kUnseenSwitchMs = 300;

// How long to wait before PC sampling is tried again.
constexpr uint64_t kSampleAgainMs = 1'000;
// And after an attempt, which held launches for 50 to 100 ms.
constexpr uint64_t kSampleFailedMs = 5'000;
// Beginning to sample took up to 0.8 s (H100, the first time). A call that goes on before may hang.
constexpr uint64_t kDriverPatienceMs = 100, kDriverHeldMsMax = 5'000;

// No other thread gives the driver work or changes what it has mapped while it lives.
class HeldDriver {
 public:
  HeldDriver() : is_held_(hold_mapping_calls(kDriverPatienceMs, kDriverHeldMsMax)) {
    if (is_held_ && !hold_launches(kDriverPatienceMs, kDriverHeldMsMax)) {
      release_mapping_calls();
      is_held_ = false;
    }
  }
  ~HeldDriver() {
    if (!is_held_) return;
    (void)release_launches();
    release_mapping_calls();
  }
  HeldDriver(const HeldDriver&) = delete;
  HeldDriver& operator=(const HeldDriver&) = delete;
  bool is_held() const { return is_held_; }

 private:
  bool is_held_ = false;
};

// Whether launches wait from now on.
bool hold_patiently() {
  for (int i = 0; i < kHoldTries; ++i) {
    if (hold_launches()) return true;
  }
  return false;
}

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

// Whether the hooks still lack what they need to begin: a daemon that has them count, a CUPTI that
// has recorded nothing, and some distance from the last attempt.
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
  if (!is_clean_ && !can_switch(now_ms)) return true;
  if (!is_clean_) {
    if (state_ == GPUPERF_SESSION_STATE_COLLECTING) begin_gap(GPUPERF_SESSION_CAUSE_NONE);
    switch_off(active_.all(), now_ms);
    (void)dismiss_cupti(now_ms);
    set_state(GPUPERF_SESSION_STATE_WAITING, GPUPERF_SESSION_CAUSE_NONE,
              "recording begins anew once CUPTI is finalised");
  }
  return !is_clean_ || !hooks_count() || now_ms < hook_again_ms_;
}

// Whether kinds may be switched now. Where 16 threads launched meanwhile, CUPTI corrupted the heap.
bool Collector::can_switch(uint64_t now_ms) const {
  if (in_initialisation_ || graphs_.load() == Graphs::kUnknown) return true;  // none, or no hooks
  return followed_since_ms_ != 0 && now_ms - followed_since_ms_ >= kUnseenSwitchMs;
}

Collector::HeldLaunches::HeldLaunches(bool is_wanted) : are_held_(is_wanted && hold_patiently()) {}

Collector::HeldLaunches::~HeldLaunches() {
  if (are_held_) (void)release_launches();
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
  switch_on(want, !in_initialisation_);
}

// Kinds and log go on together, so that each record belongs to a logged call; in cuInit, before any
// launch.
void Collector::begin_hooked_calls(const Want& want, uint64_t now_ms) {
  hooked_kinds_ = want.kinds;
  if (in_initialisation_) {
    switch_on(want, false);
    return records_.hook_calls(false);
  }
  const uint64_t start_unix_ns = read_unix_ns();
  if (!hold_launches()) return;  // retried at the next check
  switch_on(want, false);
  count_dropped();
  records_.hook_calls(true);
  const bool is_complete = release_launches();
  records_.add_hold(start_unix_ns, read_unix_ns(), now_ms);
  if (is_complete) return;
  // Launches went on meanwhile. The first time, CUPTI sets up its context (15 to 40 ms, H200);
  // later it takes as long only where much work is queued, and then each time.
  ++lost_tracks_;
  hook_again_ms_ = now_ms + kHookAgainMs;
  why_lost_ = "launches could not be held back";
  records_.drop_hooked_calls();
  end_hooked_calls(active_.all(), now_ms);
}

// Afterwards exactly the logged calls have records, or would have: CUPTI drops the record of work
// that is still running, now and later (H100).
void Collector::end_hooked_calls(uint32_t off, uint64_t now_ms) {
  const uint64_t start_unix_ns = read_unix_ns();
  bool is_clean = hold_patiently();
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
  {
    const HeldLaunches held((active_.all() & kinds) != 0);
    active_.switch_off(kinds);
  }
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

void Collector::switch_on(const Want& want, bool holds) {
  const uint32_t kinds = want.kinds & ~active_.all();
  if (kinds == 0) return;
  is_clean_ = false;
  if ((kinds & (kKindRuntime | kKindDriver)) != 0) {
    calls_before_ = records_.call_count();
    kernels_before_ = records_.kernel_count();
    had_calls_ = true;
  }
  had_allocations_ |= (kinds & kKindMemory) != 0;
  ActiveKinds::Refusal refusal;
  {
    const HeldLaunches held(holds);
    refusal = active_.switch_on(want.kinds, want.all_apis, in_initialisation_);
  }
  if (refusal.result != CUPTI_SUCCESS) {
    char what[40];
    std::snprintf(what, sizeof(what), "cuptiActivityEnable(%d)", static_cast<int>(refusal.kind));
    fail(GPUPERF_SESSION_CAUSE_CUPTI_ERROR, what, refusal.result);
  }
}

// --- PC sampling

// Why nobody may be sampled in this process now; null = it may be begun.
const char* Collector::find_why_not_to_sample(uint64_t now_ms) const {
  if (graphs_.load() == Graphs::kUnknown) return "no PC sampling: launches are not hooked";
  if (const char* why_not = PcSampler::find_why_not(api_)) return why_not;
  if (records_.working_devices() == 0) return "PC sampling waits: no kernel was recorded yet";
  // Launches that began before they were followed are over soon.
  const bool are_all_seen = followed_since_ms_ != 0 && now_ms - followed_since_ms_ >= kUnseenMs;
  return are_all_seen ? nullptr : "PC sampling is about to begin";
}

// Begins and ends it, with nobody else in the driver: it would hang (mapping_hooks.h). False: it is
// still on, since threads were there all the time.
bool Collector::switch_sampling(bool is_on, uint64_t now_ms) {
  if (is_on == sampler_.is_on()) return true;
  if (!is_on) return end_sampling(now_ms);
  if (now_ms >= sample_again_ms_) begin_sampling(now_ms);
  return true;
}

void Collector::begin_sampling(uint64_t now_ms) {
  const auto put_off = [this, now_ms](const char* why, uint64_t pause_ms) {
    std::snprintf(why_not_sampled_, sizeof(why_not_sampled_), "%s", why);
    sample_again_ms_ = now_ms + pause_ms;
  };
  if (const char* why_not = find_why_not_to_sample(now_ms)) return put_off(why_not, kSampleAgainMs);
  const uint64_t start_unix_ns = read_unix_ns();
  const HeldDriver held;
  if (!held.is_held()) {
    return put_off("PC sampling waits: other threads are in the driver", kSampleAgainMs);
  }
  is_clean_ = false;
  const PcSampler::Failure failure = sampler_.begin(api_, records_.working_devices());
  records_.begin_sampling();
  records_.add_hold(start_unix_ns, read_unix_ns(), now_ms);
  if (failure.call == nullptr) {
    why_not_sampled_[0] = '\0';
  } else if (failure.call[0] == '\0') {
    put_off("no PC sampling: no device has an active primary context", kSampleFailedMs);
  } else if (failure.result == CUPTI_ERROR_HARDWARE_BUSY) {
    put_off("PC sampling waits: another program samples or profiles this GPU", kSampleFailedMs);
  } else if (failure.result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) {
    put_off(
        "no PC sampling: the driver allows it to root only (NVreg_RestrictProfilingToAdminUsers)",
        kSampleFailedMs);
  } else {
    char why[sizeof(why_not_sampled_)];
    std::snprintf(why, sizeof(why), "%s: CUPTI error %d", failure.call,
                  static_cast<int>(failure.result));
    put_off(why, kSampleFailedMs);
  }
}

bool Collector::end_sampling(uint64_t now_ms) {
  const uint64_t start_unix_ns = read_unix_ns();
  const HeldDriver held;
  if (!held.is_held()) return false;
  records_.expect_samples(is_connected_, now_ms);
  sampler_.end(api_, records_);
  records_.add_hold(start_unix_ns, read_unix_ns(), now_ms);
  return true;
}

}  // namespace gpuperf::injector
