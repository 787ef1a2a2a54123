#pragma once

// What limits kernels, for people.

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

// kernels --stalls: one row per kernel.
std::string render_stalls_table(const std::vector<v1::KernelStats>& rows, bool full_names,
                                const TextStyle& style);
// kernels show: all that is known of one kernel.
std::string render_kernel(const v1::KernelStats& kernel, const TextStyle& style);

}  // namespace gpuperf::client
