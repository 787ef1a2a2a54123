#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/snapshot.h"
#include "daemon/state/recent_processes.h"

namespace gpuperf {

// Turns what the kernel's cells gained into totals: one row per (function, process), one series per
// (function, owner) that outlives its processes.
//
// Thread: loop only; no I/O, times are passed in. Owns its rows and series; events are copied in;
// `drops` must outlive it. Rows and series handed out by `fill` never change: the next delta
// copies. Bounds: a living row exists only where the kernel has a cell (stats.max_cells). Exited
// processes leave after `keep_exited`, and earlier, oldest first and counted (kStatsProcessesFull),
// when more than `max_exited_processes` of them or `max_exited_rows` of their rows are kept. A new
// (function, owner) beyond `max_series` is counted in the function's series of comm "other"
// (kStatsSeriesFull, once per row). Error codes beyond kMaxErrorCodes go to other_errors.
// Memory: a row or a series is 0.8 KB with 20 buckets of the histogram in use and 1.1 KB with 60
// (docs/overhead.md, "Memory"). With the defaults, at 1 KB: 8,192 living rows 8 MB, 16,384 exited
// rows 16 MB, 8,192 series 8 MB.
// Not here: reading cells, container look-ups, label limits of the metrics.
class FunctionStats {
 public:
  struct Limits {
    std::chrono::seconds keep_exited{600};
    size_t max_exited_processes = 1000;
    size_t max_exited_rows = 16'384;
    size_t max_series = 8'192;
  };
  // The kernel tells 6 codes apart per cell; over many processes more may come together.
  static constexpr size_t kMaxErrorCodes = 64;

  FunctionStats(const Limits& limits, DropCounters& drops);
  FunctionStats(const FunctionStats&) = delete;
  FunctionStats& operator=(const FunctionStats&) = delete;

  // A delta of a process that has already exited still counts; calls it leaves open are abandoned.
  void apply(const CellDelta& delta);
  // Of calls that were applied: they went past launch hooks. Unknown ones are ignored.
  void add_past_hooks(const ProcessKey& process, uint32_t function_id, uint64_t calls);
  // Calls that were missed, of a function that was seen in the process. Unknown ones are ignored.
  void add_missed(const ProcessKey& process, uint32_t function_id, const CallsEstimate& missed);
  // Calls still in flight become abandoned. Unknown processes, a second notice, and pid 0 (which
  // stands for many processes) are ignored.
  void apply(const ProcessExited& exited, int64_t now_mono_ns);
  void set_keep_exited(std::chrono::seconds keep_exited) {
    loop_thread_.check();
    limits_.keep_exited = keep_exited;
  }
  // Lets exited processes go whose time is over.
  void expire(int64_t now_mono_ns);

  // Sets rows, series and processes; ordered by process and function, by function and owner.
  void fill(Snapshot& snapshot) const;

 private:
  using SeriesKey = std::pair<uint32_t, Owner>;
  struct SeriesSlot {
    std::shared_ptr<FunctionSeries> series;
    mutable bool shared = false;  // some snapshot holds `series`: copy before changing it
  };
  struct RowSlot {
    std::shared_ptr<FunctionRow> row;
    mutable bool shared = false;
    SeriesSlot* series = nullptr;    // in series_, whose elements never leave
    uint64_t abandoned_by_exit = 0;  // part of row->totals.abandoned
  };
  struct Process {
    Owner owner;  // of the first row
    bool exited = false;
    int64_t exited_mono_ns = 0;
    std::map<uint32_t, RowSlot> rows;  // by function id
  };

  RowSlot& get_row(Process& process, const CellDelta& delta);
  RowSlot* find_row(const ProcessKey& process, uint32_t function_id);
  SeriesSlot& get_series(uint32_t function_id, const Owner& owner);
  static FunctionTotals& change(RowSlot& slot);
  static FunctionTotals& change(SeriesSlot& slot);
  static void abandon_in_flight(RowSlot& slot);
  static void take_back_abandoned(RowSlot& slot);
  void apply_to_forgotten(const CellDelta& delta);
  void forget_oldest();

  // Set once in the constructor.
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  Limits limits_;
  std::map<SeriesKey, SeriesSlot> series_;
  std::map<ProcessKey, Process> processes_;
  std::deque<ProcessKey> exited_;  // oldest first
  size_t exited_rows_ = 0;
  RecentProcesses forgotten_;  // rows have left; a late delta must not bring one back
};

}  // namespace gpuperf
