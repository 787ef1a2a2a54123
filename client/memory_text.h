#pragma once

// GPU memory of processes in words.

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// A line for each process.
std::string render_memory_table(const std::vector<v1::ProcessMemory>& processes,
                                const TextStyle& style);
// Below a line for each process, what its stacks hold, with their frames.
std::string render_memory_stacks(std::vector<v1::ProcessMemory> processes, bool interpreter_frames,
                                 const TextStyle& style);
// All that is known of one process.
std::string render_memory_process(v1::ProcessMemory process, bool interpreter_frames,
                                  const TextStyle& style);
std::string render_out_of_memory(std::vector<v1::OutOfMemory> incidents, bool interpreter_frames,
                                 const TextStyle& style);

}  // namespace gpuperf::client
