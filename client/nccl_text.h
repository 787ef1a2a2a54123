#pragma once

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// Which rank is waited for and why, or that none is; then tables of sizes and of ranks.
std::string render_nccl(const std::vector<v1::NcclCommunicator>& communicators,
                        const TextStyle& style);

}  // namespace gpuperf::client
