#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "daemon/base/thread_checker.h"
#include "daemon/model/qos.h"

namespace gpuperf {

// Whether a rule is breached. A breach begins with the first window past the limit, and ends when
// for `release_ns` none was within a tenth of it: a value about the limit changes nothing back and
// forth. What is breached again soon is held for twice as long each time, because a breach may
// change what is read: while gpuperf stands down it sees no calls.
//
// Thread: loop only. Memory: at most kSamples samples, some 500 bytes each with a histogram.
class QosWatch {
 public:
  static constexpr size_t kSamples = 24;
  static constexpr double kHysteresis = 0.1;
  static constexpr int64_t kLongestHold = 32;  // times `release_ns`

  enum class Change { kNone, kBreached, kReleased };

  QosWatch(QosRule rule, int64_t release_ns)
      : row_{.rule = std::move(rule)}, release_ns_(release_ns), hold_ns_(release_ns) {}

  const QosRow& row() const { return row_; }
  // Of the newest sample; 0 = none.
  int64_t last_mono_ns() const { return samples_.empty() ? 0 : samples_.back().mono_ns; }
  // Judges the window that ends with the sample; nullopt = there is none newer than the last.
  Change apply(std::optional<QosSample> sample, int64_t now_mono_ns);
  // Why there is no sample of another program's metric; empty = there is one. Whether that is news.
  bool set_fault(std::string fault);
  // The breach is gpuperf's own doing.
  void note_ours() { row_.is_ours = true; }

 private:
  void keep(QosSample sample);
  bool began_anew(const QosSample& sample) const;
  std::optional<double> read() const;
  bool is_past(double value, double margin) const;

  ThreadChecker loop_thread_;
  QosRow row_;
  const int64_t release_ns_;
  std::deque<QosSample> samples_;  // oldest first; the first is where the window begins
  int64_t past_mono_ns_ = 0;       // when the limit was last exceeded, or nearly
  int64_t hold_ns_;
};

}  // namespace gpuperf
