#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/model/capture.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/capture_builder.h"
#include "daemon/tracing.h"

namespace gpuperf {

// One capture on its way from the recorder to whoever wants it. What it is built from does not
// change any more.
struct Tracing::Build {
  CaptureScope scope;
  TraceWindow window;
  std::shared_ptr<const Snapshot> snapshot;
  std::shared_ptr<const FunctionList> functions;
  CaptureNames names;
  std::unique_ptr<CaptureBuilder> builder;
  uint64_t cpu_ns = 0;  // of the tracing thread, so far
  // Tracing thread.
  std::function<void(const Build&, const Capture&)> on_built;
  // Resolve thread: there is no room for the rest of the work.
  std::function<void()> on_refused;
};

Captures::Options make_capture_options(const Settings& settings);

}  // namespace gpuperf
