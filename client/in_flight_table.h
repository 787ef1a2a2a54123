#pragma once

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// One row per call, in the order given.
std::string render_in_flight_table(const std::vector<v1::InFlightCall>& calls,
                                   const TextStyle& style);

}  // namespace gpuperf::client
