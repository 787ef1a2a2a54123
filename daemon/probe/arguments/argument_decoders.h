#pragma once

// The argument decoders the daemon brings along: what to keep of a call of the CUDA runtime and
// driver, cuBLAS, cuBLASLt and NCCL. A table: one row in argument_rows_*.cpp is one decoder.

#include <memory>
#include <span>
#include <string_view>

#include "daemon/model/argument_plan.h"

namespace gpuperf {

// The decoder of a symbol as its library spells it, or null. Variants for per-thread default
// streams
// ("cudaMemcpy_ptds") and NCCL's profiling names ("pncclSend") have that of the plain symbol.
// The same plan every time. Any thread.
std::shared_ptr<const ArgumentPlan> find_argument_decoder(std::string_view symbol);

// `plan` with each call reported for what `role` says of steps.
std::shared_ptr<const ArgumentPlan> add_role(const ArgumentPlan& plan, StepRole role);

// Names of all decoders, sorted: the symbols they are for.
std::span<const std::string_view> argument_decoder_symbols();

}  // namespace gpuperf
