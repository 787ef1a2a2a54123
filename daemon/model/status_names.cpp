#include "daemon/model/status_names.h"
namespace gpuperf {
StatusKind find_status_kind(std::string_view) { return StatusKind::kNone; }
std::vector<int32_t> get_benign_codes(StatusKind) { return {}; }
std::string get_status_name(StatusKind, int32_t code) { return std::to_string(code); }
}
