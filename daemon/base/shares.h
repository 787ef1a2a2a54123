#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace gpuperf {

// Who holds how much of something bounded: in total, by user and by process.
//
// Thread: one. Units are the caller's: places, bytes.
// Promises: whatever all other users hold together, root finds what is kept for it. What one user
// holds is at most `of_user`, and at most three times what was free before its last piece: one
// alone may have three quarters, the next one three quarters of the rest, and so on, so that a
// newcomer finds a place.
// Bounds: an entry for each user and process that holds something.
class Shares {
 public:
  struct Holder {
    uint32_t uid = 0;
    uint32_t pid = 0;
  };
  struct Limits {
    uint64_t total = 0;
    uint64_t kept_for_root = 0;        // of them
    uint64_t of_user = UINT64_MAX;     // one beside root
    uint64_t of_root = UINT64_MAX;     // root
    uint64_t of_process = UINT64_MAX;  // each process, root's too
  };
  enum class Verdict { kTaken, kFull, kUserFull, kProcessFull };

  explicit Shares(const Limits& limits) : limits_(limits) {}

  // kTaken: it holds so much more. Anything else: nothing has changed, and says which bound it was.
  Verdict take(Holder holder, uint64_t amount = 1) {
    const Verdict verdict = look(holder, amount);
    if (verdict == Verdict::kTaken) add(holder, amount);
    return verdict;
  }

  // What take() would say.
  Verdict look(Holder holder, uint64_t amount) const {
    const bool is_root = holder.uid == 0;
    const uint64_t bound = limits_.total - (is_root ? 0 : limits_.kept_for_root);
    const uint64_t held = is_root ? used_ : of_others_;
    // What root holds beyond what is kept for it takes others' room, too.
    const uint64_t room =
        std::min(bound - std::min(bound, held), limits_.total - std::min(limits_.total, used_));
    if (amount > room) return Verdict::kFull;
    const uint64_t of_user = find(users_, holder.uid) + amount;
    if (of_user > (is_root ? limits_.of_root : limits_.of_user)) return Verdict::kUserFull;
    if (!is_root && of_user / kOfFree > room) return Verdict::kUserFull;
    const uint64_t of_process = find(processes_, holder.pid) + amount;
    return of_process > limits_.of_process ? Verdict::kProcessFull : Verdict::kTaken;
  }

  // It holds so much more already, whatever the bounds say.
  void add(Holder holder, uint64_t amount) {
    if (amount == 0) return;
    used_ += amount;
    of_others_ += holder.uid == 0 ? 0 : amount;
    users_[holder.uid] += amount;
    processes_[holder.pid] += amount;
  }

  // At most what it holds.
  void give_back(Holder holder, uint64_t amount = 1) {
    if (amount == 0) return;
    used_ -= amount;
    of_others_ -= holder.uid == 0 ? 0 : amount;
    take_off(users_, holder.uid, amount);
    take_off(processes_, holder.pid, amount);
  }

  uint64_t used() const { return used_; }
  uint64_t of_user(uint32_t uid) const { return find(users_, uid); }

 private:
  using Held = std::unordered_map<uint32_t, uint64_t>;
  static constexpr uint64_t kOfFree = 3;

  static uint64_t find(const Held& held, uint32_t who) {
    const auto found = held.find(who);
    return found == held.end() ? 0 : found->second;
  }
  static void take_off(Held& held, uint32_t who, uint64_t amount) {
    const auto found = held.find(who);
    found->second -= amount;
    if (found->second == 0) held.erase(found);
  }

  const Limits limits_;
  uint64_t used_ = 0;
  uint64_t of_others_ = 0;  // of those, users' beside root
  Held users_;              // by uid; who holds nothing is not in it
  Held processes_;          // by pid, likewise
};

}  // namespace gpuperf
