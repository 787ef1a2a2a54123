#pragma once

#include "daemon/base/clock.h"
#include "daemon/base/task_loop.h"
#include "daemon/capture/build_thread.h"
#include "daemon/capture/trace_recorder.h"
#include "daemon/config/config.h"
#include "daemon/model/drops.h"

namespace gpuperf {

// What captures, profiles and the GPU side of slow calls are made of. Loop thread only.
struct TraceSources {
  TaskLoop& loop;
  const Clock& clock;
  DropCounters& drops;
  const Settings& settings;  // in force
  TraceRecorder& recorder;
  BuildThread& builds;
};

}  // namespace gpuperf
