#pragma once

// Operators of inference engines within steps, and the experts their tokens go to (docs/steps.md).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/function.h"

namespace gpuperf {

// Operators of one kind in one process: the same in each layer.
struct OperatorRow {
  std::string operation;  // as the engine names it: MUL_MAT
  std::string tensor;     // what it makes, N where names have a number: ffn_up-N
  uint64_t calls = 0;
  // Those whose time is known: from their start until the next operator of their thread began, or
  // their step ended.
  uint64_t timed_calls = 0;
  uint64_t total_ns = 0;  // of these
  bool operator==(const OperatorRow&) const = default;
};

// A layer that is a mixture of experts.
struct ExpertLayer {
  std::string layer;         // its number in the model
  uint64_t tokens = 0;       // so far
  uint64_t read_tokens = 0;  // of which it is known where they went
  uint32_t expert_count = 0;
  // By expert, up to the last one that got any; a token counts for each that it goes to.
  std::vector<uint64_t> expert_tokens;
  bool operator==(const ExpertLayer&) const = default;
};

struct OperatorProcess {
  ProcessKey process;
  bool exited = false;
  uint32_t function_id = 0;
  std::vector<OperatorRow> operators;  // most time first
  uint64_t other_calls = 0;            // of kinds beyond the bound
  std::vector<ExpertLayer> layers;     // in the order of the model
  uint64_t other_tokens = 0;           // of layers or experts beyond the bound
};

using OperatorReport = std::vector<std::shared_ptr<const OperatorProcess>>;  // ordered by key

}  // namespace gpuperf
