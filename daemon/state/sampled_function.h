#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "daemon/model/event.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// A function that is probed in short windows only, because its probe costs too much to stay: what
// it costs while it is probed, and how many calls were made in the gaps between windows.
//
// In a gap, each process is taken to have called at the mean of its rates in the windows before and
// after; in the first gap, at that in the window after. How far those two lie apart is the error;
// so is, of a program that is slowed by the probe, by how much: it would have called more often
// without.
//
// Thread: loop only; no I/O. Bounds: 60 bytes per process that called in the last two windows.
class SampledFunction {
 public:
  // CPUs that a process has been using, of late. 0 where that is not known.
  using GetCpus = std::function<double(const ProcessKey&)>;
  using Estimates = std::vector<std::pair<ProcessKey, CallsEstimate>>;
  // Of so many windows the dearest says what the next one will cost.
  static constexpr size_t kRememberedWindows = 6;

  explicit SampledFunction(double share_ratio) { shares_.push_back(share_ratio); }

  // Since then no call is counted. What is not known before; the earliest counts.
  void begin_gap(int64_t now_mono_ns);
  // Its next deltas are of a window.
  void open_window();
  void apply(const CellDelta& delta);
  // The window's deltas are all in. What the gap before it held.
  Estimates close_window(int64_t begin_mono_ns, int64_t end_mono_ns, uint64_t cost_ns,
                         const GetCpus& get_cpus);
  // It is probed again, for good: what the last gap held.
  Estimates leave(int64_t now_mono_ns);
  // The process has ended: what the gap held that it ended in, at its last rate.
  CallsEstimate forget(const ProcessKey& process, int64_t now_mono_ns);

  bool is_window_open() const { return is_window_open_; }
  // What a process lost most, of its time in a window.
  double worst_share_ratio() const;
  double last_share_ratio() const { return shares_.back(); }
  // Time without probes so far, ns.
  int64_t get_out_ns(int64_t now_mono_ns) const;

 private:
  struct Rate {
    double calls_per_ns = 0;
    double slow_per_ns = 0;
    double variance = 0;     // of calls_per_ns, as counts vary
    double bias_per_ns = 0;  // of calls_per_ns
  };
  struct Count {
    uint64_t calls = 0;
    uint64_t slow_calls = 0;
  };

  static CallsEstimate fill_gap(double gap_ns, const Rate& before, const Rate& after);
  Estimates fill_gaps(int64_t end_mono_ns, const std::map<ProcessKey, Rate>& after);

  bool is_window_open_ = false;
  bool is_first_gap_ = true;
  int64_t gap_begin_ns_ = 0;  // 0 = in a window, or not known yet
  int64_t out_ns_ = 0;        // in gaps that have ended
  std::map<ProcessKey, Rate> rates_;
  std::map<ProcessKey, Count> counts_;  // of the window
  std::deque<double> shares_;           // of the last windows
};

}  // namespace gpuperf
