#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/task_loop.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/resolve/symbolizer.h"
#include "daemon/state/kernel_names.h"

namespace gpuperf {

// Makes the record of a slow call from the kernel's: names of functions, stacks, kernels and
// arguments.
//
// Thread: loop only; names of code come from the resolve thread. All it is given must outlive it,
// and the resolve thread ends before it. Promises: every event becomes a record, those of
// one process in the order taken; where stacks cannot be had in time it goes without, counted
// (kSymbolsQueueFull).
class SlowCallNamer {
 public:
  // Symbolizer::post_resolve
  using PostResolve =
      std::function<bool(const ProcessKey&, std::vector<StackRequest>, Symbolizer::OnResolved)>;
  struct Sources {
    const FunctionRegistry& functions;
    KernelNames& kernel_names;
    const Clock& clock;
    DropCounters& drops;
    PostResolve post_resolve;
    TaskLoop& loop;
  };
  using OnNamed = std::function<void(SlowCall)>;  // on the loop

  SlowCallNamer(const Sources& sources, OnNamed on_named);
  SlowCallNamer(const SlowCallNamer&) = delete;
  SlowCallNamer& operator=(const SlowCallNamer&) = delete;

  void take(SlowCallEvent event);

 private:
  void set_stacks(SlowCall& call, Symbolizer::Stacks stacks);
  void finish(SlowCall call, const std::optional<std::string>& kernel_symbol);

  const Sources sources_;
  const OnNamed on_named_;
};

}  // namespace gpuperf
