#pragma once

#include <cassert>
#include <thread>

namespace gpuperf {

// For a class that is used on one thread, the loop's mostly, and does not know which that is: the
// first that asks is the one. `check` is an assert, so that a build with NDEBUG pays nothing for
// it.
class ThreadChecker {
 public:
  void check() const { assert(is_on_thread()); }
  bool is_on_thread() const {
    if (thread_ == std::thread::id()) thread_ = std::this_thread::get_id();
    return thread_ == std::this_thread::get_id();
  }

 private:
  mutable std::thread::id thread_;
};

}  // namespace gpuperf
