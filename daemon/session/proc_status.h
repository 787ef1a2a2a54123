#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/base/result.h"

namespace gpuperf {

// A process or thread as it sees itself.
struct InnerId {
  uint32_t id = 0;  // in its own, the innermost, pid namespace
  bool is_namespace_ours = true;
};

// The NSpid line of FOLDER/ID/status, where FOLDER is /proc or /proc/PID/task.
Result<InnerId> read_inner_id(std::string_view folder, uint32_t id);

// The same of the text of such a file; `id` where it has no such line (kernels before 4.1).
InnerId parse_inner_id(std::string_view status, uint32_t id);

}  // namespace gpuperf
