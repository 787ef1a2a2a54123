#pragma once

#include <functional>
#include <random>
#include <string>

namespace gpuperf::testing {

// What this program does to the files of one folder, where a chosen step fails or the power goes.
//
// Steps are writes, syncs and renames of files there, syncs of the folder, and removals, which do
// not fail. On a loss of power what was synced stays; of what was written since, a file may have
// any part, and of what happened to the folder's names since its last sync the beginning is there.
// One thread, one of it.
class WatchedDisk {
 public:
  explicit WatchedDisk(std::string folder);
  ~WatchedDisk();
  WatchedDisk(const WatchedDisk&) = delete;
  WatchedDisk& operator=(const WatchedDisk&) = delete;

  // The n-th step from now on (1 = the next) fails, and with `for_ever` all after it. A write that
  // fails has written half.
  void fail(uint64_t nth, int error, bool for_ever);
  void heal();
  bool has_failed() const;  // since `fail`

  // Called after each step that did not fail.
  void after_each_step(std::function<void()> then);
  // Makes `folder` what this one could be had the power gone just now.
  void lose_power(const std::string& folder, std::mt19937& random) const;
};

}  // namespace gpuperf::testing
