#pragma once

#include <string>

#include "daemon/base/result.h"

namespace gpuperf {

// Path of libgpuperf_injector.so: `asked` where it is not empty, else the first that is there of
// those beside this program and where it is installed, else where the package installs it.
std::string find_injector_file(const std::string& asked);

// Whether a process could load it from there: a shared library, readable, on a file system that
// lets code be mapped. The error names the file and what to do.
Status check_injector_file(const std::string& path);

}  // namespace gpuperf
