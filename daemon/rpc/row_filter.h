#pragma once

#include <optional>
#include <string_view>

#include "daemon/model/snapshot.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Which rows a v1::Filter lets through. A value; any thread.
class RowFilter {
 public:
  explicit RowFilter(v1::Filter filter) : filter_(std::move(filter)) {}
  // For sums: a pid stands for the process that has it now, or had it last.
  RowFilter(v1::Filter filter, const Snapshot& snapshot);

  bool has_pid() const { return filter_.pid() != 0; }
  bool matches(const ProcessKey& process) const;
  bool matches(const Owner& owner) const;
  bool matches_function(std::string_view category, std::string_view function) const;
  // `function` is the kernel's name, in either form.
  bool matches_kernel(std::string_view brief, std::string_view full) const;
  bool matches(const SlowCall& call) const;
  bool matches_age(uint64_t age_ns) const { return age_ns >= filter_.min_duration_ns(); }

 private:
  v1::Filter filter_;
  std::optional<ProcessKey> only_;
};

}  // namespace gpuperf
