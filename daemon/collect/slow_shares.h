#pragma once

#include <cstdint>
#include <map>

#include "daemon/model/function.h"

namespace gpuperf {

// Says which records of slow calls in a burst are handed on, so that no process or user takes the
// place of others.
//
// In each second kPerSecond go on, whosever they are; beyond those each user has an equal share of
// as many, and each of his processes an equal share of that. The worst of a function and process
// have twice the share. What somebody took of a share before others came and it shrank, stays.
// Thread: one. Bounds: kMaxProcesses are told apart in a second; further ones have no share.
class SlowShares {
 public:
  // Naming, storing and reporting one takes some 100 us.
  static constexpr uint64_t kPerSecond = 1'000;
  static constexpr size_t kMaxProcesses = 4'096;

  bool admit(uint32_t uid, const ProcessKey& process, bool is_worst, int64_t now_mono_ns);

 private:
  struct User {
    uint64_t admitted = 0;
    std::map<ProcessKey, uint64_t> processes;  // admitted of each
  };
  // Of the second that began then.
  int64_t begin_mono_ns_ = 0;
  uint64_t admitted_ = 0;
  size_t processes_ = 0;
  std::map<uint32_t, User> users_;
};

}  // namespace gpuperf
