#include "daemon/rpc/self_to_proto.h"

#include <string>

namespace gpuperf {

void set_self_report(const SelfReport& report, v1::GetStatusResponse& response) {
  for (const BoundLevel& level : report.bounds) {
    const BoundRow& row = get_bound(level.bound);
    v1::BoundLevel& added = *response.add_bounds();
    added.set_bound(std::string(row.name));
    added.set_unit(std::string(row.unit));
    added.set_used(level.used);
    added.set_highest(level.highest);
    added.set_limit(level.limit);
    added.set_setting(std::string(row.setting));
    added.set_rotating(row.is_rotating);
    added.set_when_full(std::string(row.when_full));
  }
  for (const StepTimes& step : report.steps) {
    v1::StepTime& added = *response.add_steps();
    added.set_step(step.step);
    added.set_count(step.times.count());
    added.set_total_ns(step.times.total_ns);
    added.set_p50_ns(step.times.quantile_ns(0.5));
    added.set_p99_ns(step.times.quantile_ns(0.99));
    added.set_longest_ns(step.times.longest_ns);
  }
  for (const auto& [part, bytes] : report.memory) {
    const MemoryRow& row = memory_rows()[static_cast<size_t>(part)];
    v1::MemoryShare& added = *response.add_memory();
    added.set_part(std::string(row.name));
    added.set_bytes(bytes);
    added.set_resident(row.is_resident);
    added.set_meaning(std::string(row.meaning));
  }
}

}  // namespace gpuperf
