#include "daemon/export/foreign_metrics.h"

#include <iterator>
#include <utility>

#include "daemon/base/http_get.h"
#include "daemon/base/work_watch.h"

namespace gpuperf {

ForeignMetricsReader::~ForeignMetricsReader() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ForeignMetricsReader::set_wanted(Wanted wanted) {
  const bool is_first = !wanted.empty() && !thread_.joinable();
  {
    const MutexLock lock(mutex_);
    wanted_ = std::move(wanted);
    for (auto found = found_.begin(); found != found_.end();) {
      found = wanted_.contains(found->first) ? std::next(found) : found_.erase(found);
    }
  }
  if (is_first) thread_ = std::thread([this] { run(); });
}

std::shared_ptr<const ForeignMetrics> ForeignMetricsReader::get(const std::string& url) const {
  const MutexLock lock(mutex_);
  const auto found = found_.find(url);
  return found == found_.end() ? nullptr : found->second;
}

ForeignMetrics ForeignMetricsReader::read(const std::string& url, const MetricNames& names) const {
  const Work work("foreign metrics");
  ForeignMetrics metrics;
  const auto add_up = [&]() -> Status {
    ASSIGN_OR_RETURN(const HttpUrl parsed, parse_http_url(url));
    ASSIGN_OR_RETURN(const std::string text, get_over_http(parsed, kTimeout, kMaxBytes));
    ASSIGN_OR_RETURN(metrics.families, parse_metrics(text, names));
    return absl::OkStatus();
  };
  if (const Status status = add_up(); !status.ok()) metrics.fault = std::string(status.message());
  metrics.mono_ns = clock_.mono_ns();
  return metrics;
}

void ForeignMetricsReader::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const auto next = std::chrono::steady_clock::now() + kPeriod;
    const Wanted wanted = wanted_;
    for (const auto& [url, names] : wanted) {
      lock.unlock();
      auto metrics = std::make_shared<const ForeignMetrics>(read(url, names));
      lock.lock();
      if (stopping_) return;
      if (wanted_.contains(url)) found_[url] = std::move(metrics);
    }
    while (!stopping_ && changed_.wait_until(lock, next)) continue;
  }
}

}  // namespace gpuperf
