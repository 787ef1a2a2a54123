#include <fmt/format.h>

#include <algorithm>

#include "client/bound_levels.h"
#include "client/doctor.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

// Longer than any of it takes where nothing is wrong, on a busy host too.
constexpr uint64_t kLateTimerNs = 250'000'000;  // a snapshot, and what metrics show, is as late
constexpr uint64_t kSlowWriteNs = 1'000'000'000;

std::string format_level(const v1::BoundLevel& bound, uint64_t value) {
  return bound.unit() == "bytes" ? format_bytes(value)
                                 : fmt::format("{} {}", format_count(value), bound.unit());
}

Check describe_full(const v1::BoundLevel& bound) {
  const std::string raise = bound.setting().empty()
                                ? "no setting raises it: reduce the load, or report this"
                                : fmt::format("raise {}", bound.setting());
  return {"limits", CheckState::kHint,
          fmt::format("{} was {} full within the last two minutes: {} of {}", bound.bound(),
                      format_ratio(get_fill_ratio(bound)),
                      format_level(bound, std::max(bound.used(), bound.highest())),
                      format_level(bound, bound.limit())),
          fmt::format("{}; when it is full: {}", raise, bound.when_full())};
}

void add_slow_step(const v1::GetStatusResponse& status, std::string_view name, uint64_t limit_ns,
                   std::string_view what, std::string_view hint, std::vector<Check>& checks) {
  const auto step = std::ranges::find(status.steps(), name, &v1::StepTime::step);
  if (step == status.steps().end() || step->p99_ns() <= limit_ns) return;
  checks.push_back(
      {"times", CheckState::kHint,
       fmt::format("{} {} in one of a hundred cases since gpuperfd started, and {} "
                   "once",
                   what, format_duration(step->p99_ns()), format_duration(step->longest_ns())),
       std::string(hint)});
}

}  // namespace

std::vector<Check> check_limits(const v1::GetStatusResponse& status) {
  std::vector<Check> checks;
  if (status.bounds().empty()) return checks;  // an older daemon
  for (const v1::BoundLevel& bound : status.bounds()) {
    if (!bound.rotating() && get_fill_ratio(bound) >= kWarnedFill) {
      checks.push_back(describe_full(bound));
    }
  }
  if (checks.empty()) {
    checks.push_back({"limits", CheckState::kOk,
                      fmt::format("none of {} is 80 % full", status.bounds_size()), ""});
  }
  add_slow_step(status, "loop_delay", kLateTimerNs, "gpuperfd's main loop is late by",
                "metrics and answers are as late: give gpuperfd more CPU time, or observe less",
                checks);
  for (const std::string_view step : {"store_write", "store_sync"}) {
    add_slow_step(status, step, kSlowWriteNs, "writing slow calls to the disk takes",
                  "use a faster disk for storage.path, or store nothing: storage.path = \"\"",
                  checks);
  }
  return checks;
}

}  // namespace gpuperf::client
