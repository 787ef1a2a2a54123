#pragma once

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

std::string name_phase(v1::StepPhase phase);

// A sentence about all of them, and a table.
std::string render_step_processes(const std::vector<v1::StepProcess>& rows, const TextStyle& style);

std::string render_steps(const std::vector<v1::Step>& rows, const TextStyle& style);

// The same of operators, and of layers with experts.
std::string render_step_operators(const std::vector<v1::StepOperator>& rows,
                                  const TextStyle& style);
std::string render_step_experts(const std::vector<v1::ExpertLayer>& rows, const TextStyle& style);

// One step: how long against what is usual, what it worked on and how that is known, and where its
// time went, as far as a slow call says. `now_unix_ns` says how long ago; 0 = leave that out.
std::string explain_step(const v1::GetStepResponse& response, uint64_t now_unix_ns,
                         const TextStyle& style);

}  // namespace gpuperf::client
