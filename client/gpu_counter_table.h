#pragma once

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// One line per GPU, or per GPU instance in MIG mode, with its hardware counters, and below why
// those without have none. Empty where no GPU has counters or a reason.
std::string render_gpu_counter_table(const std::vector<v1::Gpu>& gpus, const TextStyle& style);

}  // namespace gpuperf::client
