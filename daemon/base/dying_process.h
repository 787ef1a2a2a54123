#pragma once

#include <cstdint>
#include <string_view>

namespace gpuperf {

// Whether a process is being killed, or has ended but for threads that the kernel does not let go
// (state D): it runs none of its program any more, but keeps its locks and sockets, perhaps for
// ever.
bool is_dying(std::string_view proc_root, uint32_t pid);

// Ends listening on every socket of a dying process, so that their ports can be taken anew. Needs
// CAP_SYS_PTRACE and, where the process's first thread has ended, Linux 6.9; without them, or
// without a thread that still has descriptors, nothing happens.
void stop_listening_of(uint32_t pid);

}  // namespace gpuperf
