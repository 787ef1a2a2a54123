#pragma once

#include <sys/types.h>

#include <string>

namespace gpuperf {

// The process behind ProcessAttacher: the only one of the daemon's that may trace others and write
// their memory. Started when something is asked for, gives up all other rights, answers requests
// (attach_message.h) and ends after it has attached, when nothing was asked for a while, or when
// the daemon, `parent`, is gone: whatever it still holds then goes on by itself.
[[noreturn]] void run_attach_process(pid_t parent, const std::string& proc_root);

}  // namespace gpuperf
