#pragma once

#include <sys/types.h>

#include "daemon/base/fd.h"

namespace gpuperf {

// A process whose one thread waits in read(), with a known value in every register that a function
// may use. Once it may go on it compares them, its signal mask and its errno, and ends: with 0, or
// with the number of what differs.
class WaitingProcess {
 public:
  WaitingProcess();
  // Kills it where it has not ended.
  ~WaitingProcess();
  pid_t pid() const { return pid_; }
  // Lets it go on; how it ended: 0 = as if nothing had been; 128 + signal where one killed it.
  int finish();

 private:
  pid_t pid_ = 0;
  Fd go_on_;
};

}  // namespace gpuperf
