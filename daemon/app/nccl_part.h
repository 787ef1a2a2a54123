#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "daemon/app/part.h"
#include "daemon/owner/thread_look.h"
#include "daemon/owner/world.h"
#include "daemon/state/nccl_state.h"

namespace gpuperf {

class KernelPart;
class SessionsPart;

// Health of NCCL: takes its calls, looks at the threads that make them, and has the stacks named of
// those that others wait for.
class NcclPart final : public Part {
 public:
  NcclPart(Core& core, KernelPart& kernel, SessionsPart& sessions)
      : Part(core), sessions_(sessions), nccl_(core.drops), stacks_(core, kernel) {}
  Status start() override;
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

  void apply(const Function& function, const ReportedCall& call) { nccl_.apply(function, call); }
  void apply(const ProcessExited& exited) { nccl_.forget(exited.process); }
  void learn_world(const ProcessKey& process, const WorldTask& world);

 private:
  void look();
  void name_stacks();

  SessionsPart& sessions_;
  NcclState nccl_;
  const ThreadReader threads_;
  std::map<uint32_t, ThreadReading> readings_;  // the last ones, by tid
  NamedStacks stacks_;
};

}  // namespace gpuperf
