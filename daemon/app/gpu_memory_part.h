#pragma once

#include <cstdint>
#include <memory>

#include "daemon/app/part.h"
#include "daemon/base/process_users.h"
#include "daemon/state/memory_table.h"

namespace gpuperf {

class KernelPart;

// GPU memory by process and stack, from the calls that allocate and release it.
class GpuMemoryPart final : public Part {
 public:
  GpuMemoryPart(Core& core, const KernelPart& kernel);
  Status start() override { return absl::OkStatus(); }
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

  void apply(const Function& function, const ReportedCall& call) { table_.apply(function, call); }
  void apply(const ProcessExited& exited) { table_.apply(exited, core_.clock.mono_ns()); }
  void apply(const GpuHealthReport& report) { table_.apply(report); }
  // Of functions whose calls are not reported now, among others.
  void apply(const std::vector<Suspension>& suspensions);

 private:
  MemoryTable::Sources make_sources();
  MemoryTable::Facts find_facts(const ProcessKey& process);
  bool is_reported(uint32_t function_id) const;
  void look_at_probes(int64_t now_mono_ns);
  void name_stacks();
  void log_incidents();

  const KernelPart& kernel_;
  uint64_t attached_boot_ns_;  // processes from before that may have allocated unseen
  size_t attached_ = 0;        // probes of functions that allocate and release
  ProcessUsers users_;
  MemoryTable table_;
  LogLimiter log_limiter_{10};
  uint64_t lost_calls_ = 0;
  int64_t report_mono_ns_ = 0;
  std::shared_ptr<const MemoryReport> report_;
};

}  // namespace gpuperf
