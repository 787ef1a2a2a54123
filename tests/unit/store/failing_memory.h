#pragma once

#include <cstdint>

namespace gpuperf::testing {

// SQLite's memory, of which chosen allocations fail. There is one of it in a program: no connection
// is open when it begins and ends.
class FailingMemory {
 public:
  FailingMemory();
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  // The n-th allocation from now on (1 = the next) fails, and with `for_ever` all after it.
  void fail(uint64_t nth, bool for_ever);
  void heal();
  bool has_failed() const;  // since `fail`
};

}  // namespace gpuperf::testing
