#pragma once

#include <cstdint>
#include <string>

#include "daemon/model/snapshot.h"

namespace gpuperf {

// Why a call of an injected process waited for its GPU, by what the GPU did meanwhile.
enum class GpuReason {
  kNone,    // it does not wait for the GPU, or nothing is known
  kQueue,   // a copy stood behind other work on its stream
  kOthers,  // the GPU worked for other processes
  kWork,    // the GPU worked for this process
  kIdle,    // the GPU had nothing to do
};
GpuReason find_gpu_reason(const SlowCall& call);

// Of any but kNone. `waited_ns`: what the thread spent waiting, asleep and spinning.
std::string describe_gpu_reason(const SlowCall& call, GpuReason reason, uint64_t waited_ns);

}  // namespace gpuperf
