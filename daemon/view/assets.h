#pragma once

#include <string_view>

namespace gpuperf {

// The scripts and styles in daemon/view/assets, as they are. They hold neither "]]>" nor "</".
std::string_view get_flamegraph_script();
std::string_view get_flamegraph_style();
std::string_view get_report_script();
std::string_view get_report_style();

}  // namespace gpuperf
