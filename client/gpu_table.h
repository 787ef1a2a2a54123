#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// One line per GPU, and below what to do about those that are not well. `now_unix_ns`: for ages.
std::string render_gpu_table(const std::vector<v1::Gpu>& gpus, uint64_t now_unix_ns,
                             const TextStyle& style);

}  // namespace gpuperf::client
