#include "daemon/rpc/row_filter.h"

#include "daemon/base/wildcard.h"
#include "daemon/model/trace_event.h"

namespace gpuperf {

RowFilter::RowFilter(v1::Filter filter, const Snapshot& snapshot) : filter_(std::move(filter)) {
  if (!has_pid()) return;
  for (const ProcessRow& row : snapshot.processes) {  // by pid, then start: the last is the newest
    if (row.process.pid == filter_.pid()) only_ = row.process;
  }
  for (const auto& row : snapshot.gpu.processes) {  // likewise
    const bool is_newer = !only_ || only_->start_boot_ns < row->process.start_boot_ns;
    if (row->process.pid == filter_.pid() && is_newer) only_ = row->process;
  }
}

bool RowFilter::matches(const ProcessKey& process) const {
  if (only_) return is_same_process(process, *only_);
  return filter_.pid() == 0 || filter_.pid() == process.pid;
}

bool RowFilter::matches(const Owner& owner) const {
  return owner.container.starts_with(filter_.container()) &&
         (filter_.pod().empty() || filter_.pod() == owner.pod);
}

bool RowFilter::matches_function(std::string_view category, std::string_view function) const {
  return (filter_.category().empty() || filter_.category() == category) &&
         (filter_.function().empty() || matches_wildcard(filter_.function(), function));
}

bool RowFilter::matches_kernel(std::string_view brief, std::string_view full) const {
  return filter_.function().empty() || matches_wildcard(filter_.function(), brief) ||
         matches_wildcard(filter_.function(), full);
}

bool RowFilter::matches(const SlowCall& call) const {
  return matches(call.event.process) && matches(call.event.owner) &&
         matches_function(call.category, call.function) &&
         call.start_unix_ns >= filter_.since_unix_ns() &&
         call.event.duration_ns >= filter_.min_duration_ns();
}

}  // namespace gpuperf
