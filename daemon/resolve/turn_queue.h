#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "daemon/base/high_mark.h"
#include "daemon/base/mutex.h"
#include "daemon/base/process_users.h"
#include "daemon/base/shares.h"
#include "daemon/base/token_bucket.h"
#include "daemon/model/function.h"

namespace gpuperf {

// Whose work it is.
struct WorkOwner {
  uint32_t uid = ProcessUsers::kRoot;
  ProcessKey process;  // pid 0: of nobody, and behind everything that was pushed before it
  auto operator<=>(const WorkOwner&) const = default;
};

// Hands work from any thread to one consumer thread: users take turns, and so do the processes of
// each. What one process pushed comes in its order.
//
// Budget: each process, and each user but root, has a share of one CPU's time. Who has used more
// waits; the others do not wait for him. Bounds: at most `capacity` values wait beside the one at
// work, a quarter kept for root, and users have shares of the rest (Shares); a push beyond that is
// refused and leaves the value with the caller, who counts it. `close` wakes the consumer for good;
// what already waits is still handed out, whatever it has cost.
template <typename T>
class TurnQueue {
 public:
  // What a process and a user may use, of a second of one CPU; twenty seconds' worth at once, for
  // the first stacks of a program with large libraries.
  static constexpr uint64_t kProcessNsPerSecond = 200'000'000;
  static constexpr uint64_t kUserNsPerSecond = 330'000'000;
  static constexpr uint32_t kBurstSeconds = 20;

  struct Turn {
    WorkOwner owner;
    T value;
  };

  explicit TurnQueue(size_t capacity)
      : capacity_(capacity + 1), shares_({.total = capacity + 1, .kept_for_root = capacity / 4}) {}

  bool try_push(const WorkOwner& owner, T&& value) {
    {
      const MutexLock lock(mutex_);
      if (closed_ || shares_.take(get_holder(owner)) != Shares::Verdict::kTaken) return false;
      std::deque<Numbered>& values = users_[owner.uid].processes[owner.process].values;
      values.push_back({.number = ++last_number_, .value = std::move(value)});
      ++waiting_;
      mark_.note(shares_.used());
    }
    ready_.notify_one();
    return true;
  }

  // Waits for a value whose owner may go on; nullopt once closed and empty. Call `finish` or
  // `put_back` before the next.
  std::optional<Turn> pop() {
    MutexLock lock(mutex_);
    while (true) {
      if (waiting_ == 0) {
        if (closed_) return std::nullopt;
        ready_.wait(lock);
        continue;
      }
      int64_t ready_mono_ns = 0;
      if (const auto owner = choose(now_mono_ns(), ready_mono_ns)) return take(*owner);
      (void)ready_.wait_until(lock, Time(std::chrono::nanoseconds(ready_mono_ns)));
    }
  }

  // The turn cost that much of a CPU's time.
  void finish(const WorkOwner& owner, uint64_t cpu_ns) {
    const MutexLock lock(mutex_);
    charge(owner, cpu_ns);
    shares_.give_back(get_holder(owner));
    mark_.note(shares_.used());
    forget_idle();
  }
  // There is more to do; it goes on with the owner's next turn. Has room whatever waits.
  void put_back(Turn&& turn, uint64_t cpu_ns) {
    const MutexLock lock(mutex_);
    charge(turn.owner, cpu_ns);
    std::deque<Numbered>& values = users_[turn.owner.uid].processes[turn.owner.process].values;
    values.push_front({.number = turn_number_, .value = std::move(turn.value)});
    ++waiting_;
  }

  // How many there were at most since the last call, the one at work included; and may be.
  uint64_t take_highest() { return mark_.take(); }
  size_t capacity() const { return capacity_; }

  void close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  // What a bucket takes at once.
  static constexpr uint64_t kMaxCostNs = 8'000'000'000;
  // Owners that owe nothing are forgotten when there are so many.
  static constexpr size_t kMaxIdle = 1'024;

