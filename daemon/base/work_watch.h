#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/duration_counts.h"

namespace gpuperf {

// One piece of work that a thread is at, for as long as this lives: so that others can tell a
// thread that hangs. Made where a thread begins what it does next; what it waits for in between is
// no work.
//
// Thread: any; destroyed on the one that made it. Takes a lock only for a thread's first. Of work
// within work the outer counts.
class Work {
 public:
  // Longer than any thread takes that nothing is wrong with, on a busy machine too.
  static constexpr std::chrono::seconds kLimit{10};

  // `thread`: a literal, as in the table of docs/architecture.md.
  explicit Work(const char* thread, std::chrono::seconds limit = kLimit);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

 private:
  const bool is_outer_;
};

struct WorkAtHand {
  std::string thread;
  std::chrono::nanoseconds age{0};
  std::chrono::seconds limit{0};
};

// Of all threads of this process, the longest first. Any thread.
std::vector<WorkAtHand> list_work();
// What of it takes longer than its limit.
std::vector<WorkAtHand> list_late_work();
// How long pieces of work took that have ended, by thread; threads of one name together. Any
// thread.
std::map<std::string, DurationCounts::Totals> list_work_times();

}  // namespace gpuperf
