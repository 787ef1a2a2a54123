#pragma once

#include <string>
#include <string_view>

namespace gpuperf {

// `bytes` as a gzip file, the same for the same bytes: without name and time. At most 4 GiB.
std::string to_gzip(std::string_view bytes);

}  // namespace gpuperf
