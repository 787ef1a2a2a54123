#include "daemon/collect/slow_shares.h"

namespace gpuperf {

bool SlowShares::admit(uint32_t uid, const ProcessKey& process, bool is_worst,
                       int64_t now_mono_ns) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  if (now_mono_ns - begin_mono_ns_ >= kSecondNs) {
    *this = SlowShares();
    begin_mono_ns_ = now_mono_ns;
  }
  User& user = users_[uid];
  auto own = user.processes.find(process);
  if (own == user.processes.end()) {
    if (processes_ >= kMaxProcesses) return false;
    ++processes_;
    own = user.processes.emplace(process, 0).first;
  }
  const uint64_t times = is_worst ? 2 : 1;
  const uint64_t users_share = kPerSecond / users_.size();
  const uint64_t own_share = users_share / user.processes.size();
  // What his other processes had while they were alone is no reason to refuse this one.
  const bool has_share = user.admitted < 2 * times * users_share && own->second < times * own_share;
  if (admitted_ >= kPerSecond && !has_share) return false;
  ++admitted_;
  ++user.admitted;
  ++own->second;
  return true;
}

}  // namespace gpuperf
