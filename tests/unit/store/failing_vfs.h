#pragma once

#include <cstdint>
#include <random>

namespace gpuperf::testing {

// Stands between SQLite and the files, and lets chosen operations fail. There is one of it in a
// program: connections opened while it lives go through it, and end before it does.
//
// Operations that can fail: opening, writing, truncating, syncing, growing shared memory, removing.
class FailingVfs {
 public:
  FailingVfs();
  ~FailingVfs();
  FailingVfs(const FailingVfs&) = delete;
  FailingVfs& operator=(const FailingVfs&) = delete;

  // The n-th operation from now on (1 = the next) fails, and with `for_ever` all after it. A write
  // fails as `write_code` says, the others each in their own way.
  void fail(uint64_t nth, int write_code, bool for_ever);
  void heal();
  bool has_failed() const;     // since `fail`
  uint64_t log_syncs() const;  // successful ones, of write-ahead logs

  // Remembers from now on what of each file has not been synced. For one thread.
  void watch_syncs();
  // Leaves the files as a loss of power may: of what was written and not synced, any sectors are
  // there and any are not. All connections are closed.
  void lose_power(std::mt19937& random);
};

}  // namespace gpuperf::testing
