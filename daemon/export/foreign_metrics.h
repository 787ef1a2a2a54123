#pragma once

#include <prometheus/metric_family.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/export/metrics_parser.h"

namespace gpuperf {

// What was read of one URL.
struct ForeignMetrics {
  int64_t mono_ns = 0;  // of the reading, or of the try
  std::vector<prometheus::MetricFamily> families;
  std::string fault;  // why nothing was read; empty = it was
};

// Reads metrics of other programs, such as serving engines, for the rules about them: each URL once
// a second, on a thread of its own, which begins with the first.
//
// Thread: loop. Bounds: kMaxBytes of each answer, of which only the series asked for are kept
// (metrics_parser.h); kTimeout for each.
class ForeignMetricsReader {
 public:
  static constexpr std::chrono::milliseconds kPeriod{1'000};
  static constexpr std::chrono::milliseconds kTimeout{1'000};
  static constexpr size_t kMaxBytes = 8 << 20;

  using Wanted = std::map<std::string, MetricNames>;  // by URL

  explicit ForeignMetricsReader(const Clock& clock) : clock_(clock) {}
  ~ForeignMetricsReader();  // may wait for kTimeout
  ForeignMetricsReader(const ForeignMetricsReader&) = delete;
  ForeignMetricsReader& operator=(const ForeignMetricsReader&) = delete;

  void set_wanted(Wanted wanted);
  // Null = it was not read yet, or is not wanted.
  std::shared_ptr<const ForeignMetrics> get(const std::string& url) const;

 private:
  void run();
  ForeignMetrics read(const std::string& url, const MetricNames& names) const;

  const Clock& clock_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  Wanted wanted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<const ForeignMetrics>> found_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gpuperf
