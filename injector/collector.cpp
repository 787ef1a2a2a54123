#include "injector/collector.h"

#include <dlfcn.h>
#include <time.h>

#include <cstdio>
#include <cstring>

#include "injector/clocks.h"
#include "injector/launch_hooks.h"
#include "injector/yield.h"

namespace gpuperf::injector {

Collector* g_collector = nullptr;
Buffers* g_buffers = nullptr;

namespace {

// Where graphs cannot be covered, how long to record only calls before recording kernels.
constexpr uint64_t kProbationMs = 3'000;
// Kernels inside graphs keep their instrumentation until the graph is launched with nothing on
// (seen on an H200: 1,640 us instead of 1,030 after a burst, 1,050 after this).
constexpr uint64_t kSettleMs = 300;
// The longest that another client waits for our lock.
constexpr uint64_t kLockMs = 500;
// Host memory of CUPTI's own in the device's memory: 3.2 MB a buffer by its default, 32 of them.
constexpr size_t kDeviceBuffersMax = 32;
// Untimed records per check: more means that device buffers have run out.
constexpr uint64_t kUntimedTrip = 100;
constexpr uint32_t kDeviceBufferTripsMax = 3;
constexpr uint64_t kTripPauseMs = 5'000;
// This many kernels without a single call record mean that none will come.
constexpr uint64_t kSilentKernels = 1'000;
// How long to wait for cuptiFinalize, which holds the thread that it runs on for 2 to 3 ms.
constexpr uint64_t kFinalizeMs = 100;
// How often to look for a missing libcupti again: a library loaded later may bring it.
constexpr uint64_t kFindAgainMs = 10'000;
// How often to try to end sampling before another client begins, which could not record kernels.
// Each try takes up to 0.1 s.
constexpr int kEndSamplingTries = 5;

// Of the code at this address, without its folder.
const char* name_library(const void* code) {
  Dl_info info = {};
  if (code == nullptr || dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "unknown";
  const char* slash = std::strrchr(info.dli_fname, '/');
  return slash != nullptr ? slash + 1 : info.dli_fname;
}

}  // namespace

// Takes the lock. A thread that is not ours waits only kLockMs and continues without it. Our own
// may wait for such a thread to finish, which never takes long.
class Collector::Locked {
 public:
  enum class Patience { kShort, kEndless };

