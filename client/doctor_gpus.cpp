#include <fmt/format.h>

#include <string>

#include "client/doctor.h"
#include "client/gpu_counter_table.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

// Failing and lost ones are among the daemon's problems already.
bool is_worth_saying(const v1::Gpu& gpu) {
  const bool said = gpu.state() == v1::GPU_STATE_FAILING || gpu.state() == v1::GPU_STATE_LOST;
  return !said && !gpu.hint().empty();
}

// Counters that a GPU cannot have are no trouble; those that fail are.
void check_counters(const v1::Gpu& gpu, const std::string& instance,
                    const v1::GpuCounters& counters, std::vector<Check>& checks) {
  if (counters.reason().empty()) return;
  checks.push_back(
      {"gpus", counters.failing() ? CheckState::kHint : CheckState::kOk,
       fmt::format("GPU {}{}: no hardware counters: {}", gpu.index(), instance, counters.reason()),
       counters.failing()
           ? "end the profiler that uses this GPU (ncu, CUPTI, DCGM), or run gpuperfd "
             "as root on the host"
           : ""});
}

void check_counters(const v1::Gpu& gpu, std::vector<Check>& checks) {
  const auto instances = list_instance_counters(gpu);
  if (instances.empty()) check_counters(gpu, "", gpu.counters(), checks);
  for (const auto& [id, counters] : instances) {
    check_counters(gpu, fmt::format(", instance {}", id), *counters, checks);
  }
}

}  // namespace

std::vector<Check> check_gpus(const v1::ListGpusResponse& response) {
  if (response.gpus().empty()) return {{"gpus", CheckState::kOk, response.reason(), ""}};
  std::vector<Check> checks;
  checks.push_back(
      {"gpus", CheckState::kOk,
       fmt::format("GPUs read: {}, driver {}", response.gpus_size(), response.driver_version()),
       ""});
  for (const v1::Gpu& gpu : response.gpus()) {
    if (!is_worth_saying(gpu)) continue;
    checks.push_back({"gpus", CheckState::kHint,
                      fmt::format("GPU {}: {}", gpu.index(), gpu.verdict()), gpu.hint()});
  }
  for (const v1::Gpu& gpu : response.gpus()) check_counters(gpu, checks);
  if (!response.events_problem().empty()) {
    checks.push_back({"gpus", CheckState::kHint,
                      "the driver does not report GPU errors (XID): " + response.events_problem(),
                      "run gpuperfd as root to receive them; dmesg | grep -i xid also shows them"});
  }
  for (const v1::GpuCallCost& cost : response.costs()) {
    if (cost.slow_down() <= 1) continue;
    checks.push_back(
        {"gpus", CheckState::kHint,
         fmt::format("reading {} takes {}, so gpuperfd reads it {} times less often", cost.call(),
                     format_duration(cost.p99_ns()), cost.slow_down()),
         "the driver is slow, for workloads as well; keep the GPUs initialised: nvidia-smi -pm 1"});
  }
  return checks;
}

}  // namespace gpuperf::client
