#pragma once

#include <memory>

#include "daemon/app/part.h"
#include "daemon/model/control_port.h"

namespace gpuperf {

class GpuMemoryPart;
class OverheadPart;
class ProbingPart;
class SessionsPart;
class SlowCallsPart;
class TracingPart;

// Parts that no other part asks for anything, each in a file of its name (injection_part.cpp, ...).
std::unique_ptr<Part> make_injection_part(Core& core, const SessionsPart& sessions);
std::unique_ptr<Part> make_serving_part(Core& core, SlowCallsPart& slow_calls, TracingPart& tracing,
                                        ControlPort& control);
std::unique_ptr<Part> make_gpu_health_part(Core& core, TracingPart& tracing, GpuMemoryPart& memory);
std::unique_ptr<Part> make_qos_part(Core& core, ProbingPart& probing, TracingPart& tracing,
                                    OverheadPart& overhead);
std::unique_ptr<Part> make_watch_part(Core& core);

}  // namespace gpuperf