  Locked(const Collector& collector, Patience patience) : collector_(collector) {
    if (patience == Patience::kEndless) {
      is_locked_ = pthread_mutex_lock(&collector.lock_) == 0;
      return;
    }
    timespec until = {};
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += static_cast<long>(kLockMs * 1'000'000);
    until.tv_sec += until.tv_nsec / 1'000'000'000;
    until.tv_nsec %= 1'000'000'000;
    is_locked_ = pthread_mutex_timedlock(&collector.lock_, &until) == 0;
  }
  ~Locked() {
    if (is_locked_) (void)pthread_mutex_unlock(&collector_.lock_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  bool is_locked() const { return is_locked_; }

 private:
  const Collector& collector_;
  bool is_locked_ = false;
};

void Collector::on_buffer_requested(uint8_t** buffer, size_t* size, size_t* records_max) {
  *buffer = g_buffers->acquire();
  *size = *buffer != nullptr ? Buffers::kBufferBytes : 0;
  *records_max = 0;
}

void Collector::on_buffer_completed(CUcontext, uint32_t, uint8_t* buffer, size_t,
                                    size_t valid_size) {
  if (buffer != nullptr) (void)g_buffers->complete(buffer, valid_size);  // or not ours to free
}

bool Collector::read_cupti_clock(uint64_t& cupti) {
  return g_collector->api_.cuptiGetTimestamp(&cupti) == CUPTI_SUCCESS;
}

void Collector::set_state(gpuperf_session_state state, gpuperf_session_cause cause,
                          const char* detail) {
  state_ = state;
  cause_ = cause;
  std::snprintf(detail_, sizeof(detail_), "%s", detail);
}

void Collector::fail(gpuperf_session_cause cause, const char* what, int result) {
  char detail[96];
  std::snprintf(detail, sizeof(detail), "%s: CUPTI error %d", what, result);
  set_state(GPUPERF_SESSION_STATE_FAILED, cause, detail);
}

void Collector::begin_gap(gpuperf_session_cause cause) {
  if (in_gap_) return;
  in_gap_ = true;
  gap_cause_ = cause;
  gap_start_unix_ns_ = read_unix_ns();
}

void Collector::end_gap(uint64_t now_ms) {
  if (!in_gap_ || !is_connected_) return;  // it lasts until it can be reported
  in_gap_ = false;
  records_.add_gap(gap_cause_, gap_start_unix_ns_, read_unix_ns(), now_ms);
}

bool Collector::wants_any() const {
  return has_order_ && control_.mode == GPUPERF_SESSION_RUN && control_.enabled_kinds != 0;
}

// Whether CUPTI may be touched at all; the state says why not.
bool Collector::can_collect() const {
  return state_ != GPUPERF_SESSION_STATE_FAILED && !is_dead_.load(std::memory_order_relaxed);
}

void Collector::watch_clients() {
  const Locked locked(*this, Locked::Patience::kEndless);
  if (is_dead_.load(std::memory_order_relaxed) || find_nsight() != nullptr) return;
  if (api_.library == nullptr && is_cupti_mapped()) (void)find_library();  // prepare() says why not
  has_looked_ = true;
  stand_between(api_);
}

CuptiFound Collector::find_library() {
  // Someone may have loaded it since the last look, and used it.
  if (api_.library == nullptr && has_looked_ && read_cupti_use().has_begun) {
    foreign_.suspect(read_mono_ms());
  }
  return find_cupti(api_);
}

// Finds CUPTI and sets it up for use. Switches nothing on.
bool Collector::prepare() {
  if (is_prepared_) return true;
  if (const char* tool = find_nsight()) {
    set_state(GPUPERF_SESSION_STATE_FAILED, GPUPERF_SESSION_CAUSE_NSIGHT, tool);
    return false;
  }
  const CuptiFound found = find_library();
  if (found.cause != GPUPERF_SESSION_CAUSE_NONE) {
    set_state(GPUPERF_SESSION_STATE_FAILED, found.cause, found.detail);
    return false;
  }
  // Before anything is on, so that we see every client that uses CUPTI after us.
  stand_between(api_);
  active_.classify_calls();
  // Identify threads by the kernel's thread id.
  (void)api_.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  // Refused once a context exists; CUPTI's own defaults then apply.
  size_t size = sizeof(size_t);
  size_t buffers_max = kDeviceBuffersMax;
  (void)api_.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &size,
                                       &buffers_max);
  // One host buffer for all threads instead of one per thread: 64 threads would hold 64 MiB. Older
  // versions lack the attribute and have no per-thread buffers.
  size = sizeof(uint8_t);
  uint8_t per_thread = 0;
  (void)api_.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &size,
                                       &per_thread);
  is_prepared_ = true;
  return true;
}

bool Collector::register_buffers() {
  buffers_.stock_up();
  const CUptiResult result =
      api_.cuptiActivityRegisterCallbacks(on_buffer_requested, on_buffer_completed);
  if (result != CUPTI_SUCCESS) {
    fail(GPUPERF_SESSION_CAUSE_CUPTI_ERROR, "cuptiActivityRegisterCallbacks", result);
    return false;
  }
  clock_.forget();
  clock_.check(read_cupti_clock);
  return true;
}

Collector::Want Collector::choose_kinds(uint64_t now_ms) const {
  Want want;
  if (!has_order_ || has_yielded_ || control_.mode == GPUPERF_SESSION_OFF) return want;
  if (now_ms < settle_end_ms_) return want;
  if (control_.mode == GPUPERF_SESSION_PAUSE) {
    want.kinds = graphs_covered_ ? kKindGraphs : 0;
    return want;
  }
  const auto asks = [this](uint32_t kind) {
    return (control_.enabled_kinds & GPUPERF_SESSION_BIT(kind)) != 0;
  };
  const bool by_node = burst_.is_by_node();
  want.all_apis = burst_.has_all_apis();
  if (asks(GPUPERF_SESSION_MEMCPY)) want.kinds |= kKindCopies | kKindPeerCopies;
  if (asks(GPUPERF_SESSION_MEMSET)) want.kinds |= kKindSets;
  if (asks(GPUPERF_SESSION_MEMORY)) want.kinds |= kKindMemory;
  want.hooked_calls = can_hook_calls(now_ms) && !want.all_apis && !by_node;
  if ((asks(GPUPERF_SESSION_API) || asks(GPUPERF_SESSION_SYNC) || want.all_apis || by_node) &&
      !want.hooked_calls) {
    want.kinds |= kKindRuntime | kKindDriver;
  }
  // On as long as allowed, whatever is requested: once off, it is lost.
  if (graphs_covered_ && !by_node) want.kinds |= kKindGraphs;
  const bool may_see_nodes =
      by_node || (now_ms >= kernels_from_ms_ && (graphs_covered_ || !kernels_barred_));
  if ((asks(GPUPERF_SESSION_KERNEL) || by_node) && may_see_nodes &&
      device_buffer_trips_ < kDeviceBufferTripsMax) {
    want.kinds |= kKindKernels;
  }
  want.samples = burst_.has_samples();
  return want;
}

// Makes CUPTI do what the order and the circumstances require.
void Collector::apply(uint64_t now_ms) {
  if (cause_ == GPUPERF_SESSION_CAUSE_NO_CUPTI && now_ms >= find_again_ms_) {
    find_again_ms_ = now_ms + kFindAgainMs;
    state_ = GPUPERF_SESSION_STATE_WAITING;
  }
  if (!can_collect()) return;
  if (!has_order_) return;
  if (finalizer_.is_done()) forget_cupti();
  has_run_ |= wants_any();
  if (hooks_count()) {
    uncounted_since_ms_ = 0;
  } else if (uncounted_since_ms_ == 0) {
    uncounted_since_ms_ = now_ms;
  }
  if (const char* why = records_.why_lost_track(); why != nullptr) {
    why_lost_ = why;
    ++lost_tracks_;
    begin_gap(GPUPERF_SESSION_CAUSE_NONE);  // until calls are recorded again
    records_.drop_hooked_calls();
  }
  follow_launches(now_ms);
  if (!burst_.has_samples() && !switch_sampling(false, now_ms)) return;  // at the next check
  if (must_wait_for_hooks(now_ms)) return;
  if (wants_any() && !take_cupti()) return;  // it is being finalized: continues at the next check
  if (control_.mode == GPUPERF_SESSION_OFF && !is_prepared_) {
    return set_state(GPUPERF_SESSION_STATE_OFF, GPUPERF_SESSION_CAUSE_CONTROL,
                     dismiss_cupti(now_ms));
  }
  if (!is_prepared_ && !wants_any()) {
    return set_state(
        GPUPERF_SESSION_STATE_PAUSED, GPUPERF_SESSION_CAUSE_CONTROL,
        waits_ ? "records begin when launches are few, or in two minutes" : dismiss_cupti(now_ms));
  }
  if (!in_initialisation_ && !is_prepared_ && !is_cuda_up()) {
    return set_state(GPUPERF_SESSION_STATE_WAITING, GPUPERF_SESSION_CAUSE_NONE, "");
  }
  if (has_yielded_ && !is_prepared_) return;  // nor its attributes while another client may use it
  if (!prepare()) return;
  if (in_initialisation_ && control_.mode == GPUPERF_SESSION_RUN &&
      graphs_.load() == Graphs::kUnknown) {
    graphs_covered_ = true;
  }
  records_.set_kinds(control_.enabled_kinds);
  records_.set_sample_every(control_.sample_every);
  const bool was_collecting = state_ == GPUPERF_SESSION_STATE_COLLECTING;
  const Want want = choose_kinds(now_ms);
  const bool is_change =
      want.kinds != active_.all() || (want.kinds != 0 && want.all_apis != active_.all_apis());
  if (is_change && !can_switch(now_ms)) return;  // at the next check
  // Kinds cannot be switched on while it samples.
  if ((is_change || !want.samples) && !switch_sampling(false, now_ms)) return;
  switch_kinds(want, now_ms);
  if (!can_collect()) return;
  (void)switch_sampling(want.samples, now_ms);
  // Launches could not be held back: retries at the next check.
  if (want.hooked_calls && !records_.are_calls_hooked()) return;
  if (has_yielded_) return;  // the state says so already
  if (control_.mode == GPUPERF_SESSION_OFF) {
    if (was_collecting) begin_gap(GPUPERF_SESSION_CAUSE_CONTROL);
    set_state(GPUPERF_SESSION_STATE_OFF, GPUPERF_SESSION_CAUSE_CONTROL, dismiss_cupti(now_ms));
  } else if (control_.mode == GPUPERF_SESSION_PAUSE) {
    if (was_collecting) begin_gap(GPUPERF_SESSION_CAUSE_CONTROL);
    set_state(GPUPERF_SESSION_STATE_PAUSED, GPUPERF_SESSION_CAUSE_CONTROL, dismiss_cupti(now_ms));
  } else if (now_ms >= settle_end_ms_) {
    if (kernels_barred_ || now_ms >= kernels_from_ms_) end_gap(now_ms);
    gpuperf_session_cause cause = GPUPERF_SESSION_CAUSE_NONE;
    const char* detail = "";
    char lost[sizeof(detail_)];
    if (device_buffer_trips_ >= kDeviceBufferTripsMax) {
      cause = GPUPERF_SESSION_CAUSE_DEVICE_BUFFERS;
      detail = "kernels are not recorded: their times stopped being valid";
    } else if (kernels_barred_ && !graphs_covered_) {
      cause = GPUPERF_SESSION_CAUSE_GRAPHS_UNSEEN;
      detail = "CUDA graphs made before collection began: no kernels but in bursts";
    } else if (burst_.refuses_nodes()) {
      cause = GPUPERF_SESSION_CAUSE_BURST;
      detail = "no burst by node: the process does not allow it (GPUPERF_NODE_BURSTS=1)";
    } else if (burst_.has_samples() && why_not_sampled_[0] != '\0') {
      cause = GPUPERF_SESSION_CAUSE_BURST;
      detail = why_not_sampled_;
    } else if (why_lost_ != nullptr && !records_.are_calls_hooked()) {
      std::snprintf(lost, sizeof(lost), "CUPTI records calls: %s", why_lost_);
      detail = lost;
    }
    set_state(GPUPERF_SESSION_STATE_COLLECTING, cause, detail);
  }
}

// --- finalizing CUPTI

// Has launches followed while CUPTI is in use: by hooks that count them, else by hooks that only
// note who is in the driver. Others cannot be held.
void Collector::follow_launches(uint64_t now_ms) {
  watch_launches((is_prepared_ || wants_any()) && !hooks_count());
  if (!are_launches_followed()) {
    followed_since_ms_ = 0;
  } else if (followed_since_ms_ == 0) {
    followed_since_ms_ = now_ms;
  }
}

// Makes CUPTI ours to call. False: a thread is finalizing it and takes long.
bool Collector::take_cupti() {
  if (!finalizer_.hold(kFinalizeMs)) return false;
  if (finalizer_.is_done()) forget_cupti();
  return true;
}

// CUPTI was finalized: what it knew of us is gone, and so are the names in records that it
// delivered at the end.
void Collector::forget_cupti() {
  const Finalizer::Outcome outcome = finalizer_.take_outcome();
  if (is_connected_) {
    records_.add_hold(finalizer_.started_unix_ns(), finalizer_.ended_unix_ns(), read_mono_ms());
  }
  if (outcome == Finalizer::Outcome::kMetGraph) graphs_.store(Graphs::kMade);  // that no hook saw
  if (outcome == Finalizer::Outcome::kBusy) {
    end_again_ms_ = read_mono_ms() + end_pause_ms_;
    end_pause_ms_ = std::min(2 * end_pause_ms_, kEndPauseMsMax);
    return;
  }
  end_pause_ms_ = kEndPauseMs;
  cannot_end_ = outcome != Finalizer::Outcome::kEnded;
  if (cannot_end_) return;
  is_prepared_ = false;
  is_clean_ = true;
  is_finalised_ = true;
  for (auto done = buffers_.take(); done.bytes != nullptr; done = buffers_.take()) {
    records_.discard(done.bytes, done.valid_bytes, GPUPERF_SESSION_LOSS_INCOMPLETE);
    buffers_.release(done.bytes);
  }
  records_.renumber();
  active_.forget_calls_by_id();  // they work only from within cuInit
  clock_.forget();
}

// Why CUPTI must not be finalized; null = it may be.
const char* Collector::find_why_not_to_end() const {
  if (graphs_.load() == Graphs::kUnknown) return "CUPTI stays attached: launches are not hooked";
  if (graphs_.load() == Graphs::kMade || records_.node_count() > 0) {
    return "CUPTI stays attached: there are CUDA graphs";
  }
  if (foreign_.has_been()) return "CUPTI stays attached: another client has used it";
  if (had_calls_) return "CUPTI stays attached: calls of the API were recorded";
  // Finalized while threads allocate, it corrupts the heap then (docs/decisions/0012-cupti.md).
  if (had_allocations_) return "CUPTI stays attached: allocations were recorded";
  if (cannot_end_ || api_.cuptiFinalize == nullptr) {
    return "CUPTI stays attached: it cannot be finalised";
  }
  return nullptr;
}

// Nothing is wanted of CUPTI: has it finalized, if that harms nobody. Returns what becomes of it.
const char* Collector::dismiss_cupti(uint64_t now_ms) {
  if (!is_prepared_) return is_finalised_ ? "CUPTI is finalised" : "";
  if (const char* why_not = find_why_not_to_end()) return why_not;
  if (active_.all() != 0 || sampler_.is_on()) {
    return "CUPTI stays attached: it cannot be finalised";
  }
  if (control_.mode != GPUPERF_SESSION_OFF && is_young(now_ms)) {
    return "CUPTI stays attached at first: CUDA graphs may follow";
  }
  // Launches that began before they were followed are over soon.
  const bool may_be_in_launch = followed_since_ms_ == 0 || now_ms - followed_since_ms_ < kUnseenMs;
  if (may_be_in_launch || are_streams_asked() || now_ms < end_again_ms_) {
    return "CUPTI is about to be finalised";  // retried soon
  }
  finalizer_.want(api_.cuptiFinalize);
  return "CUPTI is finalised at the next launch";
}

// --- graphs

// Whether graphs created from now on are to be recorded, now or when collection resumes.
bool Collector::may_cover_graphs() const {
  if (!has_order_ || !can_collect() || has_yielded_ || burst_.is_by_node()) return false;
  // Of two processes that switched it on after CUPTI was finalized, one died of a corrupt heap.
  if (is_finalised_) return false;
  // A graph whose creation no hook saw would crash.
  if (records_.graph_launch_count() > 0 || records_.node_count() > 0) return false;
  return wants_any() || (control_.mode == GPUPERF_SESSION_PAUSE && has_run_ && is_connected_);
}

void Collector::on_graph(bool begins) {
  Graphs unseen = Graphs::kUnseen;
  if (graphs_.compare_exchange_strong(unseen, Graphs::kMade)) return;  // none is ever covered
  if (graphs_.load(std::memory_order_acquire) != Graphs::kNone) return;
  if (is_dead_.load(std::memory_order_relaxed)) return;
  const Locked locked(*this, Locked::Patience::kShort);
  Graphs none = Graphs::kNone;
  if (!locked.is_locked()) {  // its graph is not covered, so none may be
    graphs_.store(Graphs::kMade);
    return;
  }
  if (graphs_.load() != Graphs::kNone) return;
  // Finalized before there is a graph, or not at all.
  if (take_cupti() && begins && may_cover_graphs() && prepare() &&
      (active_.all() != 0 || register_buffers())) {
    is_clean_ = false;
    (void)switch_sampling(false, read_mono_ms());  // GRAPH_TRACE cannot be switched on beside it
    const HeldLaunches held;
    graphs_covered_ =
        active_.switch_on(kKindGraphs, active_.all_apis(), false).result == CUPTI_SUCCESS;
  }
  if (graphs_.compare_exchange_strong(none, Graphs::kMade) || !graphs_covered_) return;
  // A thread that waited too long has begun a graph that is not covered.
  active_.switch_off(kKindGraphs);
  graphs_covered_ = false;
}

// Whether graphs may be launched, whose kernels would each be recorded. Where hooks would have seen
// them made, or records will show them, kernels are recorded at once.
bool Collector::must_prove_itself() const {
  const Graphs graphs = graphs_.load();
  return graphs != Graphs::kNone && graphs != Graphs::kUnseen;
}

// --- attaching and detaching

void Collector::set_attached(bool sees_graphs) {
  const Locked locked(*this, Locked::Patience::kEndless);
  burst_.allow_nodes();
  if (sees_graphs) graphs_.store(Graphs::kUnseen);
  suspect_client(read_cupti_use(), read_mono_ms());
}

bool Collector::retire(bool is_last, uint64_t now_ms, const char*& fate) {
  const Locked locked(*this, Locked::Patience::kEndless);
  control_.mode = GPUPERF_SESSION_OFF;
  control_.burst_flags = 0;
  burst_.end();
  has_order_ = true;
  settle_end_ms_ = 0;
  apply(now_ms);
  if (is_last) switch_off(active_.all(), now_ms);
  drain(true, now_ms);
  const bool may_still_end = is_prepared_ && !has_yielded_ && can_collect() && can_end();
  if ((may_still_end || active_.all() != 0 || sampler_.is_on()) && !is_last) return false;
  if (!take_cupti() && !is_last) return false;
  buffers_.shrink();
  use_left_ = read_cupti_use();
  fate = is_prepared_ ? detail_ : is_finalised_ ? "CUPTI is finalised" : "CUPTI was not used";
  has_order_ = false;
  first_order_ms_ = 0;
  is_connected_ = false;
  in_gap_ = false;
  return true;
}

void Collector::revive() {
  const Locked locked(*this, Locked::Patience::kEndless);
  if (can_collect()) set_state(GPUPERF_SESSION_STATE_WAITING, GPUPERF_SESSION_CAUSE_NONE, "");
  const CuptiUse use = read_cupti_use();
  if (use.fingerprint != use_left_.fingerprint) suspect_client(use, read_mono_ms());
}

// --- orders

void Collector::start_in_initialisation(const gpuperf_control& control, uint64_t now_ms) {
  const Locked locked(*this, Locked::Patience::kShort);
  if (!locked.is_locked()) return;
  first_order_ms_ = now_ms;
  is_connected_ = true;
  take_control(control, now_ms);
  in_initialisation_ = true;
  apply(now_ms);
  in_initialisation_ = false;
}

// A young process would pay for CUPTI until it is young no more. Graphs that it makes meanwhile are
// covered.
void Collector::take_control(const gpuperf_control& control, uint64_t now_ms) {
  control_ = control;
  has_order_ = true;
  waits_ = control.mode == GPUPERF_SESSION_RUN &&
           (control.enabled_kinds & GPUPERF_SESSION_LATER) != 0 && !is_prepared_ &&
           graphs_.load() == Graphs::kNone && is_young(now_ms);
  if (!waits_) return;
  control_.mode = GPUPERF_SESSION_PAUSE;
  has_run_ = true;
}

void Collector::order(const gpuperf_control& control, uint64_t now_ms) {
  const Locked locked(*this, Locked::Patience::kEndless);
  const bool is_first = !has_order_;
  if (first_order_ms_ == 0) first_order_ms_ = now_ms;
  const uint32_t asked_before = control_.burst_flags;
  take_control(control, now_ms);
  if (is_first && must_prove_itself()) kernels_from_ms_ = now_ms + kProbationMs;
  // Of the daemon's mind: a failure that was its own may be over.
  if (control_.burst_flags != 0 && control_.mode == GPUPERF_SESSION_RUN) begin_burst(now_ms);
  if (control_.burst_flags == 0 && asked_before != 0 && burst_.is_on()) end_burst(now_ms);
  apply(now_ms);
}

void Collector::set_connected(bool is_connected, uint64_t now_ms) {
  const Locked locked(*this, Locked::Patience::kEndless);
  if (is_connected == is_connected_) return;
  is_connected_ = is_connected;
  if (is_connected) {
    records_.drop_hooked_calls();  // records discarded meanwhile are missing
    records_.start_connection();
    if (gap_cause_ == GPUPERF_SESSION_CAUSE_DAEMON_GONE) end_gap(now_ms);
  } else if (state_ == GPUPERF_SESSION_STATE_COLLECTING) {
    begin_gap(GPUPERF_SESSION_CAUSE_DAEMON_GONE);
  }
}

// Same as an order to pause.
void Collector::leave(uint64_t now_ms) {
  const Locked locked(*this, Locked::Patience::kEndless);
  if (!has_order_ || control_.mode != GPUPERF_SESSION_RUN) return;
  control_.mode = GPUPERF_SESSION_PAUSE;
  control_.burst_flags = 0;
  if (burst_.is_on()) end_burst(now_ms);
  apply(now_ms);
  if (state_ == GPUPERF_SESSION_STATE_PAUSED) cause_ = GPUPERF_SESSION_CAUSE_DAEMON_GONE;
}

// --- bursts

void Collector::begin_burst(uint64_t now_ms) {
  if (!is_prepared_ || has_yielded_ || state_ != GPUPERF_SESSION_STATE_COLLECTING) return;
  burst_.begin(control_, records_, now_ms);
}

void Collector::end_burst(uint64_t now_ms) {
  const bool was_by_node = burst_.is_by_node();
  burst_.end();
  control_.burst_flags = 0;
  if (!was_by_node || !can_collect()) return;
  begin_gap(GPUPERF_SESSION_CAUSE_BURST);
  settle_end_ms_ = now_ms + kSettleMs;
  kernels_from_ms_ = settle_end_ms_;
  // Only after checking whether graphs are launched.
  if (must_prove_itself()) kernels_from_ms_ += kProbationMs;
}

// --- other clients

void Collector::step_aside(const char* whom) {
  if (has_yielded_) return;
  has_yielded_ = true;
  ++yields_;
  begin_gap(GPUPERF_SESSION_CAUSE_OTHER_CLIENT);
  burst_.end();
  for (int i = 0; i < kEndSamplingTries && !switch_sampling(false, read_mono_ms()); ++i) {
  }
  control_.burst_flags = 0;
  {
    const HeldLaunches held;
    active_.switch_off(active_.all());
  }
  records_.drop_hooked_calls();
  active_.forget_calls_by_id();  // whole kinds will be switched meanwhile
  graphs_covered_ = false;
  // All our buffers must come back: one left behind would take the other client's records, and it
  // would not recognize that buffer.
  for (int i = 0; i < 3 && is_prepared_; ++i) {
    (void)api_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  set_state(GPUPERF_SESSION_STATE_YIELDED, GPUPERF_SESSION_CAUSE_OTHER_CLIENT, whom);
}

void Collector::on_foreign_call(ForeignCall call, uint32_t kind, const void* caller) {
  if (is_dead_.load(std::memory_order_relaxed)) return;
  const Locked locked(*this, Locked::Patience::kShort);
  if (!locked.is_locked()) return;
  (void)take_cupti();  // not finalized while they use it
  if (call == ForeignCall::kClock) clock_.forget();
  if (foreign_.note(call, kind, read_mono_ms())) step_aside(name_library(caller));
}

// A client that used CUPTI before our hooks were there may still be recording. We begin once 2 s
// have passed in which no other client called CUPTI.
void Collector::suspect_client(const CuptiUse& use, uint64_t now_ms) {
  if (!use.has_begun) return;
  foreign_.suspect(now_ms);
  step_aside("CUPTI was used before");
}

// --- what is due

void Collector::drain(bool is_stopping, uint64_t now_ms) {
  if (is_connected_ && !clock_.can_convert()) return;  // wait for the clock's second reading
  records_.set_stopping(is_stopping || has_yielded_);
  if (buffers_.has_complete() && !take_cupti()) return;  // not decoded while CUPTI is finalized
  for (auto done = buffers_.take(); done.bytes != nullptr; done = buffers_.take()) {
    if (done.valid_bytes == 0) {
      // Came back unused.
    } else if (!is_connected_) {
      records_.discard(done.bytes, done.valid_bytes, GPUPERF_SESSION_LOSS_NO_DAEMON);
    } else if (!batch_.has_room_for(Buffers::kBufferBytes / 2)) {
      records_.discard(done.bytes, done.valid_bytes, GPUPERF_SESSION_LOSS_QUEUE_FULL);
    } else {
      records_.decode(done.bytes, done.valid_bytes, now_ms);
      records_.take_calls();
    }
    buffers_.release(done.bytes);
  }
}

void Collector::judge_records(uint64_t now_ms) {
  if (active_.all() != 0) count_dropped();
  // This CUPTI does not record individual calls after all: kernels arrive, but never the call that
  // launched one.
  const bool is_silent = records_.call_count() == calls_before_ &&
                         records_.kernel_count() - kernels_before_ >= kSilentKernels;
  if (active_.calls_by_id() && active_.has(kKindRuntime) && is_silent) {
    active_.switch_off(kKindRuntime | kKindDriver);  // switched on again by apply()
    active_.forget_calls_by_id();
  }
  const uint64_t new_launches = records_.graph_launch_count() - seen_graph_launches_;
  const uint64_t new_nodes = records_.node_count() - seen_nodes_;
  const uint64_t new_untimed = records_.untimed_count() - seen_untimed_;
  seen_graph_launches_ += new_launches;
  seen_nodes_ += new_nodes;
  seen_untimed_ += new_untimed;
  burst_.watch(records_, new_nodes > 0, now_ms);
  if (!graphs_covered_ && !burst_.is_by_node() && !kernels_barred_ &&
      (new_launches > 0 || new_nodes > 0)) {
    kernels_barred_ = true;
    Graphs none = Graphs::kNone, unseen = Graphs::kUnseen;
    (void)graphs_.compare_exchange_strong(none, Graphs::kMade);  // that no hook saw
    (void)graphs_.compare_exchange_strong(unseen, Graphs::kMade);
    if (active_.has(kKindKernels)) {
      begin_gap(GPUPERF_SESSION_CAUSE_GRAPHS_UNSEEN);
      settle_end_ms_ = now_ms + kSettleMs;
    }
  }
  if (new_untimed >= kUntimedTrip && active_.has(kKindKernels)) {
    ++device_buffer_trips_;
    begin_gap(GPUPERF_SESSION_CAUSE_DEVICE_BUFFERS);
    kernels_from_ms_ = now_ms + kTripPauseMs * device_buffer_trips_;
  }
}

void Collector::tend(bool flush, uint64_t now_ms) {
  const Locked locked(*this, Locked::Patience::kEndless);
  if (is_dead_.load(std::memory_order_relaxed)) return;
  if (has_yielded_ && foreign_.are_done(now_ms)) {
    has_yielded_ = false;
    // Hands the other client's callbacks what belongs to them.
    if (is_prepared_) (void)api_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (must_prove_itself()) kernels_from_ms_ = now_ms + kProbationMs;
    apply(now_ms);
  }
  if (burst_.is_over(now_ms)) end_burst(now_ms);
  flush |= records_.is_join_urgent();
  if (flush && active_.all() != 0) {
    (void)api_.cuptiActivityFlushAll(0);
    clock_.check(read_cupti_clock);
  }
  drain(active_.all() == 0, now_ms);
  if (flush && sampler_.is_on()) {
    records_.expect_samples(is_connected_, now_ms);
    sampler_.take(api_, records_);
  }
  if (is_connected_) records_.send_cubins(now_ms);
  if (is_connected_) records_.join_calls(flush, now_ms);
  if (flush && is_prepared_ && !has_yielded_) judge_records(now_ms);
  if (settle_end_ms_ != 0 && now_ms >= settle_end_ms_) {
    settle_end_ms_ = 0;
  }
  apply(now_ms);
  if (active_.all() == 0) buffers_.shrink();
}

void Collector::finish(uint64_t now_ms) {
  {
    const Locked locked(*this, Locked::Patience::kEndless);
    if (take_cupti() && active_.all() != 0) {
      (void)api_.cuptiActivityFlushAll(0);
      drain(true, now_ms);
      if (is_connected_) records_.join_calls(true, now_ms);
    }
  }
  is_dead_.store(true);
}

void Collector::after_fork_in_child() {
  is_dead_.store(true, std::memory_order_relaxed);
  finalizer_.abandon();
}

bool Collector::is_collecting() const {
  const Locked locked(*this, Locked::Patience::kEndless);
  return active_.all() != 0;
}

void Collector::fill_status(gpuperf_status& status) const {
  const Locked locked(*this, Locked::Patience::kEndless);
  std::memcpy(status.losses, records_.losses(), sizeof(status.losses));
  status.cupti_overhead_ns = records_.cupti_overhead_ns();
  status.clock_error_ns = clock_.error_ns();
  status.clock_foreign = clock_.is_foreign() ? 1 : 0;
  status.yields = yields_;
  status.state = state_;
  status.cause = cause_;
  status.sample_every = control_.sample_every == 0 ? 1 : control_.sample_every;
  status.cupti_version = api_.version;
  status.driver_version = read_driver_version();
  status.buffer_mib = static_cast<uint32_t>((buffers_.made_count() * Buffers::kBufferBytes) >> 20);
  std::memcpy(status.detail, detail_, sizeof(status.detail));
  const bool will_see_graphs = state_ == GPUPERF_SESSION_STATE_COLLECTING &&
                               graphs_.load() == Graphs::kNone && !is_finalised_ &&
                               !burst_.is_by_node();
  active_.fill_level(status, active_.has(kKindGraphs) || will_see_graphs);
  if (is_prepared_) status.level |= GPUPERF_SESSION_LEVEL_CUPTI;
  if (sampler_.is_on()) {
    status.level |= GPUPERF_SESSION_LEVEL_SAMPLES;
    status.enabled_kinds |=
        GPUPERF_SESSION_BIT(GPUPERF_SESSION_STALLS) | GPUPERF_SESSION_BIT(GPUPERF_SESSION_SAMPLING);
  }
  if (records_.are_calls_hooked()) {
    status.level |=
        GPUPERF_SESSION_LEVEL_APIS | GPUPERF_SESSION_LEVEL_SYNCS | GPUPERF_SESSION_LEVEL_HOOKED;
    status.enabled_kinds |=
        GPUPERF_SESSION_BIT(GPUPERF_SESSION_API) | GPUPERF_SESSION_BIT(GPUPERF_SESSION_SYNC);
  }
}

}  // namespace gpuperf::injector
