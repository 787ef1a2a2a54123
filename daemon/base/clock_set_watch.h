#pragma once

#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Says when somebody set the wall clock: a descriptor that becomes readable, for epoll.
//
// Thread: one. A step is told once, however many there were; what it was, RealtimeOffset finds.
class ClockSetWatch {
 public:
  static Result<ClockSetWatch> make();

  int fd() const { return timer_.get(); }
  // Call when the descriptor is readable: it can then tell of the next step.
  void rearm();

 private:
  explicit ClockSetWatch(Fd timer) : timer_(std::move(timer)) {}
  Fd timer_;
};

}  // namespace gpuperf
