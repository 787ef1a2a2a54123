#pragma once

// Finds launches that went past the hooks of their process: a probe counted them while hooks
// counted others (docs/decisions/0025-launch-hooks.md).
//
// A window is judged when the hooks counted something in it, in the one before and in the one
// after. So what probes count before hooks take over, and once they give way, is none of it; nor
// are, of a process that launches rarely, some that went past.
//
// Thread: loop only; no I/O. Bounds: processes and functions with calls in three windows.

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/event.h"

namespace gpuperf {

class PastHooks {
 public:
  struct Found {
    ProcessKey process;
    uint32_t function_id = 0;
    uint64_t calls = 0;
    bool operator==(const Found&) const = default;
  };

  // `is_launch`: hooks know the function.
  void apply(const CellDelta& delta, bool is_launch);
  void apply(const ProcessExited& exited) {
    loop_thread_.check();
    processes_.erase(exited.process);
  }
  // What is known now of the window before. To be called after each reading of all cells.
  std::vector<Found> end_window();

 private:
  struct Window {
    bool is_hooked = false;
    std::map<uint32_t, uint64_t> probed;  // calls by function id
  };
  struct Process {
    bool was_hooked = false;  // in the window before `last`
    Window last;
    Window now;
  };

  ThreadChecker loop_thread_;
  std::map<ProcessKey, Process> processes_;
};

}  // namespace gpuperf
