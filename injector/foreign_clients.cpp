#include "injector/foreign_clients.h"

namespace gpuperf::injector {
namespace {

// How long to wait after another client's last call before resuming CUPTI: profilers stop and start
// in steps.
constexpr uint64_t kQuietMs = 2'000;

}  // namespace

bool ForeignClients::note(ForeignCall call, uint32_t kind, uint64_t now_ms) {
  last_ms_ = now_ms;
  has_been_ = true;
  const uint64_t bit = kind < 64 ? uint64_t{1} << kind : 0;
  const bool is_driver = kind == CUPTI_ACTIVITY_KIND_DRIVER;
  switch (call) {
    case ForeignCall::kRegister:
      return true;
    case ForeignCall::kEnable:
      kinds_ |= bit;
      return true;
    case ForeignCall::kDisable:
      kinds_ &= ~bit;
      if (is_driver || kind == CUPTI_ACTIVITY_KIND_RUNTIME) calls_[is_driver].clear();
      return false;
    case ForeignCall::kEnableRuntimeCall:
    case ForeignCall::kEnableDriverCall:
      calls_[call == ForeignCall::kEnableDriverCall].set(kind, true);
      return true;
    case ForeignCall::kDisableRuntimeCall:
    case ForeignCall::kDisableDriverCall:
      calls_[call == ForeignCall::kDisableDriverCall].set(kind, false);
      return false;
    case ForeignCall::kProfileBegin:
      ++profiles_;
      return true;
    case ForeignCall::kProfileEnd:
      if (profiles_ > 0) --profiles_;
      return false;
    case ForeignCall::kFinalize:
      kinds_ = 0;
      profiles_ = 0;
      for (CallSet& calls : calls_) calls.clear();
      return true;
    case ForeignCall::kClock:
    case ForeignCall::kSubscribe:
    case ForeignCall::kUse:
      return false;
  }
  return false;  // only reached with a value outside the enum
}

bool ForeignClients::are_done(uint64_t now_ms) const {
  return kinds_ == 0 && profiles_ == 0 && calls_[0].is_empty() && calls_[1].is_empty() &&
         now_ms - last_ms_ >= kQuietMs;
}

}  // namespace gpuperf::injector
