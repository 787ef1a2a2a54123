#pragma once

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

// A sentence about all of them, and a table.
std::string render_request_processes(const std::vector<v1::RequestProcess>& rows,
                                     const TextStyle& style);

std::string render_requests(const std::vector<v1::Request>& rows, const TextStyle& style);

}  // namespace gpuperf::client
