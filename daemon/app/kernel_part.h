#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/app/part.h"
#include "daemon/model/event.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/resolve/symbolizer.h"

namespace gpuperf {

class SlowCallsPart;
class TracingPart;

// The kernel side: the BPF programs, by the best mechanism that works here, and the symbolizer,
// which gives them rules to walk stacks by and names what they took. Without programs the daemon
// serves all the same.
class KernelPart final : public Part {
 public:
  KernelPart(Core& core, SlowCallsPart& slow_calls, TracingPart& tracing)
      : Part(core), slow_calls_(slow_calls), tracing_(tracing) {}
  Status start() override;
  void stop() override;
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

  Programs* programs() const { return programs_.get(); }  // null where probes cannot be used
  const Status& programs_status() const { return status_; }
  Symbolizer& symbolizer() const { return *symbolizer_; }
  // `on_named` gets its frames, on the loop. False: too many wait, and it is counted as a drop.
  bool name_stack(const ProcessKey& process, uint64_t stack_id,
                  std::function<void(StackPtr)> on_named) const;
  // Those that cannot be walked now are counted, and the kernel side sends them again.
  void take(std::vector<RawStack> stacks);

 private:
  Status choose_mechanism();
  Status load(Mechanism mechanism);
  void start_symbolizer();

  SlowCallsPart& slow_calls_;
  TracingPart& tracing_;
  Status status_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Symbolizer> symbolizer_;
  uint64_t map_bytes_ = 0;  // kernel memory of the maps, as last read
  int64_t next_map_look_ns_ = 0;
};

}  // namespace gpuperf
