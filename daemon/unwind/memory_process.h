#pragma once

#include <sys/types.h>

#include <string>

namespace gpuperf {

// The processes behind ProcessReader. Each gives up all rights but those it needs, then answers
// requests until the daemon, `parent`, is gone. `proc_root`: "/proc", or a tree made by a test.

// Reads the memory of processes and their maps (memory_message.h). May open files, to read them: as
// nobody, who may read what everybody may.
[[noreturn]] void run_memory_process(pid_t parent, const std::string& proc_root);

// Takes files that processes have mapped. Finds any file there is, and can read none: it may open
// them with O_PATH alone. Request: the path below `proc_root`; reply: u32 errno, 0 = with the
// descriptor.
[[noreturn]] void run_mapped_files_process(pid_t parent, const std::string& proc_root);

}  // namespace gpuperf
