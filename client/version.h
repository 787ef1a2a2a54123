#pragma once

#include <string_view>

namespace gpuperf::client {

// Version of this program, from the build.
std::string_view get_client_version();

}  // namespace gpuperf::client
