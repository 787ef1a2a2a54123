#pragma once

// What the tests of the configuration share.

#include <ostream>

#include "daemon/config/config.h"
#include "tests/unit/golden_file.h"

namespace gpuperf {

inline void PrintTo(const ConfigError& error, std::ostream* out) {
  *out << '{' << error.path << "; " << error.message << "; " << error.hint << '}';
}

}  // namespace gpuperf
