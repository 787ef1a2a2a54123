#pragma once

// Processes that use CUDA, by how the injected library is in them or can be, the same in every
// command.

#include <string>
#include <vector>

#include "client/table.h"
#include "gpuperf/v1/control.pb.h"

namespace gpuperf::client {

std::string render_attachments(const std::vector<v1::Attachment>& rows, const TextStyle& style);

}  // namespace gpuperf::client
