#pragma once

#include <thread>

#include "daemon/base/fd.h"

namespace gpuperf {

// SIGTERM and SIGINT while the daemon starts, when its loop does not take signals yet:
// is_stopping() says so between two parts; where one part takes longer than a second, the process
// ends, for there is nothing to bring to an end yet.
//
// Thread: one of its own, for as long as this lives. Both signals are blocked before it is made.
class StartGuard {
 public:
  StartGuard();
  ~StartGuard();
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

  // The signal stays where it is, for the loop.
  bool is_stopping() const;

 private:
  void run() const;

  const Fd signals_;
  const Fd over_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace gpuperf
