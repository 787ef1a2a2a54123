#pragma once

#include <cstdint>
#include <string_view>

namespace gpuperf {

// Whether a process is being killed, or has ended but for threads that the kernel does not let go
// (state D): it runs none of its program any more, but keeps its locks and sockets, perhaps for
// ever.
bool is_dying(std::string_view proc_root, uint32_t pid);

}  // namespace gpuperf
