#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// Counters of a GPU's instances by id, in MIG mode: compute instances of one have the same. Empty =
// the GPU's own count. Valid as long as `gpu` is.
std::map<uint32_t, const v1::GpuCounters*> list_instance_counters(const v1::Gpu& gpu);

// One line per GPU, or per GPU instance in MIG mode, with its hardware counters, and below why
// those without have none. Empty where no GPU has counters or a reason.
std::string render_gpu_counter_table(const std::vector<v1::Gpu>& gpus, const TextStyle& style);

}  // namespace gpuperf::client