  struct Numbered {
    uint64_t number = 0;  // in the order of the pushes
    T value;
  };
  struct Process {
    TokenBucket budget{kProcessNsPerSecond, kBurstSeconds};
    uint64_t last_turn = 0;
    std::deque<Numbered> values;
  };
  struct User {
    TokenBucket budget{kUserNsPerSecond, kBurstSeconds};
    uint64_t last_turn = 0;
    std::map<ProcessKey, Process> processes;
  };

  static int64_t now_mono_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  static Shares::Holder get_holder(const WorkOwner& owner) {
    return {.uid = owner.uid, .pid = owner.process.pid};
  }

  // Of those that may go on, the one whose turn was longest ago; what is nobody's goes once nothing
  // older of them is left. `ready_mono_ns`: when somebody may, where nobody may now.
  std::optional<WorkOwner> choose(int64_t now_ns, int64_t& ready_mono_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::optional<WorkOwner> chosen;
    std::pair<uint64_t, uint64_t> longest_ago;
    uint64_t oldest = UINT64_MAX;
    ready_mono_ns = INT64_MAX;
    for (const auto& [uid, user] : users_) {
      const bool is_root = uid == ProcessUsers::kRoot;
      const int64_t user_ready_ns = is_root ? 0 : user.budget.ready_mono_ns();
      for (const auto& [key, process] : user.processes) {
        if (process.values.empty() || key.pid == 0) continue;
        const int64_t ready_ns = std::max(user_ready_ns, process.budget.ready_mono_ns());
        if (ready_ns > now_ns && !closed_) {
          ready_mono_ns = std::min(ready_mono_ns, ready_ns);
          continue;
        }
        oldest = std::min(oldest, process.values.front().number);
        const std::pair turns(user.last_turn, process.last_turn);
        if (chosen && turns >= longest_ago) continue;
        chosen = WorkOwner{.uid = uid, .process = key};
        longest_ago = turns;
      }
    }
    const auto root = users_.find(ProcessUsers::kRoot);
    if (root == users_.end()) return chosen;
    const auto nobodys = root->second.processes.find(ProcessKey());
    const bool is_due = nobodys != root->second.processes.end() &&
                        !nobodys->second.values.empty() &&
                        nobodys->second.values.front().number < oldest;
    return is_due ? WorkOwner() : chosen;
  }

  Turn take(const WorkOwner& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    User& user = users_[owner.uid];
    Process& process = user.processes[owner.process];
    user.last_turn = process.last_turn = ++turns_;
    turn_number_ = process.values.front().number;
    Turn turn{.owner = owner, .value = std::move(process.values.front().value)};
    process.values.pop_front();
    --waiting_;
    return turn;
  }

  void charge(const WorkOwner& owner, uint64_t cpu_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (owner.process.pid == 0) return;
    const int64_t now_ns = now_mono_ns();
    cpu_ns = std::min(cpu_ns, kMaxCostNs);
    User& user = users_[owner.uid];
    user.budget.take(cpu_ns, now_ns);
    user.processes[owner.process].budget.take(cpu_ns, now_ns);
  }

  void forget_idle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (turns_ % kMaxIdle != 0) return;
    const int64_t now_ns = now_mono_ns();
    for (auto& [uid, user] : users_) {
      std::erase_if(user.processes, [now_ns](const auto& entry) {
        return entry.second.values.empty() && entry.second.budget.is_full(now_ns);
      });
    }
    std::erase_if(users_, [now_ns](const auto& entry) {
      return entry.second.processes.empty() && entry.second.budget.is_full(now_ns);
    });
  }

  const size_t capacity_;
  HighMark mark_;  // of shares_
  Mutex mutex_;
  Shares shares_ ABSL_GUARDED_BY(mutex_);
  ConditionVariable ready_;
  std::map<uint32_t, User> users_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t turns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t turn_number_ ABSL_GUARDED_BY(mutex_) = 0;  // of the value handed out last
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuperf
