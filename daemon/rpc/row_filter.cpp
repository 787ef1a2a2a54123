#include "daemon/rpc/row_filter.h"

namespace gpuperf {

bool RowFilter::matches(const ProcessKey& process) const {
  return filter_.pid() == 0 || filter_.pid() == process.pid;
}

bool RowFilter::matches(const Owner& owner) const {
  return owner.container.starts_with(filter_.container()) &&
         (filter_.pod().empty() || filter_.pod() == owner.pod);
}

bool RowFilter::matches_function(std::string_view category, std::string_view function) const {
  return (filter_.category().empty() || filter_.category() == category) &&
         (filter_.function().empty() || matches_glob(filter_.function(), function));
}

bool RowFilter::matches(const SlowCall& call) const {
  return matches(call.event.process) && matches(call.event.owner) &&
         matches_function(call.category, call.function) &&
         call.start_unix_ns >= filter_.since_unix_ns() &&
         call.event.duration_ns >= filter_.min_duration_ns();
}

bool matches_glob(std::string_view pattern, std::string_view text) {
  // On a mismatch only the latest star need take one character more: linear for one star, and at
  // worst the product of both lengths, never exponential.
  size_t at = 0;
  size_t next = 0;
  size_t star = std::string_view::npos;
  size_t star_text = 0;
  while (next < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      star_text = next;
    } else if (at < pattern.size() && pattern[at] == text[next]) {
      ++at;
      ++next;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      next = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace gpuperf
